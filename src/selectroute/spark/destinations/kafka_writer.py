"""Writer of one task's deliveries to Kafka: record batches, in a transaction with a commit token.

A task that runs again finds in its tokens what it has sent, and sends the rest. A topic that refuses is
*held*: the attempt ends with `HeldTopicError`, and the next one leaves the topic out. Its deliveries go into
a further transaction, or, once the topic is *excluded*, are refused.

The partition of a record is the one that Kafka's own producers choose for its key; records without one are
spread by their offsets.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from selectroute.kafka.batches.encode import encode
from selectroute.kafka.batches.partitioner import key_hashes
from selectroute.kafka.headers import BATCH, COUNT, DELIVERY_ID, REVISION, SUBSCRIPTION
from selectroute.selector.errors import SelectRouteError
from selectroute.spark.destinations.kafka_records import Topic, sizes_of
from selectroute.spark.destinations.outgoing import Block, Ints, Mask, Refused
from selectroute.spark.sinks.schemas import as_written
from selectroute.spark.sources.kafka.config import KafkaCluster

if TYPE_CHECKING:  # needs the extra `kafka`
    from selectroute.kafka.client.commit_tokens import Token, TokenTopic
    from selectroute.kafka.client.wire import Partition, Wire

REFUSED: Final = "destination-refused"
"""Reason of a dead letter for a topic that refused for too long."""


class HeldTopicError(SelectRouteError):
    """Topic that refuses what others accept; `topic` is its name."""

    def __init__(self, topic: str, why: str) -> None:
        super().__init__(f"the topic {topic} refuses records ({why})")
        self.topic = topic
        self.why = why


@dataclass(frozen=True, slots=True)
class KafkaTarget:
    """Target of a batch's deliveries to Kafka, the same for all of its tasks.

    Attributes:
        cluster: the cluster.
        topics: the existing topics.
        job: the id of the query, for the header `BATCH`.
        batch: the number of the batch.
        producer: beginning of the transactional ids.
        tokens: the topic of commit tokens; None to send at least once, without transactions.
        plan: digest of the batch's plan.
        excluded: topics that refused for too long, with the reason: their deliveries are refused.
        by_message: a topic gets one record for each message, which lists the subscriptions.
    """

    cluster: KafkaCluster
    topics: Mapping[str, Topic]
    job: str
    batch: int
    producer: str
    tokens: TokenTopic | None = None
    plan: str = ""
    excluded: Mapping[str, str] = field(default_factory=dict)
    by_message: bool = False

    @property
    def kind(self) -> str:
        """Kind of the tokens of the batch."""
        return "stream" if self.batch >= 0 else "side"


class KafkaWriter:
    """Writer of deliveries to topics; see `OutgoingWriter`.

    Args:
        target: the target of the batch.
        wire: connections to its cluster.
        task: the number of the task.
        names: the topics, by code.
        ids: the snapshot's ids.
        revision: the snapshot's revision.
        held: topics that are left out in this attempt.

    Calls raise `HeldTopicError`, or `KafkaClientError` if the whole task has to be done again.
    """

    def __init__(
        self,
        target: KafkaTarget,
        wire: Wire,
        task: int,
        names: Sequence[str],
        ids: Any,
        revision: int,
        held: Collection[str] = (),
    ) -> None:
        from selectroute.kafka.client.transactions import Transactions  # needs the extra `kafka`

        self._target = target
        self._wire = wire
        self._task = task
        self._names = names
        self._ids = ids
        self._revision = str(revision).encode()
        settings = target.cluster.settings
        self._settings = settings
        self._counts = np.array(
            [target.topics[name].partitions if name in target.topics else 1 for name in names], np.int64
        )
        self._longest = np.array(
            [target.topics[name].longest if name in target.topics else 0 for name in names], np.int64
        )
        self._held = frozenset(held)
        own = None if target.tokens is None else f"{target.producer}-{task}"
        self._transactions = Transactions(wire, own, settings.transaction_seconds)
        self._has_begun = False
        self._tokens: list[Token] = []
        self._read_to: int | None = None
        self._missing: frozenset[str] | None = None
        self._left: set[str] = set()
        self._accepted: set[str] = set()
        self._written = 0
        self._sent = 0

    def report(self) -> dict[str, Any]:
        """Return the topics that deliveries were ``sent`` to, and by partition how far tokens were read
        (``read_to``).
        """
        tokens = self._target.tokens
        if tokens is None or self._read_to is None:
            return {"sent": sorted(self._accepted)}
        return {
            "sent": sorted(self._accepted),
            "read_to": {str(tokens.partition(self._task)): self._read_to},
        }

    def write(self, block: Block) -> list[Refused]:
        """Send the records of a block, but for those that were sent, or whose topics are held or excluded."""
        if not self._has_begun:
            self._begin()
        target = self._target
        numbers = self._written + np.arange(len(block.codes), dtype=np.int64)
        self._written += len(block.codes)
        send = np.ones(len(block.codes), np.bool_)
        # First, and of all topics: a repeat must refuse the same deliveries, also where the others were sent.
        refused = self._too_large(block, send) if target.by_message else []
        for code in np.unique(block.codes).tolist():
            name = self._names[code]
            if self._missing is not None and name not in self._missing:
                send[block.codes == code] = False  # by an earlier attempt
            elif name in target.excluded:
                without = send & (block.codes == code)
                send &= ~without
                self._left.add(name)
                refused.append(
                    Refused(without, REFUSED, f"the topic {name} refused records: {target.excluded[name]}")
                )
            elif name in self._held:
                send[block.codes == code] = False
                self._left.add(name)
        if np.any(send):
            self._send(block, send, numbers)
        return refused

    def close(self) -> None:
        """Commit what was sent, with its token."""
        if not self._sent:
            return
        target = self._target
        if target.tokens is not None:
            from selectroute.kafka.client.commit_tokens import Token, write_token  # needs the extra `kafka`

            token = Token(
                target.kind,
                target.batch,
                self._task,
                len(self._tokens),
                target.plan,
                self._sent,
                tuple(sorted(self._left)),
            )
            with self._holding():
                self._transactions.flush()
            write_token(self._transactions, target.tokens, token)
        with self._holding():
            self._transactions.commit()

    # ---- inside

    def _begin(self) -> None:
        """Begin as the only producer of this task, and find out what it has sent before."""
        self._transactions.begin()
        self._has_begun = True
        target = self._target
        if target.tokens is None:
            return
        from selectroute.kafka.client.commit_tokens import (  # needs the extra `kafka`
            TokenTopicError,
            tokens_of,
        )

        found, self._read_to = tokens_of(self._wire, target.tokens, target.kind, target.batch, self._task)
        self._tokens = found
        if not found:
            return
        if any(token.plan != target.plan for token in found):
            raise TokenTopicError(
                f"batch {target.batch} was sent by another plan than this one: another process runs the "
                "job, or its input has changed"
            )
        self._missing = frozenset(found[-1].held)

    def _send(self, block: Block, send: Mask, numbers: Ints) -> None:
        chosen = np.flatnonzero(send)
        partitions = self._partitions(block)
        # By topic and partition, and within each in the order of the messages.
        chosen = chosen[np.lexsort((partitions[chosen], block.codes[chosen]))]
        headers, firsts = self._headers(block, chosen, numbers[chosen])
        records = chosen[firsts]
        rows, codes, partitions = block.rows[records], block.codes[records], partitions[records]
        borders = np.flatnonzero((np.diff(codes) != 0) | (np.diff(partitions) != 0)) + 1
        bounds = np.concatenate(([0], borders, [len(codes)]))
        groups: list[Partition] = [
            (self._names[code], number)
            for code, number in zip(
                codes[bounds[:-1]].tolist(), partitions[bounds[:-1]].tolist(), strict=True
            )
        ]
        longest = self._longest[codes]
        transactions = self._transactions
        batches = encode(
            block.contents,
            rows,
            round(time.time() * 1_000),
            headers,
            bounds=bounds,
            sequences=transactions.sequences(groups),
            producer=transactions.producer,
            compression=self._settings.compression,
            batch_bytes=min(self._settings.batch_bytes, int(longest.min())),
            most_bytes=int(longest.max()),
        )
        of_partitions: dict[Partition, list[memoryview]] = {}
        for one in batches:
            of_partitions.setdefault(groups[one.group], []).append(one.data)
        counts = dict(zip(groups, np.diff(bounds).tolist(), strict=True))
        with self._holding():
            transactions.produce(of_partitions, counts)
        self._sent += len(chosen)
        self._accepted.update(topic for topic, _ in groups)

    @contextmanager
    def _holding(self) -> Iterator[None]:
        """Abort, and raise `HeldTopicError`, if a topic refuses what was sent before or is sent now."""
        from selectroute.kafka.client.errors import RefusedError  # needs the extra `kafka`

        try:
            yield
        except RefusedError as error:
            if error.topic is None or error.topic not in self._names:
                raise
            self._transactions.abort()
            raise HeldTopicError(error.topic, error.name) from error

    def _partitions(self, block: Block) -> Ints:
        """Return the partition of each delivery."""
        hashes = key_hashes(block.contents.column("key"))
        keyed = np.asarray(pc.is_valid(hashes))
        of_message = np.where(keyed, pc.fill_null(hashes, 0).to_numpy(zero_copy_only=False), block.offsets)
        found: Ints = of_message[block.rows] % self._counts[block.codes]
        return found

    def _headers(self, block: Block, chosen: Ints, numbers: Ints) -> tuple[dict[str, Any], Ints]:
        """Return the headers that a record has beside its message's, and the first delivery of each."""
        target = self._target
        rows = block.rows[chosen]
        subscriptions = self._ids.take(pa.array(block.ordinals[chosen]))
        place = f"{as_written(block.place.source)}/{block.place.partition}/".encode()
        batch = f"{target.job}/{target.batch}/{self._task}/".encode()
        if not target.by_message:
            offsets = pa.array(block.offsets[rows])
            return {
                SUBSCRIPTION: subscriptions,
                DELIVERY_ID: (place, offsets, b"/", subscriptions),
                REVISION: self._revision,
                BATCH: (batch, pa.array(numbers)),
            }, np.arange(len(chosen))
        firsts = _firsts(rows, block.codes[chosen])
        ends = np.append(firsts[1:], len(chosen))
        lists = pa.LargeListArray.from_arrays(pa.array([*firsts, len(chosen)], pa.int64()), subscriptions)
        return {
            SUBSCRIPTION: pc.binary_join(lists, ","),
            COUNT: pa.array(ends - firsts),
            DELIVERY_ID: (place, pa.array(block.offsets[rows[firsts]]), b"/*"),
            REVISION: self._revision,
            BATCH: (batch, pa.array(numbers[firsts])),
        }, firsts

    def _too_large(self, block: Block, send: Mask) -> list[Refused]:
        """Return the deliveries of records whose lists are too long for their topics, and strike them off
        those to send.
        """
        chosen = np.flatnonzero(send)
        chosen = chosen[np.argsort(block.codes[chosen], kind="stable")]
        rows, codes = block.rows[chosen], block.codes[chosen]
        firsts = _firsts(rows, codes)
        listed = pc.binary_length(self._ids.take(pa.array(block.ordinals[chosen]))).to_numpy() + 1
        sizes = sizes_of(block.contents)[rows[firsts]] + np.add.reduceat(listed, firsts)
        counts = np.diff(np.append(firsts, len(chosen)))
        without = np.repeat(sizes > self._longest[codes[firsts]], counts)
        refused = []
        for code in np.unique(codes[without]).tolist():
            mask = np.zeros(len(send), np.bool_)
            mask[chosen[without & (codes == code)]] = True
            send &= ~mask
            limit = f"{self._longest[code]:,} bytes"
            text = f"the topic {self._names[code]} accepts records of at most {limit}, with all headers"
            refused.append(Refused(mask, "too-large", text))
        return refused


def _firsts(rows: Ints, codes: Any) -> Ints:
    """Return the first of each run of deliveries of one message to one topic."""
    return np.flatnonzero((np.diff(rows, prepend=-1) != 0) | (np.diff(codes, prepend=-1) != 0))
