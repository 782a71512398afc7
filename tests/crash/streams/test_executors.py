"""A short run of the stream of which parts are killed."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed (the extra `spark`)")
pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed (the extra `service`)")

from tests.support.components import KAFKA

pytestmark = [pytest.mark.spark, *KAFKA]


@pytest.mark.nightly
def test_killed_workers_and_executors_and_speculative_copies_lose_and_repeat_nothing(kafka, tmp_path):
    from tests.crash.programs.streams.executors import FAULTS, run

    counts = run(tmp_path, seed=1, times=1, broker=kafka)
    assert all(counts[fault] >= 1 for fault in FAULTS)
    assert counts["speculative copies"] > 0 and counts["tasks lost"] > 0
    assert counts["deliveries"] > 500


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
    for number in range(4):
        world.drop_json(f"{number}.jsonl", *({"properties": {"n": n}} for n in range(2_000)))
    job = world.job(max_files=2)
    jvm = spark.sparkContext._gateway.proc.pid
    fan = start_fanout(spark, job)
    # As long as it takes: one that waits for its next task may be killed without harm.
    while fan.query.isActive:
        for worker in workers_of({jvm}):
            with suppress(ProcessLookupError):
                os.kill(worker, signal.SIGKILL)
        time.sleep(0.1)
    with pytest.raises(StreamError) as error:
        fan.wait()
    assert "\n" not in str(error.value) and "Traceback" not in str(error.value)
    start_fanout(spark, job, available_now=True).wait()
    delivered = world.deliveries()
    assert len(delivered) == 8_000 and set(delivered.values()) == {1}
