"""Missed batches that resumed subscriptions are still owed, computed from the registry's change log.

::

    revision    …  p ──────────── r ……… R
    log            pause          resume from last-processed
    batches     ─b3───b4───b5───b6─────b7─     b4 and b5 were pinned from p to before r: they are owed

A paused subscription is in no snapshot, so the batches pinned to p ≤ revision < r did not match it, and all
others did. Once the newest published revision R is r or later, no batch is pinned below r any more, so the
set of owed batches is final.

- Resumed from ``latest``: the batches missed since that pause are not owed.
- Removed: nothing is owed any more, even if another subscription takes the id later.
- Paused again: owed batches stay owed, and are delivered after the next resume of either kind. So the result
  does not depend on how fast the job was before the second pause.
- Replaced: owed batches are matched with the selector at the time of the backfill.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from selectroute.registry.changes import Change, Op

OWED_OPS: tuple[Op, ...] = ("remove", "resume")
"""Kinds of changes that affect owed batches; no others are read."""


@dataclass(frozen=True, slots=True)
class MissedRange:
    """Subscriptions that all missed the batches pinned from revision `paused` to before `resumed`."""

    paused: int
    resumed: int
    subscriptions: frozenset[str]


class Owed:
    """Missed ranges that are owed at a revision of the log. Folding a part of the log again is harmless: the
    commits record finished backfills.
    """

    def __init__(self, revision: int) -> None:
        self.revision = revision
        self._owed: dict[str, set[tuple[int, int]]] = {}

    def __bool__(self) -> bool:
        return bool(self._owed)

    def fold(self, changes: Iterable[Change], revision: int) -> bool:
        """Apply the changes up to a revision; return whether the owed ranges changed."""
        changed = False
        for change in changes:
            if change.op == "remove":
                changed |= self._owed.pop(change.id, None) is not None
            elif change.op == "resume" and change.resume_from == "last-processed":
                assert change.paused_at is not None, "a resume names the pause that it ends"
                self._owed.setdefault(change.id, set()).add((change.paused_at, change.revision))
                changed = True
        self.revision = revision
        return changed

    def missed(self) -> list[MissedRange]:
        """Return the owed ranges by revisions, with the subscriptions of each."""
        together: defaultdict[tuple[int, int], set[str]] = defaultdict(set)
        for id, owed in self._owed.items():
            for span in owed:
                together[span].add(id)
        return [MissedRange(*span, frozenset(ids)) for span, ids in sorted(together.items())]

    def mark_delivered(self, missed: MissedRange) -> None:
        """Remove a range of these subscriptions: it was delivered."""
        for id in missed.subscriptions:
            owed = self._owed.get(id, set())
            owed.discard((missed.paused, missed.resumed))
            if not owed:
                self._owed.pop(id, None)

    def to_json(self) -> dict[str, Any]:
        """Return the state as JSON. The inverse of `from_json`."""
        return {
            "revision": self.revision,
            "missed": [
                {"paused": one.paused, "resumed": one.resumed, "subscriptions": sorted(one.subscriptions)}
                for one in self.missed()
            ],
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Owed:
        """Read the state that `to_json` returned."""
        owed = cls(content["revision"])
        for one in content["missed"]:
            for id in one["subscriptions"]:
                owed._owed.setdefault(id, set()).add((one["paused"], one["resumed"]))
        return owed
