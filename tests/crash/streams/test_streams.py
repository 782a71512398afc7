"""Short runs of the streams that are killed, and that each would find a fault."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from random import Random

import pyarrow as pa
import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed (the extra `spark`)")
pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed (the extra `service`)")

from tests.crash.programs.failing import compiled, full_disk
from tests.crash.programs.harness import ROOT
from tests.crash.programs.streams import delivering
from tests.support.components import KAFKA, after_first, missing

FORMATS = pytest.mark.parametrize("table_format", ["parquet", "delta"])
PARQUET_FIRST = pytest.mark.parametrize("table_format", after_first(pytest.mark.nightly, "parquet", "delta"))
ON_BROKER = KAFKA[-1]  # the group; all of this module is slow
pytestmark = pytest.mark.slow


@PARQUET_FIRST
def test_a_stream_to_queues_that_is_killed_delivers_each_message_once(tmp_path, table_format):
    counts = delivering.run(tmp_path, seed=1, kills=4, table_format=table_format)
    assert counts["kills"] == 4
    assert counts["deliveries"] > 2_000


@pytest.mark.nightly
def test_what_a_full_queue_does_not_take_is_got_or_a_dead_letter_and_never_both(tmp_path):
    counts = delivering.run(tmp_path, seed=2, kills=6, waits=(0.02,))
    assert counts["kills"] == 6
    assert counts["deliveries"] > 100 and counts["dead letters of a full queue"] > 100


@pytest.mark.parametrize("fault", ["twice", "lost"])
def test_a_fault_is_found(tmp_path, monkeypatch, fault):
    monkeypatch.setattr(delivering, "FILES", 1)
    queues = delivering.prepare(tmp_path / "home", f"sqlite:///{tmp_path}/queues.db", Random(1))
    queues.publish(2, all=("n < 30", delivering.A))
    queues.router().route(0, [queues.world.input / "00.jsonl"], "q")
    got = list(queues.ids("A"))
    journal = tmp_path / "journal"

    def written(ids):
        journal.write_text("".join(json.dumps({"delivery_id": id}) + "\n" for id in ids))
        return [journal]

    assert delivering.check(queues, written(got))["deliveries"] == 30
    with pytest.raises(AssertionError, match=fault):
        delivering.check(queues, written([*got, got[0]] if fault == "twice" else got[1:]))
    assert set(Counter(got).values()) == {1}


@PARQUET_FIRST
def test_each_write_of_a_stream_may_fail_and_nothing_is_lost_or_twice(table_format):
    program = [sys.executable, "-m", "tests.crash.programs.streams.stream_faults"]
    command = [*program, "--step", "43", "--table-format", table_format]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1_800)
    if ended.stderr.startswith("nothing was tried"):
        missing(ended.stderr)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.count("ended") == 4, ended.stdout


@pytest.fixture
def shim(tmp_path):
    """What makes a disk full, and the environment in which it does."""
    made = compiled(tmp_path)
    if isinstance(made, str):
        missing(made)
    return full_disk(made[1]), made[0]


@FORMATS
@pytest.mark.spark
@pytest.mark.nightly
def test_a_job_whose_disk_is_full_ends_in_one_sentence_and_goes_on_when_there_is_room(
    tmp_path, shim, table_format
):
    from tests.crash.programs.streams.full_disk import routed

    assert routed(tmp_path / "world", *shim, at=30, table_format=table_format)


@pytest.mark.spark
@pytest.mark.nightly
def test_a_disk_that_is_full_when_spark_notes_a_batch_as_done_is_no_obstacle_afterwards(tmp_path, shim):
    from tests.crash.programs.streams.full_disk import routed

    assert routed(tmp_path / "world", *shim, at=1, logged="commits/1")


@pytest.fixture
def clouds():
    for name in ("moto", "obstore", "deltalake"):
        pytest.importorskip(name, reason=f"{name} is not installed")


@pytest.mark.application
@pytest.mark.nightly
@pytest.mark.usefixtures("clouds")
@pytest.mark.parametrize("store", ["s3", "azure", "gcs"])
def test_of_two_drivers_the_one_that_stood_still_ends(tmp_path, store):
    from tests.crash.programs.streams.object_store import run_two

    assert "0 lost, 0 twice" in run_two(tmp_path, 3, store)


@pytest.mark.application
@pytest.mark.usefixtures("clouds")
@pytest.mark.parametrize(
    "store, kills", after_first(pytest.mark.nightly, ("s3", 1), ("azure", 2), ("gcs", 2))
)
def test_a_job_that_is_killed_loses_nothing_in_a_store_that_fails(tmp_path, store, kills):
    from tests.crash.programs.streams.object_store import run_kills

    assert "0 lost, 0 twice" in run_kills(tmp_path, kills, seed=5, rate=0.03, store=store)


@FORMATS
@pytest.mark.spark
@pytest.mark.nightly
def test_every_delivery_of_a_storm_is_the_references_under_the_revision_of_its_batch(tmp_path, table_format):
    from tests.crash.programs.streams.storm import Storm

    storm = Storm(tmp_path, seed=2, changes=60, messages=12_000, files=6, kills=1, table_format=table_format)
    counts = storm.run()
    assert counts["messages"] == 14_000 and counts["batches"] == 7
    assert counts["deliveries"] > 1_000 and counts["revisions"] > 2 and counts["cut-offs"] > 60


@FORMATS
@pytest.mark.spark
@pytest.mark.nightly
def test_a_killed_stream_of_rows_loses_and_repeats_nothing_and_a_fault_would_be_found(tmp_path, table_format):
    from tests.crash.programs.streams.frames import Killed
    from tests.crash.programs.streams.killed import KILLS

    killed = Killed(tmp_path, seed=3, table_format=table_format)
    counts = killed.run([("put", "after"), ("match", "after"), ("commit", "after"), None])
    assert [counts[name] for name in KILLS] == [1, 3] and counts["rows"] >= 1_000
    with pytest.raises(AssertionError, match=r"queue: [0-9,]+ lost"):
        killed.check(counts["rows"])  # the queue was emptied by the first check
    repeat(killed.queues.world)
    with pytest.raises(AssertionError, match=r"deliveries: \d+ twice"):
        killed.check(counts["rows"])


def repeat(world):
    """Write the deliveries of a batch twice."""
    folder = world.output / "deliveries"
    if world.table_format == "parquet":
        first = next(folder.iterdir())
        shutil.copytree(first, first.with_name("batch=9999"))
    else:
        deltalake = pytest.importorskip("deltalake")
        deltalake.write_deltalake(folder, pa.Table.from_pylist(world.rows("deliveries")[:1]), mode="append")


@pytest.mark.nightly
@ON_BROKER
def test_a_killed_stream_of_records_loses_and_repeats_nothing_and_a_fault_would_be_found(kafka, tmp_path):
    from tests.crash.programs.streams.kafka import Killed
    from tests.crash.programs.streams.kafka_flow import Flow
    from tests.crash.programs.streams.killed import KILLS

    flow = Flow(kafka, tmp_path, seed=3)
    killed = Killed(flow, tmp_path)
    # Sent in part before it is killed at the first two of these; the rest is sent by the next start.
    counts = killed.run([("token", "before"), ("end", "after"), ("publish", "before"), None])
    assert [counts[name] for name in KILLS] == [1, 3]
    assert counts["records"] >= 600 and counts["deliveries"] > 500 and counts["got from the queue"] > 10
    assert counts["of aborted transactions"] > 0

    lines = flow.journal.read_bytes().splitlines(keepends=True)
    flow.journal.write_bytes(b"".join(lines[1:]))
    with pytest.raises(AssertionError, match="queue: 1 lost"):
        flow.check(killed.output)
    flow.journal.write_bytes(b"".join([*lines, lines[0]]))
    with pytest.raises(AssertionError, match="queue: 1 twice"):
        flow.check(killed.output)
    flow.journal.write_bytes(b"".join(lines))
    again = kafka.records(flow.topics[1])[0]
    kafka.produce(flow.topics[1], [(0, again.key(), again.value(), again.headers())])
    with pytest.raises(AssertionError, match="twice"):
        flow.check(killed.output)


@pytest.mark.nightly
@pytest.mark.spark
def test_killed_workers_and_executors_and_speculative_copies_lose_and_repeat_nothing(kafka, tmp_path):
    from tests.crash.programs.streams.executors import FAULTS, run

    counts = run(tmp_path, seed=1, times=1, broker=kafka)
    assert all(counts[fault] >= 1 for fault in FAULTS)
    assert counts["speculative copies"] > 0 and counts["tasks lost"] > 0
    assert counts["deliveries"] > 500


@pytest.mark.spark
def test_on_one_machine_a_killed_worker_ends_the_job_in_one_sentence_and_the_next_start_goes_on(
    spark, tmp_path
):
    from selectroute.spark import start_fanout
    from selectroute.spark.stream.fan_out import StreamError
    from tests.crash.programs.streams.executors import workers_of
    from tests.support.world import World

    world = World(tmp_path)
    world.input.mkdir()
    world.publish(1, all="n >= 0")
    files = 0

    def drop():
        nonlocal files
        world.drop_json(f"{files:04}.jsonl", *({"properties": {"n": n}} for n in range(2_000)))
        files += 1

    job = world.job(max_files=1)
    jvm = spark.sparkContext._gateway.proc.pid
    fan = start_fanout(spark, job)
    # As long as it takes, always with a task to come: one that waits for it may be killed without harm.
    while fan.query.isActive:
        if len([*(world.output / "_commits").glob("*.json")]) > files - 2:
            drop()
        for worker in workers_of({jvm}):
            with suppress(ProcessLookupError):
                os.kill(worker, signal.SIGKILL)
        time.sleep(0.1)
    with pytest.raises(StreamError) as error:
        fan.wait()
    assert "\n" not in str(error.value) and "Traceback" not in str(error.value)
    start_fanout(spark, job, available_now=True).wait()
    delivered = world.deliveries()
    assert len(delivered) == 2_000 * files and set(delivered.values()) == {1}
