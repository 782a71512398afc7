"""Matching a batch: the columns a snapshot reads become lanes and codes, and the kernel does the rest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from selectroute.index import tables as t
from selectroute.index.delta import Replace
from selectroute.index.index import Index
from selectroute.index.segment import Segment
from selectroute.index.snapshot import Snapshot
from selectroute.match.batch import Batch
from selectroute.match.beside import emit_beside, nothing
from selectroute.match.extended import NOTHING_REFUSED, Refused, judge_extended
from selectroute.match.kernel import collect, emit
from selectroute.match.lanes import Columns, Lanes


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


def match(snapshot: Snapshot, messages: pa.RecordBatch | pa.Table) -> Matches:
    """See `Snapshot.match`."""
    if isinstance(messages, pa.Table):
        # Usually one batch; several where a string column exceeds the 2 GiB of 32-bit offsets.
        return _joined([match(snapshot, batch) for batch in messages.combine_chunks().to_batches()])
    batch = Batch(messages)
    lanes = Lanes(snapshot, batch)
    invalid = batch.invalid_names() if snapshot.checks_names else np.zeros(batch.rows, np.bool_)
    found = [_runs(segment, lanes.columns(segment, invalid)) for segment in snapshot.segments]
    offsets, ordinals = _emitted(snapshot, found)
    counters = Counters(*(sum(int(one[2][i]) for one in found) for i in range(3)))
    offsets, ordinals, refused = judge_extended(snapshot, batch, offsets, ordinals)
    return Matches(offsets, ordinals, counters, refused)


def _runs(segment: Segment, columns: Columns) -> tuple[t.Array, t.Array, t.Array]:
    """The runs of matching entries, the rows' offsets, and the counters."""
    depth = max(segment.depth, 2)
    bits = np.zeros(depth, np.int64)
    # Zeroed pages cost nothing until they are touched, so this is free where no subscription has several
    # clauses, and no program has several entries.
    seen = np.zeros(segment.rows, np.int64)
    memo = np.zeros(len(segment.tables.step_first), np.int64)
    stack = (np.zeros(depth, np.int8), bits, bits.view(np.float64), np.zeros(depth, np.int32), memo)
    counters = np.zeros(3, np.int64)
    rows = len(columns.invalid_names)
    runs, offsets = collect(
        rows, segment.tables, columns, *segment.scan_terms, segment.single_terms, stack, seen, counters
    )
    return runs, offsets, counters


def _emitted(snapshot: Snapshot, found: list[tuple[t.Array, t.Array, t.Array]]) -> tuple[t.Array, t.Array]:
    """The matches of each row in all segments, ordinals running through these; dead ones left out."""
    if len(found) == 1:  # tombstones come with later segments
        runs, offsets, _ = found[0]
        return offsets, emit(runs, offsets, snapshot.segments[0].tables.entry_ordinal)
    matches = nothing(len(found[0][1]) - 1)
    for number in reversed(range(len(found))):
        ordinals = snapshot.segments[number].tables.entry_ordinal
        first, dead = int(snapshot.firsts[number]), snapshot.dead_entries[number]
        matches = emit_beside(*found[number][:2], ordinals, first, dead, matches)
    return matches


def warm_up() -> None:
    """Compile the kernel, or load it from the cache: about ten seconds once on a machine, then half a second.

    Where several processes are about to match for the first time, one of them should do this before:
    otherwise each compiles for itself.
    """
    index = Index()
    index.add("any", "name = 'value' AND number > 0")
    index.add("prefix", "name LIKE 'val%'")
    snapshot = index.freeze().changed([Replace("any", "name = 'value'")])
    match(snapshot, pa.record_batch({"name": ["value"], "number": [1]}))


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
