"""Jobs with all folders in an object store: what a batch waits for, and what is refused before the start."""

from __future__ import annotations

import json
import os
import re
from collections import Counter

import pytest

import selectroute as sr
from selectroute.spark import Job, JobError, OtherJobError, start_fanout
from selectroute.spark.audit.audit import audit
from selectroute.spark.audit.status import status
from selectroute.spark.tables.delta_table import table_options
from selectroute.storage import DeniedError, Location, StorageError
from selectroute.storage.errors import NoBucketError
from tests.support.faulty_proxy import faulty_proxy, requests_in
from tests.support.s3 import BUCKET, clients_of, environment

pytestmark = [pytest.mark.spark, pytest.mark.slow]

RED, BLUE = ({"color": {"type": "string", "value": color}} for color in ("red", "blue"))


@pytest.fixture
def base(s3, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with clients_of(s3):
        yield Location.of(f"s3://{BUCKET}/{tmp_path.name}")


def publish(base, **selectors):
    return sr.publish(sr.build_snapshot([*selectors.items()]), base / "snapshots")


def drop(base, name, *messages):
    lines = "".join(json.dumps({"properties": one}) + "\n" for one in messages)
    (base / "in" / name).put(lines.encode())


def job_of(base, **options):
    return Job.of(base / "in", base / "snapshots", base / "out", **options)


def run(spark, job, on_batch=lambda _: None, on_warning=lambda _: None):
    reports = []

    def noted(report):
        reports.append(report)
        on_batch(report)

    # Workers get what the environment was when Spark started, and this.
    names = environment("")
    spark.sparkContext.environment.update({name: os.environ[name] for name in names})
    try:
        start_fanout(spark, job, available_now=True, on_batch=noted, on_warning=on_warning).wait()
    finally:
        for name in names:
            del spark.sparkContext.environment[name]
    return reports


def deliveries(base):
    from deltalake import DeltaTable

    out = base / "out"
    table = DeltaTable(str(out / "deliveries"), storage_options=table_options(out)).to_pyarrow_table()
    names = ("source", "offset", "subscription", "revision")
    return Counter(zip(*(table[name].to_pylist() for name in names), strict=True))


def test_a_job_goes_on_where_it_ended_and_names_are_read_once(spark, base):
    publish(base, red="color = 'red'")
    drop(base, "a.jsonl", RED, BLUE, RED)
    drop(base, "sub/b.jsonl", RED)
    drop(base, "_hidden.jsonl", RED)
    (base / "in" / "torn.parquet").put(b"torn")
    assert [report.batch for report in run(spark, job_of(base, max_files=2))] == [0, 1]
    publish(base, red="color = 'red'", all="color IS NOT NULL")
    drop(base, "c.jsonl", RED)
    (report,) = run(spark, job_of(base, max_files=2))
    assert (report.batch, report.revision, report.counts.deliveries) == (2, 2, 2)
    assert run(spark, job_of(base, max_files=2)) == []
    assert deliveries(base) == Counter(
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


def test_a_batch_waits_for_three_round_trips(spark, s3, base, tmp_path):
    publish(base, red="color = 'red'")
    for number in range(5):
        drop(base, f"{number}.jsonl", RED, BLUE)
    log = tmp_path / "log"
    with faulty_proxy(s3, log, delay=0.2) as slow, clients_of(slow):
        assert len(run(spark, job_of(base, max_files=1))) == 5
    requests = requests_in(log)
    assert all(isinstance(what, int) for _, _, _, what, _, _ in requests)
    for batch in range(1, 5):  # the first one also opens the snapshot
        committed = next(one for one in requests if one[2].endswith(f"/_commits/{batch}.json"))
        began = next(one for one in requests if re.search(rf"/in/{batch}\.jsonl$", one[2]))
        within = [one for one in requests if began[4] <= one[4] and one[5] <= committed[5]]
        waited = [one for one in within if not is_behind(one[1], one[2])]
        assert waited_for(waited) <= 3, waited


def is_behind(verb, path):
    """Whether a request is of what a batch does not wait for: the planner and the watch of revisions list,
    the lease is renewed, and the batch before is shown in the tables.
    """
    if "list-type" in path or "_lease.json" in path or "/_delta_log/" in path or "/snapshots/" in path:
        return True
    return verb == "HEAD" and ".parquet" in path


def waited_for(requests):
    """The number of these requests that came one after the other: the longest chain."""
    count, end = 0, 0.0
    for *_, began, ended in sorted(requests, key=lambda one: one[5]):
        if began >= end:
            count, end = count + 1, ended
    return count


def test_credentials_that_expire_hold_the_stream_back_with_one_warning(spark, s3, base, tmp_path):
    publish(base, red="color = 'red'")
    for number in range(4):
        drop(base, f"{number}.jsonl", RED)
    switch, warnings = tmp_path / "switch", []

    def warn(text):
        warnings.append(text)
        switch.write_text("ok")

    def one_more(report):
        if report.batch == 1:
            switch.write_text("deny")

    with faulty_proxy(s3, tmp_path / "log", switch=switch) as proxy, clients_of(proxy):
        reports = run(spark, job_of(base, max_files=1), one_more, warn)
    assert [report.batch for report in reports] == [0, 1, 2, 3]
    assert len(deliveries(base)) == 4
    (warning,) = warnings
    assert "the credentials have expired: the stream waits" in warning


def test_what_can_not_be_used_is_one_sentence_before_the_start(spark, base, tmp_path, monkeypatch):
    publish(base, red="color = 'red'")
    with pytest.raises(NoBucketError, match="s3://nothing-here/in can't be read: the bucket does not exist"):
        run(spark, Job.of("s3://nothing-here/in", base / "snapshots", base / "out"))
    with pytest.raises(NoBucketError, match=r"s3://nothing-here/.*the bucket does not exist"):
        run(spark, Job.of(tmp_path, base / "snapshots", "s3://nothing-here/out"))
    with pytest.raises(StorageError, match=r"the scheme 'ftp' is not known"):
        Job.of(tmp_path, base / "snapshots", "ftp://host/out")
    with pytest.raises(JobError, match="in remote storage, where outcomes are Delta tables"):
        job_of(base, table_format="parquet")
    with pytest.raises(JobError, match="is in the input folder"):
        Job.of(base, base / "snapshots", base / "out")
    (base / "out" / "other").put(b"1")
    with pytest.raises(OtherJobError, match="is not empty and not a job's"):
        run(spark, job_of(base))
    (base / "out" / "other").delete()
    assert [one.key for one in (base / "out").entries(deep=True)] == []


def test_denied_credentials_are_one_sentence_before_the_start(spark, s3, base, tmp_path):
    publish(base, red="color = 'red'")
    switch = tmp_path / "switch"
    switch.write_text("deny")
    with (
        faulty_proxy(s3, tmp_path / "log", switch=switch) as proxy,
        clients_of(proxy),
        pytest.raises(DeniedError, match="can't be read: the credentials have expired"),
    ):
        run(spark, job_of(base))
