"""Kafka as a destination: what the driver of a job knows of its topics, and the target of each batch.

The tasks send (see ``writer``). Here are the existing topics, with their limits, and the topic of the job's
commit tokens.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeVar

from selectroute.index.destination import BY_MESSAGE, KAFKA
from selectroute.index.snapshot import Snapshot
from selectroute.spark.cluster import READ_RECREATED
from selectroute.spark.destinations.destination import (
    Topic,
    Waiting,
    destinations,
    names_of,
    patient,
    refuse_missing,
)
from selectroute.spark.destinations.kafka.writer import KafkaTarget
from selectroute.spark.job import FAIL_MISSING, Job, JobError
from selectroute.spark.sources.kafka.config import KafkaInput

if TYPE_CHECKING:  # needs the extra `kafka`
    from selectroute.kafka.cluster import Wire
    from selectroute.kafka.tokens import CommitToken, TokenTopic
    from selectroute.spark.folder import OutputFolder

_LOOK_SECONDS: Final = 10.0
"""Minimum interval between lookups of missing topics."""

_NO_TRANSACTIONS: Final = "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"

_LIMIT: Final = "max.message.bytes"
_DIFFERENCE: Final = "message.timestamp.difference.max.ms"
_BEFORE: Final = "message.timestamp.before.max.ms"
_AFTER: Final = "message.timestamp.after.max.ms"
"""Settings of topics; brokers before Kafka 3.6 have `_DIFFERENCE`, for both directions."""

_Result = TypeVar("_Result")


class KafkaTopics:
    """Topics that a job's subscriptions are delivered to.

    Args:
        job: the job, which has a cluster.
        warn: called with a sentence when something holds the stream back.
        pause: waits some time; returns whether the job is to stop.
    """

    def __init__(
        self, job: Job, warn: Callable[[str], None] = lambda _: None, pause: Callable[[], bool] = lambda: True
    ) -> None:
        assert job.kafka is not None, "a job without a cluster has no topics"
        self._cluster = job.kafka
        self._by_message = job.kafka_grouping == BY_MESSAGE
        self._input = job.input if isinstance(job.input, KafkaInput) else None
        self.servers = self._cluster.servers
        self._warn = warn
        self._pause = pause
        self._opened: Wire | None = None
        self._id: str | None = None
        self._known: dict[str, Topic] = {}
        self._absent: frozenset[str] = frozenset()
        self._looked = -_LOOK_SECONDS
        self._producer = ""
        self._is_begun = False
        self._folder: OutputFolder | None = None
        self._ids: dict[str, list[str]] = {}
        self._tokens: TokenTopic | None = None
        self._newest: dict[str, CommitToken] = {}
        self.waiting = Waiting("the topic", job.destination_wait, warn)

    @property
    def name(self) -> str:
        """Id of the cluster."""
        if self._id is None:
            self._id = self.wire().cluster_id()
        return self._id

    def bind(self, folder: OutputFolder, is_begun: bool) -> None:
        """Bind to a job, before its first batch.

        Args:
            folder: the output folder, whose id names the job's producers and its topic of tokens.
            is_begun: whether a batch may have been sent whose tokens are needed.
        """
        self._producer = f"selectroute-{folder.identity()}"
        self._is_begun = is_begun
        self._folder = folder
        self._ids = folder.destination_ids()

    def open_tokens(self) -> None:
        """Open the topic of commit tokens and read it, unless that is done.

        Raises:
            KafkaClientError: Kafka does not answer, or refuses transactions, or the topic is not usable.
        """
        if self._tokens is not None:
            return
        from selectroute.kafka.errors import RefusedError
        from selectroute.kafka.tokens import open_topic, scan  # needs the extra `kafka`
        from selectroute.kafka.transactions import Transactions

        assert self._folder is not None, "a job must be bound before it sends"
        wire, known = self.wire(), self._folder.tokens_id()
        name, may_change = f"{self._producer}-tokens", self._cluster.recreated == READ_RECREATED
        topic = open_topic(wire, name, self._is_begun, known, may_change)
        try:
            # Refused without the rights to transactions.
            Transactions(wire, f"{self._producer}-check").begin()
        except RefusedError as error:
            if error.name != _NO_TRANSACTIONS:
                raise
            raise RefusedError(
                f"Kafka at {self.servers}: this client needs the right Write on the transactional ids that "
                f"begin with {self._producer}- ({error.name})",
                error.name,
            ) from error
        self._tokens, newest = scan(wire, topic)
        self._newest = {token.key: token for token in newest}
        self._folder.note_tokens(topic.name, topic.id)

    def has_tokens(self, batch: int) -> bool:
        """Return whether anything of a batch was sent, as far as is known here."""
        return any(token.batch == batch for token in self._newest.values())

    def target(self, job: str, batch: int, topics: Mapping[str, Topic], plan_sha256: str) -> KafkaTarget:
        """Return the target of a batch, waiting until the cluster answers.

        Args:
            job: the id of the query.
            batch: the number of the batch.
            topics: the existing topics.
            plan_sha256: digest of the batch's plan.

        Raises `StoppingError`, and the errors of `open_tokens`.
        """
        if topics:
            self.patient(self.open_tokens)
        tokens = self._tokens
        ids: dict[str, str] = {}
        if self._cluster.recreated != READ_RECREATED:
            ids = {name: of_topic[-1] for name in topics if (of_topic := self._ids.get(name))}
        if tokens is not None:
            known = tuple(token for token in self._newest.values() if token.batch == batch)
            tokens = replace(tokens, known=known)
        return KafkaTarget(
            self._cluster,
            topics,
            job,
            batch,
            self._producer,
            tokens,
            plan_sha256,
            ids,
            by_message=self._by_message,
        )

    def read_to(self, offsets: Iterable[Mapping[str, int]]) -> None:
        """Record how far tasks have read the tokens, by partition: the next batch reads from there."""
        if self._tokens is None:
            return
        since = dict(self._tokens.since)
        for of_task in offsets:
            for partition, offset in of_task.items():
                since[int(partition)] = max(since.get(int(partition), 0), offset)
        self._tokens = replace(self._tokens, since=since)

    def known(self, topics: frozenset[str], refresh: bool = True) -> dict[str, Topic]:
        """Return the existing ones of these topics.

        Topics found before are not looked up again. Without ``refresh``, missing ones are looked up only now
        and then, since a topic that is never created would cost each batch a request.

        Raises:
            TopicChangedError: one was created again since the job delivered to it.
            KafkaClientError: Kafka does not answer, or refuses.
        """
        wanted = topics - self._known.keys()
        is_due = refresh or time.monotonic() - self._looked >= _LOOK_SECONDS
        if wanted and (is_due or not wanted <= self._absent):
            wire = self.wire()
            existing = sorted(wanted & wire.topics())
            partitions = wire.partitions(existing)
            settings = wire.topic_settings(existing, _LIMIT, _DIFFERENCE, _BEFORE, _AFTER)
            self._identify({topic: wire.ids[topic] for topic in partitions if topic in wire.ids})
            own = self._inputs(existing)
            most = self._cluster.settings.request_bytes
            for topic in existing:
                if topic in partitions:
                    of_topic = settings.get(topic, {})
                    longest = min(int(of_topic.get(_LIMIT, most)), most)
                    both = of_topic.get(_DIFFERENCE, (1 << 63) - 1)
                    times = (int(of_topic.get(name, both)) for name in (_BEFORE, _AFTER))
                    self._known[topic] = Topic(longest, partitions[topic], topic in own, *times)
            self._absent = wanted - self._known.keys()
            self._looked = time.monotonic()
        return {topic: self._known[topic] for topic in topics & self._known.keys()}

    def topics(self, topics: frozenset[str], refresh: bool = True) -> dict[str, Topic]:
        """Return `known`, waiting until the cluster answers. Raises `StoppingError`."""
        return self.patient(lambda: self.known(topics, refresh))

    def patient(self, call: Callable[[], _Result]) -> _Result:
        """Call until the cluster answers. Raises `StoppingError`."""
        from selectroute.kafka.errors import BrokerUnreachableError  # needs the extra `kafka`

        return patient(call, BrokerUnreachableError, self._warn, self._pause)

    def wire(self) -> Wire:
        """Return the connections to the cluster."""
        if self._opened is None:
            self._opened = self._cluster.wire()
        return self._opened

    def forget(self, topics: Iterable[str]) -> None:
        """Look up these topics again for the next batch."""
        for topic in topics:
            self._known.pop(topic, None)

    def close(self) -> None:
        """Close the connections."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    # ---- inside

    def _identify(self, ids: Mapping[str, str]) -> None:
        """Record the ids of topics. Raises TopicChangedError if a topic was created again."""
        from selectroute.kafka.errors import GO_ON, TopicChangedError  # needs the extra `kafka`

        for topic, id in ids.items():
            known = self._ids.get(topic, [id])
            if id != known[-1]:
                sentence = (
                    f"the topic {topic}, to which subscriptions are delivered, was created again: its id was "
                    f"{known[-1]}, and is {id}, so what was delivered before is not in it"
                )
                if self._cluster.recreated != READ_RECREATED:
                    raise TopicChangedError(f"{sentence}; {GO_ON}", topic)
                self._warn(sentence)
                known = [*known, id]
            self._ids[topic] = known
        if self._folder is not None:
            self._folder.note_destinations(self._ids)

    def _inputs(self, topics: Iterable[str]) -> set[str]:
        """Return the topics that the job also reads. Raises KafkaClientError."""
        if self._input is None:
            return set()
        if self._input.cluster != self._cluster:
            with self._input.cluster.wire() as wire:
                if wire.cluster_id() != self.name:
                    return set()
        return self._input.matching(topics)


def check_topics(job: Job, kafka: KafkaTopics) -> None:
    """Check that the cluster answers and, if missing destinations fail the job, that the topics of the newest
    snapshot's subscriptions exist.

    Raises:
        DestinationNotFoundError: a topic does not exist.
        JobError: the job reads one of the topics.
        KafkaClientError: the cluster does not answer.
    """
    topics = names_of(Snapshot.open(job.snapshots), KAFKA)
    known = kafka.known(topics)
    if job.missing_destinations != FAIL_MISSING:
        return
    refuse_missing(topics, known, f"topics that do not exist in Kafka ({kafka.servers})")
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
