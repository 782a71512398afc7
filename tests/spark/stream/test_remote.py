"""Jobs with all folders in an object store: what a batch waits for, and what is refused before the start.

Azure Blob Storage and Google Cloud Storage, which are emulated, are nightly.
"""

import json
import threading
from collections import Counter

import pytest

import selectroute as sr
from selectroute.spark import Job, JobError, OtherJobError
from selectroute.spark.audit.audit import audit
from selectroute.spark.job_administration import status
from selectroute.storage import DeniedError, Location, StorageError
from selectroute.storage.protocol import NoBucketError
from tests.spark.queue_world import A, Queues
from tests.spark.store_job import BLUE, RED, deliveries, drop, job_of, publish, run
from tests.support.components import after_first
from tests.support.remote_world import RemoteWorld
from tests.support.servers.azure import ACCOUNT
from tests.support.servers.faulty_proxy import (
    answers_between_commits,
    between_commits,
    faulty_proxy,
    requests_in,
    slow_after_first,
    waited_for,
)
from tests.support.servers.object_stores import BUCKET
from tests.support.servers.s3 import store_at

pytestmark = [pytest.mark.spark, pytest.mark.slow]

WRONG_KEY = "b3RoZXI="
NIGHTLY = [pytest.param(name, marks=pytest.mark.nightly) for name in ("azure", "gcs")]
EVERY_STORE = pytest.mark.parametrize("store", ["s3", *NIGHTLY], indirect=True)


@pytest.fixture
def store(request, tmp_path, monkeypatch):
    """The store, of which this process is a client."""
    name = getattr(request, "param", "s3")
    found = request.getfixturevalue(name)
    found = store_at(found) if name == "s3" else found
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with found.client():
        yield found


@pytest.fixture
def base(store, tmp_path):
    return Location.of(f"{store.root}/{tmp_path.name}")


@EVERY_STORE
def test_a_job_goes_on_where_it_ended_and_names_are_read_once(spark, store, base):
    publish(base, red="color = 'red'")
    drop(base, "a.jsonl", RED, BLUE, RED)
    drop(base, "sub/b.jsonl", RED)
    drop(base, "_hidden.jsonl", RED)
    (base / "in" / "torn.parquet").put(b"torn")
    assert [report.batch for report in run(spark, store, job_of(base, max_files=2))] == [0, 1]
    publish(base, red="color = 'red'", all="color IS NOT NULL")
    drop(base, "c.jsonl", RED)
    (report,) = run(spark, store, job_of(base, max_files=2))
    assert (report.batch, report.revision, report.counts.deliveries) == (2, 2, 2)
    assert run(spark, store, job_of(base, max_files=2)) == []
    first = [("a.jsonl", 0, "red", 1), ("a.jsonl", 2, "red", 1), ("sub/b.jsonl", 0, "red", 1)]
    assert deliveries(base) == Counter([*first, ("c.jsonl", 0, "red", 2), ("c.jsonl", 0, "all", 2)])
    found = audit(base / "out", recount=True)
    assert found.findings == [] and found.counts.dead_lettered == 1
    told = status(base / "out")
    assert (told.running, told.batches, told.published, told.planned) == (False, 3, 2, ())
    lines = (base / "out" / "accounting.jsonl").read().decode().splitlines()
    assert [json.loads(line)["batch"] for line in lines] == [0, 1, 2]


@pytest.mark.nightly
@pytest.mark.parametrize("remote", ["input", "snapshots", "output", "checkpoint"])
def test_one_folder_may_be_in_a_store_and_the_others_urls_of_this_machine(
    spark, store, base, tmp_path, remote
):
    names = ("input", "snapshots", "output", "checkpoint")
    urls = {name: str(base / name) if name == remote else (tmp_path / name).as_uri() for name in names}
    table_format = "delta" if remote == "output" else "parquet"
    sr.publish(sr.build_snapshot([("red", "color = 'red'")]), urls["snapshots"])
    Location.of(urls["input"]).make_folder()
    for batch in range(2):
        line = json.dumps({"properties": RED}) + "\n"
        (Location.of(urls["input"]) / f"{batch}.jsonl").put(line.encode())
        (report,) = run(spark, store, Job.of(**urls, table_format=table_format))
        assert (report.batch, report.counts.deliveries) == (batch, 1)
    assert audit(urls["output"], recount=True).findings == []


@pytest.mark.parametrize("has_queue", after_first(pytest.mark.nightly, True, False))
def test_a_batch_waits_for_three_round_trips(spark, store, base, tmp_path, has_queue):
    queues = Queues(RemoteWorld(base), f"sqlite:///{tmp_path}/queues.db")
    queues.create("A")
    queues.publish(1, red=("color = 'red'", A if has_queue else None), blue=("color = 'blue'", None))
    for number in range(5):
        drop(base, f"{number}.jsonl", RED, BLUE)
    log, switch = tmp_path / "log", tmp_path / "switch"
    with faulty_proxy(store.endpoint, log, switch=switch) as slow, store.behind(slow).client():
        job = job_of(base, max_files=1, queues=queues.url)
        reports = run(spark, store, job, slow_after_first(switch, last=4))
    assert [(one.counts.deliveries, one.counts.queued) for one in reports] == 5 * [(2, int(has_queue))]
    requests = requests_in(log)
    assert all(isinstance(status, int) for _, _, _, status, _, _ in requests)
    for within in between_commits(requests, range(1, 5)):
        assert waited_for(within) == 3, within
    # By the clock as well; a machine that is busy takes longer for some.
    assert min(answers_between_commits(requests, range(1, 5))) == 3


@pytest.mark.parametrize("begin", after_first(pytest.mark.nightly, "2.jsonl", "", "/part-"))
@pytest.mark.parametrize(
    "store, answers, cause",
    [
        ("s3", "deny", "the credentials have expired"),
        *(
            pytest.param(*one.values, "forbid", "the credentials do not allow it", marks=one.marks)
            for one in NIGHTLY
        ),
    ],
    indirect=["store"],
)
def test_credentials_that_are_refused_hold_the_stream_back_with_one_warning(
    spark, store, base, tmp_path, answers, cause, begin
):
    """Between two batches, when a task reads its file, and when it writes what came of it."""
    publish(base, red="color = 'red'")
    for number in range(4):
        drop(base, f"{number}.jsonl", RED)
    switch, warnings = tmp_path / "switch", []

    def warn(text):
        warnings.append(text)
        # Long enough that tasks are tried again and again, and meet the outage at other files.
        threading.Timer(5.0, switch.write_text, ["ok"]).start()

    def one_more(report):
        if report.batch == 1:
            switch.write_text(f"{answers} {begin}".strip())

    log = tmp_path / "log"
    with faulty_proxy(store.endpoint, log, switch=switch) as proxy:
        behind = store.behind(proxy)
        with behind.client():
            reports = run(spark, behind, job_of(base, max_files=1), one_more, on_warning=warn)
    assert [report.batch for report in reports] == [0, 1, 2, 3]
    assert len(deliveries(base)) == 4
    (warning,) = warnings
    assert f"{cause}: the stream waits" in warning
    refused = [path for _, _, path, what, _, _ in requests_in(log) if what in ("denied", "forbidden")]
    assert begin in refused[0]


@EVERY_STORE
def test_what_cannot_be_used_is_one_sentence_before_the_start(spark, store, base, tmp_path):
    publish(base, red="color = 'red'")
    noun = "container" if store.root.startswith("az:") else "bucket"
    nowhere = store.root.replace(BUCKET, "nothing-here")
    said = pytest.raises(NoBucketError, match=f"{nowhere}/in can't be read: the {noun} does not exist")
    with said:
        run(spark, store, Job.of(f"{nowhere}/in", base / "snapshots", base / "out"))
    with pytest.raises(NoBucketError, match=f"{nowhere}/.*the {noun} does not exist"):
        run(spark, store, Job.of(tmp_path, base / "snapshots", f"{nowhere}/out"))
    assert [*(base / "out").entries(deep=True)] == []
    with pytest.raises(StorageError, match=r"the scheme 'ftp' is not known"):
        Job.of(tmp_path, base / "snapshots", "ftp://host/out")
    with pytest.raises(JobError, match="in remote storage, where outcomes are Delta tables"):
        job_of(base, table_format="parquet")
    with pytest.raises(JobError, match="is in the input folder"):
        Job.of(base, base / "snapshots", base / "out")
    (base / "out" / "other").put(b"1")
    with pytest.raises(OtherJobError, match="is not empty and not a job's"):
        run(spark, store, job_of(base))
    assert [one.key.rsplit("/", 1)[1] for one in (base / "out").entries(deep=True)] == ["other"]


def test_a_start_that_was_killed_while_it_checked_the_folders_can_be_repeated(spark, store, base):
    publish(base, red="color = 'red'")
    drop(base, "a.jsonl", RED)
    job = job_of(base)
    for folder in (job.output, job.checkpoint):
        (folder / ".probe-0b2591827f8646119632b4e8cc171be5" / "file").put(b"1")
    assert sum(one.counts.deliveries for one in run(spark, store, job)) == 1


@pytest.mark.parametrize(
    ("held", "error", "sentence"),
    after_first(
        pytest.mark.nightly,
        ("no-writes", DeniedError, "out.* can't be written: the credentials do not allow it"),
        ("deny", DeniedError, "can't be read: the credentials have expired"),
        ("skew", StorageError, "the clock of this machine is wrong"),
    ),
)
def test_what_a_store_refuses_is_one_sentence_before_the_start(
    spark, store, base, tmp_path, held, error, sentence
):
    publish(base, red="color = 'red'")
    drop(base, "a.jsonl", RED)
    run(spark, store, job_of(base))
    drop(base, "b.jsonl", RED)
    before = {one.key: (base.storage.read(one.key)) for one in base.entries(deep=True)}
    switch = tmp_path / "switch"
    switch.write_text(held)
    with (
        faulty_proxy(store.endpoint, tmp_path / "log", switch=switch) as proxy,
        store.behind(proxy).client(),
        pytest.raises(error, match=sentence) as raised,
    ):
        run(spark, store.behind(proxy), job_of(base))
    assert "\n" not in str(raised.value)
    assert {one.key: (base.storage.read(one.key)) for one in base.entries(deep=True)} == before


@pytest.mark.nightly
def test_small_files_of_many_batches_are_merged(spark, store, base):
    job = job_of(base, max_files=1, compact_every=4)
    publish(base, red="color = 'red'")
    for number in range(12):
        drop(base, f"{number:02}.jsonl", RED, BLUE)
    assert len(run(spark, store, job)) == 12
    assert run(spark, store, job) == []
    assert sorted(deliveries(base)) == [(f"{number:02}.jsonl", 0, "red", 1) for number in range(12)]
    assert audit(base / "out", recount=True).findings == []


@pytest.mark.nightly
def test_a_wrong_key_of_azure_is_one_sentence_before_the_start(spark, azure, tmp_path):
    base = Location.of(f"{azure.root}/{tmp_path.name}")
    with azure.client():
        publish(base, red="color = 'red'")
        drop(base, "a.jsonl", RED)
    said = pytest.raises(DeniedError, match="can't be read: the credentials do not allow it")
    with azure.client(AZURE_STORAGE_ACCOUNT_KEY=WRONG_KEY), said:
        run(spark, azure, job_of(base))
    with azure.client():
        assert [*(base / "out").entries(deep=True)] == []


@pytest.mark.nightly
def test_a_file_of_credentials_of_google_that_is_missing_is_one_sentence_before_the_start(
    spark, gcs, tmp_path
):
    base = Location.of(f"{gcs.root}/{tmp_path.name}")
    said = pytest.raises(StorageError, match=f"{gcs.root} can't be opened: .*nothing.json: No such file")
    with gcs.client(GOOGLE_SERVICE_ACCOUNT=str(tmp_path / "nothing.json")), said:
        run(spark, gcs, job_of(base))


@pytest.mark.nightly
def test_an_account_of_azure_may_be_in_the_url(spark, azure, tmp_path):
    root = Location.of(f"abfss://{BUCKET}@{ACCOUNT}.dfs.core.windows.net/{tmp_path.name}")
    with azure.client():
        publish(root, red="color = 'red'")
        for number in range(3):
            drop(root, f"{number}.jsonl", RED)
        assert len(run(spark, azure, job_of(root, max_files=1))) == 3
        assert len(deliveries(root)) == 3
        assert audit(root / "out", recount=True).findings == []
