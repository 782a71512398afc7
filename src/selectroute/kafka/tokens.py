"""Commit tokens: records of what a job has sent, written in the transactions that send it.

A task of a batch sends in a transaction, or in several if a topic refused at first. Each has a token, a
record in a compacted topic of the job's own: it is committed if and only if what was sent is. A task that
runs again *begins* first, which decides the transactions of earlier attempts, then reads its tokens, and
sends only what is missing::

    begin ─→ barrier ─→ read tokens ─→ send what is missing ─→ token ─→ commit
      │         └ a record behind all tokens, which only the true leader can acknowledge
      └ an earlier attempt can commit no more, and what it has open is aborted

The barrier is Raft's read index: a leader that was deposed while it was cut off from the other brokers still
answers reads, of a past without the newest tokens. What it can't do is write to all replicas in sync. So the
tokens are those before the barrier's offset, and all of them have to be there.

Tasks are numbered from 0 in each batch. The tokens of a number are in one partition of the topic, which only
transactions of tasks with this number write to (as long as there are no more tasks than partitions), so that
all of it is decided once a task has begun. A newer batch's tokens replace those before: a key has no number
of the batch.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from selectroute.kafka.batches.decode import HEADERS
from selectroute.kafka.batches.encode import encode
from selectroute.kafka.cluster import EARLIEST, LATEST, Partition, Wire
from selectroute.kafka.errors import (
    GO_ON,
    BrokerUnreachableError,
    KafkaClientError,
    RefusedError,
    TopicChangedError,
)
from selectroute.kafka.reading import read
from selectroute.kafka.record import Range
from selectroute.kafka.transactions import Transactions

PARTITIONS: Final = 16
SETTINGS: Final[Mapping[str, str]] = {
    "cleanup.policy": "compact",
    # Small segments, because the newest one is never compacted and is read at each start.
    "segment.bytes": str(4 << 20),
    "segment.ms": str(3_600_000),
    "min.cleanable.dirty.ratio": "0.1",
}
"""Number of partitions, and settings, of a new topic of tokens."""

_BARRIER: Final = "barrier"
"""Key of a barrier. It has no value, so that compaction removes it in the end."""

_POLICY: Final = "cleanup.policy"
_RETRY_SECONDS: Final = 0.01


class TokenTopicError(KafkaClientError):
    """Topic of tokens that is gone, or may lose tokens."""


@dataclass(frozen=True, slots=True)
class CommitToken:
    """Token of one transaction of a task.

    Attributes:
        kind: ``stream``, or ``side`` for backfills and replays, whose numbers of tasks are their own.
        batch, task, part: the number of the batch, of its task, and of the task's transaction from 0.
        plan_sha256: digest of the batch's plan.
        deliveries: number of deliveries sent.
        unsent: topics with deliveries of the task that this transaction did not send.
    """

    kind: str
    batch: int
    task: int
    part: int
    plan_sha256: str
    deliveries: int = 0
    unsent: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Key of the record, which a newer token of this number of task and part replaces."""
        return f"{self.kind}/{self.task}/{self.part}"

    def value(self) -> str:
        """Return the value of the record, as JSON."""
        return json.dumps(
            {
                "batch": self.batch,
                "plan": self.plan_sha256,
                "deliveries": self.deliveries,
                "unsent": list(self.unsent),
            }
        )

    @classmethod
    def of(cls, key: bytes | None, value: bytes | None) -> CommitToken | None:
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
                tuple(map(str, content["unsent"])),
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
    known: tuple[CommitToken, ...] = ()
    id: str = ""

    def partition(self, task: int) -> int:
        """Return the partition of the tokens of a number of task."""
        return task % self.partitions


def open_topic(wire: Wire, name: str, must_exist: bool, id: str = "", may_change: bool = False) -> TokenTopic:
    """Return the topic of this name; a new one unless it ``must_exist``.

    Args:
        wire: the connections.
        name: the name of the topic.
        must_exist: whether tokens in it are needed.
        id: Kafka's id of the topic when it was last open, if it is known.
        may_change: whether it may have another id: the id of a restored topic, or, if no tokens are needed,
            of a new topic.

    Raises:
        TokenTopicError: it is gone, is another one, or is not compacted.
        RefusedError: it can't be created, read or written.
    """
    partitions = wire.partitions([name]).get(name)
    if partitions is None:
        if must_exist:
            wire.check_rights([name], "Read", "Write")  # who may not see it can't tell whether it is there
            raise _gone(name)
        try:
            is_new = wire.create(name, PARTITIONS, SETTINGS)
            # Not every broker knows a new topic at once.
            partitions = PARTITIONS if is_new else wire.partitions([name])[name]
        except (RefusedError, BrokerUnreachableError, KeyError) as error:
            if isinstance(error, RefusedError) and error.name == "TOPIC_AUTHORIZATION_FAILED":
                raise RefusedError(
                    f"Kafka at {wire.servers}: this client needs the rights Create, Read and Write on the "
                    f"topic {name} ({error.name}), or create it first, with cleanup.policy=compact",
                    error.name,
                    name,
                ) from error
            wire.check_rights([name], "Read", "Write")
            raise
        id = ""
    wire.check_rights([name], "Read", "Write")
    policy = wire.topic_settings([name], _POLICY).get(name, {}).get(_POLICY)
    if policy not in (None, "compact"):
        raise TokenTopicError(
            f"the topic {name} has cleanup.policy={policy}, which may delete the job's commit tokens: set "
            "it to compact"
        )
    opened = TokenTopic(name, partitions, id=wire.ids.get(name, ""))
    if id not in ("", opened.id):
        if not may_change:
            raise _another(name, id, opened.id)
        if must_exist and not scan(wire, opened)[1]:
            raise _gone(name)
    return opened


def _gone(name: str) -> TokenTopicError:
    return TokenTopicError(
        f"the topic {name} with the job's commit tokens is gone, so it is not known what of its last "
        "batch was sent: restore the topic, or choose a new output folder and checkpoint, with which the job "
        "delivers what it reads again"
    )


def _another(name: str, before: str, now: str) -> TokenTopicError:
    return TokenTopicError(
        f"the topic {name} with the job's commit tokens was created again: its id was {before}, and is "
        f"{now}; if it was restored with its records, or no batch was being sent, {GO_ON}"
    )


@contextmanager
def _naming(topic: TokenTopic) -> Iterator[None]:
    """Raise `TokenTopicError` if the topic is no longer there, or another one of this name is."""
    try:
        yield
    except TopicChangedError as error:
        if error.topic != topic.name:
            raise
        raise _another(topic.name, topic.id, "another one") from error
    except RefusedError as error:
        if (error.topic, error.name) != (topic.name, "UNKNOWN_TOPIC_OR_PARTITION"):
            raise
        raise _gone(topic.name) from error


def _barriers(wire: Wire, topic: TokenTopic, numbers: Iterable[int]) -> dict[Partition, int]:
    """Write a barrier to partitions of the topic; return the offset of each."""
    places = [(topic.name, number) for number in numbers]
    wire.identify(topic.name, topic.id)
    wire.forget(places)
    (batch,) = encode(_record(_BARRIER, None), np.zeros(1, np.int64), round(time.time() * 1_000))
    with _naming(topic):
        return wire.append(dict.fromkeys(places, batch.data))


def scan(wire: Wire, topic: TokenTopic) -> tuple[TokenTopic, list[CommitToken]]:
    """Read the whole topic; return how far, and the newest token of each key. O(tokens)."""
    after = _barriers(wire, topic, range(topic.partitions))
    first, decided = wire.offsets(after, EARLIEST), wire.offsets(after, LATEST, committed=True)
    ranges = [Range(*place, first[place], min(after[place], decided[place]), topic.id) for place in after]
    newest = {token.key: token for token in _tokens(wire, ranges)}
    wire.identify(topic.name, "")  # who looks at all topics later does not ask for this one
    since = {range_.partition: range_.end for range_ in ranges}
    return replace(topic, since=since), list(newest.values())


def tokens_of(
    wire: Wire, topic: TokenTopic, kind: str, batch: int, task: int
) -> tuple[list[CommitToken], int]:
    """Return the tokens of one task of a batch by their part, and the offset up to which was read.

    Call it after `Transactions.begin`. Waits while another transaction on the partition is open, which only a
    task whose number differs by a multiple of the partitions can have. Raises `TokenTopicError` if the topic
    is gone, or was created again.
    """
    ((place, end),) = _barriers(wire, topic, [topic.partition(task)]).items()
    start = topic.since.get(place[1], 0)
    if end < start:
        raise _gone(topic.name)
    _wait(wire, place, end)
    later = _tokens(wire, [Range(*place, start, end, topic.id)])
    tokens = {
        token.part: token
        for token in (*topic.known, *later)
        if (token.kind, token.batch, token.task) == (kind, batch, task)
    }
    return [tokens[part] for part in sorted(tokens)], end


def _wait(wire: Wire, place: Partition, end: int) -> None:
    """Wait until each transaction on a partition that began before this offset has ended."""
    deadline = time.monotonic() + wire.seconds
    while wire.offsets([place], LATEST, committed=True)[place] < end:
        wire.pause(deadline, f"a transaction on {place[0]}/{place[1]} does not end", _RETRY_SECONDS)


def _tokens(wire: Wire, ranges: Sequence[Range]) -> Iterator[CommitToken]:
    for part in read(wire, ranges, committed=True, may_lack=True):
        rows = zip(part.records["key"].to_pylist(), part.records["value"].to_pylist(), strict=True)
        for key, value in rows:
            token = CommitToken.of(key, value)
            if token is not None:
                yield token


def write_token(transactions: Transactions, topic: TokenTopic, token: CommitToken) -> None:
    """Write a token in the open transaction. Raises KafkaClientError."""
    place = (topic.name, topic.partition(token.task))
    batches = encode(
        _record(token.key, token.value()),
        np.zeros(1, np.int64),
        round(time.time() * 1_000),
        sequences=transactions.sequences([place]),
        producer=transactions.producer,
    )
    with _naming(topic):
        transactions.produce({place: [batch.data for batch in batches]}, {place: 1})
        transactions.flush()


def _record(key: str, value: str | None) -> Any:
    return pa.RecordBatch.from_arrays(
        [pa.array([key]), pa.array([value], pa.string()), pa.array([[]], HEADERS)],
        names=["key", "value", "headers"],
    )
