"""Jobs with all folders in Azure Blob Storage, and in Google Cloud Storage, on emulators."""

from __future__ import annotations

import json
import os
from collections import Counter

import pytest

import selectroute as sr
from selectroute.spark import Job, start_fanout
from selectroute.spark.audit.audit import audit
from selectroute.spark.audit.status import status
from selectroute.spark.tables.delta_table import table_options
from selectroute.storage import DeniedError, Location, StorageError
from selectroute.storage.errors import NoBucketError
from tests.support.azure import ACCOUNT
from tests.support.faulty_proxy import faulty_proxy
from tests.support.object_stores import BUCKET

pytestmark = [pytest.mark.spark, pytest.mark.nightly]

RED, BLUE = ({"color": {"type": "string", "value": color}} for color in ("red", "blue"))
WRONG_KEY = "b3RoZXI="


@pytest.fixture(params=["azure", "gcs"])
def store(request, tmp_path, monkeypatch):
    found = request.getfixturevalue(request.param)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with found.client():
        yield found


@pytest.fixture
def base(store, tmp_path):
    return Location.of(f"{store.root}/{tmp_path.name}")


def publish(base, **selectors):
    return sr.publish(sr.build_snapshot([*selectors.items()]), base / "snapshots")


def drop(base, name, *messages):
    lines = "".join(json.dumps({"properties": one}) + "\n" for one in messages)
    (base / "in" / name).put(lines.encode())


def run(spark, store, job, on_batch=lambda _: None, **options):
    reports = []

    def noted(report):
        reports.append(report)
        on_batch(report)

    # Workers get what the environment was when Spark started, and this.
    variables = {name: os.environ[name] for name in store.environment}
    spark.sparkContext.environment.update(variables)
    try:
        start_fanout(spark, job, available_now=True, on_batch=noted, **options).wait()
    finally:
        for name in variables:
            del spark.sparkContext.environment[name]
    return reports


def deliveries(out):
    from deltalake import DeltaTable

    table = DeltaTable(str(out / "deliveries"), storage_options=table_options(out)).to_pyarrow_table()
    names = ("source", "offset", "subscription", "revision")
    return Counter(zip(*(table[name].to_pylist() for name in names), strict=True))


def test_a_job_goes_on_where_it_ended(spark, store, base):
    job = Job.of(base / "in", base / "snapshots", base / "out", max_files=2)
    publish(base, red="color = 'red'")
    drop(base, "a.jsonl", RED, BLUE, RED)
    drop(base, "sub/b.jsonl", RED)
    (base / "in" / "torn.parquet").put(b"torn")
    assert [report.batch for report in run(spark, store, job)] == [0, 1]
    publish(base, red="color = 'red'", all="color IS NOT NULL")
    drop(base, "c.jsonl", RED)
    (report,) = run(spark, store, job)
    assert (report.batch, report.revision, report.counts.deliveries) == (2, 2, 2)
    assert run(spark, store, job) == []
    assert deliveries(base / "out") == Counter(
        [
            ("a.jsonl", 0, "red", 1),
            ("a.jsonl", 2, "red", 1),
            ("sub/b.jsonl", 0, "red", 1),
            ("c.jsonl", 0, "red", 2),
            ("c.jsonl", 0, "all", 2),
        ]
    )
    found = audit(base / "out", recount=True)
    assert found.findings == [] and found.counts.dead_lettered == 1
    told = status(base / "out")
    assert (told.running, told.batches, told.published, told.planned) == (False, 3, 2, ())
    lines = (base / "out" / "accounting.jsonl").read().decode().splitlines()
    assert [json.loads(line)["batch"] for line in lines] == [0, 1, 2]


def test_small_files_of_many_batches_are_merged(spark, store, base):
    job = Job.of(base / "in", base / "snapshots", base / "out", max_files=1, compact_every=4)
    publish(base, red="color = 'red'")
    for number in range(12):
        drop(base, f"{number:02}.jsonl", RED, BLUE)
    assert len(run(spark, store, job)) == 12
    assert run(spark, store, job) == []
    assert sorted(deliveries(base / "out")) == [(f"{number:02}.jsonl", 0, "red", 1) for number in range(12)]
    assert audit(base / "out", recount=True).findings == []


def test_a_folder_of_another_container_or_bucket_is_one_sentence_before_the_start(
    spark, store, base, tmp_path
):
    publish(base, red="color = 'red'")
    noun = "container" if store.root.startswith("az:") else "bucket"
    nowhere = store.root.replace(BUCKET, "nothing-here")
    said = pytest.raises(NoBucketError, match=f"{nowhere}/in can't be read: the {noun} does not exist")
    with said:
        run(spark, store, Job.of(f"{nowhere}/in", base / "snapshots", base / "out"))
    with pytest.raises(NoBucketError, match=f"{nowhere}/.*the {noun} does not exist"):
        run(spark, store, Job.of(tmp_path, base / "snapshots", f"{nowhere}/out"))
    assert [*(base / "out").entries(deep=True)] == []


def test_a_wrong_key_of_azure_is_one_sentence_before_the_start(spark, azure, tmp_path):
    base = Location.of(f"{azure.root}/{tmp_path.name}")
    with azure.client():
        publish(base, red="color = 'red'")
        drop(base, "a.jsonl", RED)
    said = pytest.raises(DeniedError, match="can't be read: the credentials do not allow it")
    with azure.client(AZURE_STORAGE_ACCOUNT_KEY=WRONG_KEY), said:
        run(spark, azure, Job.of(base / "in", base / "snapshots", base / "out"))
    with azure.client():
        assert [*(base / "out").entries(deep=True)] == []


def test_a_file_of_credentials_of_google_that_is_missing_is_one_sentence_before_the_start(
    spark, gcs, tmp_path
):
    base = Location.of(f"{gcs.root}/{tmp_path.name}")
    said = pytest.raises(StorageError, match=f"{gcs.root} can't be opened: .*nothing.json: No such file")
    with gcs.client(GOOGLE_SERVICE_ACCOUNT=str(tmp_path / "nothing.json")), said:
        run(spark, gcs, Job.of(base / "in", base / "snapshots", base / "out"))


def test_credentials_that_are_refused_hold_the_stream_back_with_one_warning(spark, store, base, tmp_path):
    publish(base, red="color = 'red'")
    for number in range(4):
        drop(base, f"{number}.jsonl", RED)
    switch, warnings = tmp_path / "switch", []

    def warn(text):
        warnings.append(text)
        switch.write_text("ok")

    def one_more(report):
        if report.batch == 1:
            switch.write_text("forbid")

    job = Job.of(base / "in", base / "snapshots", base / "out", max_files=1)
    with faulty_proxy(store.endpoint, tmp_path / "log", switch=switch) as proxy:
        behind = store.behind(proxy)
        with behind.client():
            reports = run(spark, behind, job, one_more, on_warning=warn)
    assert [report.batch for report in reports] == [0, 1, 2, 3]
    assert len(deliveries(base / "out")) == 4
    (warning,) = warnings
    assert "the credentials do not allow it: the stream waits" in warning


def test_an_account_of_azure_may_be_in_the_url(spark, azure, tmp_path):
    root = Location.of(f"abfss://{BUCKET}@{ACCOUNT}.dfs.core.windows.net/{tmp_path.name}")
    job = Job.of(root / "in", root / "snapshots", root / "out", max_files=1)
    with azure.client():
        publish(root, red="color = 'red'")
        for number in range(3):
            drop(root, f"{number}.jsonl", RED)
        assert len(run(spark, azure, job)) == 3
        assert len(deliveries(root / "out")) == 3
        assert audit(root / "out", recount=True).findings == []
