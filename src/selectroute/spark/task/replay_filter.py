"""Filter of a replay: the messages and deliveries that were dead letters.

::

    dead letter              rows selected           deliveries made
    a message                its own                 to all, or within its `Scope`
    a whole file             all of the file         the same
    a refused delivery       the message's           to that subscription only
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from selectroute.index.snapshot import Snapshot
from selectroute.match.extended import RefusedDeliveries
from selectroute.match.match import Matches
from selectroute.spark.messages import DeadLetterBatch, InputBatch, MessageBatch, SourcePartition
from selectroute.spark.tables.schemas import DEAD_LETTERS, SCHEMAS, as_written, decoded
from selectroute.storage import Location

Ints = npt.NDArray[np.int64]
Ordinals = npt.NDArray[np.int32]
Mask = npt.NDArray[np.bool_]


_COLUMNS: Final = ("stage", "reason", "source", "partition", "offset", "subscription")
LETTERS: Final = decoded(pa.schema(map(SCHEMAS[DEAD_LETTERS].field, _COLUMNS)))
"""Columns of a dead letter: the reason; the position of its message (the offset is NULL for a whole file);
the subscription, if it is a delivery."""

_SCOPES: Final = b"selectroute-scopes"


class Scope(NamedTuple):
    """Subscriptions that may get a letter's message: ``only`` these, unless None, and not ``without``."""

    only: tuple[str, ...] | None = None
    without: tuple[str, ...] = ()


def write_replay_list(file: Location, letters: pa.Table, scopes: Sequence[Scope], codes: Any) -> None:
    """Write the list for a replay's workers: each letter, with the index of its scope in ``scopes``."""
    table = letters.append_column("scope", pa.array(codes, pa.int32()))
    table = table.replace_schema_metadata({_SCOPES: json.dumps(scopes).encode()})
    buffer = pa.BufferOutputStream()
    with pa.ipc.new_file(buffer, table.schema) as writer:
        writer.write_table(table)
    file.put(buffer.getvalue().to_pybytes())


def read_replay_list(file: Location) -> tuple[pa.Table, list[Scope]]:
    """Return the letters and scopes that `write_replay_list` wrote."""
    table = pa.ipc.open_file(pa.BufferReader(file.read())).read_all()
    scopes = json.loads(table.schema.metadata[_SCOPES])
    return table, [Scope(None if only is None else tuple(only), tuple(without)) for only, without in scopes]


@dataclass(frozen=True, slots=True)
class MessageFilter:
    """Filter of messages, each with a scope. ``offsets`` are sorted; with ``whole``, one entry is for all."""

    offsets: Ints
    codes: Ordinals
    scopes: list[tuple[Ordinals | None, Ordinals]]
    whole: bool = False

    def rows(self, offsets: Ints) -> Mask:
        """Return a mask of the selected messages."""
        return np.isin(offsets, self.offsets) | self.whole

    def keep(self, offsets: Ints, ordinals: Ordinals) -> Mask:
        """Return a mask of the allowed deliveries, given the offset and the subscription of each."""
        place = np.zeros(len(offsets), np.int64) if self.whole else np.searchsorted(self.offsets, offsets)
        codes = self.codes[place]
        mask = np.ones(len(offsets), np.bool_)
        for code in np.unique(codes).tolist():
            only, without = self.scopes[code]
            own = codes == code
            if only is not None:
                mask[own] &= np.isin(ordinals[own], only)
            if len(without):
                mask[own] &= ~np.isin(ordinals[own], without)
        return mask


@dataclass(frozen=True, slots=True)
class DeliveryFilter:
    """Filter of deliveries: messages, sorted, and pairs ``index in offsets * ordinals + ordinal``, sorted."""

    offsets: Ints
    pairs: Ints
    ordinals: int

    def rows(self, offsets: Ints) -> Mask:
        """Return a mask of the selected messages."""
        return np.isin(offsets, self.offsets)

    def keep(self, offsets: Ints, ordinals: Ordinals) -> Mask:
        """Return a mask of the allowed deliveries, given the offset and the subscription of each."""
        return np.isin(np.searchsorted(self.offsets, offsets) * self.ordinals + ordinals, self.pairs)

    def of(self, offsets: Ints) -> tuple[Ints, Ordinals]:
        """Return the allowed deliveries of these messages: the offset and the subscription of each."""
        messages = self.offsets[self.pairs // self.ordinals]
        own = np.isin(messages, offsets)
        return messages[own], (self.pairs[own] % self.ordinals).astype(np.int32)


LetterFilter: TypeAlias = MessageFilter | DeliveryFilter


class ReplayFilter:
    """Filter of one replay for one task.

    Args:
        file: the file that `write_replay_list` wrote.
        snapshot: the snapshot to match with.

    ``passes`` are the passes over the input: 0 for letters that are messages, 1 for letters that are
    deliveries.
    """

    def __init__(self, file: Location, snapshot: Snapshot) -> None:
        letters, scopes = read_replay_list(file)
        single = letters["subscription"].is_valid().to_numpy()
        self.passes = tuple(nth for nth in (0, 1) if np.any(single == bool(nth))) or (0,)
        self._ordinals = max(1, len(snapshot.ids))
        self._scopes = [
            (None if only is None else _ordinals(snapshot, only), _ordinals(snapshot, without))
            for only, without in scopes
        ]
        self._places: dict[SourcePartition, tuple[MessageFilter, DeliveryFilter]] = {}
        sources = letters["source"].combine_chunks().dictionary_encode()
        codes, partitions = sources.indices.to_numpy(), letters["partition"].to_numpy()
        order = np.lexsort((partitions, codes))
        codes, partitions = codes[order], partitions[order]
        others = np.flatnonzero((np.diff(codes) != 0) | (np.diff(partitions) != 0)) + 1
        sorted_letters = letters.take(pa.array(order))
        for start, stop in pairwise([0, *others.tolist(), len(order)]):
            if stop > start:
                place = SourcePartition(sources.dictionary[int(codes[start])].as_py(), int(partitions[start]))
                self._places[place] = self._limits(sorted_letters.slice(start, stop - start), snapshot)

    def of(
        self, nth: int, place: SourcePartition, part: InputBatch
    ) -> Iterator[tuple[InputBatch, LetterFilter]]:
        """Yield the dead letters of a part in a pass, with the filter of their deliveries."""
        limits = self._places.get(place._replace(source=as_written(place.source)))
        if limits is None:
            return
        limit = limits[nth]
        if isinstance(part, DeadLetterBatch) and part.rows is None:
            # An unreadable file whose messages were dead letters: each of them is a dead letter again.
            whole = isinstance(limit, MessageFilter) and limit.whole
            if whole or len(limit.offsets):
                yield (part if whole else replace(part, rows=limit.offsets)), limit
            return
        rows = limit.rows(part.rows)  # type: ignore[arg-type]
        if rows.any():
            yield part.take(np.flatnonzero(rows)), limit

    def _limits(self, letters: pa.Table, snapshot: Snapshot) -> tuple[MessageFilter, DeliveryFilter]:
        single = letters["subscription"].is_valid().to_numpy()
        messages, deliveries = letters.filter(pa.array(~single)), letters.filter(pa.array(single))
        codes = messages["scope"].to_numpy().astype(np.int32)
        whole = messages["offset"].null_count > 0
        if whole:
            of_file = messages["offset"].is_null().to_numpy()
            scoped = MessageFilter(np.zeros(1, np.int64), codes[of_file][:1], self._scopes, whole=True)
        else:
            offsets, firsts = np.unique(messages["offset"].to_numpy(), return_index=True)
            scoped = MessageFilter(offsets, codes[firsts], self._scopes)
        offsets, places = np.unique(deliveries["offset"].to_numpy(), return_inverse=True)
        names = deliveries["subscription"].combine_chunks().dictionary_encode()
        known = snapshot.find(names.dictionary.to_pylist())
        ordinals = known[names.indices.to_numpy()] if len(names) else np.zeros(0, np.int64)
        known_ones = ordinals >= 0
        pairs = np.unique(places[known_ones].astype(np.int64) * self._ordinals + ordinals[known_ones])
        return scoped, DeliveryFilter(offsets, pairs, self._ordinals)


def within(limit: LetterFilter, messages: MessageBatch, matches: Matches) -> Matches:
    """Return the allowed matches of messages."""
    keep = limit.keep(np.repeat(messages.rows, np.diff(matches.offsets)), matches.ordinals)
    offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(keep, dtype=np.int64)))[matches.offsets]
    refused = matches.refused
    if len(refused):
        kept = limit.keep(messages.rows[refused.rows], refused.ordinals)
        refused = RefusedDeliveries(refused.rows[kept], refused.ordinals[kept])
    return replace(matches, offsets=offsets, ordinals=matches.ordinals[keep], refused=refused)


def _ordinals(snapshot: Snapshot, ids: Any) -> Ordinals:
    ordinals = snapshot.find(ids)
    return ordinals[ordinals >= 0].astype(np.int32)
