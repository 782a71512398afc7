"""The immutable index: arrays for the kernel, and the table that turns ordinals back into subscriptions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from selectroute.index.tables import Tables

if TYPE_CHECKING:
    from selectroute.match.match import Matches


@dataclass(frozen=True, slots=True)
class Attribute:
    """One property that the snapshot reads, and what it needs of it.

    ``source`` is the column; a derived one is level ``level`` of the topic string there (``None``: the number
    of levels). ``codes``: its values are looked up among the constants; ``values``: ranges and programs read
    them.
    """

    name: str
    source: str
    level: int | None
    derived: bool
    codes: bool
    values: bool


@dataclass(frozen=True, eq=False)
class Snapshot:
    """All subscriptions of one revision, flat: arrays that executors map into memory, nothing to unpickle.

    Made by ``Index.freeze()``; ``publish`` writes it to a folder and ``Snapshot.open`` maps it from there.
    ``subscriptions`` has the columns id, destination, topic, selector, dialect, one row for each ordinal.
    """

    tables: Tables
    attributes: tuple[Attribute, ...]
    depth: int
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
        return tuple(sorted({attribute.source for attribute in self.attributes}))

    @cached_property
    def ids(self) -> pa.Array:
        """The id of each ordinal, strings. ``ids[ordinal].as_py()``, or ``ids.take(ordinals)``."""
        return self.subscriptions["id"].combine_chunks()

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays that matching reads; the ids are not among them."""
        return sum(array.nbytes for array in self.tables)
