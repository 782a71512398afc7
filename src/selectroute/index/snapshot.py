"""The immutable index: arrays for the kernel, and the table that turns ordinals back into subscriptions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from selectroute.index.extended import provider_reads
from selectroute.index.segment import Attribute, Segment
from selectroute.index.subscription import EXTENDED
from selectroute.index.tables import Array
from selectroute.selector.names import INVALID_NAMES

if TYPE_CHECKING:
    from selectroute.match.match import Matches


@dataclass(frozen=True, eq=False)
class Snapshot:
    """All subscriptions of one revision, flat: arrays that executors map into memory, nothing to unpickle.

    Made by ``Index.freeze()``; ``publish`` writes it to a folder and ``Snapshot.open`` maps it from there.
    ``subscriptions`` has the columns id, destination, topic, selector, dialect, seltype, one row for each
    ordinal. Ordinals run through the segments, one after the other.
    """

    segments: tuple[Segment, ...]
    subscriptions: pa.Table
    revision: int | None = None
    digest: str = ""
    folder: Path | None = None

    def __len__(self) -> int:
        return int(self.subscriptions.num_rows)

    def __repr__(self) -> str:
        return f"Snapshot(revision={self.revision}, {len(self):,} subscriptions, {self.nbytes:,} bytes)"

    @classmethod
    def open(cls, folder: str | Path, revision: int | None = None) -> Snapshot:
        """Map a published snapshot: the newest one, or that of a revision.

        Checks the format version and every SHA-256. Raises `SnapshotError`, which says what is missing or
        damaged.
        """
        from selectroute.index.file_format import open_snapshot

        return open_snapshot(Path(folder), revision)

    def match(self, messages: pa.RecordBatch | pa.Table) -> Matches:
        """The subscriptions of each message: ``offsets`` int64[rows + 1], ``ordinals`` int32[total].

        A column named as an identifier is that identifier, its Arrow type the property's type, null is NULL;
        an identifier without a column is NULL, other columns are not read. Raises `ColumnTypeError`.
        """
        from selectroute.match.match import match

        return match(self, messages)

    @cached_property
    def attributes(self) -> tuple[Attribute, ...]:
        """What all segments together read, each property once."""
        found: dict[str, Attribute] = {}
        for segment in self.segments:
            for one in segment.attributes:
                other = found.get(one.name, one)
                found[one.name] = Attribute(
                    one.name,
                    one.codes or other.codes,
                    one.values or other.values,
                    one.byte_strings and other.byte_strings,
                )
        return tuple(found.values())

    @property
    def checks_names(self) -> bool:
        """Whether some selectors take no message whose property names break a rule."""
        return any(segment.checks_names for segment in self.segments)

    @property
    def scanned(self) -> Mapping[str, int]:
        """The clauses on the scan lists, counted by their reason."""
        return dict(sum((Counter(segment.scanned) for segment in self.segments), Counter()))

    @cached_property
    def reads(self) -> tuple[str, ...]:
        """The columns that selectors and topic filters read, sorted."""
        names = {name for attribute in self.attributes for name in attribute.sources}
        if self.checks_names:
            names.add(INVALID_NAMES)
        if self.extended is not None:
            for selector in set(self.subscriptions["selector"].filter(self._is_extended).to_pylist()):
                names.update(provider_reads(selector) or ())
        return tuple(sorted(names))

    @cached_property
    def extended(self) -> Array | None:
        """Whether each ordinal's selector is EXTENDED, bool[subscriptions]; None if none is."""
        mask = self._is_extended.to_numpy()
        return mask if mask.any() else None

    @property
    def _is_extended(self) -> pa.ChunkedArray:
        return pc.equal(self.subscriptions["seltype"], EXTENDED)

    @cached_property
    def ids(self) -> pa.Array:
        """The id of each ordinal, strings. ``ids[ordinal].as_py()``, or ``ids.take(ordinals)``."""
        return self.subscriptions["id"].combine_chunks()

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays that matching reads; the ids are not among them."""
        return sum(segment.nbytes for segment in self.segments)
