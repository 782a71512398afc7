"""A part of a snapshot: what one call of the kernel matches against."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from selectroute.index.tables import Array, Tables
from selectroute.selector.fields import DERIVED, PREFIX, SYNONYMS
from selectroute.topics.levels import TOPIC


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
class Segment:
    """Some subscriptions, flat: arrays that executors map into memory, nothing to unpickle.

    ``rows`` is the number of subscriptions; an entry's ordinal counts from the segment's own first.
    ``depth`` is the deepest stack that a program needs, ``scanned`` counts the clauses on the scan list by
    their reason. ``checks_names``: some selectors take no message whose property names break a rule.
    ``removed`` are the tombstones that came with a delta: ordinals of the snapshot, int32, ascending, all
    below those of the segment itself. Matching this segment alone has nothing to do with them.
    """

    tables: Tables
    attributes: tuple[Attribute, ...]
    depth: int
    checks_names: bool
    scanned: Mapping[str, int]
    rows: int
    removed: Array = field(default_factory=lambda: np.zeros(0, np.int32))

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(array.nbytes for array in self.tables) + int(self.removed.nbytes)
