"""A world whose messages come from topics of Kafka, and may go to others."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

import selectroute as sr
from selectroute.index.jsonl import build_from_lines
from selectroute.kafka import KafkaBinding
from selectroute.spark import Job, start_fanout
from selectroute.spark.batch import router
from selectroute.spark.batch.commits import Commits
from selectroute.spark.batch.router import BatchReport
from selectroute.spark.cluster import KafkaCluster
from selectroute.spark.sources.kafka.config import KafkaInput
from selectroute.spark.stream.fan_out import StreamError
from selectroute.storage import Location
from selectroute.testing.broker import Broker
from tests.support.world import World

_OF_INPUT = ("starting", "max_offsets", "min_partitions", "pattern", "topics")

Given = str | tuple[str, Any]


class Killed(BaseException):
    """End of a job in this process, of which it takes no notice, as of a kill."""


class Pipe:
    """A job from topic to topic in folders of its own."""

    def __init__(self, spark: Any, broker: Broker, world: World, name: str) -> None:
        self.spark, self.broker, self.world, self.name = spark, broker, world, name
        self.cluster = KafkaCluster(broker.address)

    def publish(self, revision: int, **subscriptions: Given) -> int:
        """Subscriptions by name: a selector, or a selector and the topic, or else where it is delivered."""
        lines = []
        for name, given in subscriptions.items():
            selector, to = (given, None) if isinstance(given, str) else given
            to = {"kind": "kafka", "name": to} if isinstance(to, str) else to
            lines.append(json.dumps({"id": name, "selector": selector, "destination": to}))
        return sr.publish(build_from_lines(lines, revision), self.world.snapshots)

    def job(self, binding: tuple[str, ...] = ("weight:int",), **options: Any) -> Job:
        given = {name: options.pop(name) for name in _OF_INPUT if name in options}
        topics = () if "pattern" in given else given.pop("topics", (self.name,))
        cluster = options.pop("cluster", self.cluster)
        read = KafkaInput(cluster, topics, binding=KafkaBinding.of(binding), **given)
        return Job.of(options.pop("input", read), self.world.snapshots, self.world.output, **options)

    def start(self, on_batch: Callable[[BatchReport], None], **options: Any) -> Any:
        more = {name: options.pop(name) for name in ("registry", "on_warning") if name in options}
        job = options.pop("job", None) or self.job(**options)
        return start_fanout(self.spark, job, available_now=True, on_batch=on_batch, **more)

    def run(self, **options: Any) -> list[BatchReport]:
        """Route what is there; the reports of the batches."""
        reports: list[BatchReport] = []
        self.start(reports.append, **options).wait()
        return reports

    def run_killed(self, **options: Any) -> None:
        """Route what is there until a batch is about to be committed: it ends there, as if it were killed."""

        def killed(_commits: Commits, _commit: Any) -> None:
            raise Killed("killed before the commit")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Commits, "commit", killed)
            with pytest.raises(StreamError, match="killed before the commit"):
                self.run(**options)

    def to_topic(self, count: int, out: str | None = None) -> str:
        """Let all that comes be delivered to a topic, and so many records come; return the topic's name."""
        out = self.broker.create(out or self.name + "-out", 2)
        self.publish(1, all=("weight >= 0", out))
        self.broker.produce(self.name, cars(count))
        return out

    def sent(self, topic: str) -> Counter[str]:
        """The ids of the deliveries that a reader of committed records finds in a topic."""
        return Counter(headers_of(one)["selectroute-delivery-id"] for one in self.broker.records(topic))

    @property
    def query(self) -> str:
        return str((Location.of(self.world.output / "_job.json").read_json() or {})["query"])

    def delivered(self) -> Counter[tuple[int, int, str]]:
        """(partition, offset, subscription) of each delivery, with how often it was published."""
        return Counter(
            (row["partition"], row["offset"], row["subscription"]) for row in self.world.rows("deliveries")
        )


def refuse_after_plan(monkeypatch: pytest.MonkeyPatch, broker: Broker, topic: str, length: int) -> None:
    """Let a topic refuse longer records, from between the plan of a batch and its first record on."""
    write = router.write_plan

    def changed(*given: Any) -> None:
        write(*given)
        refuse_longer(broker, topic, length)

    monkeypatch.setattr(router, "write_plan", changed)


def cars(count: int, first: int = 0) -> list[Any]:
    """Records in three partitions, with weights from 0 up."""
    return [
        (n % 3, f"k{n}".encode(), f"body {n}".encode(), [("weight", str(n).encode())])
        for n in range(first, first + count)
    ]


def headers_of(record: Any) -> dict[str, str]:
    return {name: value.decode() for name, value in record.headers()}


def answer_within(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Let calls of Kafka fail after this time."""
    real = KafkaCluster.wire
    monkeypatch.setattr(KafkaCluster, "wire", lambda cluster, _=None: real(cluster, seconds))


def refuse_longer(broker: Broker, topic: str, size: int) -> None:
    """Limit a topic to records of at most this many bytes, and wait until it refuses longer ones. Some
    records without key and headers may be left: the broker reports a setting before applying it.
    """
    from confluent_kafka import KafkaError, Producer

    broker.configure(topic, "max.message.bytes", str(size))
    producer = Producer({"bootstrap.servers": broker.address})
    codes: list[Any] = [None]
    while codes[-1] != KafkaError.MSG_SIZE_TOO_LARGE:
        producer.produce(
            topic, b"." * size, on_delivery=lambda error, _: codes.append(error and error.code())
        )
        assert producer.flush(60) == 0
