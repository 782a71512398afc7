"""The immutable index: arrays for the kernel, and the table that turns ordinals back into subscriptions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from selectroute.index.extended import provider_reads
from selectroute.index.subscription import EXTENDED
from selectroute.index.tables import Array, Tables
from selectroute.selector.fields import DERIVED, PREFIX, SYNONYMS
from selectroute.selector.names import INVALID_NAMES
from selectroute.topics.levels import TOPIC

if TYPE_CHECKING:
    from selectroute.match.match import Matches


@dataclass(frozen=True, slots=True)
class Attribute:
    """One property or derived field that the snapshot reads, and what it needs of it.

    ``codes``: its values are looked up among the constants; ``values``: ranges and programs read them;
    ``byte_strings``: all who read it have byte strings in their dialect, so that a column of bytes is one.
    """

    name: str
    codes: bool
    values: bool
    byte_strings: bool

    @property
    def sources(self) -> tuple[str, ...]:
        """The columns from which it comes: the topic string, or the names of a field that has several."""
        if self.name.startswith(TOPIC):
            return (TOPIC,)
        if not self.name.startswith(PREFIX):
            return (self.name,)
        own = self.name.removeprefix(PREFIX)
        others = dict.fromkeys(name for source in DERIVED[own] for name in source.names)
        return (own, *others) if own in SYNONYMS else tuple(others)


@dataclass(frozen=True, eq=False)
class Snapshot:
    """All subscriptions of one revision, flat: arrays that executors map into memory, nothing to unpickle.

    Made by ``Index.freeze()``; ``publish`` writes it to a folder and ``Snapshot.open`` maps it from there.
    ``subscriptions`` has the columns id, destination, topic, selector, dialect, seltype, one row for each
    ordinal. ``checks_names``: some selectors take no message whose property names break a rule.
    """

    tables: Tables
    attributes: tuple[Attribute, ...]
    depth: int
    checks_names: bool
    scanned: Mapping[str, int]
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
        return sum(array.nbytes for array in self.tables)
