"""What a replay's workers let through of what they read: messages that were dead letters, and deliveries.

::

    letter                          rows that are read      deliveries that are made
    a message                       its own                 to all, or as its `Scope` says
    a file as a whole               all of the file         the same
    a delivery that was refused     the message's           to that subscription alone
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from selectroute.index.snapshot import Snapshot
from selectroute.match.extended import Refused
from selectroute.match.match import Matches
from selectroute.spark.readers import Dead, Messages, Place
from selectroute.spark.replay_letters import read_recalled
from selectroute.spark.sinks import Sinks, as_written

Ints = npt.NDArray[np.int64]
Ordinals = npt.NDArray[np.int32]
Mask = npt.NDArray[np.bool_]


class Limit(Protocol):
    """Which deliveries of some messages may be made."""

    def keep(self, offsets: Ints, ordinals: Ordinals) -> Mask:
        """Which of these: the offset of the message, and the subscription, of each."""


@dataclass(frozen=True, slots=True)
class ByScope:
    """Messages, each with a scope. ``offsets`` are sorted, one alone, with ``whole``, stands for all."""

    offsets: Ints
    codes: Ordinals
    scopes: list[tuple[Ordinals | None, Ordinals]]
    whole: bool = False

    def rows(self, offsets: Ints) -> Mask:
        """Which of these messages are meant."""
        return np.ones(len(offsets), np.bool_) if self.whole else _among(self.offsets, offsets)

    def keep(self, offsets: Ints, ordinals: Ordinals) -> Mask:
        """See `Limit`."""
        place = np.zeros(len(offsets), np.int64) if self.whole else np.searchsorted(self.offsets, offsets)
        codes = self.codes[place]
        found = np.ones(len(offsets), np.bool_)
        for code in np.unique(codes).tolist():
            only, without = self.scopes[code]
            own = codes == code
            if only is not None:
                found[own] &= np.isin(ordinals[own], only)
            if len(without):
                found[own] &= ~np.isin(ordinals[own], without)
        return found


@dataclass(frozen=True, slots=True)
class ByPair:
    """Deliveries: messages, sorted, and pairs ``place in offsets * ordinals + ordinal``, sorted."""

    offsets: Ints
    pairs: Ints
    ordinals: int

    def rows(self, offsets: Ints) -> Mask:
        """Which of these messages are meant."""
        return _among(self.offsets, offsets)

    def keep(self, offsets: Ints, ordinals: Ordinals) -> Mask:
        """See `Limit`."""
        return np.isin(np.searchsorted(self.offsets, offsets) * self.ordinals + ordinals, self.pairs)

    def of(self, offsets: Ints) -> tuple[Ints, Ordinals]:
        """Return the deliveries of these messages: the offset and the subscription of each."""
        messages = self.offsets[self.pairs // self.ordinals]
        own = np.isin(messages, offsets)
        return messages[own], (self.pairs[own] % self.ordinals).astype(np.int32)


class Recall:
    """The list of one replay, as one task needs it.

    Args:
        path: where `write_recalled` has put it.
        snapshot: the snapshot that judges.
    """

    def __init__(self, path: Path, snapshot: Snapshot) -> None:
        letters, scopes = read_recalled(path)
        self._ordinals = max(1, len(snapshot.ids))
        self._scopes = [
            (None if only is None else _found(snapshot, only), _found(snapshot, without))
            for only, without in scopes
        ]
        self._places: dict[Place, tuple[ByScope, ByPair]] = {}
        sources = letters["source"].combine_chunks().dictionary_encode()
        codes, partitions = sources.indices.to_numpy(), letters["partition"].to_numpy()
        order = np.lexsort((partitions, codes))
        codes, partitions = codes[order], partitions[order]
        others = np.flatnonzero((np.diff(codes) != 0) | (np.diff(partitions) != 0)) + 1
        sorted_letters = letters.take(pa.array(order))
        for start, stop in pairwise([0, *others.tolist(), len(order)]):
            if stop > start:
                place = Place(sources.dictionary[int(codes[start])].as_py(), int(partitions[start]))
                self._places[place] = self._limits(sorted_letters.slice(start, stop - start), snapshot)

    def of(self, place: Place, part: Messages | Dead) -> Iterator[tuple[Messages | Dead, Limit]]:
        """Yield what of a part was a dead letter, with the deliveries of it that may be made."""
        limits = self._places.get(place._replace(source=as_written(place.source)))
        if limits is None:
            return
        for limit in limits:
            if isinstance(part, Dead) and part.rows is None:
                # A file that can't be read, of which messages were letters: each of them is one once more.
                whole = isinstance(limit, ByScope) and limit.whole
                if whole or len(limit.offsets):
                    yield (part if whole else replace(part, rows=limit.offsets)), limit
                continue
            rows = limit.rows(part.rows)  # type: ignore[arg-type]
            if rows.any():
                yield part.take(np.flatnonzero(rows)), limit

    def _limits(self, letters: pa.Table, snapshot: Snapshot) -> tuple[ByScope, ByPair]:
        single = letters["subscription"].is_valid().to_numpy()
        messages, deliveries = letters.filter(pa.array(~single)), letters.filter(pa.array(single))
        codes = messages["scope"].to_numpy().astype(np.int32)
        whole = messages["offset"].null_count > 0
        if whole:
            of_file = messages["offset"].is_null().to_numpy()
            scoped = ByScope(np.zeros(1, np.int64), codes[of_file][:1], self._scopes, whole=True)
        else:
            offsets, firsts = np.unique(messages["offset"].to_numpy(), return_index=True)
            scoped = ByScope(offsets, codes[firsts], self._scopes)
        offsets, places = np.unique(deliveries["offset"].to_numpy(), return_inverse=True)
        names = deliveries["subscription"].combine_chunks().dictionary_encode()
        known = snapshot.find(names.dictionary.to_pylist())
        ordinals = known[names.indices.to_numpy()] if len(names) else np.zeros(0, np.int64)
        there = ordinals >= 0
        pairs = np.unique(places[there].astype(np.int64) * self._ordinals + ordinals[there])
        return scoped, ByPair(offsets, pairs, self._ordinals)


def recalled(
    recall: Recall | None, place: Place, part: Messages | Dead
) -> Iterator[tuple[Messages | Dead, Limit | None]]:
    """Yield what of a part is to be judged: all of it where nothing is recalled."""
    return iter([(part, None)]) if recall is None else recall.of(place, part)


def settle(
    sinks: Sinks,
    place: Place,
    judged: tuple[Messages, Matches] | Dead,
    limit: Limit | None,
    records: pa.RecordBatch | None = None,
) -> None:
    """Give what was judged to the sinks, as far as it may be given."""
    if isinstance(judged, Dead):
        if isinstance(limit, ByPair):
            assert judged.rows is not None
            rows, ordinals = limit.of(judged.rows)
            sinks.deny(place, judged, replace(judged, rows=rows), ordinals)
        else:
            sinks.bury(place, judged, records)
        return
    messages, matches = judged
    if limit is not None:
        matches = _within(limit, messages, matches)
    sinks.deliver(place, messages, matches, listed=not isinstance(limit, ByPair))


def _within(limit: Limit, messages: Messages, matches: Matches) -> Matches:
    keep = limit.keep(np.repeat(messages.rows, np.diff(matches.offsets)), matches.ordinals)
    offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(keep, dtype=np.int64)))[matches.offsets]
    refused = matches.refused
    if len(refused):
        kept = limit.keep(messages.rows[refused.rows], refused.ordinals)
        refused = Refused(refused.rows[kept], refused.ordinals[kept])
    return replace(matches, offsets=offsets, ordinals=matches.ordinals[keep], refused=refused)


def _among(sorted_offsets: Ints, offsets: Ints) -> Mask:
    if not len(sorted_offsets):
        return np.zeros(len(offsets), np.bool_)
    place = np.searchsorted(sorted_offsets, offsets)
    found: Mask = sorted_offsets[np.minimum(place, len(sorted_offsets) - 1)] == offsets
    return found


def _found(snapshot: Snapshot, ids: Any) -> Ordinals:
    ordinals = snapshot.find(ids)
    return ordinals[ordinals >= 0].astype(np.int32)
