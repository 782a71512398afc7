"""Sender of a committed batch's deliveries to Kafka, with Spark's own sink.

Spark's sink has no transactions: a batch that was interrupted while it was sent is sent again as a whole. The
headers of each record identify the delivery, and a repeat has the same headers and goes to the same
partition, so that consumers can drop repeats: `selectroute.kafka.deduplicate`.

::

    commit ─→ all in one write ─ok──────────────────────────────────────────→ sent-kafka.json ─→ publish
                  └ fails ─→ does the cluster answer? ─no→ wait, and retry           ↑
                                 └yes→ which topics refuse? ─→ the others are written; these
                                       are retried until their limit ─→ refused ─────┘

``sent-kafka.json`` in the batch's staging folder decides: everything is sent except to the topics named in
it, whose dead letters are made from it. After an earlier crash the batch is sent again, to all topics; after
a later one nothing is sent again. A topic may have accepted part of a batch before it refused the rest: such
a delivery is on the topic and a dead letter as well.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import pyarrow.parquet as pq
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, DataFrameReader, SparkSession

from selectroute.durable import disk
from selectroute.index.destination import KAFKA
from selectroute.index.snapshot import Snapshot
from selectroute.kafka.headers import BATCH, DELIVERY_ID, REVISION, SUBSCRIPTION
from selectroute.spark.destinations.codes import destinations
from selectroute.spark.destinations.kafka_records import UNKNOWN_TOPIC, Topic
from selectroute.spark.job.job import FAIL_MISSING, DestinationNotFoundError, Job, JobError
from selectroute.spark.senders.late_dead_letters import LateDelivery, write_late_letters
from selectroute.spark.senders.patience import Waiting
from selectroute.spark.senders.sender import StoppingError, patient, shown, staged_file
from selectroute.spark.sources.files.readers import SourcePartition
from selectroute.spark.sources.files.stream import SourceError
from selectroute.spark.sources.kafka.admin import KafkaAdmin
from selectroute.spark.sources.kafka.config import KafkaCluster, KafkaInput

_LOOK_SECONDS: Final = 10.0
"""Minimum interval between lookups of missing topics."""

REFUSED: Final = "destination-refused"
"""Reason of a dead letter for a topic that refused for too long."""

_ATTEMPT_SECONDS: Final = 15.0
"""Timeout of a write that finds out which topics refuse."""

_OF_CLUSTER: Final = ("ClusterAuthorization", "Authentication", "SecurityDisabled", "UnsupportedVersion")
"""Parts of the names of errors that concern the cluster, not a topic."""

_BATCH_ROWS: Final = 4_096

_BATCH_SIZE: Final = "kafka.batch.size"
_DEFAULT_BATCH_SIZE: Final = 16_384
_EACH_ALONE: Final = 0

_STAGED: Final = (
    "source string, partition int, offset bigint, key binary, value binary, "
    "headers array<struct<key: string, value: binary>>, "
    "deliveries array<struct<destination: string, subscription: string, partition: int>>, first bigint"
)

# Texts in few steps, because small batches are slow otherwise: an expression built with functions takes some
# hundred calls from Python to the JVM, and each frame between the files and the sink some milliseconds. The
# columns that all deliveries of a message share are a step before `posexplode`: in the same step Spark would
# compute them after it, once for each delivery.
_MESSAGE: Final = (
    "key",
    "value",
    "coalesce(headers, CAST(array() AS array<struct<key: string, value: binary>>)) AS headers",
    "concat_ws('/', `source`, `partition`, `offset`, '') AS origin",
    # The number in the file's name, part-00012-….
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
# A cast copies the bytes; `encode` would check them for UTF-8 first.
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
    """Sender to Kafka topics; see `Sender`.

    Args:
        spark: the session, with a connector.
        cluster: the cluster of the topics.
        warn: called with a sentence when something holds the stream back.
        pause: waits some time; returns whether the job is to stop.
        wait_seconds: how long a topic that refuses may hold the stream back; see `Waiting`.
        input: the job's input, if it is Kafka.
    """

    def __init__(
        self,
        spark: SparkSession,
        cluster: KafkaCluster,
        warn: Callable[[str], None] = lambda _: None,
        pause: Callable[[], bool] = lambda: True,
        wait_seconds: float = float("inf"),
        input: KafkaInput | None = None,
    ) -> None:
        self._spark = spark
        self._cluster = cluster
        self.servers = cluster.servers
        self._warn = warn
        self._pause = pause
        self._input = input
        self._id: str | None = None
        self._known: dict[str, Topic] = {}
        self._most = 0  # bytes of a request
        self._has_sent = False
        self._absent: frozenset[str] = frozenset()
        self._looked = -_LOOK_SECONDS
        self.waiting = Waiting("the topic", wait_seconds, warn)

    @property
    def name(self) -> str:
        """Id of the cluster."""
        if self._id is None:
            with KafkaAdmin(self._spark, self._cluster) as admin:
                self._id = admin.cluster_id()
        return self._id

    def known(self, topics: frozenset[str], refresh: bool = True) -> dict[str, Topic]:
        """Return those of these topics that exist.

        Topics found before are not looked up again. Without ``refresh``, missing ones are looked up only now
        and then, since a topic that is never created would cost each batch a request. Raises SourceError.
        """
        wanted = topics - self._known.keys()
        is_due = refresh or time.monotonic() - self._looked >= _LOOK_SECONDS
        if wanted and (is_due or not wanted <= self._absent):
            with KafkaAdmin(self._spark, self._cluster) as admin:
                existing = sorted(wanted & admin.topics())
                longest, partitions = admin.longest(existing), admin.partitions(existing)
                self._most = min(admin.check_producer())
            own = self._inputs(existing)
            self._known |= {
                topic: Topic(min(longest.get(topic, self._most), self._most), partitions[topic], topic in own)
                for topic in existing
                if topic in partitions
            }
            self._absent = wanted - self._known.keys()
            self._looked = time.monotonic()
        return {topic: self._known[topic] for topic in topics & self._known.keys()}

    def _inputs(self, topics: Iterable[str]) -> set[str]:
        """Return those of these topics that are the job's input. Raises SourceError."""
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

    def topics(self, topics: frozenset[str], refresh: bool = True) -> dict[str, Topic]:
        """Return `known`, waiting until the cluster answers. Raises `StoppingError`."""
        return self._patient(lambda: self.known(topics, refresh))

    def outgoing(self, job: str, deliveries: int) -> dict[str, Any]:
        """Return the record of a commit's Kafka deliveries, without the files."""
        return {
            "job": job,
            "cluster": self._patient(lambda: self.name),
            "deliveries": deliveries,
        }

    def send(
        self, batch: int, revision: int, outgoing: Mapping[str, Any], staging: Path
    ) -> list[dict[str, Any]]:
        """Write the staged deliveries of a batch, each at least once. See `Sender.send`."""
        sent = staging / "sent-kafka.json"
        done = disk.read_json(sent)
        if done is None:
            refused = self._send(batch, revision, outgoing, staging)
            done = {"batch": batch, "deliveries": outgoing["deliveries"], "refused": refused}
            disk.write_json(sent, done)
        refused = done.get("refused", {})  # missing if written by an earlier release
        if not refused:
            return []
        return write_late_letters(KAFKA, batch, revision, staging, partial(_late, outgoing, staging, refused))

    # ---- inside

    def _send(
        self, batch: int, revision: int, outgoing: Mapping[str, Any], staging: Path
    ) -> dict[str, list[str]]:
        """Write the staged deliveries of a batch; return the topics that refused, each with the reason and
        the error text of its dead letters.
        """
        cluster = self._patient(lambda: self.name)
        if outgoing["cluster"] != cluster:
            raise JobError(
                f"batch {batch} is committed for the Kafka cluster {outgoing['cluster']}, not for {cluster}: "
                "start the job with the former once more, to send it"
            )
        paths = [str(staged_file(staging, file)) for file in outgoing["files"]]
        records = _records(self._staged.parquet(*paths), outgoing, batch, revision)
        if not self._has_sent:  # the batch may be an earlier process's, whose topics are not known here
            self.topics(_topics_in(records))
            self._has_sent = True
        refused: dict[str, list[str]] = {}
        todo: frozenset[str] | None = None  # all
        if tripped := self.waiting.tripped:
            todo = _topics_in(records)
            refused = self._try_tripped(records, todo & tripped)
            todo -= tripped
        if todo is None or todo:
            failure = self._failure(records if todo is None else _only(records, todo))
            if failure is not None:
                refused |= self._apart(records, _topics_in(records) if todo is None else todo, failure)
        return refused

    def _try_tripped(self, records: DataFrame, topics: Collection[str]) -> dict[str, list[str]]:
        """Write once to topics that are no longer waited for, if their budget allows one attempt; return
        those that refused.
        """
        refused = {}
        for topic in sorted(topics):
            why = "it refused before"
            if self.waiting.budget(topic) >= min(self._attempt_seconds, self.waiting.seconds):
                started = time.monotonic()
                failure = self._failure(_only(records, [topic]), is_quick=True)
                self.waiting.waited([topic], time.monotonic() - started)
                if failure is None:
                    self.waiting.took(topic)
                    continue
                why = failure.why
            refused[topic] = [REFUSED, _refusal(topic, why)]
        return refused

    def _apart(self, records: DataFrame, topics: Collection[str], failure: _Failure) -> dict[str, list[str]]:
        """Write to topics of which some refuse, until each accepts or has no time left; return those that
        refused.
        """
        refused: dict[str, list[str]] = {}
        todo = frozenset(topics)
        while todo:
            started = time.monotonic()
            existing = self._patient(lambda todo=todo: self._look_again(todo))  # type: ignore[misc]
            for topic in todo - existing:
                text = f"the topic {topic} was deleted after the batch was committed"
                refused[topic] = [UNKNOWN_TOPIC, text]
            failures = self._failures(records, sorted(todo & existing), failure)
            if not self._answers():
                continue  # the cluster may be the cause of the failures
            for topic in (todo & existing) - failures.keys():
                self.waiting.took(topic)
            todo = frozenset(failures)
            self.waiting.waited(todo, time.monotonic() - started)
            for topic, one in failures.items():
                why = f"the topic {topic} refuses records ({one.why})"
                if self.waiting.left(topic) > 0:
                    self.waiting.begin(topic, why)
                    failure = one
                else:
                    self.waiting.trip(topic, why)
                    refused[topic] = [REFUSED, _refusal(topic, one.why)]
                    todo -= {topic}
            if todo and self._pause():
                raise StoppingError(f"the job stopped while it waited: {failure.why}")
        return refused

    def _failures(self, records: DataFrame, topics: list[str], failure: _Failure) -> dict[str, _Failure]:
        """Write to these topics, some of which made a write fail, by bisection; return those that fail."""
        if not topics:
            return {}
        suspects = [topic for topic in topics if topic in failure.text]
        if not suspects or len(suspects) == len(topics):
            suspects = topics[: len(topics) // 2]
        parts = [suspects, [topic for topic in topics if topic not in set(suspects)]]
        found: dict[str, _Failure] = {}
        for part in filter(None, parts):
            repeated = self._failure(_only(records, part), is_quick=True)
            if repeated is not None:
                found |= {part[0]: repeated} if len(part) == 1 else self._failures(records, part, repeated)
        return found

    def _look_again(self, topics: frozenset[str]) -> frozenset[str]:
        """Return those of these topics that exist now. Raises SourceError."""
        for topic in topics:
            self._known.pop(topic, None)
        return frozenset(self.known(topics))

    def _answers(self) -> bool:
        """Return whether the cluster answers."""
        try:
            with KafkaAdmin(self._spark, self._cluster) as admin:
                admin.cluster_id()
        except SourceError:
            return False
        return True

    def _failure(self, records: DataFrame, is_quick: bool = False) -> _Failure | None:
        """Write records; return the failure of a topic, None if all accept. Waits for a cluster that does not
        answer, and after failures that are not Kafka's.
        """

        def write() -> _Failure | None:
            try:
                self._write(records, is_quick)
            except (PySparkException, Py4JError) as error:
                failure = _failure_of(error)
                if failure is None or not self._answers():
                    raise
                return failure
            return None

        return self._patient(write)

    @property
    def _attempt_seconds(self) -> float:
        return min(_ATTEMPT_SECONDS, max(2.0, self.waiting.seconds))

    @cached_property
    def _staged(self) -> DataFrameReader:
        return self._spark.read.schema(_STAGED)

    def _write(self, records: DataFrame, is_quick: bool = False) -> None:
        """Write records in batches within the size limit of every topic.

        The client splits and resends a batch that is refused for its size, but its ``flush``, after which
        Spark checks for failures, does not wait for that (KAFKA-19479; Spark comes with kafka-clients 3.9):
        failures of the parts would be lost silently.
        """
        options = self._cluster.for_sink()
        options |= _patience(options, self._attempt_seconds if is_quick else None)
        size = min([_batch_size(options), *(topic.longest for topic in self._known.values())])
        self._save(records, options, size)
        if self._least_longest() < size:  # the limit of a topic was lowered
            self._save(records, options, _EACH_ALONE)

    def _save(self, records: DataFrame, options: Mapping[str, str], batch_size: int) -> None:
        to_kafka = records.write.format("kafka").options(**options)
        to_kafka.option(_BATCH_SIZE, batch_size).option("includeHeaders", True).save()

    def _least_longest(self) -> int:
        """Look up the size limits of all topics again; return the smallest. Raises SourceError."""
        with KafkaAdmin(self._spark, self._cluster) as admin:
            longest = admin.longest(self._known)
        for name, most in longest.items():
            self._known[name] = self._known[name]._replace(longest=min(most, self._most))
        return min((topic.longest for topic in self._known.values()), default=self._most)

    def _patient(self, call: Callable[[], _Result]) -> _Result:
        """Call until the cluster answers. Raises `StoppingError`."""
        return patient(call, _why, self._warn, self._pause)


class _Failure(NamedTuple):
    """Failed write to Kafka: a short reason, and Spark's whole error text."""

    why: str
    text: str


def _failure_of(error: Exception) -> _Failure | None:
    """Return the failure if it may be a topic's; None if it concerns the cluster, or is not Kafka's."""
    text = str(error)
    named = _named(text)
    if not named or any(one in named[-1] for one in _OF_CLUSTER):
        return None
    return _Failure(
        named[-1].removeprefix("Caused by: ").removeprefix("org.apache.kafka.common.errors."), text
    )


def _patience(options: Mapping[str, str], seconds: float | None) -> dict[str, str]:
    """Return the timeouts of Kafka's client: ``seconds``, or, unless set in ``options``, shorter ones than
    its defaults, so that a topic that refuses is detected sooner.
    """
    try:
        request, linger = (
            int(options.get(f"kafka.{name}", default))
            for name, default in (("request.timeout.ms", "30000"), ("linger.ms", "0"))
        )
    except ValueError:
        return {}  # Kafka's client has the better error text
    block, request = (30_000, request) if seconds is None else (int(seconds * 1000), int(seconds * 1000))
    # The client rejects less than the sum; a second more, in case a default changes.
    delivery = request + linger + 1_000 if seconds is not None else max(60_000, request + linger + 1_000)
    found = {
        "kafka.max.block.ms": str(block),
        "kafka.request.timeout.ms": str(request),
        "kafka.delivery.timeout.ms": str(delivery),
    }
    return (
        found if seconds is not None else {name: text for name, text in found.items() if name not in options}
    )


def _batch_size(options: Mapping[str, str]) -> int:
    """Return the bytes of a producer's batch."""
    try:
        return int(options.get(_BATCH_SIZE, _DEFAULT_BATCH_SIZE))
    except ValueError:
        return _DEFAULT_BATCH_SIZE  # the job does not start with a setting that is not a number


def _topics_in(records: DataFrame) -> frozenset[str]:
    """Return the topics of records, by reading them."""
    return frozenset(row.topic for row in records.select("topic").distinct().collect())


def _only(records: DataFrame, topics: Collection[str]) -> DataFrame:
    return records.where(f"topic IN ({', '.join(_literal(topic) for topic in sorted(topics))})")


def _refusal(topic: str, why: str) -> str:
    return f"the topic {topic} refused records after the batch was committed: {why}"


def _late(
    outgoing: Mapping[str, Any], staging: Path, refused: Mapping[str, Sequence[str]]
) -> Iterator[LateDelivery]:
    """Yield the deliveries to topics that refused."""
    columns = ["source", "partition", "offset", "deliveries"]
    for file in outgoing["files"]:
        with pq.ParquetFile(staged_file(staging, file)) as parquet:
            for batch in parquet.iter_batches(_BATCH_ROWS, columns=columns, use_threads=False):
                for source, partition, offset, deliveries in zip(
                    *(batch.column(name).to_pylist() for name in columns), strict=True
                ):
                    for one in deliveries:
                        if one["destination"] in refused:
                            reason, text = refused[one["destination"]]
                            place = SourcePartition(source, partition)
                            yield LateDelivery(place, offset, one["subscription"], reason, text)


def topics_of(snapshot: Snapshot) -> frozenset[str]:
    """Return the Kafka topics to which a snapshot's subscriptions are delivered."""
    to = destinations(snapshot, KAFKA)
    return frozenset() if to is None else frozenset(to.names)


def check_topics(job: Job, sender: KafkaSender) -> None:
    """Check that the cluster answers and, if missing destinations fail the job, that the topics of the newest
    snapshot's subscriptions exist.

    Raises:
        DestinationNotFoundError: a topic does not exist.
        JobError: the job reads one of the topics.
        SourceError: the cluster does not answer.
    """
    topics = topics_of(Snapshot.open(job.snapshots))
    known = sender.known(topics)
    if job.missing_destinations != FAIL_MISSING:
        return
    missing = sorted(topics - known.keys())
    if missing:
        raise DestinationNotFoundError(
            f"subscriptions are delivered to topics that do not exist in Kafka ({sender.servers}): "
            f"{shown(missing)}; create them first"
        )
    own = sorted(name for name, topic in known.items() if topic.is_input)
    if own:
        raise JobError(
            f"subscriptions are delivered to {', '.join(own[:3])}, which the job reads: each delivery would "
            "return endlessly"
        )


def check_cluster(job: Job) -> None:
    """Check that a job with subscriptions delivered to Kafka has a cluster, if missing destinations fail the
    job. Raises JobError.
    """
    if job.missing_destinations != FAIL_MISSING:
        return
    to = None if job.kafka is not None else destinations(Snapshot.open(job.snapshots), KAFKA)
    if to is not None:
        raise JobError(
            f"subscriptions are delivered to Kafka topics, such as {to.names[0]}: name the cluster with "
            "--kafka-servers"
        )


def _records(staged: DataFrame, outgoing: Mapping[str, Any], batch: int, revision: int) -> DataFrame:
    """Return one row per delivery, in the columns that Spark's sink reads."""
    given = {"batch": _literal(f"{outgoing['job']}/{batch}"), "revision": _literal(str(revision))}
    messages = staged.selectExpr(*(text.format(**given) for text in _MESSAGE))
    return messages.selectExpr(*_DELIVERIES).selectExpr(*_RECORDS)


def _literal(text: str) -> str:
    """Return a text as an SQL expression, with any characters."""
    return f"CAST(X'{text.encode().hex()}' AS string)"


def _why(error: Exception) -> str | None:
    """Return why the stream waits; None for an error that waiting does not resolve."""
    if isinstance(error, SourceError):
        return str(error)
    if not isinstance(error, PySparkException | Py4JError):
        return None
    text = str(error)
    first = next(filter(None, (line.strip() for line in text.splitlines())), repr(error))
    return "Kafka accepts no records: " + (_named(text) or [first])[-1]


def _named(text: str) -> list[str]:
    """Return the lines of an error that name Kafka's errors, the root cause last."""
    lines = (line.strip() for line in text.splitlines())
    return [line for line in lines if line.startswith(("org.apache.kafka.", "Caused by: org.apache.kafka."))]
