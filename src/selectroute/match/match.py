"""Matching of a batch: columns become lanes and codes, and the kernel does the rest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from selectroute.arrays import tables as t
from selectroute.arrays.ids import Ids
from selectroute.arrays.segment import Segment
from selectroute.arrays.state import SnapshotState
from selectroute.match.array_structs import COLUMNS, Description, address_of_segment, stack_of
from selectroute.match.columns.batch import ColumnBatch
from selectroute.match.columns.columns import ColumnTypeError, check_column, is_bytes
from selectroute.match.columns.from_messages import BODY
from selectroute.match.columns.missing import (
    Missing,
    check_choice,
    log_once,
    missing_columns,
    report_missing,
    unlike_constants,
    unlike_sentence,
)
from selectroute.match.compiled import compiling_alone
from selectroute.match.encoding.lanes import AttributeLanes, Lanes, SomeLanes
from selectroute.match.extended import NOTHING_REFUSED, RefusedDeliveries, judge_extended
from selectroute.match.kernel.kernel import collect, emit
from selectroute.match.multi_segment import empty_matches, merge_segments
from selectroute.selector.arguments import check_argument
from selectroute.selector.names import INVALID_NAMES
from selectroute.selector.sentences import counted


class Counters(NamedTuple):
    """Cost of matching a batch: keys looked up, keys found, and residuals judged."""

    probes: int
    hits: int
    judged: int


@dataclass(frozen=True, slots=True)
class Matches:
    """Matches of a batch: row i has ``ordinals[offsets[i] : offsets[i + 1]]``, distinct and in any order.

    ``offsets`` is int64[rows + 1], ``ordinals`` int32[total]. ``len()`` is the number of rows. ``refused``
    are deliveries without a verdict, which are not among the matches. Ordinals are valid within one revision
    only; `ids` are permanent.
    """

    offsets: t.Array
    ordinals: t.Array
    counters: Counters
    refused: RefusedDeliveries = NOTHING_REFUSED
    subscriptions: Ids | None = field(default=None, repr=False)
    """Ids of the snapshot's ordinals."""

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> t.Array:
        """Return the ordinals of one row, int32."""
        if not 0 <= row < len(self):
            raise IndexError(row)
        return self.ordinals[self.offsets[row] : self.offsets[row + 1]]

    def __iter__(self) -> Iterator[t.Array]:
        return (self[row] for row in range(len(self)))

    def __repr__(self) -> str:
        pairs = counted(len(self.ordinals), "match", "matches")
        return f"Matches({counted(len(self), 'message')}, {pairs})"

    def ids(self) -> pa.Array:
        """Return the ids of the subscriptions of each row: an Arrow array, one list of strings a row.

        ``matches.ids().to_pylist()`` gives Python lists. O(matches), without Python objects.
        """
        assert self.subscriptions is not None
        return id_lists(self.subscriptions, self.offsets, self.ordinals)


MOST_OFFSET = 2**31 - 1
"""Maximum elements or bytes of an Arrow array with offsets of 32 bits."""

_LONGEST_ID = 128


def id_lists(ids: Any, offsets: t.Array, ordinals: t.Array) -> pa.Array:
    """Return the ids of matches as ``list<string>``, one list a message; ``large_list<large_string>`` for too
    many. ``ids`` has a method ``take`` that gives the ids of ordinals.
    """
    if len(ordinals) * _LONGEST_ID <= MOST_OFFSET:
        return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), ids.take(pa.array(ordinals)))
    step = MOST_OFFSET // _LONGEST_ID
    parts = [
        ids.take(pa.array(ordinals[start : start + step])).cast(pa.large_string())
        for start in range(0, len(ordinals), step)
    ]
    return pa.LargeListArray.from_arrays(pa.array(offsets), pa.concat_arrays(parts))


def match(
    snapshot: SnapshotState,
    messages: pa.RecordBatch | pa.Table,
    missing: Missing = "ignore",
    unlike: Missing = "ignore",
) -> Matches:
    """Match a batch: see `Snapshot.match`."""
    if isinstance(messages, pa.Table):
        # Usually one batch; several where a string column exceeds the 2 GiB of 32-bit offsets.
        batches = messages.combine_chunks().to_batches()
        batches = batches or [pa.RecordBatch.from_pylist([], messages.schema)]
        return _joined([match(snapshot, batch, missing, unlike) for batch in batches])
    if not isinstance(messages, pa.RecordBatch):
        check_argument(messages, pa.RecordBatch, "messages", _MESSAGES)
    batch = ColumnBatch(messages)
    if missing != "ignore":
        _report_missing(snapshot, batch, missing)
    if unlike != "ignore":
        _report_unlike(snapshot, batch, messages.schema, unlike)
    offsets, ordinals, counters = match_lanes(snapshot, AttributeLanes(batch))
    offsets, ordinals, refused = judge_extended(snapshot, batch, offsets, ordinals)
    return Matches(offsets, ordinals, counters, refused, snapshot.ids)


def match_lanes(
    snapshot: SnapshotState, messages: AttributeLanes | SomeLanes
) -> tuple[t.Array, t.Array, Counters]:
    """Match the lanes of a batch, which several snapshots may share, or of some rows of it.

    Returns offsets and ordinals as in `Matches`; those of EXTENDED subscriptions are found by topic alone.
    """
    rows = messages.rows
    invalid = messages.invalid_names if snapshot.checks_names else np.zeros(rows, np.bool_)
    with compiling_alone():
        lanes = Lanes(snapshot, messages)
        runs = [_runs(segment, lanes, invalid) for segment in snapshot.segments]
        offsets, ordinals = _emitted(snapshot, runs)
    return offsets, ordinals, Counters(*(sum(int(counters[i]) for _, _, counters in runs) for i in range(3)))


_MESSAGES = (
    "a pyarrow.RecordBatch or pyarrow.Table, a message a row: pa.Table.from_pylist([{'color': 'red'}]), "
    "pa.Table.from_pandas(df); a single message is for match_one"
)
_COMPLETE = "_complete_columns"
"""Attribute of a snapshot: the names of columns that are known to be complete, or `_REPORTED`."""

_REPORTED = object()
"""Missing columns were reported."""

_CHECKED = "_checked_schema"
"""Attribute of a snapshot: the newest schema whose types were checked."""


def _report_missing(snapshot: SnapshotState, batch: ColumnBatch, missing: Missing) -> None:
    """Report the columns that the batch lacks, once for a snapshot. The same columns are checked once."""
    known = snapshot.__dict__.get(_COMPLETE)
    if missing == "warn" and known is _REPORTED:
        return
    names = batch.names
    if names == known:
        return
    check_choice(missing)
    absent = missing_columns(snapshot.reads, names)
    report_missing(absent, names, "the batch", missing)
    snapshot.__dict__[_COMPLETE] = _REPORTED if absent else frozenset(names)


def _report_unlike(snapshot: SnapshotState, batch: ColumnBatch, schema: pa.Schema, unlike: Missing) -> None:
    """Report columns of types that no property has; a schema is checked once. Raises `ColumnTypeError`."""
    if schema == snapshot.__dict__.get(_CHECKED):
        return
    check_choice(unlike, "unlike")
    types: dict[str, pa.DataType] = {}
    for name in snapshot.reads:
        column = None if name in (BODY, INVALID_NAMES) else batch.column(name)
        if column is None:
            continue
        types[name] = column.type
        try:
            check_column(name, column.type, name not in snapshot.no_bytes)
        except ColumnTypeError as error:
            if unlike == "error":
                raise
            readers = snapshot.readers(name, byte_strings=not is_bytes(column.type))
            log_once(unlike_sentence(str(error), readers))
    for sentence in unlike_constants(snapshot.segments, types):
        log_once(sentence)
    snapshot.__dict__[_CHECKED] = schema


def _runs(segment: Segment, lanes: Lanes, invalid: t.Array) -> tuple[t.Array, t.Array, t.Array]:
    """Return the runs of matching entries, the rows' offsets, and the counters."""
    sources = lanes.sources(segment)
    columns = lanes.block(segment, invalid) if len(sources) else lanes.columns(segment, invalid)
    described = Description(COLUMNS, columns)
    seen = np.zeros(segment.rows if segment.repeats else 0, np.int64)
    counters = np.zeros(3, np.int64)
    runs, offsets = collect(
        lanes.rows, sources, lanes.anchors(segment), address_of_segment(segment), described.address,
        stack_of(segment), seen, 1, counters,
    )  # fmt: skip
    return runs, offsets, counters


def _emitted(
    snapshot: SnapshotState, parts: list[tuple[t.Array, t.Array, t.Array]]
) -> tuple[t.Array, t.Array]:
    """Return the matches of each row in all segments, as ordinals of the snapshot, without dead ones."""
    if len(parts) == 1:  # tombstones come with later segments
        runs, offsets, _ = parts[0]
        return offsets, emit(runs, offsets, snapshot.segments[0].tables.entry_ordinal)
    matches = empty_matches(len(parts[0][1]) - 1)
    for number in reversed(range(len(parts))):
        ordinals = snapshot.segments[number].tables.entry_ordinal
        first, dead = int(snapshot.firsts[number]), snapshot.dead_entries[number]
        matches = merge_segments(*parts[number][:2], ordinals, first, dead, matches)
    return matches


def _joined(parts: list[Matches]) -> Matches:
    """Return the concatenated matches of several batches."""
    if len(parts) == 1:
        return parts[0]
    before = np.cumsum([0] + [len(part.ordinals) for part in parts])
    rows = np.cumsum([0] + [len(part) for part in parts])
    offsets = [part.offsets[1:] + n for part, n in zip(parts, before, strict=False)]
    refused = [part.refused.rows + n for part, n in zip(parts, rows, strict=False)]
    return Matches(
        np.concatenate([np.zeros(1, np.int64), *offsets]),
        np.concatenate([part.ordinals for part in parts]),
        Counters(*map(sum, zip(*(part.counters for part in parts), strict=True))),
        RefusedDeliveries(np.concatenate(refused), np.concatenate([part.refused.ordinals for part in parts])),
        parts[0].subscriptions,
    )
