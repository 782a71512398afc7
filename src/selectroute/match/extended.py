"""EXTENDED subscriptions in a batch: the kernel finds them by their topic filters, a provider judges them.

The pairs of message and EXTENDED subscription are few or nobody would leave them to a provider: they are
judged one by one. What nobody can judge becomes `Refused`, and every other match stays as it is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from selectroute.index import tables as t
from selectroute.index.extended import provider_matches, provider_reads, usable_provider
from selectroute.index.snapshot import Snapshot
from selectroute.match.batch import Batch
from selectroute.match.columns import ColumnTypeError, lane
from selectroute.match.fields import values_of_rows
from selectroute.match.mixed import BODY, is_mixed
from selectroute.selector.message import HEADER_TYPES, Message, MessageError
from selectroute.selector.values import Value
from selectroute.topics.levels import TOPIC


@dataclass(frozen=True, slots=True)
class Refused:
    """Deliveries of EXTENDED subscriptions that nobody could judge, MQRC_SELECTION_NOT_AVAILABLE (2551).

    ``rows`` int64[n], ascending, are the messages and ``ordinals`` int32[n] the subscriptions.
    """

    rows: t.Array
    ordinals: t.Array

    def __len__(self) -> int:
        return len(self.rows)


NOTHING_REFUSED = Refused(np.zeros(0, np.int64), np.zeros(0, np.int32))


def judge_extended(
    snapshot: Snapshot, batch: Batch, offsets: t.Array, ordinals: t.Array
) -> tuple[t.Array, t.Array, Refused]:
    """Return the offsets and ordinals of what matches, and what was refused. O(matches)."""
    extended = snapshot.extended
    if extended is None:
        return offsets, ordinals, NOTHING_REFUSED
    rows = np.repeat(np.arange(batch.rows, dtype=np.int64), np.diff(offsets))
    left = extended[ordinals]
    pending, keep = np.flatnonzero(left), ~left
    refused = np.zeros(len(ordinals), np.bool_)
    if usable_provider() is None:
        refused[pending] = True
        pending = pending[:0]
    messages = _Messages(batch)
    reads: dict[str, tuple[str, ...] | None] = {}
    for place in pending.tolist():
        selector = snapshot.subscriptions["selector"][int(ordinals[place])].as_py()
        if selector not in reads:
            reads[selector] = provider_reads(selector)
        message = messages.read(int(rows[place]), reads[selector])
        verdict = None if message is None else provider_matches(selector, message)
        keep[place] = verdict is True
        refused[place] = verdict is None
    kept = np.concatenate((np.zeros(1, np.int64), np.cumsum(keep, dtype=np.int64)))[offsets]
    return kept, ordinals[keep], Refused(rows[refused], ordinals[refused])


class _Messages:
    """Single messages out of columns, each column read once."""

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self._columns: dict[str, list[Value | None] | None] = {}

    def read(self, row: int, names: tuple[str, ...] | None) -> Message | None:
        """Return the message with what these names read; None without names, or where it is no message."""
        if names is None:
            return None
        try:
            found = {name: column[row] for name in names if (column := self._column(name)) is not None}
        except ColumnTypeError:  # a column that selectors of ours do not read may have any type
            return None
        topic, body = found.pop(TOPIC, None), found.pop(BODY, None)
        headers = {name: value for name, value in found.items() if name in HEADER_TYPES}
        properties = {name: value for name, value in found.items() if name not in HEADER_TYPES}
        try:
            return Message(headers, properties, topic, body)  # type: ignore[arg-type]  # it looks itself
        except MessageError:
            return None

    def _column(self, name: str) -> list[Value | None] | None:
        if name not in self._columns:
            self._columns[name] = self._read(name)
        return self._columns[name]

    def _read(self, name: str) -> list[Value | None] | None:
        array = self._batch.column(name)
        if array is None:
            return None
        if name.startswith("@") and not is_mixed(array.type):
            plain: list[Value | None] = array.to_pylist()
            return plain
        return values_of_rows(lane(name.removeprefix("@"), array, byte_strings=True))
