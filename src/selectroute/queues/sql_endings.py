"""How units of work in a database end: by commit, by backout, or by the death of who had them."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from selectroute.queues.errors import MQRC_BACKED_OUT, failed
from selectroute.queues.owners import Owner
from selectroute.queues.sql_statements import (
    ANY_EXPIRED,
    BACK_OUT_GETS,
    BACK_OUT_GETS_OF_OWNER_HERE,
    BACK_OUT_PUTS,
    BACK_OUT_PUTS_OF_OWNER_HERE,
    COMMIT_GETS,
    COMMIT_PUTS,
    EXPIRE,
    RELEASED,
)
from selectroute.store.engine import Store
from selectroute.store.errors import StoreError

_TEND_SECONDS: Final = 1.0
"""How often calls look for what the dead had, besides whenever they find nothing."""


class Endings:
    """The units of an opened queue, and those of the dead. Safe for threads.

    Args:
        store: the database.
        owner: this process, as an owner of units in it.
        now: gives the parameters of statements: the queue and the time.
        released: called when messages of a unit came onto the queue.
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
        self._tended = -_TEND_SECONDS

    def end(self, owner: int, unit: int, *, commit: bool, expected: tuple[int, int] | None = None) -> None:
        """End a unit: its puts, or else its gets, are on the queue from now on.

        Raises MQError 2003 if it is committed and has not the `expected` numbers of puts and gets, because
        somebody took this process for dead.
        """
        given = {"own": owner, "of_unit": unit}
        comes = expected is None or bool(expected[0 if commit else 1])
        with self._store.writing() as connection:
            if comes:  # before any message is locked: who makes an index locks them in this order, too
                connection.execute(RELEASED, {"in_queue": self._now()["in_queue"]})
            if commit:
                gets = connection.execute(COMMIT_GETS, given).rowcount
                puts = connection.execute(COMMIT_PUTS, given).rowcount
            else:
                puts = connection.execute(BACK_OUT_PUTS, given).rowcount
                gets = connection.execute(BACK_OUT_GETS, given).rowcount
            if commit and expected not in (None, (puts, gets)):
                raise failed(MQRC_BACKED_OUT, "this process was cut off from the database")
        if comes:
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
        """Back out a unit that nobody can end any more; called from wherever its memory is freed.

        That may be in the middle of a transaction of this very thread: the next call does it.
        """
        self._forgotten.append((owner, unit))

    def tend_now_and_then(self) -> None:
        """Do what `tend` does if there is reason to, or it is a second ago."""
        if self._forgotten or time.monotonic() - self._tended >= _TEND_SECONDS:
            self.tend()

    def tend(self) -> bool:
        """Bring back what the dead had, and drop what has expired. Returns whether anything came back."""
        self._tended = time.monotonic()
        settled = self._settle()
        now = self._now()
        with self._store.reading() as connection:
            others = self.owner.others(connection)
            expired = connection.execute(ANY_EXPIRED, now).first() is not None
        if expired:
            with self._store.writing() as connection:
                connection.execute(EXPIRE, now)
        buried = [id for id in others if self.owner.bury(id)]
        return settled or bool(buried)

    def _settle(self) -> bool:
        """Back out the units that were forgotten. Returns whether there were any."""
        settled = False
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
            settled = True
        return settled
