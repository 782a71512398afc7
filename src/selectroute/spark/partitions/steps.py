"""Steps of routing in partitions, in workers: functions of Arrow batches.

`address` makes blocks of messages, `match` answers them, and `gather` gives the answers to the messages.

The lists of a message from several partitions become one, with each ordinal once. An ordinal of the whole
registry is *marked* if its subscription may be in several partitions: it is written as its complement,
``~ordinal``. Only marked ordinals are compared.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark import TaskContext

from selectroute.arrays import tables as t
from selectroute.index.snapshot import Snapshot
from selectroute.match.columns.batch import ColumnBatch
from selectroute.match.compiled import compiled, compiling_alone
from selectroute.match.encoding.lanes import AttributeLanes
from selectroute.match.memory import address_of, int_at, take_array
from selectroute.selector.errors import SelectRouteError
from selectroute.spark.columns.matches import Form, list_array, list_offsets, portions
from selectroute.spark.columns.snapshot_ref import SnapshotRef
from selectroute.spark.partitions.snapshot import (
    PartitionedSnapshot,
    PartitionsRef,
    open_partitions,
    ordinals_of,
)
from selectroute.spark.session import Batches

_MULTIPLIER: Final = np.uint64(0x9E3779B97F4A7C15)
_UPPER: Final = np.uint64(32)

SAME: Final = np.zeros(0, np.int32)
"""`Lists.whole` of ordinals that are already those of the whole registry."""
SAME.flags.writeable = False


class Lists(NamedTuple):
    """Matches of some messages of a batch in one partition: message ``numbers[i]`` of the batch has
    ``ordinals[offsets[i] : offsets[i + 1]]``, and ``whole[ordinal]`` is the ordinal in the whole registry.
    """

    numbers: t.Array  # int64[lists], distinct
    offsets: t.Array  # int64[lists + 1]
    ordinals: t.Array  # int32[offsets[-1]]
    whole: t.Array = SAME  # int32[rows of the partition], some of them marked


def merge(rows: int, parts: Sequence[Lists], marked: bool) -> tuple[t.Array, t.Array]:
    """Return the matches of each of ``rows`` messages: offsets int64[rows + 1] and ordinals int32[total], in
    the order of the parts. ``marked`` is whether any ordinal may be marked. O(lists + matches).
    """
    offsets, lists = np.zeros(rows + 1, np.int64), np.zeros(rows, np.int64)
    for part in parts:
        lengths = np.diff(part.offsets)
        offsets[part.numbers + 1] += lengths
        lists[part.numbers] += lengths > 0
    np.cumsum(offsets, out=offsets)
    ordinals = take_array(int(offsets[-1]))
    places = offsets[:-1].copy()
    with compiling_alone("the merge of partitions"):
        for part in parts:
            numbers, own, matched, whole = map(_read_only, part)
            _place(numbers, own, matched, whole, places, ordinals)
        if marked:
            ordinals = ordinals[: _distinct(lists, offsets, ordinals)]
    return offsets, ordinals


def _read_only(array: t.Array) -> t.Array:
    """Return a view as Arrow's arrays are: numba compiles a function for each kind of its arguments."""
    view = array.view()
    view.flags.writeable = False
    return view


@compiled
def _place(
    numbers: t.Array, offsets: t.Array, ordinals: t.Array, whole: t.Array, places: t.Array, target: t.Array
) -> None:
    """Append lists to those of their messages, which end at `places`."""
    # By address and unsigned: for a signed index numba tests each time whether it counts from the end.
    same, table = len(whole) == 0, address_of(whole)
    for i in range(len(numbers)):
        number, first = np.uint64(numbers[i]), np.uint64(offsets[i])
        at, count = np.uint64(places[number]), np.uint64(offsets[i + 1]) - first
        if same:
            for k in range(count):
                target[at + k] = ordinals[first + k]
        else:
            for k in range(count):
                target[at + k] = int_at(table, ordinals[first + k])
        places[number] = at + count


@compiled
def _distinct(lists: t.Array, offsets: t.Array, ordinals: t.Array) -> int:
    """Leave the first of a message's equal marked ordinals, without its mark, and move the others up, in
    place; return the number left. A message with one of the ``lists`` has no equal ones.
    """
    most = 0
    for row in range(len(lists)):
        if lists[row] < 2:
            continue
        count = 0
        for k in range(offsets[row], offsets[row + 1]):
            count += ordinals[k] < 0
        most = max(most, count)
    size = 2
    while size < 2 * most:
        size *= 2
    # A set of the message's marked ordinals. A slot with another message's number in its upper half is free.
    slots = np.zeros(size, np.int64)
    mask = np.uint64(size - 1)
    at = start = 0
    for row in range(len(lists)):
        stop = offsets[row + 1]
        number = np.int64(row + 1) << 32
        for k in range(start, stop):
            ordinal = ordinals[k]
            if ordinal < 0:
                ordinal = ~ordinal
                if lists[row] > 1:
                    entry = number | np.int64(ordinal)
                    slot = (np.uint64(ordinal) * _MULTIPLIER) >> _UPPER & mask
                    while slots[slot] >= number and slots[slot] != entry:
                        slot = slot + np.uint64(1) & mask
                    if slots[slot] == entry:
                        continue
                    slots[slot] = entry
            ordinals[at] = ordinal
            at += 1
        start = stop
        offsets[row + 1] = at
    return at


SENT: Final = "task int, batch binary, awaited int, block binary"
"""Block on its way to a task; ``awaited`` is the number of answers of a home block, or `_NOT_HOME`."""

ANSWERED: Final = "batch binary, awaited int, block binary"

FOUND: Final = "found"
"""Column of the subscriptions that `gather` adds."""

_NOT_HOME: Final = -1

_ROW, _REST = "@row", "@rest"
"""Additional columns: of a block the number of each message in its batch, of a home block the matches in the
rest.
"""

_AT_ONCE: Final = 8_192
"""Messages of several blocks that are matched together: with many partitions, a block has few."""

_NOT_THE_SAME: Final = (
    "an answer of a partition is missing: Spark has computed a part of the frame again, and it was another "
    "one (a random number, the time, an unordered limit, …); write or cache the frame before routing it"
)


class PartitionError(SelectRouteError):
    """Frame that can't be routed in partitions."""


@dataclass(frozen=True, slots=True)
class Tasks:
    """Numbers of the tasks of the second step: each partition has `each`; `homes` hand on home blocks."""

    each: int
    partitions: int
    homes: int

    @property
    def first_home(self) -> int:
        """Number of the first task for home blocks."""
        return self.each * self.partitions

    @property
    def count(self) -> int:
        """Number of tasks."""
        return self.first_home + self.homes


def address(ref: PartitionsRef, read: Sequence[tuple[str, int]], kept: int, tasks: Tasks) -> Batches:
    """Return the first step: messages are sent, in blocks, to the tasks of the partitions that can match
    them, and their rows to a task for home blocks.

    ``read`` has the identifiers that selectors read, with the places of their columns; the first ``kept``
    columns are those of the frame.
    """

    def step(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        snapshot = open_partitions(ref)
        rest = snapshot.rest()
        context = TaskContext.get()
        own = 0 if context is None else context.partitionId()
        for turn, batch in enumerate(batches):
            numbers = pa.array(np.arange(batch.num_rows, dtype=np.int32))
            messages = pa.RecordBatch.from_arrays(
                [*(batch.column(place) for _, place in read), numbers],
                names=[*(name for name, _ in read), _ROW],
            )
            lists = pa.nulls(batch.num_rows, pa.list_(pa.int32()))
            if rest is not None:
                lists = _matched_part(rest, snapshot.refs[-1], messages, marked=False)
            home = _packed(
                pa.RecordBatch.from_arrays(
                    [*batch.columns[:kept], lists], names=[*batch.schema.names[:kept], _REST]
                )
            )
            rows, partitions = snapshot.addresses(AttributeLanes(ColumnBatch(messages)))
            used, starts = np.unique(partitions, return_index=True)
            placed = messages.take(pa.array(rows))
            lengths = np.diff(np.append(starts, len(rows)))
            blocks = [
                _packed(placed.slice(start, length))
                for start, length in zip(starts.tolist(), lengths.tolist(), strict=True)
            ]
            name = hashlib.sha256(b"%d %d " % (own, turn))
            name.update(home)
            count = len(blocks)
            to = np.append(
                used * tasks.each + turn % tasks.each, tasks.first_home + (own + turn) % tasks.homes
            )
            yield pa.RecordBatch.from_arrays(
                [
                    pa.array(to, pa.int32()),
                    pa.array([name.digest()] * (count + 1), pa.binary()),
                    pa.array([_NOT_HOME] * count + [count], pa.int32()),
                    pa.array([*blocks, home], pa.binary()),
                ],
                names=["task", "batch", "awaited", "block"],
            )

    return step


def _packed(block: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, block.schema) as writer:
        writer.write_batch(block)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def _unpacked(block: Any) -> pa.RecordBatch:
    """Return the block of a binary value, without copying it."""
    return pa.ipc.open_stream(block.as_buffer()).read_next_batch()


def match(ref: PartitionsRef, tasks: Tasks) -> Batches:
    """Return the second step: blocks are matched in a task of their partition. The answer to a block has the
    number of each message and its ordinals. Home blocks are handed on.
    """

    def step(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        snapshot = open_partitions(ref)
        waiting: list[tuple[bytes, pa.RecordBatch]] = []
        partition = size = 0
        for batch in batches:
            task = batch.column(0)[0].as_py()  # the rows of a task have one number
            if task >= tasks.first_home:
                yield batch.select(["batch", "awaited", "block"])
                continue
            partition = task // tasks.each
            for name, block in zip(batch.column(1).to_pylist(), batch.column(3), strict=True):
                waiting.append((name, _unpacked(block)))
                size += waiting[-1][1].num_rows
                if size >= _AT_ONCE:
                    yield _answers(snapshot, partition, waiting)
                    waiting, size = [], 0
        if waiting:
            yield _answers(snapshot, partition, waiting)

    return step


def _answers(
    snapshot: PartitionedSnapshot, partition: int, blocks: Sequence[tuple[bytes, pa.RecordBatch]]
) -> pa.RecordBatch:
    """Match blocks together, and return a row for each."""
    [messages] = pa.Table.from_batches([block for _, block in blocks]).combine_chunks().to_batches()
    lists = _matched_part(snapshot.part(partition), snapshot.refs[partition], messages, marked=True)
    whole = pa.RecordBatch.from_arrays([messages.column(_ROW), lists], names=["row", "found"])
    answers, start = [], 0
    for _, block in blocks:
        answers.append(_packed(whole.slice(start, block.num_rows)))
        start += block.num_rows
    return pa.RecordBatch.from_arrays(
        [
            pa.array([name for name, _ in blocks], pa.binary()),
            pa.array([_NOT_HOME] * len(blocks), pa.int32()),
            pa.array(answers, pa.binary()),
        ],
        names=["batch", "awaited", "block"],
    )


def _matched_part(part: Snapshot, ref: SnapshotRef, messages: pa.RecordBatch, marked: bool) -> Any:
    """Match messages with a part, whose reference is `ref`; return the ordinals of the whole registry, all
    marked as in ``merge`` or none: no task knows which ordinals are in other parts.
    """
    matches = part.match(messages, missing="ignore", unlike="ignore")
    ordinals = ordinals_of(ref)[matches.ordinals]
    return list_array(matches.offsets, ~ordinals if marked else ordinals)


@dataclass(slots=True)
class _Gathered:
    """ColumnBatch of which not all blocks have come: its home block, if it has, and the answers."""

    home: pa.RecordBatch | None = None
    awaited: int = _NOT_HOME
    answers: list[pa.RecordBatch] = field(default_factory=list)

    def add(self, awaited: int, block: pa.RecordBatch) -> bool:
        """Add a block; return whether it was the last one."""
        if awaited == _NOT_HOME:
            self.answers.append(block)
        else:
            self.home, self.awaited = block, awaited
        return self.home is not None and len(self.answers) == self.awaited


def gather(ref: PartitionsRef, form: Form) -> Batches:
    """Return the third step: each message of a home block gets its subscriptions, in a form.

    A task holds the home blocks and answers that have come to it, its share of the frame.
    """

    def step(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        snapshot = open_partitions(ref)
        waiting: dict[bytes, _Gathered] = {}
        for batch in batches:
            columns = batch.column(0).to_pylist(), batch.column(1).to_pylist(), batch.column(2)
            for name, awaited, block in zip(*columns, strict=True):
                gathered = waiting.setdefault(name, _Gathered())
                if gathered.add(awaited, _unpacked(block)):
                    del waiting[name]
                    yield from _whole(gathered, snapshot, form)
        if waiting:
            raise PartitionError(_NOT_THE_SAME)

    return step


def _whole(batch: _Gathered, snapshot: PartitionedSnapshot, form: Form) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a batch with their subscriptions."""
    assert batch.home is not None
    *kept, rest = batch.home.columns
    parts = [
        Lists(answer.column(0).to_numpy().astype(np.int64), *list_offsets(answer.column(1)))
        for answer in batch.answers
    ]
    parts.append(Lists(np.arange(batch.home.num_rows), *list_offsets(rest)))
    offsets, ordinals = merge(batch.home.num_rows, parts, marked=True)
    ids = snapshot.ids if form == "ids" else None
    for start, lists in portions(form, offsets, ordinals, ids=ids):
        columns = [column.slice(start, len(lists)) for column in kept]
        yield pa.RecordBatch.from_arrays([*columns, lists], names=[*batch.home.schema.names[:-1], FOUND])
