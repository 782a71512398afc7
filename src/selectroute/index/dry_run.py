"""Dry run of a change: which of some messages a subscription gets before the change, and after it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from selectroute.index.index import Index
from selectroute.match.columns.from_messages import from_messages
from selectroute.selector.message import Message


class DryRun(NamedTuple):
    """Messages by their numbers, int64: those that a subscription gets only after a change, only before it,
    and before and after it.
    """

    gained: npt.NDArray[np.int64]
    lost: npt.NDArray[np.int64]
    unchanged: npt.NDArray[np.int64]


def dry_run(before: Index, after: Index, messages: Sequence[Message]) -> DryRun:
    """Judge messages by two versions of a subscription, each an index of one; an empty one matches nothing.
    O(messages x identifiers), by the delivery kernel. Not for extended selection, which needs bodies.

    >>> before, after = Index(), Index()
    >>> before.add("s", "weight > 10")
    >>> after.add("s", "weight > 20")
    >>> dry_run(before, after, [Message(properties={"weight": weight}) for weight in (5, 15, 25)]).lost
    array([1])
    """
    was, now = (_matched(one, messages) for one in (before, after))
    return DryRun(*(np.flatnonzero(mask) for mask in (now & ~was, was & ~now, was & now)))


def _matched(index: Index, messages: Sequence[Message]) -> npt.NDArray[np.bool_]:
    """Return which messages the subscription of an index matches."""
    snapshot = index.freeze()
    found = snapshot.match(from_messages(messages, snapshot.reads), missing="ignore")
    return np.diff(found.offsets) > 0
