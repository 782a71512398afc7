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
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from selectroute.index.destination import BY_MESSAGE, KAFKA
from selectroute.kafka.batches.encode import encode, key_hashes
from selectroute.kafka.record import (
    BATCH,
    COUNT,
    DELIVERY_ID,
    REVISION,
    SOURCE_TIMESTAMP,
    SUBSCRIPTION,
    record_of,
)
from selectroute.selector.errors import SelectRouteError
from selectroute.spark.cluster import KafkaCluster
from selectroute.spark.destinations.destination import (
    INPUT_TOPIC,
    UNKNOWN_TOPIC,
    Block,
    Codes,
    Contents,
    Destinations,
    Ints,
    Mask,
    Refusal,
    Topic,
    converted,
    refuse,
)
from selectroute.spark.messages import MessageBatch
from selectroute.spark.sources.kafka.convert import FullRecords
from selectroute.spark.tables.schemas import HEADERS, as_written

if TYPE_CHECKING:
    from selectroute.kafka.cluster import Partition, Wire
    from selectroute.kafka.tokens import CommitToken, TokenTopic

_COLUMNS = pa.schema(
    [("key", pa.binary()), ("value", pa.large_binary()), ("headers", HEADERS), ("timestamp", pa.int64())]
)

_RECORD_BYTES = 128
_HEADER_BYTES = 10
"""Maximum overhead in bytes of a record and of each header (Kafka's record format v2)."""

_OURS_BYTES = 1_024
"""Bytes of the headers added to each delivery: names, subscription, delivery id, revision and batch."""


_BLOCK = 8_192
_BLOCK_BYTES = 16 << 20


_UNKNOWN_TOPIC = Topic(-1, 1)


class KafkaMessages:
    """Format for Kafka topics; see `DestinationFormat`.

    Args:
        names: the topics that the subscriptions name.
        topics: the existing topics; None if the job writes to no cluster.
    """

    name = KAFKA
    unfit = "not-for-kafka"

    def __init__(self, names: Sequence[str], topics: Mapping[str, Topic] | None) -> None:
        self._names = names
        self._has_cluster = topics is not None
        known = [(topics or {}).get(name, _UNKNOWN_TOPIC) for name in names]
        self._longest = np.array([topic.longest for topic in known], np.int64)
        self._is_input = np.array([topic.is_input for topic in known], np.bool_)

    def block(self, messages: MessageBatch) -> int:
        """Return a number of messages that has some megabytes."""
        full = messages.full
        if not isinstance(full, FullRecords):
            return 256
        size: int = full.rows.nbytes
        return max(1, min(_BLOCK, _BLOCK_BYTES * len(full.rows) // max(1, size)))

    def contents(self, messages: MessageBatch, places: Ints) -> Contents:
        """Return the records to send: the original Kafka records, or records made of the messages."""
        full = messages.full
        if isinstance(full, FullRecords):
            rows = full.rows.select(_COLUMNS.names)
            if len(places) < len(rows):
                rows = rows.take(pa.array(places))
            arrays = [rows.column(name).cast(_COLUMNS.field(name).type) for name in _COLUMNS.names]
            fit = np.ones(len(places), np.bool_)
            return Contents(pa.RecordBatch.from_arrays(arrays, schema=_COLUMNS), fit, [])
        records, fit, reasons = converted(messages, places, record_of)
        columns = {
            "key": [record.key for record in records],
            "value": [record.value for record in records],
            "headers": [
                [{"key": name, "value": text} for name, text in record.headers] for record in records
            ],
            "timestamp": [None] * len(records),
        }
        return Contents(pa.RecordBatch.from_pydict(columns, _COLUMNS), fit, reasons)

    def refused(self, contents: Contents, rows: Ints, codes: Codes) -> Iterator[Refusal]:
        """Yield the deliveries to topics that do not exist, that the job reads, or whose size limit the
        record exceeds.
        """
        limits, is_input = self._longest[codes], self._is_input[codes]
        too_large = (limits >= 0) & ~is_input & (sizes_of(contents.columns)[rows] > limits)
        yield from refuse(limits < 0, codes, UNKNOWN_TOPIC, self._unknown)
        yield from refuse(
            is_input,
            codes,
            INPUT_TOPIC,
            lambda code: f"the job reads the topic {self._names[code]}: the delivery would return endlessly",
        )
        yield from refuse(too_large, codes, "too-large", self._too_large)

    def _too_large(self, code: int) -> str:
        return f"the topic {self._names[code]} accepts records of at most {self._longest[code]:,} bytes"

    def _unknown(self, code: int) -> str:
        if not self._has_cluster:
            return f"the job has no Kafka cluster for the topic {self._names[code]}: see --kafka-servers"
        return f"there is no topic {self._names[code]} in the Kafka cluster that the job writes to"


def sizes_of(records: pa.RecordBatch) -> Ints:
    """Return an upper bound of the bytes of each record as counted by a producer."""
    headers = records.column("headers")
    flat = headers.flatten()
    of_header = sum(
        pc.fill_null(pc.binary_length(flat.field(name)), 0).to_numpy(zero_copy_only=False)
        for name in ("key", "value")
    )
    ends = np.concatenate((np.zeros(1, np.int64), np.cumsum(of_header + _HEADER_BYTES, dtype=np.int64)))
    counts = pc.fill_null(pc.list_value_length(headers), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    bounds = np.concatenate((np.zeros(1, np.int64), np.cumsum(counts)))
    sizes = ends[bounds[1:]] - ends[bounds[:-1]] + _RECORD_BYTES + _OURS_BYTES
    for name in ("key", "value"):
        sizes += pc.fill_null(pc.binary_length(records.column(name)), 0).to_numpy(zero_copy_only=False)
    return sizes  # type: ignore[no-any-return]


_UNKNOWN: Final = Topic(0, 1)

_CLOCKS_MS: Final = 60_000
"""Milliseconds by which the broker's clock may differ from the clock here: a topic whose limit a record only
just meets refuses the whole request, and so holds up all other records.
"""

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
        tokens: the topic of commit tokens; None if no topic exists, so that nothing is sent.
        plan_sha256: digest of the batch's plan.
        ids: Kafka's ids of the topics that must still have them.
        excluded: topics that refused for too long, with the reason: their deliveries are refused.
        by_message: a topic gets one record for each message, which lists the subscriptions, for all whose
            destinations do not say how they are grouped.
    """

    cluster: KafkaCluster
    topics: Mapping[str, Topic]
    job: str
    batch: int
    producer: str
    tokens: TokenTopic | None = None
    plan_sha256: str = ""
    ids: Mapping[str, str] = field(default_factory=dict)
    excluded: Mapping[str, str] = field(default_factory=dict)
    by_message: bool = False

    @property
    def kind(self) -> str:
        """Kind of the tokens of the batch."""
        return "stream" if self.batch >= 0 else "side"


class _Records(NamedTuple):
    """Records to encode: the message of each, its own headers, and the first delivery of each.

    ``contents`` are the messages; the time stamp of a message without one is NULL.
    """

    contents: pa.RecordBatch
    rows: Ints
    headers: dict[str, Any]
    firsts: Ints


class KafkaWriter:
    """Writer of deliveries to topics; see `OutgoingWriter`.

    Args:
        target: the target of the batch.
        wire: connections to its cluster.
        task: the number of the task.
        to: the destinations of the snapshot's subscriptions. Those of one topic with the same grouping are
            one to the topic's consumers: a message has one record for all of them.
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
        to: Destinations,
        ids: Any,
        revision: int,
        held: Collection[str] = (),
    ) -> None:
        from selectroute.kafka.transactions import Transactions  # needs the extra `kafka`

        self._target = target
        self._wire = wire
        self._task = task
        self._names = tuple(dict.fromkeys(to.names))
        numbers = {name: number for number, name in enumerate(self._names)}
        self._topics = np.array([numbers[name] for name in to.names], np.int32)
        self._by_message = np.array(
            [target.by_message if grouping is None else grouping == BY_MESSAGE for grouping in to.groupings],
            np.bool_,
        )
        self._ids = ids
        self._revision = str(revision).encode()
        settings = target.cluster.settings
        self._settings = settings
        known = [target.topics.get(name, _UNKNOWN) for name in self._names]
        self._counts = np.array([topic.partitions for topic in known], np.int64)
        self._longest = np.array([topic.longest for topic in known], np.int64)
        self._before = np.array([topic.before_ms for topic in known], np.int64)
        self._after = np.array([topic.after_ms for topic in known], np.int64)
        self._held = frozenset(held)
        self._transactions = Transactions(wire, f"{target.producer}-{task}", settings.transaction_seconds)
        self._has_begun = False
        self._tokens: list[CommitToken] = []
        self._read_to: int | None = None
        self._unsent_before: frozenset[str] | None = None
        self._unsent: set[str] = set()
        self._accepted: set[str] = set()
        self._written = 0
        self._sent = 0

    def report(self) -> dict[str, Any]:
        """Return the topics that deliveries were ``sent`` to, and by partition how far tokens were read
        (``read_to``).
        """
        sent = {"sent": sorted(self._accepted)}
        if self._read_to is None:
            return sent
        return sent | {"read_to": {str(self._tokens_topic.partition(self._task)): self._read_to}}

    def write(self, block: Block) -> list[Refusal]:
        """Send the records of a block, unless they were sent before, or their topic is held or excluded."""
        if not self._has_begun:
            self._begin()
        target = self._target
        numbers = self._written + np.arange(len(block.codes), dtype=np.int64)
        self._written += len(block.codes)
        send = np.ones(len(block.codes), np.bool_)
        # First, and of all topics: a repeat must refuse the same deliveries, also where the others were sent.
        refused = self._too_large(block, send)
        topics = self._topics[block.codes]
        for topic in np.unique(topics).tolist():
            name = self._names[topic]
            if self._unsent_before is not None and name not in self._unsent_before:
                send[topics == topic] = False  # by an earlier attempt
            elif name in target.excluded:
                without = send & (topics == topic)
                send &= ~without
                self._unsent.add(name)
                refused.append(
                    Refusal(without, REFUSED, f"the topic {name} refused records: {target.excluded[name]}")
                )
            elif name in self._held:
                send[topics == topic] = False
                self._unsent.add(name)
        if np.any(send):
            self._send(block, send, numbers)
        return refused

    def close(self) -> None:
        """Commit what was sent, with its token."""
        if not self._sent:
            return
        from selectroute.kafka.tokens import CommitToken, write_token  # needs the extra `kafka`

        target, part, left = self._target, len(self._tokens), tuple(sorted(self._unsent))
        token = CommitToken(target.kind, target.batch, self._task, part, target.plan_sha256, self._sent, left)
        with self._holding():
            write_token(self._transactions, self._tokens_topic, token)
            self._transactions.commit()

    # ---- inside

    @property
    def _tokens_topic(self) -> TokenTopic:
        assert self._target.tokens is not None, "a batch with topics has a topic of tokens"
        return self._target.tokens

    def _begin(self) -> None:
        """Fence earlier producers of this task, and read its tokens: what it has sent before."""
        from selectroute.kafka.tokens import TokenTopicError, tokens_of  # needs the extra `kafka`

        target = self._target
        for name in self._names:
            self._wire.identify(name, target.ids.get(name, ""))
        if not self._wire.produces_by_id:
            self._wire.forget(
                (name, n) for name, topic in target.topics.items() for n in range(topic.partitions)
            )
        self._transactions.begin()
        self._has_begun = True
        tokens, self._read_to = tokens_of(
            self._wire, self._tokens_topic, target.kind, target.batch, self._task
        )
        self._tokens = tokens
        if not tokens:
            return
        if any(token.plan_sha256 != target.plan_sha256 for token in tokens):
            raise TokenTopicError(
                f"batch {target.batch} was sent by another plan than this one: another process runs the "
                "job, or its input has changed"
            )
        self._unsent_before = frozenset(tokens[-1].unsent)

    def _send(self, block: Block, send: Mask, numbers: Ints) -> None:
        chosen = np.flatnonzero(send)
        topics = self._topics[block.codes]
        partitions = self._partitions(block, topics)
        # By topic and partition, and within each in the order of the messages: whatever says how they are
        # grouped, the records of a partition are one sequence.
        by_message = self._by_message[block.codes[chosen]]
        keys = (by_message, block.rows[chosen]) if by_message.any() and not by_message.all() else ()
        chosen = chosen[np.lexsort((*keys, partitions[chosen], topics[chosen]))]
        records = self._records(block, chosen, numbers[chosen])
        firsts = chosen[records.firsts]
        topics, partitions = topics[firsts], partitions[firsts]
        borders = np.flatnonzero((np.diff(topics) != 0) | (np.diff(partitions) != 0)) + 1
        bounds = np.concatenate(([0], borders, [len(topics)]))
        groups: list[Partition] = [
            (self._names[topic], number)
            for topic, number in zip(
                topics[bounds[:-1]].tolist(), partitions[bounds[:-1]].tolist(), strict=True
            )
        ]
        records, timestamps = self._timed(records, topics)
        longest = self._longest[topics]
        transactions = self._transactions
        batches = encode(
            records.contents,
            records.rows,
            timestamps,
            records.headers,
            bounds=bounds,
            sequences=transactions.sequences(groups),
            producer=transactions.producer,
            compression=self._settings.compression,
            batch_bytes=min(self._settings.batch_bytes, int(longest.min())),
            most_bytes=int(longest.max()),
        )
        of_partitions: dict[Partition, list[memoryview]] = {}
        for batch in batches:
            of_partitions.setdefault(groups[batch.group], []).append(batch.data)
        counts = dict(zip(groups, np.diff(bounds).tolist(), strict=True))
        with self._holding():
            transactions.produce(of_partitions, counts)
        self._sent += len(chosen)
        self._accepted.update(topic for topic, _ in groups)

    @contextmanager
    def _holding(self) -> Iterator[None]:
        """Abort the transaction and raise `HeldTopicError` if a topic refuses a record."""
        from selectroute.kafka.errors import RefusedError  # needs the extra `kafka`

        try:
            yield
        except RefusedError as error:
            if error.topic is None or error.topic not in self._names:
                raise
            self._transactions.abort()
            raise HeldTopicError(error.topic, error.name) from error

    def _partitions(self, block: Block, topics: Codes) -> Ints:
        """Return the partition of each delivery."""
        hashes = key_hashes(block.contents.column("key"))
        keyed = np.asarray(pc.is_valid(hashes))
        of_message = np.where(keyed, pc.fill_null(hashes, 0).to_numpy(zero_copy_only=False), block.offsets)
        partitions: Ints = of_message[block.rows] % self._counts[topics]
        return partitions

    def _records(self, block: Block, chosen: Ints, numbers: Ints) -> _Records:
        """Return the records of these deliveries, with the headers that each has beside its message's."""
        target = self._target
        rows, by_message = block.rows[chosen], self._by_message[block.codes[chosen]]
        subscriptions = self._ids.take(pa.array(block.ordinals[chosen]))
        place = f"{as_written(block.place.source)}/{block.place.partition}/".encode()
        batch = f"{target.job}/{target.batch}/{self._task}/".encode()
        if not by_message.any():
            offsets = pa.array(block.offsets[rows])
            headers = {
                SUBSCRIPTION: subscriptions,
                DELIVERY_ID: (place, offsets, b"/", subscriptions),
                REVISION: self._revision,
                BATCH: (batch, pa.array(numbers)),
            }
            return _Records(block.contents, rows, headers, np.arange(len(chosen)))
        firsts = _firsts(rows, self._topics[block.codes[chosen]], by_message)
        lists = pa.LargeListArray.from_arrays(pa.array([*firsts, len(chosen)], pa.int64()), subscriptions)
        listed = pc.binary_join(lists, ",")
        counts = np.diff(np.append(firsts, len(chosen)))
        rows, by_message = rows[firsts], by_message[firsts]
        offsets = pa.array(block.offsets[rows])
        headers = {SUBSCRIPTION: listed}
        contents = block.contents
        if by_message.all():
            headers |= {COUNT: pa.array(counts), DELIVERY_ID: (place, offsets, b"/*")}
        else:
            # A record of one delivery is the same beside those of others: the count is a header of a copy.
            contents = _with_header(contents, rows[by_message], COUNT, counts[by_message])
            rows[by_message] = np.arange(len(block.contents), len(contents))
            of_one = pc.if_else(pa.array(by_message), pa.scalar("*", listed.type), listed)
            headers |= {DELIVERY_ID: (place, offsets, b"/", of_one)}
        headers |= {REVISION: self._revision, BATCH: (batch, pa.array(numbers[firsts]))}
        return _Records(contents, rows, headers, firsts)

    def _timed(self, records: _Records, topics: Codes) -> tuple[_Records, Ints]:
        """Return the time stamp of each record: its message's, or the time of sending if that has none or the
        record's topic would refuse it. Then a header of the record has the message's.
        """
        now = round(time.time() * 1_000)
        column = records.contents.column("timestamp")
        has_time = np.asarray(pc.is_valid(column))[records.rows]
        times: Ints = pc.fill_null(column, 0).to_numpy(zero_copy_only=False)[records.rows]
        before, after = self._before[topics], self._after[topics]
        fits = (times >= 0) & (now - times <= before - np.minimum(_CLOCKS_MS, before // 2))
        fits &= times - now <= after - np.minimum(_CLOCKS_MS, after // 2)
        refused = np.flatnonzero(has_time & ~fits)
        if len(refused):
            rows = records.rows
            contents = _with_header(records.contents, rows[refused], SOURCE_TIMESTAMP, times[refused])
            rows[refused] = np.arange(len(records.contents), len(contents))
            records = records._replace(contents=contents)
        return records, np.where(has_time & fits, times, now)

    def _too_large(self, block: Block, send: Mask) -> list[Refusal]:
        """Return the deliveries of records whose lists are too long for their topics, and strike them off
        those to send.
        """
        chosen = np.flatnonzero(send & self._by_message[block.codes])
        if not len(chosen):
            return []
        topics = self._topics[block.codes]
        chosen = chosen[np.argsort(topics[chosen], kind="stable")]
        rows, topics = block.rows[chosen], topics[chosen]
        firsts = _firsts(rows, topics)
        listed = pc.binary_length(self._ids.take(pa.array(block.ordinals[chosen]))).to_numpy() + 1
        sizes = sizes_of(block.contents)[rows[firsts]] + np.add.reduceat(listed, firsts)
        counts = np.diff(np.append(firsts, len(chosen)))
        without = np.repeat(sizes > self._longest[topics[firsts]], counts)
        refused = []
        for topic in np.unique(topics[without]).tolist():
            mask = np.zeros(len(send), np.bool_)
            mask[chosen[without & (topics == topic)]] = True
            send &= ~mask
            limit = f"{self._longest[topic]:,} bytes"
            text = f"the topic {self._names[topic]} accepts records of at most {limit}, with all headers"
            refused.append(Refusal(mask, "too-large", text))
        return refused


def _firsts(rows: Ints, topics: Codes, by_message: Mask | None = None) -> Ints:
    """Return the first delivery of each record: one for a run of deliveries of one message to one topic, if
    these are grouped by message.
    """
    starts = (np.diff(rows, prepend=-1) != 0) | (np.diff(topics, prepend=-1) != 0)
    if by_message is not None:
        starts[1:] |= ~(by_message[1:] & by_message[:-1])
    return np.flatnonzero(starts)


def _with_header(contents: pa.RecordBatch, rows: Ints, name: str, numbers: Ints) -> pa.RecordBatch:
    """Return messages, and after them a copy of each of these rows, which has a further header, a number."""
    copies = contents.take(pa.array(rows))
    lists = copies.column("headers")
    existing = lists.flatten()
    added = pa.array([{"key": name, "value": b"%d" % number} for number in numbers.tolist()], existing.type)
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    order = np.insert(np.arange(len(existing)), np.cumsum(lengths), len(existing) + np.arange(len(added)))
    ends = np.concatenate(([0], np.cumsum(lengths + 1)))
    headers = pa.ListArray.from_arrays(
        pa.array(ends, pa.int32()), pa.concat_arrays([existing, added]).take(pa.array(order))
    ).cast(lists.type)
    place = copies.schema.get_field_index("headers")
    more = copies.set_column(place, copies.schema.field(place), headers)
    return pa.RecordBatch.from_arrays(
        [pa.concat_arrays(pair) for pair in zip(contents.columns, more.columns, strict=True)],
        schema=contents.schema,
    )
