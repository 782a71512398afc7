"""Latency of a message from topic to topic: from when it was made until the broker has its delivery, and
where that is part of a transaction has committed it.

For each trigger and engine a query runs, and messages come at one rate after the other, while another process
writes them. The next rate begins when everything has been delivered.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from bench import ROOT
from bench.kafka.engines import KafkaEngine
from bench.kafka.paced import CYCLE
from bench.kafka.streamed import PARTITIONS, Streamed
from bench.measure import Sample, WrongCountError
from bench.workloads.plain import Ints

NAME: Final = "kafka-latency"
RATES: Final = {"Z": (1_000, 5_000), "R": (1_000, 5_000, 20_000)}
"""Messages a second."""
TRIGGERS: Final = (0.0, 1.0)
"""Seconds from the beginning of one batch to that of the next; 0: as soon as the one before is done."""

_WARM_RATE: Final = 500
_WARM_SECONDS: Final = 5
_FIRST_SECONDS: Final = 15
"""How long each engine runs before any is measured: a JVM takes that long to compile what it does often."""
_PATIENCE_SECONDS: Final = 120
_POLL_SECONDS: Final = 0.1
_SETTLED_SECONDS: Final = 1.0


def measured(
    engines: Sequence[KafkaEngine],
    streamed: Streamed,
    seconds: float,
    repetitions: int,
    triggers: Sequence[float] = (),
    rates: Sequence[int] = (),
) -> Iterator[Sample]:
    """Yield a sample for each trigger, repetition, engine and rate, each measured for so long and two batches
    more; an engine that has no batches at trigger 0 only.

    Raises `WrongCountError` if not as many deliveries come as there are.
    """
    triggers = triggers or TRIGGERS
    rates = rates or RATES[streamed.size.workload]
    for engine in engines:
        for _ in _of_one(engine, streamed, triggers[0], rates[:1], _FIRST_SECONDS, 0):
            pass
    for trigger in triggers:
        for repetition in range(repetitions):
            for engine in (one for one in engines if one.triggered or not trigger):
                yield from _of_one(engine, streamed, trigger, rates, seconds + 2 * trigger, repetition)


def deliveries(lengths: Ints, first: int, count: int) -> int:
    """Return how many deliveries so many messages of `paced` have."""
    return int(lengths[np.arange(first, first + count) % CYCLE].sum())


def named(engine: str, rate: int, trigger: float) -> str:
    """Return the name under which a sample stands: ``fan-out 1000 0.5``."""
    return f"{engine} {rate} {trigger:g}"


def _of_one(
    engine: KafkaEngine,
    streamed: Streamed,
    trigger: float,
    rates: Sequence[int],
    seconds: float,
    repetition: int,
) -> Iterator[Sample]:
    size = streamed.size
    lengths = streamed.lengths(CYCLE)
    topic = streamed.create(f"paced-{time.time_ns()}")
    query = engine.start(topic, CYCLE, trigger)
    first = 0
    try:
        for place, rate in enumerate((_WARM_RATE, *rates)):
            before = streamed.ends(engine.to)
            length = seconds if place else _WARM_SECONDS
            sent = written(pace(streamed, topic, first, rate, length))
            due = deliveries(lengths, first, sent)
            first += sent
            await_deliveries(engine, before, due)
            if place:
                p50, p99 = np.percentile(_milliseconds(engine, before), (50, 99)) * 1_000
                yield Sample(
                    NAME,
                    named(engine.name, rate, trigger),
                    size.workload,
                    size.rules,
                    sent,
                    repetition,
                    length,
                    p50_us=float(p50),
                    p99_us=float(p99),
                )
            streamed.clear(engine.to)
    finally:
        query.stop()
        streamed.broker.delete(topic)


def pace(streamed: Streamed, topic: str, first: int, rate: int, seconds: float) -> subprocess.Popen[str]:
    """Start a process that writes messages, and then how many these were; see `written`."""
    size = streamed.size
    given = [streamed.broker.address, topic, size.workload, size.rules, first, rate, seconds]
    return subprocess.Popen(
        [sys.executable, "-m", "bench.kafka.paced", *map(str, given)],
        stdout=subprocess.PIPE, text=True, cwd=ROOT,
    )  # fmt: skip


def written(writer: subprocess.Popen[str]) -> int:
    """Wait for what `pace` started, and return how many messages it wrote."""
    said, _ = writer.communicate()
    if writer.returncode:
        raise RuntimeError("what writes messages failed")
    return int(json.loads(said)["sent"])


def await_deliveries(engine: KafkaEngine, before: Sequence[int], due: int) -> None:
    """Wait until its topic has so many deliveries more than when it ended there.

    Raises `WrongCountError` if there are more, or if none come any more.
    """
    most, deadline = 0, time.monotonic() + _PATIENCE_SECONDS
    _settle(engine)
    while (found := engine.delivered(before)) != due:
        if found > most:
            most, deadline = found, time.monotonic() + _PATIENCE_SECONDS
        if found > due or time.monotonic() > deadline:
            raise WrongCountError(f"{engine.name} delivered {found} times, expected {due}")
        time.sleep(_POLL_SECONDS)


def _settle(engine: KafkaEngine) -> None:
    """Wait until nothing more comes: to count is work, and would delay the last deliveries."""
    before: list[int] = []
    while (found := engine.streamed.ends(engine.to)) != before:
        before = found
        time.sleep(_SETTLED_SECONDS)


def _milliseconds(engine: KafkaEngine, before: Sequence[int]) -> Ints:
    """The time that each delivery took."""
    from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME

    found: list[tuple[int, int, int, int]] = []
    for record in engine.streamed.records(engine.to, before):
        kind, stamp = record.timestamp()
        assert kind == TIMESTAMP_LOG_APPEND_TIME
        found.append((record.partition(), record.offset(), int(record.key() or b""), stamp))
    partitions, offsets, made, stamps = np.array(found, np.int64).reshape(-1, 4).T
    if engine.transactional:
        for partition in range(PARTITIONS):
            own = partitions == partition
            stamps[own] = engine.streamed.commit_times(engine.to, partition, before).of(offsets[own])
    times: Ints = stamps - made
    return times
