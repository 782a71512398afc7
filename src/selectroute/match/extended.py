"""EXTENDED subscriptions in a batch: the kernel finds them by their topic filters, a provider judges them.

The pairs of message and EXTENDED subscription are few or nobody would leave them to a provider: they are
judged one by one. What nobody can judge becomes `Refused`, and every other match stays as it is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from selectroute.arrays import tables as t
from selectroute.arrays.state import SnapshotState
from selectroute.match.batch import Batch
from selectroute.match.columns import ColumnTypeError
from selectroute.match.to_messages import Rows
from selectroute.selector.extended import provider_matches, provider_reads, usable_provider
from selectroute.selector.message import Message, MessageError


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
    snapshot: SnapshotState, batch: Batch, offsets: t.Array, ordinals: t.Array
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
    return kept, ordinals[keep], Refused(rows[refused], ordinals[refused])


def _read(messages: Rows, row: int, names: tuple[str, ...] | None) -> Message | None:
    """Return the message with what these names read; None without names, or where it is no message."""
    if names is None:
        return None
    try:
        return messages.message(row, names)
    except (ColumnTypeError, MessageError):  # a column that selectors of ours do not read may have any type
        return None
