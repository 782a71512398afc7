"""Destinations of a snapshot's subscriptions: a code for each ordinal, computed once."""

from __future__ import annotations

import weakref
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from selectroute.index.destination import KAFKA, topic_and_grouping
from selectroute.index.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Destinations:
    """Destinations of one kind.

    Attributes:
        names: the queue or topic of each destination. A topic has several destinations if they differ in
            their grouping.
        codes: int32[ordinals], index in ``names`` of each subscription's destination, -1 if of another kind.
        groupings: of each destination, None if that of the job applies.
    """

    names: tuple[str, ...]
    codes: npt.NDArray[np.int32]
    groupings: tuple[str | None, ...]


_known: weakref.WeakKeyDictionary[Snapshot, dict[str, Destinations | None]] = weakref.WeakKeyDictionary()


def destinations(snapshot: Snapshot, kind: str) -> Destinations | None:
    """Return the destinations of a kind; None if no subscription has one. O(ordinals) once per snapshot."""
    known = _known.setdefault(snapshot, {})
    if kind not in known:
        known[kind] = _destinations(snapshot, kind)
    return known[kind]


def names_of(snapshot: Snapshot, kind: str) -> frozenset[str]:
    """Return the queues or topics to which a snapshot's subscriptions are delivered."""
    to = destinations(snapshot, kind)
    return frozenset() if to is None else frozenset(to.names)


def _destinations(snapshot: Snapshot, kind: str) -> Destinations | None:
    column = snapshot.subscriptions["destination"]
    if column.null_count == len(column):
        return None
    prefix = f"{kind}:"
    chosen = pc.fill_null(pc.starts_with(column, prefix), False).to_numpy()
    if snapshot.dead is not None:
        chosen = chosen & ~snapshot.dead
    ordinals = np.flatnonzero(chosen)
    if not len(ordinals):
        return None
    encoded = column.take(pa.array(ordinals)).combine_chunks().dictionary_encode()
    codes = np.full(len(column), -1, np.int32)
    codes[ordinals] = encoded.indices.to_numpy()
    names = [text.removeprefix(prefix) for text in encoded.dictionary.to_pylist()]
    parts = [topic_and_grouping(name) if kind == KAFKA else (name, None) for name in names]
    return Destinations(tuple(name for name, _ in parts), codes, tuple(grouping for _, grouping in parts))
