"""Memory of a job, and whether it grows: the fan-out for a long time, at half of what it can do.

How much that is is measured first. Messages then come evenly from another process, and twice a minute it is
read what the processes of the job have in memory; what the JVM holds is read after a collection.
"""

from __future__ import annotations

import gc
import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from bench.kafka.engines import FanOutEngine
from bench.kafka.latency import deliveries, pace, written
from bench.kafka.paced import CYCLE
from bench.kafka.streamed import Streamed
from bench.measure import Sample, WrongCountError
from bench.spark.cores import descendants

NAME: Final = "kafka-memory"
PARTS: Final = ("driver", "workers", "JVM", "JVM's heap")
"""Whose memory: the driver's Python, all Python workers, the JVM as a process, what its objects take."""

MESSAGES: Final = 200_000
"""How many are routed to find out what the job can do."""

_EVERY_SECONDS: Final = 30
_PATIENCE_SECONDS: Final = 300
_KEPT: Final = {"retention.bytes": str(512 << 20)}
"""Of each partition, for a topic to which a long run writes."""


def measured(engine: FanOutEngine, streamed: Streamed, seconds: int) -> Iterator[Sample]:
    """Yield what each of `PARTS` has, every half minute of so many seconds; ``messages`` is the rate.

    Raises `WrongCountError` if not as many deliveries come as there are.
    """
    engine.run()
    capacity = engine.messages / engine.run().seconds
    rate = int(capacity / 2)
    topic = streamed.create(f"paced-{time.time_ns()}", **_KEPT)
    query = engine.start(topic, CYCLE, 0.0)
    size = streamed.size
    writer = pace(streamed, topic, 0, rate, seconds)
    started = time.monotonic()
    try:
        for reading in range(seconds // _EVERY_SECONDS):
            time.sleep(max(0.0, started + (reading + 1) * _EVERY_SECONDS - time.monotonic()))
            since = time.monotonic() - started
            for part, found in zip(PARTS, _memory(engine.spark), strict=True):
                yield Sample(NAME, part, size.workload, size.rules, rate, reading, since, float(found))
            streamed.clear(engine.to)
            _remove_published(streamed)
        _await_sent(streamed, deliveries(streamed.lengths(CYCLE), 0, written(writer)))
    finally:
        writer.kill()
        writer.wait()
        query.stop()
        streamed.broker.delete(topic)
        streamed.clear(engine.to)


def _await_sent(streamed: Streamed, due: int) -> None:
    """Wait until the newest job accounts for so many deliveries: what it wrote before is removed meanwhile.

    Raises `WrongCountError` if it does not within some minutes, or accounts for more.
    """
    newest = max(streamed.folder.glob("job-*"), key=lambda folder: folder.stat().st_mtime)
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        lines = (newest / "output" / "accounting.jsonl").read_text(encoding="utf-8").splitlines()
        sent = sum(json.loads(line)["sent"] for line in lines)
        if sent == due:
            return
        if sent > due or time.monotonic() > deadline:
            raise WrongCountError(f"the job accounts for {sent} deliveries, and there are {due}")
        time.sleep(1.0)


def _remove_published(streamed: Streamed) -> None:
    """Remove what a reader would have taken by now: deliveries, which would fill the disk."""
    for folder in streamed.folder.glob("job-*/output/deliveries/batch=*"):
        shutil.rmtree(folder, ignore_errors=True)


def _memory(spark: Any) -> tuple[int, int, int, int]:
    jvm = spark.sparkContext._jvm
    gc.collect()  # objects of the JVM that Python has in cycles are held until then
    jvm.java.lang.System.gc()
    heap = _heap(jvm.java.lang.Runtime.getRuntime())
    process = int(jvm.java.lang.ProcessHandle.current().pid())
    workers = sum(map(_proportional, descendants(process) - {process}))
    return _proportional(os.getpid()), workers, _proportional(process), heap


def _heap(runtime: Any) -> int:
    """The bytes in use; the JVM may take or give back memory between two questions."""
    while True:
        total, free = int(runtime.totalMemory()), int(runtime.freeMemory())
        if int(runtime.totalMemory()) == total:
            return total - free


def _proportional(process: int) -> int:
    """The bytes of a process that are in memory, of what it shares with others its part."""
    try:
        text = Path(f"/proc/{process}/smaps_rollup").read_text(encoding="ascii")
    except OSError:  # it has ended meanwhile
        return 0
    [line] = (line for line in text.splitlines() if line.startswith("Pss:"))
    return int(line.split()[1]) * 1024
