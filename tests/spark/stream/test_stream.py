"""The whole stream in Spark: batches, restarts, replays."""

from __future__ import annotations

import os
import re
from collections import Counter

import pyarrow as pa
import pytest
from py4j.protocol import Py4JError
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming import StreamingQuery

import selectroute as sr
from selectroute.spark import start_fanout
from selectroute.spark.audit.audit import audit
from selectroute.spark.folder import OutputFolder
from selectroute.spark.sources.files.lister import planned_files
from selectroute.spark.stream.fan_out import StreamError, sentence
from selectroute.spark.tables.schemas import as_written

pytestmark = pytest.mark.spark

RED = {"properties": {"color": "red"}}


def run(spark, world, **options):
    """Route everything that is there and return the reports of the batches."""
    reports: list[object] = []
    start_fanout(spark, world.job(**options), available_now=True, on_batch=reports.append).wait()
    return reports


def test_files_of_all_names_and_kinds_are_routed_batch_by_batch(spark, world):
    world.publish(1, red="color = 'red'", heavy="weight > 2")
    names = ["a b.jsonl", "p%20q.jsonl", "é#x?y.jsonl", "[q]{r},*.jsonl", "co:lon.jsonl", "sub=3/z+.jsonl"]
    for name in names:
        world.drop_json(name, RED, {})
    table = pa.table({"color": ["red", None], "weight": pa.array([1, 3], pa.int16())})
    world.drop_parquet("table.parquet", table)
    world.drop_bytes("torn.parquet", b"PAR1")
    world.drop_bytes("empty.parquet", b"")
    reports = run(spark, world, max_files=4)
    assert [report.inputs for report in reports] == [4, 4, 1]
    assert sum(report.counts.messages for report in reports) == 2 * len(names) + 2 + 2
    expected = Counter((name, 0, "red", 1) for name in [*names, "table.parquet"])
    expected[("table.parquet", 1, "heavy", 1)] = 1
    assert world.deliveries() == expected
    dead = sorted((row["source"], row["offset"], row["reason"]) for row in world.rows("dead-letters"))
    assert dead == [("empty.parquet", None, "unreadable-file"), ("torn.parquet", None, "unreadable-file")]
    # Spark reads the outputs as any table.
    read = spark.read.parquet(str(world.output / "deliveries"))
    assert read.count() == sum(expected.values()) and "batch" in read.columns
    # Nothing new: nothing happens.
    assert run(spark, world) == []


@pytest.mark.slow
def test_a_job_that_was_killed_while_spark_planned_its_first_batch_starts(spark, world):
    world.publish(1, red="color = 'red'")
    folder = OutputFolder(world.job())
    folder.claim()
    folder.release()
    offsets = world.job().checkpoint.path / "offsets"
    offsets.mkdir(parents=True)
    for name in (".0.5f0c.tmp", "..0.5f0c.tmp.crc"):
        (offsets / name).write_bytes(b"v1")
    world.drop_json("a.jsonl", RED)
    assert [report.counts.routed for report in run(spark, world)] == [1]


def test_a_replay_after_a_crash_uses_its_pin_and_the_next_batch_the_new_revision(spark, world, monkeypatch):
    world.publish(1, red="color = 'red'")
    world.drop_json("a.jsonl", RED)

    def die(*_):
        raise KeyboardInterrupt("the process dies before the commit")

    with monkeypatch.context() as patched:
        patched.setattr("selectroute.spark.batch.commits.Commits.commit", die)
        with pytest.raises(StreamError):
            run(spark, world)
    assert not world.deliveries()
    world.publish(2, crimson="color = 'red'")
    world.drop_json("b.jsonl", RED)
    reports = run(spark, world)
    assert [(report.batch, report.revision) for report in reports] == [(0, 1), (1, 2)]
    # As if the process had died after the batch and before Spark wrote that down.
    (world.job().checkpoint.path / "commits" / "1").unlink()
    world.publish(3, red="color = 'red'", new="color = 'red'")
    (again,) = run(spark, world)
    assert again.skipped
    assert world.deliveries() == Counter([("a.jsonl", 0, "red", 1), ("b.jsonl", 0, "crimson", 2)])


def test_an_error_in_a_worker_is_one_sentence_and_the_job_goes_on_when_it_is_mended(spark, world):
    world.publish(1, red="color = 'red'")
    world.drop_json("a.jsonl", RED)
    (segment,) = (world.snapshots / "segments").iterdir()
    good = segment.read_bytes()
    segment.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    with pytest.raises(sr.SelectRouteError) as error:
        run(spark, world)
    assert str(segment) in str(error.value) or segment.name in str(error.value)
    assert "Traceback" not in str(error.value) and "\n" not in str(error.value)
    segment.write_bytes(good)
    run(spark, world)
    assert world.deliveries() == Counter([("a.jsonl", 0, "red", 1)])


def test_each_file_is_planned_once_and_no_log_has_a_checksum_beside_it(spark, world):
    """Each checksum would cost a process of its own (`runtime.checkpoint_files`)."""
    before = dict(spark.conf.getAll)
    world.publish(1, red="color = 'red'")
    names = [f"{number:02}.jsonl" for number in range(4)]
    for name in names:
        world.drop_json(name, RED)
    reports = run(spark, world, max_files=1)
    assert len(reports) == 4
    checkpoint = world.job().checkpoint.path
    assert not list(checkpoint.rglob("*.crc")) and dict(spark.conf.getAll) == before
    found = [planned_files(checkpoint, batch) for batch in range(4)]
    assert [[one.name for one in files] for files in found] == [[name] for name in names]
    audited = audit(world.output, recount=True)
    assert (audited.findings, audited.pending) == ([], [])
    assert (audited.batches, audited.inputs, audited.recounted, audited.files) == (4, 4, 4, 4)


def test_files_of_every_name_and_date_are_read(spark, world):
    """Spark's own listing passes over names that its JVM can't spell, and files of long before the newest."""
    world.publish(1, red="color = 'red'")
    names = ["größe.jsonl", "\udcff.jsonl", "a{b}*[c].jsonl", "future.jsonl", "old.jsonl"]
    for name in names:
        world.drop_json(name, RED)
    os.utime(world.input / "future.jsonl", (15e9, 15e9))
    os.utime(world.input / "old.jsonl", (0, 0))
    (world.input / "nowhere.jsonl").symlink_to(world.root / "gone")
    (world.input / "again").symlink_to(world.input)
    run(spark, world)
    world.drop_json("later.jsonl", RED)
    run(spark, world)
    assert {row["source"] for row in world.rows("deliveries")} == {*map(as_written, names), "later.jsonl"}
    assert {row["source"] for row in world.rows("dead-letters")} == {"nowhere.jsonl", "again"}
    assert audit(world.output).findings == []


def late_worker(monkeypatch, times, then=lambda: None):
    """Let Spark give up on a Python worker so many times, while there is no input; ``then`` makes some."""
    awaited, left = StreamingQuery.awaitTermination, [then, *[None] * times]

    def await_termination(query, timeout=None):
        if len(left) > 1:
            left.pop()
            query.stop()
            raise StreamingQueryException(
                "[STREAM_FAILED] Query terminated with exception: Python worker failed to connect back."
            )
        for make in left:
            make()
        left.clear()
        return awaited(query, timeout)

    monkeypatch.setattr(StreamingQuery, "awaitTermination", await_termination)


@pytest.mark.slow
def test_a_query_whose_python_worker_was_late_is_started_again(spark, world, monkeypatch):
    def drop():
        for number in range(3):
            world.drop_json(f"{number}.jsonl", RED)

    late_worker(monkeypatch, 2, drop)
    world.publish(1, red="color = 'red'")
    warnings, reports = [], []
    fan = start_fanout(spark, world.job(), on_batch=reports.append, on_warning=warnings.append)
    fan.wait(lambda: sum(report.inputs for report in reports) == 3)
    assert world.deliveries() == Counter((f"{number}.jsonl", 0, "red", 1) for number in range(3))
    assert audit(world.output).findings == []
    (warning,) = warnings
    assert "within ten seconds, because this machine is busy: the query is started again" in warning


@pytest.mark.slow
def test_a_python_worker_that_is_late_again_and_again_ends_the_job(spark, world, monkeypatch):
    # More often than it is started again, twice: the first batch, which is empty, may come in between.
    late_worker(monkeypatch, 20, lambda: pytest.fail("the job goes on"))
    world.publish(1, red="color = 'red'")
    fan = start_fanout(spark, world.job())
    with pytest.raises(StreamError, match="Python worker failed to connect back"):
        fan.wait()


JVM_ERRORS = {
    "Python worker exited unexpectedly (crashed). Consider": "a Python worker of Spark crashed or was killed",
    "Block rdd_1_2 not found": "org.apache.spark.SparkException: Job aborted: Lost task 0.0: .* not found",
}


@pytest.mark.parametrize("cause", JVM_ERRORS)
def test_an_error_of_the_jvm_has_its_reason(cause):
    kind = "org.apache.spark.SparkException"
    text = f"An error occurred while calling o118.run.\n: {kind}: Job aborted: Lost task 0.0: {kind}: "
    error = Py4JError(f"{text}{cause}\n\tat org.apache.spark.A\n")
    assert re.match(f"the query ended: {JVM_ERRORS[cause]}", str(sentence(error)))
