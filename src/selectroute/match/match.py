"""Matching a batch: the columns a snapshot reads become lanes and codes, and the kernel does the rest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from selectroute.index import tables as t
from selectroute.index.index import Index
from selectroute.index.segment import Segment
from selectroute.index.snapshot import Snapshot
from selectroute.match.batch import Batch
from selectroute.match.columns import Lane, TopicLevels, lane
from selectroute.match.encode import encode
from selectroute.match.extended import NOTHING_REFUSED, Refused, judge_extended
from selectroute.match.fields import field_lane
from selectroute.match.kernel import collect, emit
from selectroute.selector.fields import PREFIX
from selectroute.topics.levels import TOPIC, derivation


@dataclass(frozen=True, slots=True)
class Counters:
    """What matching a batch cost: keys looked up, of these found, and residuals judged."""

    probes: int
    found: int
    judged: int


@dataclass(frozen=True, slots=True)
class Matches:
    """The matches of a batch: row i has ``ordinals[offsets[i] : offsets[i + 1]]``, in no promised order, each
    once.

    ``offsets`` is int64[rows + 1], ``ordinals`` int32[total]. ``len()`` is the number of rows. ``refused``
    are deliveries that nobody could judge; they are not among the matches.
    """

    offsets: t.Array
    ordinals: t.Array
    counters: Counters
    refused: Refused = NOTHING_REFUSED

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> t.Array:
        """The ordinals of one row, int32."""
        if not 0 <= row < len(self):
            raise IndexError(row)
        return self.ordinals[self.offsets[row] : self.offsets[row + 1]]

    def __iter__(self) -> Iterator[t.Array]:
        return (self[row] for row in range(len(self)))


class Columns(NamedTuple):
    """The batch as the kernel sees it, one row of each array for each attribute of the snapshot."""

    tags: t.Array  # int8[attributes, rows]
    codes: t.Array  # int32[attributes, rows], of attributes with ``codes``
    bits: t.Array  # int64[attributes, rows], of attributes with ``values``; of a string, its place in `text`
    reals: t.Array  # float64, the same bits
    sizes: t.Array  # int32[attributes, rows], of strings with ``values``
    text: t.Array  # uint8, the bytes of all strings with ``values``
    entry_reals: t.Array  # float64, the bits of ``entry_bound``
    invalid_names: t.Array  # bool[rows], messages whose property names break a rule


def match(snapshot: Snapshot, messages: pa.RecordBatch | pa.Table) -> Matches:
    """See `Snapshot.match`."""
    if isinstance(messages, pa.Table):
        # Usually one batch; several where a string column exceeds the 2 GiB of 32-bit offsets.
        return _joined([match(snapshot, batch) for batch in messages.combine_chunks().to_batches()])
    batch = Batch(messages)
    lanes = _Lanes(snapshot, batch)
    invalid = batch.invalid_names() if snapshot.checks_names else np.zeros(batch.rows, np.bool_)
    found = [_match(segment, _columns(segment, lanes, invalid)) for segment in snapshot.segments]
    offsets, ordinals = _side_by_side(found, snapshot.segments)
    counters = Counters(*(sum(int(one[2][i]) for one in found) for i in range(3)))
    offsets, ordinals, refused = judge_extended(snapshot, batch, offsets, ordinals)
    return Matches(offsets, ordinals, counters, refused)


def _match(segment: Segment, columns: Columns) -> tuple[t.Array, t.Array, t.Array]:
    """The offsets, the ordinals within the segment, and the counters."""
    depth = max(segment.depth, 2)
    bits = np.zeros(depth, np.int64)
    stack = (np.zeros(depth, np.int8), bits, bits.view(np.float64), np.zeros(depth, np.int32))
    # Zeroed pages cost nothing until they are touched, so this is free where no subscription has several
    # clauses.
    seen = np.zeros(segment.rows, np.int64)
    counters = np.zeros(3, np.int64)
    rows = len(columns.invalid_names)
    runs, offsets = collect(rows, segment.tables, columns, stack, seen, counters)
    return offsets, emit(runs, offsets, segment.tables.entry_ordinal), counters


def _side_by_side(
    found: list[tuple[t.Array, t.Array, t.Array]], segments: tuple[Segment, ...]
) -> tuple[t.Array, t.Array]:
    """The matches of each row in all segments, ordinals running through these."""
    if len(found) == 1:
        return found[0][:2]
    raise NotImplementedError


def warm_up() -> None:
    """Compile the kernel, or load it from the cache: about ten seconds once on a machine, then half a second.

    Where several processes are about to match for the first time, one of them should do this before:
    otherwise each compiles for itself.
    """
    index = Index()
    index.add("any", "name = 'value' AND number > 0")
    match(index.freeze(), pa.record_batch({"name": ["value"], "number": [1]}))


def _joined(parts: list[Matches]) -> Matches:
    """The matches of several batches, one after the other."""
    if len(parts) == 1:
        return parts[0]
    before = np.cumsum([0] + [len(part.ordinals) for part in parts])
    rows = np.cumsum([0] + [len(part) for part in parts])
    return Matches(
        np.concatenate(
            [np.zeros(1, np.int64)] + [part.offsets[1:] + n for part, n in zip(parts, before, strict=False)]
        ),
        np.concatenate([np.zeros(0, np.int32)] + [part.ordinals for part in parts]),
        Counters(*(sum(getattr(part.counters, name) for part in parts) for name in Counters.__slots__)),
        Refused(
            np.concatenate(
                [NOTHING_REFUSED.rows] + [part.refused.rows + n for part, n in zip(parts, rows, strict=False)]
            ),
            np.concatenate([NOTHING_REFUSED.ordinals] + [part.refused.ordinals for part in parts]),
        ),
    )


class _Lanes:
    """The columns that a snapshot reads, unpacked once for all segments, and the text that their strings
    share.
    """

    def __init__(self, snapshot: Snapshot, batch: Batch) -> None:
        self.rows = batch.rows
        self.lanes: dict[str, Lane] = {}
        self.placed: dict[str, t.Array] = {}
        """Of each lane with values its bits, where a string's place is one in `text`."""
        topics: TopicLevels | None = None
        texts: list[t.Array] = []
        length = 0
        for attribute in snapshot.attributes:
            name = attribute.name
            derived = derivation(name)
            if derived is not None:
                column = batch.column(TOPIC)
                if column is None:
                    continue
                topics = topics or TopicLevels(column)
                found = topics.lane(derived)
            elif name.startswith(PREFIX) and name != TOPIC:
                found = field_lane(name.removeprefix(PREFIX), batch)
            else:
                column = batch.column(name)
                if column is None:
                    continue
                found = lane(name, column, attribute.byte_strings)
            self.lanes[name] = found
            if attribute.values:
                strings = found.tags >= t.STRING
                self.placed[name] = (
                    np.where(strings, found.bits + length, found.bits) if length else found.bits
                )
                texts.append(found.data)
                length += len(found.data)
        self.text = np.concatenate(texts) if length else np.zeros(0, np.uint8)


def _columns(segment: Segment, lanes: _Lanes, invalid_names: t.Array) -> Columns:
    rows, count = lanes.rows, len(segment.attributes)
    # All zeros is NULL, in tags and in codes. What no column fills is never touched, and costs no memory.
    tags = np.zeros((count, rows), np.int8)
    codes = np.zeros((count, rows), np.int32)
    bits = np.zeros((count, rows), np.int64)
    sizes = np.zeros((count, rows), np.int32)
    for number, attribute in enumerate(segment.attributes):
        found = lanes.lanes.get(attribute.name)
        if found is None:
            continue
        tags[number] = found.spread(found.tags)
        if attribute.codes:
            distinct = codes[number] if found.rows is None else np.empty(len(found.tags), np.int32)
            encode(number, found.tags, found.bits, found.sizes, found.data, segment.tables, distinct)
            if found.rows is not None:
                codes[number] = distinct[found.rows]
        if attribute.values:
            bits[number] = found.spread(lanes.placed[attribute.name])
            sizes[number] = found.spread(found.sizes)
    reals = segment.tables.entry_bound.view(np.float64)
    return Columns(tags, codes, bits, bits.view(np.float64), sizes, lanes.text, reals, invalid_names)
