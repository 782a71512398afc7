"""Kafka Streams and Flink from topic to topic, as those who know them would write the job: the rules are read
from a topic into what each has for data that all tasks need, and every match is a record of its own, with the
same headers as a delivery of `start_fanout`, exactly once.

Each has a process with two threads for matching, which runs one job after the other. The rules are in memory
before a job reads its first message.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Final
from uuid import uuid4

from bench.jvm import fetched
from bench.kafka.engines import KafkaEngine, Query
from bench.kafka.relay import JavaEngine, JavaQuery
from bench.kafka.streamed import Streamed

COMMIT_MILLISECONDS: Final = 5_000
"""How often one that is timed commits: as rarely as a batch of the fan-out ends, about."""

_COMMON: Final = ("topics/TopicPeer.java", "topics/SortedRules.java")
_HEAP: Final = "-Xmx4g"
_OPENED: Final = ("lang", "lang.reflect", "util", "util.concurrent", "nio", "net", "io", "text", "time")
"""What Flink's own configuration opens to it: it looks into the objects that are sent to its tasks."""


class FrameworkEngine(JavaEngine):
    """A job of a framework."""

    transactional = True
    options: ClassVar[tuple[str, ...]] = (_HEAP,)
    modules: ClassVar[tuple[str, ...]]
    """What it is fetched as."""
    often: ClassVar[int]
    """The milliseconds between two commits where a short way counts."""

    def jars(self, streamed: Streamed, java: Path) -> Sequence[Path]:
        """See `JavaEngine`."""
        return [jar for module in self.modules for jar in fetched(module, java, fetch=True)]

    def arguments(self, folder: Path) -> Sequence[str]:
        """See `JavaEngine`."""
        return [self.streamed.rules, str(folder)]

    def start(self, topic: str, count: int, trigger_seconds: float | None) -> Query:
        """See `KafkaEngine`. One that runs until it is stopped commits often."""
        interval, until = (
            (COMMIT_MILLISECONDS, "available") if trigger_seconds is None else (self.often, "all")
        )
        self.tell(f"run {topic} {self.to} {uuid4()} {interval} {until}")
        return JavaQuery(self)


class KafkaStreamsEngine(FrameworkEngine):
    """Kafka Streams with the rules in a global store."""

    name = "kafka-streams"
    to = "delivered-by-kafka-streams"
    main = "StreamsPeer"
    sources = ("topics/StreamsPeer.java", *_COMMON)
    modules = ("org.apache.kafka:kafka-streams:4.1.1",)  # the broker's version
    often = 100  # what Kafka Streams itself takes where it delivers exactly once


class FlinkEngine(FrameworkEngine):
    """Flink with the rules in broadcast state."""

    name = "flink"
    to = "delivered-by-flink"
    main = "FlinkPeer"
    sources = ("topics/FlinkPeer.java", "topics/FlinkJob.java", *_COMMON)
    options = (_HEAP, *(f"--add-opens=java.base/java.{one}=ALL-UNNAMED" for one in _OPENED))
    modules = (
        # The newest connector for 2.1; it leaves its base to the one who has Flink.
        "org.apache.flink:flink-clients:2.1.3",
        "org.apache.flink:flink-connector-base:2.1.3",
        "org.apache.flink:flink-connector-kafka:5.0.0-2.1",
    )
    often = 100


def makers(streamed: Streamed) -> Mapping[str, Callable[[int], KafkaEngine]]:
    """Return how to make each for a number of messages. Making one may raise `SkippedError`."""
    return {
        one.name: lambda count, one=one: one(streamed, count)  # type: ignore[misc]
        for one in (KafkaStreamsEngine, FlinkEngine)
    }
