"""State of a snapshot, and data derived from it: holes, attributes, ids, columns that are read."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from weakref import WeakKeyDictionary

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from selectroute.arrays.ids import Ids, memory_of, part_of
from selectroute.arrays.segment import Attribute, Segment
from selectroute.arrays.tables import Array
from selectroute.selector.arguments import check_iterable
from selectroute.selector.dialect import DIALECTS, EXTENDED
from selectroute.selector.extended import provider_reads
from selectroute.selector.fields import PREFIX, identifier_of
from selectroute.selector.names import INVALID_NAMES
from selectroute.selector.sentences import counted
from selectroute.storage import Location
from selectroute.topics.filter import TOPIC


@dataclass(frozen=True, eq=False)
class SnapshotState:
    """Subscriptions of one revision: segments of arrays, and the table of subscriptions. `Snapshot` describes
    both, and adds the operations.
    """

    segments: tuple[Segment, ...]
    subscriptions: pa.Table
    revision: int | None = None
    digest: str = ""
    folder: Location | None = None

    def __len__(self) -> int:
        return int(self.firsts[-1]) - sum(len(segment.removed) for segment in self.segments)

    def __repr__(self) -> str:
        subscriptions, size = counted(len(self), "subscription"), counted(self.nbytes, "byte")
        return f"Snapshot(revision={self.revision}, {subscriptions}, {size})"

    def find(self, ids: Iterable[str]) -> Array:
        """Return the ordinal of each subscription, -1 for an unknown or removed one; int64[ids].
        Cost as of `Ids.find`.
        """
        check_iterable(ids, "ids", "the ids of subscriptions: ['heavy']")
        ordinals = self.ids.find(ids)
        if self.dead is not None:
            ordinals[(ordinals >= 0) & self.dead[ordinals]] = -1
        return ordinals

    @cached_property
    def firsts(self) -> Array:
        """First ordinal of each segment, then the number of ordinals; int64[segments + 1]."""
        return np.cumsum([0, *(segment.rows for segment in self.segments)], dtype=np.int64)

    @cached_property
    def dead(self) -> Array | None:
        """Mask of the ordinals of removed subscriptions, bool[ordinals]; None without any."""
        removed = [segment.removed for segment in self.segments if len(segment.removed)]
        if not removed:
            return None
        mask = np.zeros(self.firsts[-1], np.bool_)
        mask[np.concatenate(removed)] = True
        return mask

    @cached_property
    def deaths(self) -> tuple[int, ...]:
        """Number of ordinals of removed subscriptions in each segment."""
        removed = np.sort(np.concatenate([np.zeros(0, np.int32), *(s.removed for s in self.segments)]))
        return tuple(np.diff(np.searchsorted(removed, self.firsts)).tolist())

    @cached_property
    def dead_entries(self) -> tuple[Array | None, ...]:
        """Mask of the entries of dead ordinals for each segment, None without any: uint64[words], bit ``entry
        & 63`` of word ``entry >> 6``. O(entries), at a nanosecond or two each.
        """
        bitmaps: list[Array | None] = []
        for segment, first, deaths in zip(self.segments, self.firsts[:-1], self.deaths, strict=True):
            if self.dead is None or not deaths:
                bitmaps.append(None)
                continue
            bits = self.dead[first : first + segment.rows][segment.tables.entry_ordinal]
            words = np.zeros(len(bits) // 64 + 1, np.uint64)
            packed = np.packbits(bits, bitorder="little")
            words.view(np.uint8)[: len(packed)] = packed
            bitmaps.append(words)
        return tuple(bitmaps)

    @cached_property
    def attributes(self) -> tuple[Attribute, ...]:
        """Attributes that all segments together read, each once."""
        attributes: dict[str, Attribute] = {}
        for segment in self.segments:
            for attribute in segment.attributes:
                other = attributes.get(attribute.name, attribute)
                attributes[attribute.name] = Attribute(
                    attribute.name,
                    attribute.codes or other.codes,
                    attribute.values or other.values,
                    attribute.byte_strings and other.byte_strings,
                )
        return tuple(attributes.values())

    @cached_property
    def no_bytes(self) -> frozenset[str]:
        """Names that selectors of a dialect without byte strings read: their columns can't be bytes. A field
        with several names may be bytes, since its ids are converted.
        """
        return frozenset(
            attribute.name
            for attribute in self.attributes
            if not attribute.byte_strings and not attribute.name.startswith(PREFIX)
        )

    @property
    def checks_names(self) -> bool:
        """True if some selectors match no message whose property names break a rule."""
        return any(segment.checks_names for segment in self.segments)

    @property
    def scanned(self) -> Mapping[str, int]:
        """Clauses on the scan lists, counted by their reason."""
        return dict(sum((Counter(segment.scanned) for segment in self.segments), Counter()))

    @cached_property
    def reads(self) -> tuple[str, ...]:
        """Columns that selectors and topic filters read, sorted; `match` looks for them in a batch.

        ``@topic`` is the topic. All names of a field are listed; one of them is enough.
        """
        names = {name for attribute in self.attributes for name in attribute.sources}
        if self.checks_names:
            names.add(INVALID_NAMES)
        if self.extended is not None:
            extended = self.subscriptions["selector"].filter(pa.array(self.extended))
            for selector in set(extended.to_pylist()):
                names.update(provider_reads(selector) or ())
        return tuple(sorted(names))

    def readers(self, column: str, *, byte_strings: bool = True) -> int:
        """Count the subscriptions whose selector or topic filter reads a column, under any of its names.

        Without ``byte_strings`` only those whose dialect has no byte strings. O(bytes of all selectors).
        """
        names = {
            identifier_of(attribute.name)
            for attribute in self.attributes
            if column in (attribute.name, *attribute.sources)
        }
        rows = self.subscriptions
        if column == TOPIC:
            reads = pc.is_valid(rows["topic"])
        elif not names:
            return 0
        else:
            # The name outside of string literals, between characters that are not part of identifiers.
            bare = pc.replace_substring_regex(pc.fill_null(rows["selector"], ""), "'[^']*'", "''")
            other = r"[^\p{L}\p{N}\p{M}\p{Sc}\p{Pc}\p{Cf}.]"
            name = "|".join(re.escape(name) for name in sorted(names))
            reads = pc.match_substring_regex(bare, f"(^|{other})({name})({other}|$)")
        if not byte_strings:
            without = [dialect.name for dialect in DIALECTS.values() if not dialect.byte_strings]
            reads = pc.and_(reads, pc.is_in(rows["dialect"], pa.array(without)))
        reading = np.asarray(reads.to_numpy())
        return int(np.count_nonzero(reading if self.dead is None else reading & ~self.dead))

    @cached_property
    def extended(self) -> Array | None:
        """Mask of the ordinals whose selector is EXTENDED, bool[ordinals]; None if none is."""
        column = self.subscriptions["seltype"]
        places = [
            first + _extended_rows(segment, _piece(column, first, segment.rows))
            for first, segment in zip(self.firsts[:-1], self.segments, strict=True)
        ]
        if not any(map(len, places)):
            return None
        mask = np.zeros(self.firsts[-1], np.bool_)
        mask[np.concatenate(places)] = True
        if self.dead is not None:
            mask &= ~self.dead
        return mask if mask.any() else None

    @cached_property
    def ids(self) -> Ids:
        """Ids of all ordinals, strings: ``ids[ordinal].as_py()``, or ``ids.take(ordinals)``."""
        column = self.subscriptions["id"]
        return Ids(
            part_of(segment, _piece(column, first, segment.rows))
            for first, segment in zip(self.firsts[:-1], self.segments, strict=True)
        )

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays that matching reads, without the ids."""
        return sum(segment.nbytes for segment in self.segments)


def _piece(column: pa.ChunkedArray, first: int, rows: int) -> pa.Array:
    """Return some rows of a column as one array, without a copy if they are in one chunk."""
    chunks = [chunk for chunk in column.slice(first, rows).chunks if len(chunk)]
    return chunks[0] if len(chunks) == 1 else pa.concat_arrays([pa.array([], column.type), *chunks])


_extended: WeakKeyDictionary[Segment, tuple[object, Array]] = WeakKeyDictionary()


def _extended_rows(segment: Segment, seltypes: pa.Array) -> Array:
    """Return the EXTENDED rows of a segment, found once for all snapshots that have it."""
    memory, rows = _extended.get(segment, (None, None))
    if rows is None or memory != memory_of(seltypes):
        rows = np.flatnonzero(pc.equal(seltypes, EXTENDED).to_numpy(zero_copy_only=False))
        _extended[segment] = (memory_of(seltypes), rows)
    return rows
