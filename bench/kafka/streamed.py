"""Parts that the benchmarks of Kafka share at one size: a broker, records of the workload on its topics, and
the rules as subscriptions that are all delivered to one topic.

Message n of a topic is record ``n // PARTITIONS`` of partition ``n % PARTITIONS``: its key is ``k`` and n,
its headers are the columns that decide, its value has 107 bytes. What is written by a job is dated by the
broker, when it has it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cached_property, partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import selectroute as sr
from bench.definition import Size
from bench.engine import SkippedError
from bench.kafka.commits import CommitTimes, committed
from bench.opened import Opened
from bench.workloads.catalogue import WORKLOADS
from bench.workloads.oracle import Expected
from bench.workloads.plain import BODY, Ints
from bench.workloads.replies import correlation_ids
from selectroute.kafka.record import COUNT

PARTITIONS: Final = 4
DELIVERED: Final = "delivered"
"""The topic to which every subscription is delivered."""

_HEADERS: Final = {"Z": ("JMSType", "color", "weight"), "R": ("JMSCorrelationID",)}
"""What decides in a workload."""
_SUBSCRIPTION: Final = "selectroute-subscription"
_CHUNK: Final = 50_000
_PATIENCE_SECONDS: Final = 30
_PIECES: Final = {"segment.bytes": str(32 << 20), "file.delete.delay.ms": "1000"}
"""What was removed from a topic leaves the disk soon."""


def connector() -> dict[str, str]:
    """Return what a Spark session needs for Kafka. Raises `SkippedError` where that can't be had."""
    from bench.kafka.connector import ConnectorError, find_connector

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
        return self._published("snapshots", f"kafka:{DELIVERED}")

    @cached_property
    def recorded(self) -> Path:
        """The same subscriptions with no destination: deliveries are recorded and not sent."""
        return self._published("recorded", None)

    def _published(self, name: str, destination: str | None) -> Path:
        selectors = pa.array(list(WORKLOADS[self.size.workload].texts(self.size.rules)), pa.string())
        ids = pc.binary_join_element_wise("r", pa.array(range(len(selectors))).cast(pa.string()), "")
        to = pa.repeat(pa.scalar(destination, pa.string()), len(selectors))
        table = pa.table({"id": ids, "selector": selectors, "destination": to})
        sr.publish(sr.build_snapshot(table), self.folder / name)
        return self.folder / name

    def decisive(self) -> Iterator[str]:
        """Yield what decides in each rule: a correlation id, or type, color and weight parted by tabs."""
        triples = WORKLOADS[self.size.workload].triples
        if triples is None:
            for start in range(0, self.size.rules, _CHUNK):
                yield from correlation_ids(np.arange(start, min(start + _CHUNK, self.size.rules)))
            return
        rules = triples(self.size.rules)
        for one in zip(rules.type.tolist(), rules.color.tolist(), rules.weight.tolist(), strict=True):
            yield "t{}\tc{}\t{}".format(*one)

    @cached_property
    def rules(self) -> str:
        """The topic that has what decides in each rule, under the id that it has in `snapshots`."""
        topic = self.create(f"rules-{self.size.workload}-{self.size.rules}")
        records = ((n % PARTITIONS, b"r%d" % n, line.encode(), ()) for n, line in enumerate(self.decisive()))
        self.broker.produce(topic, records)
        return topic

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
        name = f"messages-{self.size.workload}-{count}"
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
            if self._given is not None:
                self._opened.callback(self._remove, topic)
        return topic

    def _remove(self, topic: str) -> None:
        """Remove a topic from a broker that lives on, unless that has been done."""
        from confluent_kafka import KafkaException

        with suppress(KafkaException):
            self.broker.delete(topic)

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

    def records(self, topic: str, start: Sequence[int] = ()) -> Iterator[Any]:
        """Yield the records of a topic, from these offsets of its partitions on; of transactions those that
        were committed.
        """
        from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

        consumer = Consumer(
            {
                "bootstrap.servers": self.broker.address,
                "group.id": "bench",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,  # the last offsets may be those of marks, which are no records
                "fetch.queue.backoff.ms": 5,
            }
        )
        offsets = start or [OFFSET_BEGINNING] * PARTITIONS
        left, deadline = set(range(PARTITIONS)), time.monotonic() + _PATIENCE_SECONDS
        try:
            consumer.assign([TopicPartition(topic, *place) for place in enumerate(offsets)])
            while left:
                found = consumer.consume(10_000, 0.1)
                for record in found:
                    error = record.error()
                    if error is None:
                        yield record
                    elif error.code() == KafkaError._PARTITION_EOF:
                        left.discard(record.partition())
                    else:
                        raise KafkaException(error)
                if found:
                    deadline = time.monotonic() + _PATIENCE_SECONDS
                elif time.monotonic() > deadline:
                    raise RuntimeError(f"{topic} can't be read to its end")
        finally:
            consumer.close()

    def committed(self, topic: str, start: Sequence[int], by_message: bool = False) -> int:
        """Count the committed deliveries of a topic from these offsets of its partitions on.

        By the broker's files or our own reader, because `records` takes longer than the job; what is checked
        is counted by that.
        """
        if not by_message:
            return sum(committed(self._log(topic, partition), first) for partition, first in enumerate(start))
        from selectroute.kafka.cluster import Wire
        from selectroute.kafka.reading import read
        from selectroute.kafka.record import Range

        ends = self.ends(topic)
        ranges = [Range(topic, *place) for place in zip(range(PARTITIONS), start, ends, strict=True)]
        with Wire(self.broker.address) as wire:
            parts = [part.records for part in read(wire, ranges, committed=True)]
        return sum(map(_listed, parts))

    def commit_times(self, topic: str, partition: int, start: Sequence[int]) -> CommitTimes:
        """Return when the records of a partition from an offset on were committed."""
        return CommitTimes(self._log(topic, partition), start[partition])

    def _log(self, topic: str, partition: int) -> Path:
        """Return the folder of a partition among the broker's files."""
        return Path(self.broker.folder, "log", f"{topic}-{partition}")

    def found(self, topic: str) -> Expected:
        """Return how many deliveries a topic has, and the sum of the numbers of their rules."""
        lists = (dict(record.headers())[_SUBSCRIPTION].split(b",") for record in self.records(topic))
        named = [id for ids in lists for id in ids]
        return Expected(len(named), sum(int(id[1:]) for id in named))


def messages(size: Size, count: int) -> Iterator[tuple[bytes, list[tuple[str, bytes]]]]:
    """Yield the value and the headers of each of the first messages of a workload."""
    names = _HEADERS[size.workload]
    for batch in _batches(size, count):
        columns = [pc.cast(batch.column(name), pa.string()).to_pylist() for name in names]
        for row in zip(*columns, strict=True):
            texts = [text.encode() for text in row]
            yield b"|".join(texts).ljust(BODY, b".")[:BODY], list(zip(names, texts, strict=True))


def _listed(records: pa.RecordBatch) -> int:
    """Count the deliveries of records that each list them."""
    names, values = records.column("headers").flatten().flatten()
    counts = values.filter(pc.equal(names, COUNT)).cast(pa.string()).cast(pa.int64())
    return int(pc.sum(counts).as_py() or 0)


def _batches(size: Size, count: int) -> Iterator[pa.RecordBatch]:
    make = partial(WORKLOADS[size.workload].messages, size.rules)
    for start in range(0, count, _CHUNK):
        yield make(min(_CHUNK, count - start), start)
