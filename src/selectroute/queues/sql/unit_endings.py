"""Endings of units of work in a database: commit, backout, or the death of their process."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from selectroute.queues.errors import MQRC_BACKED_OUT, failed
from selectroute.queues.sql.statements import (
    ANY_EXPIRED,
    BACK_OUT_GETS,
    BACK_OUT_GETS_OF_OWNER_HERE,
    BACK_OUT_PUTS,
    BACK_OUT_PUTS_OF_OWNER_HERE,
    COMMIT_GETS,
    COMMIT_PUTS,
    EXPIRE,
    HELD_ROWS,
    JOINED,
    RELEASED,
)
from selectroute.queues.sql.unit_owners import Owner
from selectroute.store.engine import Store
from selectroute.store.errors import StoreError

_CLEAN_UP_SECONDS: Final = 1.0
"""Minimum time between two clean-ups by calls that find a message; calls that find none always clean up
before they wait."""

_MOST_ROWS: Final = 64
"""Rows that count the messages of a queue, in PostgreSQL, before a clean-up makes one row of them."""


class UnitEndings:
    """Commit and backout of units of an open queue, including those of dead processes. Safe for threads.

    Args:
        store: the database.
        owner: this process, as an owner of units in it.
        now: returns the parameters of statements: the queue and the time.
        released: called when messages of a unit became visible.
    """

    def __init__(
        self,
        store: Store,
        owner: Owner,
        now: Callable[[], Mapping[str, int]],
        released: Callable[[], None],
    ) -> None:
        self.owner = owner
        self._store = store
        self._now = now
        self._released = released
        self._forgotten: deque[tuple[int, int]] = deque()
        self._cleaned_up = self._joined = -_CLEAN_UP_SECONDS

    def end(self, owner: int, unit: int, *, commit: bool, expected: tuple[int, int] | None = None) -> None:
        """Commit a unit or back it out.

        Raises MQError 2003 if a commit finds other numbers of puts and gets than `expected`, because another
        process considered this one dead.
        """
        given = {"own": owner, "of_unit": unit}
        releases = expected is None or bool(expected[0 if commit else 1])
        with self._store.writing() as connection:
            if releases:  # before any message is locked: making an index locks in the same order
                connection.execute(RELEASED, {"in_queue": self._now()["in_queue"]})
            if commit:
                gets = connection.execute(COMMIT_GETS, given).rowcount
                puts = connection.execute(COMMIT_PUTS, given).rowcount
            else:
                puts = connection.execute(BACK_OUT_PUTS, given).rowcount
                gets = connection.execute(BACK_OUT_GETS, given).rowcount
            if commit and expected not in (None, (puts, gets)):
                raise failed(MQRC_BACKED_OUT, "this process was cut off from the database")
        if releases:
            self._released()

    def leave(self) -> None:
        """Back out all units of this process on this queue."""
        if self.owner.id is None:
            return
        given = {"own": self.owner.id, "in_queue": self._now()["in_queue"]}
        with self._store.writing() as connection:
            connection.execute(RELEASED, {"in_queue": given["in_queue"]})
            connection.execute(BACK_OUT_PUTS_OF_OWNER_HERE, given)
            connection.execute(BACK_OUT_GETS_OF_OWNER_HERE, given)

    def forget(self, owner: int, unit: int) -> None:
        """Schedule the backout of an unreachable unit; called when its memory is freed.

        The call may come inside a transaction of the same thread, so the next call backs the unit out.
        """
        self._forgotten.append((owner, unit))

    def clean_up_if_due(self) -> None:
        """Clean up if a unit was forgotten, or the last clean-up was a second ago."""
        if self._forgotten or time.monotonic() - self._cleaned_up >= _CLEAN_UP_SECONDS:
            self.clean_up()

    def clean_up(self) -> bool:
        """Back out units of dead processes, delete expired messages; return whether a unit was backed out."""
        self._cleaned_up = time.monotonic()
        backed_out = self._back_out_forgotten()
        now = self._now()
        with self._store.reading() as connection:
            others = self.owner.others(connection)
            expired = connection.execute(ANY_EXPIRED, now).first() is not None
        if expired:
            with self._store.writing() as connection:
                connection.execute(EXPIRE, now)
        if not self._store.is_sqlite and time.monotonic() - self._joined >= _CLEAN_UP_SECONDS:
            self._join_counts(now)
        dead = [id for id in others if self.owner.back_out_if_dead(id)]
        return backed_out or bool(dead)

    def _join_counts(self, now: Mapping[str, int]) -> None:
        """Make one row of the rows that count the queue's messages, if there are many."""
        self._joined = time.monotonic()
        with self._store.reading() as connection:
            if connection.execute(HELD_ROWS, now).scalar_one() <= _MOST_ROWS:
                return
        removed, added = JOINED
        with self._store.writing() as connection:
            rows = connection.execute(removed, now).all()
            messages, in_units = (sum(counts) for counts in zip(*rows, strict=True)) if rows else (0, 0)
            row = {"queue": now["in_queue"], "messages": messages, "in_units": in_units}
            connection.execute(added, row)

    def _back_out_forgotten(self) -> bool:
        """Back out forgotten units. Returns whether there were any."""
        backed_out = False
        while self._forgotten:
            try:
                owner, unit = self._forgotten.popleft()
            except IndexError:  # another thread was faster
                break
            try:
                self.end(owner, unit, commit=False)
            except StoreError:
                self._forgotten.append((owner, unit))
                raise
            backed_out = True
        return backed_out
