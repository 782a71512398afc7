"""Requests to a Kafka cluster: its id, topics, partitions and offsets, and single records by their offsets.

They use Kafka's own Java client, which Spark's connector includes, with the same settings as Spark.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, TypeAlias, TypeVar

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import SparkSession

from selectroute.kafka.record import Record
from selectroute.spark.runtime.jars import require_connector
from selectroute.spark.sources.files.stream import SourceError
from selectroute.spark.sources.kafka.config import KafkaCluster

_OF_ONE_TOPIC = ("UnknownTopicOrPartitionException", "TopicAuthorizationException", "InvalidTopicException")

SECONDS = 20
"""Timeout of a request to the cluster."""

_TIMEOUTS = {"request.timeout.ms": str(SECONDS * 500), "default.api.timeout.ms": str(SECONDS * 1000)}

Partition: TypeAlias = tuple[str, int]
"""Topic and number."""

SourcePartition: TypeAlias = tuple[str, int, int]
"""Topic, partition and offset of a record."""

_Answer = TypeVar("_Answer")


class KafkaAdmin:
    """Client of one cluster, as a context manager. Every call raises SourceError, in one sentence.

    Raises:
        ConnectorError: the session has no connector for Kafka.
        SourceError: Kafka's client rejects the settings.
    """

    def __init__(self, spark: SparkSession, cluster: KafkaCluster) -> None:
        require_connector(spark)
        self._cluster = cluster
        jvm: Any = spark.sparkContext._jvm
        self._jvm, self._package = jvm, jvm.org.apache.kafka
        settings = self._java_map({**_TIMEOUTS, **cluster.for_clients()})
        self._admin = self._called(lambda: self._package.clients.admin.AdminClient.create(settings))

    def __enter__(self) -> KafkaAdmin:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(Py4JError):
            self._admin.close(self._jvm.java.time.Duration.ofSeconds(0))

    def cluster_id(self) -> str:
        """Return the unique id of the cluster."""
        return str(self._called(lambda: self._admin.describeCluster().clusterId().get()))

    def topics(self) -> set[str]:
        """Return the topics visible to this client, without Kafka's internal ones."""
        return {str(name) for name in self._called(lambda: self._admin.listTopics().names().get())}

    def kept(self, partitions: Iterable[Partition]) -> dict[Partition, tuple[int, int]]:
        """Return the first and the next offset of each of these partitions that exists."""
        wanted = set(partitions)
        counts = self.partitions(self.topics() & {topic for topic, _ in wanted})
        existing = {one for one in wanted if one[1] < counts.get(one[0], 0)}
        specs = self._package.clients.admin.OffsetSpec
        first, after = self._offsets(existing, specs.earliest()), self._offsets(existing, specs.latest())
        return {one: (first[one], after[one]) for one in existing}

    def _offsets(self, partitions: Iterable[Partition], spec: Any) -> dict[Partition, int]:
        wanted = self._jvm.java.util.HashMap()
        keys = {}
        for topic, partition in partitions:
            keys[topic, partition] = self._package.common.TopicPartition(topic, partition)
            wanted.put(keys[topic, partition], spec)
        found = self._called(lambda: self._admin.listOffsets(wanted).all().get())
        return {where: int(found.get(key).offset()) for where, key in keys.items()}

    def records(self, places: Iterable[SourcePartition]) -> dict[SourcePartition, Record]:
        """Return those of these records that Kafka still has, fetched one by one."""
        wanted = sorted(set(places))
        kept = self.kept({(topic, partition) for topic, partition, _ in wanted})
        found: dict[SourcePartition, Record] = {}
        with self._consumer() as consumer:
            assigned: tuple[str, int, Any] | None = None
            for place in wanted:
                topic, partition, offset = place
                first, after = kept.get((topic, partition), (0, 0))
                if not first <= offset < after:
                    continue
                if assigned is None or assigned[:2] != (topic, partition):
                    assigned = topic, partition, self._package.common.TopicPartition(topic, partition)
                    only = self._jvm.java.util.Collections.singletonList(assigned[2])
                    self._called(lambda only=only: consumer.assign(only))  # type: ignore[misc]
                record = self._record(consumer, assigned[2], offset)
                if record is not None:
                    found[place] = record
        return found

    @contextmanager
    def _consumer(self) -> Iterator[Any]:
        """Open a consumer that polls one record at a time, without a group and without commits."""
        deserializer = "org.apache.kafka.common.serialization.ByteArrayDeserializer"
        settings = {
            **_TIMEOUTS,
            "max.partition.fetch.bytes": str(1 << 16),  # a longer record is still returned, alone
            **self._cluster.for_clients(),
            "max.poll.records": "1",
            "enable.auto.commit": "false",
            "auto.offset.reset": "none",
            "key.deserializer": deserializer,
            "value.deserializer": deserializer,
        }
        java_settings = self._java_map(settings)
        consumer = self._called(lambda: self._package.clients.consumer.KafkaConsumer(java_settings))
        try:
            yield consumer
        finally:
            with suppress(Py4JError):
                consumer.close(self._jvm.java.time.Duration.ofSeconds(0))

    def _record(self, consumer: Any, partition: Any, offset: int) -> Record | None:
        """Return the record at an offset of the consumer's partition; None if it was compacted away."""
        self._called(lambda: consumer.seek(partition, offset))
        deadline = time.monotonic() + SECONDS
        wait = self._jvm.java.time.Duration.ofMillis(200)
        while time.monotonic() < deadline:
            polled = self._called(lambda: consumer.poll(wait)).iterator()
            if polled.hasNext():
                one = polled.next()
                if one.offset() != offset:
                    return None
                key, value, headers = one.key(), one.value(), one.headers().toArray()
                return Record(
                    one.topic(),
                    one.partition(),
                    offset,
                    one.timestamp(),
                    None if key is None else bytes(key),
                    None if value is None else bytes(value),
                    [(str(h.key()), None if h.value() is None else bytes(h.value())) for h in headers],
                )
            if self._called(lambda: consumer.position(partition)) > offset:
                return None  # only transaction markers
        raise SourceError(f"Kafka at {self._cluster.servers} does not answer within {SECONDS} s")

    def check_producer(self) -> tuple[int, int]:
        """Check the settings of a producer; return its maximum request size and its buffer size in bytes."""
        serializer = "org.apache.kafka.common.serialization.ByteArraySerializer"
        serializers = {"key.serializer": serializer, "value.serializer": serializer}
        settings = self._java_map(self._cluster.for_producers() | serializers)
        config = self._called(lambda: self._package.clients.producer.ProducerConfig(settings))
        return int(config.getInt("max.request.size")), int(config.getLong("buffer.memory"))

    def longest(self, topics: Iterable[str]) -> dict[str, int]:
        """Return the maximum record size of each topic in bytes, without topics invisible to this client."""
        config = self._package.common.config
        kind = config.ConfigResource.Type.valueOf("TOPIC")
        wanted = self._jvm.java.util.ArrayList()
        for topic in topics:
            wanted.add(config.ConfigResource(kind, topic))
        found = self._called(lambda: self._each(self._admin.describeConfigs(wanted).values()))
        return {str(key.name()): int(one.get("max.message.bytes").value()) for key, one in found}

    def partitions(self, topics: Iterable[str]) -> dict[str, int]:
        """Return the number of partitions of each topic, without topics that are gone or not visible."""
        wanted = self._jvm.java.util.ArrayList()
        for topic in topics:
            wanted.add(topic)
        found = self._called(lambda: self._each(self._admin.describeTopics(wanted).topicNameValues()))
        return {str(key): len(one.partitions()) for key, one in found}

    def _java_map(self, entries: Mapping[str, str]) -> Any:
        found = self._jvm.java.util.HashMap()
        for name, value in entries.items():
            found.put(name, value)
        return found

    @staticmethod
    def _each(futures: Any) -> list[tuple[Any, Any]]:
        """Return the results of several futures, without those of topics that are gone or not visible, which
        must not fail the others.
        """
        found = []
        for one in futures.entrySet():
            try:
                found.append((one.getKey(), one.getValue().get()))
            except Py4JJavaError as error:
                cause = error.java_exception.getCause()
                name = "" if cause is None else cause.getClass().getSimpleName()
                if name not in _OF_ONE_TOPIC:
                    raise
        return found

    def _called(self, call: Callable[[], _Answer]) -> _Answer:
        try:
            return call()
        except Py4JJavaError as error:
            cause = error.java_exception
            while cause.getCause() is not None:
                cause = cause.getCause()
            name, message = cause.getClass().getSimpleName(), str(cause.getMessage() or "").strip()
            if name == "TimeoutException":
                raise SourceError(
                    f"Kafka at {self._cluster.servers} does not answer within {SECONDS} s"
                ) from error
            first_line = message.split("\n")[0]
            raise SourceError(f"Kafka at {self._cluster.servers}: {name}: {first_line}") from error
