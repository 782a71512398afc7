"""EXTENDED subscriptions in a batch: the kernel finds them by their topic filters, a provider judges them.

Pairs of message and EXTENDED subscription are few, and judged one by one. Those that the provider cannot
judge become `RefusedDeliveries`; all other matches are not affected.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from selectroute.arrays import tables as t
from selectroute.arrays.state import SnapshotState
from selectroute.match.columns.batch import ColumnBatch
from selectroute.match.columns.columns import ColumnTypeError
from selectroute.match.columns.fields import Rows
from selectroute.selector.extended import provider_matches, provider_reads, usable_provider
from selectroute.selector.message import Message, MessageError


@dataclass(frozen=True, slots=True)
class RefusedDeliveries:
    """Refused deliveries: EXTENDED subscriptions without a verdict, MQRC_SELECTION_NOT_AVAILABLE (2551).

    ``rows`` int64[n], ascending, are the messages and ``ordinals`` int32[n] the subscriptions.
    """

    rows: t.Array
    ordinals: t.Array

    def __len__(self) -> int:
        return len(self.rows)


NOTHING_REFUSED = RefusedDeliveries(np.zeros(0, np.int64), np.zeros(0, np.int32))


def judge_extended(
    snapshot: SnapshotState, batch: ColumnBatch, offsets: t.Array, ordinals: t.Array
) -> tuple[t.Array, t.Array, RefusedDeliveries]:
    """Return the offsets and ordinals of the matches, and the refused deliveries. O(matches)."""
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
    messages = Rows(batch)
    reads: dict[str, tuple[str, ...] | None] = {}
    for place in pending.tolist():
        selector = snapshot.subscriptions["selector"][int(ordinals[place])].as_py()
        if selector not in reads:
            reads[selector] = provider_reads(selector)
        message = _read(messages, int(rows[place]), reads[selector])
        verdict = None if message is None else provider_matches(selector, message)
        keep[place] = verdict is True
        refused[place] = verdict is None
    kept = np.concatenate((np.zeros(1, np.int64), np.cumsum(keep, dtype=np.int64)))[offsets]
    return kept, ordinals[keep], RefusedDeliveries(rows[refused], ordinals[refused])


def judge_extended_message(
    snapshot: SnapshotState, message: Message, ordinals: t.Array
) -> tuple[t.Array, t.Array]:
    """Return the ordinals of one message's matches, and those of the refused deliveries. O(matches)."""
    extended = snapshot.extended
    assert extended is not None
    verdicts: dict[str, bool | None] = {}
    keep = ~extended[ordinals]
    refused: list[int] = []
    for place in np.flatnonzero(~keep).tolist():
        selector = snapshot.subscriptions["selector"][int(ordinals[place])].as_py()
        if selector not in verdicts:
            readable = provider_reads(selector) is not None
            verdicts[selector] = provider_matches(selector, message) if readable else None
        keep[place] = verdicts[selector] is True
        if verdicts[selector] is None:
            refused.append(place)
    return ordinals[keep], ordinals[refused]


def _read(messages: Rows, row: int, names: tuple[str, ...] | None) -> Message | None:
    """Return the message with the values of these names; None without names, or if it is not valid."""
    if names is None:
        return None
    try:
        return messages.message(row, names)
    except (ColumnTypeError, MessageError):  # columns read by the provider alone may have any type
        return None
