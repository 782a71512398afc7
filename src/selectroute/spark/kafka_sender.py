"""Handing a committed batch's deliveries on to Kafka, with Spark's own sink.

Spark's sink has no transactions: a batch that was interrupted while it was sent is sent once more, all of it.
Each record says in its headers which delivery it is, the same each time, and goes to the same partition, so
that who reads can leave repeats out: `selectroute.kafka.deduplicate`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Final, TypeVar

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, DataFrameReader, SparkSession

from selectroute.index.destination import KAFKA
from selectroute.index.snapshot import Snapshot
from selectroute.kafka.headers import BATCH, DELIVERY_ID, REVISION, SUBSCRIPTION
from selectroute.spark import durable
from selectroute.spark.destinations import destinations
from selectroute.spark.job import DestinationNotFoundError, Job, JobError
from selectroute.spark.kafka_admin import KafkaAdmin
from selectroute.spark.kafka_input import KafkaCluster, KafkaInput
from selectroute.spark.kafka_messages import Topic
from selectroute.spark.sender import patient, staged_file
from selectroute.spark.sources import SourceError

_STAGED: Final = (
    "source string, partition int, offset bigint, key binary, value binary, "
    "headers array<struct<key: string, value: binary>>, "
    "deliveries array<struct<destination: string, subscription: string, partition: int>>, first bigint"
)

# As texts, and in few steps: an expression that is made of calls takes Spark some hundred of them from Python
# to the JVM, and each frame between the files and the sink some milliseconds: a good part of what a small
# batch takes. What all deliveries of a message have in common has a step of its own before these are taken
# apart: in the same step as `posexplode` Spark computes it after that, once for each delivery.
_MESSAGE: Final = (
    "key",
    "value",
    "coalesce(headers, CAST(array() AS array<struct<key: string, value: binary>>)) AS headers",
    "concat_ws('/', `source`, `partition`, `offset`, '') AS origin",
    # Of the file's name, part-00012-…, the number.
    "concat_ws('/', {batch}, CAST(substring_index(substring(_metadata.file_name, 6), '-', 1) AS int), '') "
    "AS place",
    "{revision} AS revision",
    "`first`",
    "deliveries",
)
_DELIVERIES: Final = ("*", "posexplode(deliveries) AS (nth, delivery)")
_ADDED: Final = {
    SUBSCRIPTION: "delivery.subscription",
    DELIVERY_ID: "concat(origin, delivery.subscription)",
    REVISION: "revision",
    BATCH: "concat(place, `first` + nth)",
}
# The cast takes the bytes as they are; `encode` looks first whether they are UTF-8.
_HEADERS: Final = ", ".join(
    f"named_struct('key', '{name}', 'value', CAST({text} AS binary))" for name, text in _ADDED.items()
)
_RECORDS: Final = (
    "delivery.destination AS topic",
    "delivery.partition AS partition",
    "key",
    "value",
    f"concat(headers, array({_HEADERS})) AS headers",
)

_Result = TypeVar("_Result")


class KafkaSender:
    """See `Sender`.

    Args:
        spark: the session, with a connector.
        cluster: where the topics are.
        warn: called with a sentence when something holds the stream back.
        pause: waits some time; returns whether the job is to stop.
        input: what the job reads of Kafka, if it does.
    """

    def __init__(
        self,
        spark: SparkSession,
        cluster: KafkaCluster,
        warn: Callable[[str], None] = lambda _: None,
        pause: Callable[[], bool] = lambda: True,
        input: KafkaInput | None = None,
    ) -> None:
        self._spark = spark
        self._cluster = cluster
        self._warn = warn
        self._pause = pause
        self._input = input
        self._id: str | None = None
        self._known: dict[str, Topic] = {}

    @property
    def servers(self) -> str:
        """Where the cluster is."""
        return self._cluster.servers

    @property
    def name(self) -> str:
        """The id of the cluster."""
        if self._id is None:
            with KafkaAdmin(self._spark, self._cluster) as admin:
                self._id = admin.cluster_id()
        return self._id

    def known(self, topics: frozenset[str]) -> dict[str, Topic]:
        """Return those of these topics that there are.

        Those that were there once are not asked for again. Raises SourceError.
        """
        wanted = topics - self._known.keys()
        if wanted:
            with KafkaAdmin(self._spark, self._cluster) as admin:
                there = sorted(wanted & admin.topics())
                longest, partitions = admin.longest(there), admin.partitions(there)
                most = min(admin.check_producer())
            own = self._inputs(there)
            self._known |= {
                topic: Topic(min(longest[topic], most), partitions[topic], topic in own) for topic in there
            }
        return {topic: self._known[topic] for topic in topics & self._known.keys()}

    def _inputs(self, topics: Iterable[str]) -> set[str]:
        """Return those of these topics that the job reads itself. Raises SourceError."""
        input = self._input
        if input is None:
            return set()
        if input.cluster != self._cluster:
            with KafkaAdmin(self._spark, input.cluster) as admin:
                if admin.cluster_id() != self.name:
                    return set()
        if input.pattern is None:
            return set(topics) & set(input.topics)
        jvm: Any = self._spark.sparkContext._jvm
        return {one for one in topics if jvm.java.util.regex.Pattern.matches(input.pattern, one)}

    def topics(self, topics: frozenset[str]) -> dict[str, Topic]:
        """Return the same, when the cluster can be reached."""
        return self._patient(lambda: self.known(topics))

    def outgoing(self, job: str, deliveries: int) -> dict[str, Any]:
        """Return what a commit says of what it has for Kafka, besides the files."""
        return {
            "job": job,
            "cluster": self._patient(lambda: self.name),
            "deliveries": deliveries,
        }

    def send(
        self, batch: int, revision: int, outgoing: Mapping[str, Any], staging: Path
    ) -> list[dict[str, Any]]:
        """Write what a batch has staged, all of it at least once. See `Sender.send`."""
        sent = staging / "sent-kafka.json"
        if durable.read_json(sent) is not None:
            return []
        cluster = self._patient(lambda: self.name)
        if outgoing["cluster"] != cluster:
            raise JobError(
                f"batch {batch} is committed, and its records are for the Kafka cluster "
                f"{outgoing['cluster']}, not for {cluster}: start the job with that once more"
            )
        paths = [str(staged_file(staging, file)) for file in outgoing["files"]]
        records = _records(self._staged.parquet(*paths), outgoing, batch, revision)
        self._patient(lambda: self._write(records))
        durable.write_json(sent, {"batch": batch, "deliveries": outgoing["deliveries"]})
        return []

    @cached_property
    def _staged(self) -> DataFrameReader:
        return self._spark.read.schema(_STAGED)

    def _write(self, records: DataFrame) -> None:
        options = self._cluster.for_sink()
        records.write.format("kafka").options(**options).option("includeHeaders", True).save()

    def _patient(self, call: Callable[[], _Result]) -> _Result:
        """Call until the cluster can be reached and takes everything. Raises `StoppingError`."""
        return patient(call, _why, self._warn, self._pause)


def check_topics(job: Job, sender: KafkaSender) -> None:
    """Make sure that the topics to which the newest snapshot's subscriptions are delivered are there.

    Raises:
        DestinationNotFoundError: they are not.
        JobError: the job reads one of them.
        SourceError: the cluster does not answer.
    """
    to = destinations(Snapshot.open(job.snapshots), KAFKA)
    topics = frozenset() if to is None else frozenset(to.names)
    known = sender.known(topics)
    missing = sorted(topics - known.keys())
    if missing:
        shown = ", ".join(missing[:3]) + (f" and {len(missing) - 3:,} more" if len(missing) > 3 else "")
        raise DestinationNotFoundError(
            f"subscriptions are delivered to topics that Kafka has not ({sender.servers}): {shown}; create "
            "them first"
        )
    own = sorted(name for name, topic in known.items() if topic.is_input)
    if own:
        raise JobError(
            f"subscriptions are delivered to {', '.join(own[:3])}, which the job reads: each delivery would "
            "come in again, for ever"
        )


def check_cluster(job: Job) -> None:
    """Make sure that a job whose subscriptions are delivered to Kafka writes to one. Raises JobError."""
    to = None if job.kafka is not None else destinations(Snapshot.open(job.snapshots), KAFKA)
    if to is not None:
        raise JobError(
            f"subscriptions are delivered to topics of Kafka, such as {to.names[0]}: say where it is "
            "(--kafka-servers)"
        )


def _records(staged: DataFrame, outgoing: Mapping[str, Any], batch: int, revision: int) -> DataFrame:
    """Return a row a delivery, in the columns that Spark's sink reads."""
    given = {"batch": _literal(f"{outgoing['job']}/{batch}"), "revision": _literal(str(revision))}
    messages = staged.selectExpr(*(text.format(**given) for text in _MESSAGE))
    return messages.selectExpr(*_DELIVERIES).selectExpr(*_RECORDS)


def _literal(text: str) -> str:
    """Return a text as SQL has it, whatever is in it."""
    return f"CAST(X'{text.encode().hex()}' AS string)"


def _why(error: Exception) -> str | None:
    """Return why the stream waits, None for what no waiting mends."""
    if isinstance(error, SourceError):
        return str(error)
    if not isinstance(error, PySparkException | Py4JError):
        return None
    lines = [line.strip() for line in str(error).splitlines()]
    named = [line for line in lines if line.startswith(("org.apache.kafka.", "Caused by: org.apache.kafka."))]
    return "Kafka takes no records: " + (named[-1] if named else next(iter(filter(None, lines)), repr(error)))
