"""Search of subscriptions by a part of their id, name, topic filter or selector, or by an identifier.

Ids, topic filters and selectors of active subscriptions are searched in the published snapshot, whose columns
are in memory. Names are in the database, and so are paused subscriptions, which a snapshot does not have.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import merge
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from selectroute.index.snapshot import Snapshot
from selectroute.index.specification import SubscriptionStatus
from selectroute.registry.errors import NotFoundError
from selectroute.registry.model import Subscription
from selectroute.registry.registry import Registry
from selectroute.selector.dialect import EXTENDED
from selectroute.selector.limits import UNLIMITED
from selectroute.selector.selector import Selector
from selectroute.service.http.callers import Caller

SearchField = Literal["id", "name", "topic", "selector", "identifier"]

_PAGE: Final = 1_000
"""Rows that are read at a time."""

_FEW: Final = 2_000
"""Ids that are sorted at a time: of a million that match, a page needs the first ones."""

Looked = tuple[str, bool]
"""Id, and whether its subscription may have the text. False: all up to this id were looked at."""


@dataclass(frozen=True, slots=True)
class Search:
    """Search for a text by a caller, who finds only what it may see.

    Upper and lower case are the same, but in an identifier, which must be the whole one.

    Args:
        registry: the registry of the snapshot.
        snapshot: the newest one.
        by: the caller.
        text: the text, not empty.
        fields: where to look for it.
        filters: values that those found must have as well, as `Registry.list` has them.
    """

    registry: Registry
    snapshot: Snapshot
    by: Caller
    text: str
    fields: Collection[SearchField]
    filters: Mapping[str, str] = field(default_factory=dict)

    def page(self, after: str, limit: int, seconds: float) -> tuple[list[Subscription], str | None]:
        """Return the first subscriptions with greater ids than `after`, in the order of their ids, and the id
        after which to go on; None if these are all. After so many seconds it returns what it has found.
        """
        until = time.monotonic() + seconds
        hits: list[Subscription] = []
        last = after
        for id, is_candidate in merge(self._paused(after), self._named(after), self._active(after)):
            is_late = last != after and time.monotonic() > until
            if id != last and (len(hits) == limit or is_late):
                return hits, last
            if is_candidate and not (hits and hits[-1].id == id):
                hits += self._confirmed(id)
            last = id
        return hits, None

    def _confirmed(self, id: str) -> Iterator[Subscription]:
        """Yield the subscription of an id, if it still is one, and the caller may see it."""
        try:
            subscription = self.registry.get(id)
        except NotFoundError:  # removed since the snapshot
            return
        if self._is_one(subscription):
            yield subscription

    def _is_one(self, subscription: Subscription) -> bool:
        """Return whether a subscription has the text and the values, and the caller may see it."""
        of_labels = {f"{name}={value}" for name, value in subscription.labels.items()}
        has_values = all(
            value in of_labels if name == "label" else value == getattr(subscription, name)
            for name, value in self.filters.items()
        )
        return has_values and self.by.sees(subscription.topic) and self._has(subscription)

    def _has(self, subscription: Subscription) -> bool:
        folded = self.text.casefold()
        texts = (getattr(subscription, name) or "" for name in self.fields if name != "identifier")
        if any(folded in text.casefold() for text in texts):
            return True
        return (
            "identifier" in self.fields
            and subscription.seltype != EXTENDED
            and self.text in subscription.selector
            and self.text
            in Selector(subscription.selector, subscription.dialect, limits=UNLIMITED).identifiers
        )

    def _paused(self, after: str) -> Iterator[Looked]:
        """Yield the paused subscriptions. O(paused)."""
        if self.filters.get("status", SubscriptionStatus.PAUSED) != SubscriptionStatus.PAUSED:
            return
        cursor = None
        while True:
            page = self.registry.list(limit=_PAGE, cursor=cursor, status=SubscriptionStatus.PAUSED)
            for subscription in page.items:
                if subscription.id > after and self._is_one(subscription):
                    yield subscription.id, True
            if (cursor := page.next_cursor) is None:
                return
            if page.items[-1].id > after:
                yield page.items[-1].id, False

    def _named(self, after: str) -> Iterator[Looked]:
        """Yield those with the text in their names. O(subscriptions)."""
        while "name" in self.fields:
            ids = self.registry.ids_named(self.text, after, _PAGE)
            topics = self.snapshot.subscriptions["topic"]
            ordinals = [-1] * len(ids) if self.by.sees_all else self.snapshot.find(ids).tolist()
            for id, ordinal in zip(ids, ordinals, strict=True):
                if ordinal < 0 or self.by.sees(topics[ordinal].as_py()):
                    yield id, True
            if len(ids) < _PAGE:
                return
            after = ids[-1]
            yield after, False

    def _active(self, after: str) -> Iterator[Looked]:
        """Yield active subscriptions. O(subscriptions)."""
        if self.filters.get("status", SubscriptionStatus.ACTIVE) != SubscriptionStatus.ACTIVE:
            return
        table = self.snapshot.subscriptions
        parts = [
            pc.match_substring(table[name], self.text, ignore_case=True)
            for name in ("id", "topic", "selector")
            if name in self.fields
        ]
        if "identifier" in self.fields and "selector" not in self.fields:  # has all that read it
            parts.append(pc.match_substring(table["selector"], self.text))
        if not parts:
            return
        mask = parts[0]
        for part in parts[1:]:
            mask = pc.or_kleene(mask, part)
        if not self.by.sees_all:
            topics = pc.unique(table["topic"])
            seen = pa.array([self.by.sees(topic) for topic in topics.to_pylist()], pa.bool_())
            mask = pc.and_(mask, seen.take(pc.index_in(table["topic"], topics)))
        ids = table["id"].filter(pc.fill_null(mask, False))
        ids = ids.filter(pc.greater(ids, after)).combine_chunks()
        while len(ids):
            first = pc.select_k_unstable(ids, _FEW, [("", "ascending")])
            yield from ((id, True) for id in ids.take(first).to_pylist())
            rest: Any = np.ones(len(ids), np.bool_)
            rest[first.to_numpy()] = False
            ids = ids.filter(pa.array(rest))
