"""Commit tokens: records of what a job has sent, written in the transactions that send it.

A task of a batch sends in a transaction, or in several if a topic refused at first. Each has a token, a
record in a compacted topic of the job's own: it is committed if and only if what was sent is. A task that
runs again *begins* first, which decides the transactions of earlier attempts, then reads its tokens, and
sends only what is missing::

    begin ─→ read tokens ─→ send what is missing ─→ token ─→ commit
      └ an earlier attempt can commit no more, and what it has open is aborted

Tasks are numbered from 0 in each batch. The tokens of a number are in one partition of the topic, which only
transactions of tasks with this number write to (as long as there are no more tasks than partitions), so that
all of it is decided once a task has begun. A newer batch's tokens replace those before: a key has no number
of the batch.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from selectroute.kafka.batches.decode import HEADERS
from selectroute.kafka.batches.encode import encode
from selectroute.kafka.client.errors import KafkaClientError, RefusedError, UnreachableError
from selectroute.kafka.client.reading import read
from selectroute.kafka.client.transactions import Transactions
from selectroute.kafka.client.wire import EARLIEST, LATEST, Wire
from selectroute.kafka.ranges import Range

PARTITIONS: Final = 16
SETTINGS: Final[Mapping[str, str]] = {
    "cleanup.policy": "compact",
    # Small segments, because the newest one is never compacted and is read at each start.
    "segment.bytes": str(4 << 20),
    "segment.ms": str(3_600_000),
    "min.cleanable.dirty.ratio": "0.1",
}
"""Number of partitions, and settings, of a new topic of tokens."""

_POLICY: Final = "cleanup.policy"
_RETRY_SECONDS: Final = 0.01


class TokenTopicError(KafkaClientError):
    """Topic of tokens that is gone, or may lose tokens."""


@dataclass(frozen=True, slots=True)
class Token:
    """Token of one transaction of a task.

    Attributes:
        kind: ``stream``, or ``side`` for backfills and replays, whose numbers of tasks are their own.
        batch, task, part: the number of the batch, of its task, and of the task's transaction from 0.
        plan: digest of the batch's plan.
        deliveries: number of deliveries sent.
        held: topics with deliveries of the task that this transaction did not send.
    """

    kind: str
    batch: int
    task: int
    part: int
    plan: str
    deliveries: int = 0
    held: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Key of the record, which a newer token of this number of task and part replaces."""
        return f"{self.kind}/{self.task}/{self.part}"

    def value(self) -> str:
        """Return the value of the record, as JSON."""
        return json.dumps(
            {
                "batch": self.batch,
                "plan": self.plan,
                "deliveries": self.deliveries,
                "held": list(self.held),
            }
        )

    @classmethod
    def of(cls, key: bytes | None, value: bytes | None) -> Token | None:
        """Read a record; None unless it is a token of this release."""
        try:
            kind, task, part = (key or b"").decode().split("/")
            content = json.loads(value or b"")
            return cls(
                kind,
                int(content["batch"]),
                int(task),
                int(part),
                str(content["plan"]),
                int(content["deliveries"]),
                tuple(map(str, content["held"])),
            )
        except (ValueError, KeyError, TypeError):
            return None


@dataclass(frozen=True, slots=True)
class TokenTopic:
    """Topic of a job's tokens, as far as it was read.

    Attributes:
        name, partitions: the topic, and its number of partitions.
        since: offset of each partition up to which it was read.
        known: the tokens read so far of the batch that is sent.
        id: Kafka's id of the topic.
    """

    name: str
    partitions: int
    since: Mapping[int, int] = field(default_factory=dict)
    known: tuple[Token, ...] = ()
    id: str = ""

    def partition(self, task: int) -> int:
        """Return the partition of the tokens of a number of task."""
        return task % self.partitions


def open_topic(wire: Wire, name: str, must_exist: bool, id: str = "") -> TokenTopic:
    """Return the topic of this name; a new one unless it ``must_exist``.

    Args:
        wire: the connections.
        name: the name of the topic.
        must_exist: whether tokens in it are needed.
        id: Kafka's id of the topic when it was last open, if it is known. One with another id has been
            restored if it has records, or else created again.

    Raises:
        TokenTopicError: it is gone, is empty and another one, or is not compacted.
        RefusedError: it can't be created, read or written.
    """
    partitions = wire.partitions([name]).get(name)
    if partitions is None:
        if must_exist:
            wire.check_rights([name], "Read", "Write")  # who may not see it can't tell whether it is there
            raise _gone(name)
        try:
            wire.create(name, PARTITIONS, SETTINGS)
            partitions = wire.partitions([name])[name]
        except (RefusedError, UnreachableError, KeyError) as error:
            if isinstance(error, RefusedError) and error.name == "TOPIC_AUTHORIZATION_FAILED":
                raise RefusedError(
                    f"Kafka at {wire.servers}: this client needs the rights Create, Read and Write on the "
                    f"topic {name} ({error.name}), or create it first, with cleanup.policy=compact",
                    error.name,
                    name,
                ) from error
            wire.check_rights([name], "Read", "Write")
            raise
    wire.check_rights([name], "Read", "Write")
    policy = wire.topic_settings([name], _POLICY).get(name, {}).get(_POLICY)
    if policy not in (None, "compact"):
        raise TokenTopicError(
            f"the topic {name} has cleanup.policy={policy}, which may delete the job's commit tokens: set "
            "it to compact"
        )
    opened = TokenTopic(name, partitions, id=wire.topic_id(name))
    if must_exist and id not in ("", opened.id):
        ends = wire.offsets([(name, number) for number in range(partitions)], LATEST)
        if not any(ends.values()):
            raise _gone(name)
    return opened


def _gone(name: str) -> TokenTopicError:
    return TokenTopicError(
        f"the topic {name} with the job's commit tokens is gone, so it is not known what of its last "
        "batch was sent: restore the topic, or choose a new output folder and checkpoint, with which the job "
        "delivers what it reads again"
    )


@contextmanager
def _naming(topic: TokenTopic) -> Iterator[None]:
    """Raise `TokenTopicError` if the topic is no longer there."""
    try:
        yield
    except RefusedError as error:
        if (error.topic, error.name) != (topic.name, "UNKNOWN_TOPIC_OR_PARTITION"):
            raise
        raise _gone(topic.name) from error


def scan(wire: Wire, topic: TokenTopic) -> tuple[TokenTopic, list[Token]]:
    """Read the whole topic; return how far, and the newest token of each key. O(tokens)."""
    places = [(topic.name, number) for number in range(topic.partitions)]
    first, after = wire.offsets(places, EARLIEST), wire.offsets(places, LATEST, committed=True)
    ranges = [Range(*place, first[place], after[place]) for place in places]
    found = {token.key: token for token in _tokens(wire, ranges)}
    since = {number: after[topic.name, number] for number in range(topic.partitions)}
    return replace(topic, since=since), list(found.values())


def tokens_of(wire: Wire, topic: TokenTopic, kind: str, batch: int, task: int) -> tuple[list[Token], int]:
    """Return the tokens of one task of a batch by their part, and the offset up to which was read.

    Call it after `Transactions.begin`. Waits while another transaction on the partition is open, which only a
    task whose number differs by a multiple of the partitions can have. Raises `TokenTopicError` if the topic
    is gone, or was created again.
    """
    place = (topic.name, topic.partition(task))
    start = topic.since.get(place[1], 0)
    with _naming(topic):
        end = wire.offsets([place], LATEST)[place]
    if end < start:
        raise _gone(topic.name)
    deadline = time.monotonic() + wire.seconds
    while wire.offsets([place], LATEST, committed=True)[place] < end:
        if time.monotonic() > deadline:
            raise UnreachableError(
                f"Kafka at {wire.servers}: a transaction on {topic.name}/{place[1]} does not end"
            )
        time.sleep(_RETRY_SECONDS)
    later = _tokens(wire, [Range(*place, start, end)])
    found = {
        token.part: token
        for token in (*topic.known, *later)
        if (token.kind, token.batch, token.task) == (kind, batch, task)
    }
    return [found[part] for part in sorted(found)], end


def _tokens(wire: Wire, ranges: Sequence[Range]) -> Iterator[Token]:
    for part in read(wire, ranges, committed=True, may_lack=True):
        rows = zip(part.records["key"].to_pylist(), part.records["value"].to_pylist(), strict=True)
        for key, value in rows:
            token = Token.of(key, value)
            if token is not None:
                yield token


def write_token(transactions: Transactions, topic: TokenTopic, token: Token) -> None:
    """Write a token in the open transaction. Raises KafkaClientError."""
    place = (topic.name, topic.partition(token.task))
    record: Any = pa.RecordBatch.from_arrays(
        [pa.array([token.key]), pa.array([token.value()]), pa.array([[]], HEADERS)],
        names=["key", "value", "headers"],
    )
    batches = encode(
        record,
        np.zeros(1, np.int64),
        round(time.time() * 1_000),
        sequences=transactions.sequences([place]),
        producer=transactions.producer,
    )
    with _naming(topic):
        transactions.produce({place: [one.data for one in batches]}, {place: 1})
        transactions.flush()
