"""What the benchmarks of Kafka use at one size: a broker, records of the workload on its topics, and the
rules as subscriptions that are all delivered to one topic.

Message n of a topic is record ``n // PARTITIONS`` of partition ``n % PARTITIONS``: its key is ``k`` and n,
its headers are the columns that decide, its value has 107 bytes. What is written by a job is dated by the
broker, when it has it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property, partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import selectroute as sr
from bench.catalogue import WORKLOADS
from bench.definition import Size
from bench.engine import SkippedError
from bench.opened import Opened
from bench.oracle import Expected
from bench.workloads import BODY, Ints

PARTITIONS: Final = 4
DELIVERED: Final = "delivered"
"""The topic to which every subscription is delivered."""

_HEADERS: Final = {"Z": ("JMSType", "color", "weight"), "R": ("JMSCorrelationID",)}
"""What decides in a workload."""
_SUBSCRIPTION: Final = "selectroute-subscription"
_CHUNK: Final = 50_000
_PIECES: Final = {"segment.bytes": str(32 << 20), "file.delete.delay.ms": "1000"}
"""What was removed from a topic leaves the disk soon."""


def connector() -> dict[str, str]:
    """Return what a Spark session needs for Kafka. Raises `SkippedError` where that can't be had."""
    from selectroute.spark import ConnectorError, find_connector

    try:
        return find_connector().conf()
    except ConnectorError as error:
        raise SkippedError(str(error)) from error


def started(folder: Path) -> Any:
    """Start a broker whose files are in a folder. Raises `SkippedError` where there is none to be had."""
    if find_spec("confluent_kafka") is None:
        raise SkippedError("confluent-kafka is not installed (the extra `kafka`)")
    connector()
    from selectroute.testing.broker import Broker, BrokerError
    from selectroute.testing.jars import JarError

    folder.mkdir(parents=True)
    try:
        broker = Broker(folder, {"log.retention.check.interval.ms": 2_000})
        broker.start()
    except (BrokerError, JarError) as error:
        raise SkippedError(f"no broker: {error}") from error
    return broker


class Streamed(Opened):
    """Each part is made when it is first asked for."""

    def __init__(self, size: Size, scratch: Path, broker: Any = None) -> None:
        super().__init__(scratch / f"streamed-{size.name.replace(' ', '-')}")
        self.size = size
        self._made: set[str] = set()
        self._given = broker

    @cached_property
    def broker(self) -> Any:
        """The broker that was given, or one of its own."""
        if self._given is not None:
            return self._given
        broker = started(self.folder / "broker")
        self._opened.callback(broker.stop)
        return broker

    @cached_property
    def snapshots(self) -> Path:
        """The folder in which the subscriptions are published; their ids are ``r`` and the rule's number."""
        selectors = pa.array(list(WORKLOADS[self.size.workload].texts(self.size.rules)), pa.string())
        ids = pc.binary_join_element_wise("r", pa.array(range(len(selectors))).cast(pa.string()), "")
        to = pa.repeat(pa.scalar(f"kafka:{DELIVERED}"), len(selectors))
        table = pa.table({"id": ids, "selector": selectors, "destination": to})
        sr.publish(sr.build_snapshot(table), self.folder / "snapshots")
        return self.folder / "snapshots"

    @cached_property
    def snapshot(self) -> sr.Snapshot:
        """The subscriptions."""
        return sr.Snapshot.open(self.snapshots)

    def lengths(self, count: int) -> Ints:
        """Return how many deliveries each of the first messages has."""
        parts = [np.diff(self.snapshot.match(batch).offsets) for batch in _batches(self.size, count)]
        return np.concatenate(parts).astype(np.int64)

    def topic(self, count: int) -> str:
        """Return the topic that has the first so many messages."""
        name = f"messages-{count}"
        if name not in self._made:
            self.create(name)
            records = (
                (n % PARTITIONS, b"k%d" % n, value, headers)
                for n, (value, headers) in enumerate(messages(self.size, count))
            )
            self.broker.produce(name, records)
        return name

    def create(self, topic: str, **config: str) -> str:
        """Make a topic, if there is none of this name."""
        if topic not in self._made:
            self.broker.create(topic, PARTITIONS, **_PIECES, **config)
            self._made.add(topic)
        return topic

    def ends(self, topic: str) -> list[int]:
        """Return the offset that the next record of each partition gets."""
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer({"bootstrap.servers": self.broker.address, "group.id": "bench"})
        try:
            places = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
            return [consumer.get_watermark_offsets(place, 30)[1] for place in places]
        finally:
            consumer.close()

    def clear(self, topic: str) -> None:
        """Remove what a topic has, but for its offsets."""
        for partition, end in enumerate(self.ends(topic)):
            self.broker.drop(topic, partition, end)

    def job_folder(self) -> Path:
        """Return a new folder for one run of a job."""
        self.folder.mkdir(parents=True, exist_ok=True)
        return Path(mkdtemp(prefix="job-", dir=self.folder))

    def found(self, topic: str) -> Expected:
        """Return how many deliveries a topic has, and the sum of the numbers of their rules."""
        records = self.broker.records(topic)
        named = (dict(record.headers())[_SUBSCRIPTION] for record in records)
        return Expected(len(records), sum(int(id[1:]) for id in named))


def messages(size: Size, count: int) -> Iterator[tuple[bytes, list[tuple[str, bytes]]]]:
    """Yield the value and the headers of each of the first messages of a workload."""
    names = _HEADERS[size.workload]
    for batch in _batches(size, count):
        columns = [pc.cast(batch.column(name), pa.string()).to_pylist() for name in names]
        for row in zip(*columns, strict=True):
            texts = [text.encode() for text in row]
            yield b"|".join(texts).ljust(BODY, b".")[:BODY], list(zip(names, texts, strict=True))


def _batches(size: Size, count: int) -> Iterator[pa.RecordBatch]:
    make = partial(WORKLOADS[size.workload].messages, size.rules)
    for start in range(0, count, _CHUNK):
        yield make(min(_CHUNK, count - start), start)
