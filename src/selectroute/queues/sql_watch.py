"""Calls that wait for a message in a database: told by this process, and by looking now and then."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Final

from selectroute.queues.catalogue import Statistics
from selectroute.queues.record import PLACE, Record
from selectroute.queues.waiting import Waiter, Waiters
from selectroute.store.errors import StoreError

POLL_SECONDS: Final = 0.05
"""How often one thread of the process asks whether others changed something, while any call waits."""

MOST_ARRIVALS: Final = 1_000
"""Messages of other processes that are read to find who waits for them; after more, everybody looks."""


class Watch:
    """The waiting calls of this process. Safe for threads.

    Whoever is woken looks into the database for himself: somebody else may have been faster.

    invariant: while a call waits, a thread polls; what changed since a call looked in vain wakes it, unless
    it is messages that arrived and that the call does not wait for.

    Args:
        statistics: what wake-ups look at is counted there.
        changes: reads how many messages arrived on the queue, and how often some of a unit came onto it, by
            whatever process.
        arrived: reads the messages that arrived behind a number and up to another one.
        tend: called at each poll: brings back what the dead had.
    """

    def __init__(
        self,
        statistics: Statistics,
        changes: Callable[[], tuple[int, int]],
        arrived: Callable[[int, int], list[Record]],
        tend: Callable[[], object],
    ) -> None:
        self._changes = changes
        self._arrived = arrived
        self._tend = tend
        self._lock = threading.Lock()
        self._waiters = Waiters(statistics)
        self._arrivals = 0
        self._releases = 0
        self._own_places: set[int] = set()
        self._own_releases = 0
        self._polls = False
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()

    @property
    def count(self) -> int:
        """How many calls wait."""
        return self._waiters.count

    def add(self, waiter: Waiter) -> None:
        """Let a call wait; what comes onto the queue after this wakes it."""
        with self._lock:
            if not self._polls and not self._closed.is_set():
                self._arrivals, releases = self._changes()
                self._releases = releases - self._own_releases
                self._own_places.clear()
                self._polls = True
                self._thread = threading.Thread(target=self._poll, name="queue watch", daemon=True)
                self._thread.start()
            self._waiters.add(waiter)

    def remove(self, waiter: Waiter) -> None:
        """Let a call wait no longer."""
        with self._lock:
            self._waiters.remove(waiter)

    def arrived(self, record: Record) -> None:
        """Wake who waits for a message that this process put: all that browse, and one that takes it."""
        with self._lock:
            if self._polls:
                self._own_places.add(record[PLACE])
        self._offer((record,))

    def released(self) -> None:
        """Wake everybody, because this process let messages of a unit come onto the queue."""
        with self._lock:
            self._own_releases += 1
        self.wake_all()

    def wake_all(self) -> None:
        """Wake everybody."""
        with self._lock:
            given = self._waiters.all()
            for waiter in given:
                self._waiters.remove(waiter)
        for waiter in given:
            waiter.hand_over()

    def close(self) -> None:
        """Wake everybody, and poll no more: when this returns, the database is left alone."""
        with self._lock:
            self._closed.set()
            thread = self._thread
        self.wake_all()
        if thread is not None:
            thread.join()

    def _offer(self, records: Iterable[Record]) -> None:
        for record in records:
            with self._lock:
                given = self._waiters.offer(record) if self._waiters.count else []
            for waiter in given:
                waiter.hand_over()

    def _poll(self) -> None:
        while not self._closed.wait(POLL_SECONDS):
            with self._lock:
                if not self._waiters.count:
                    self._polls = False
                    return
            try:
                self._tend()
                arrivals, releases = self._changes()
                before, self._arrivals = self._arrivals, arrivals
                is_much = arrivals - before > MOST_ARRIVALS
                records = [] if is_much or arrivals == before else self._arrived(before, arrivals)
            except StoreError:  # those who wait ask the database themselves, and are told
                self.wake_all()
                continue
            with self._lock:
                foreign = releases - self._own_releases
                is_released = foreign != self._releases
                self._releases = foreign
                own, self._own_places = self._own_places, set()
            if is_much or is_released:
                self.wake_all()
            else:
                self._offer(record for record in records if record[PLACE] not in own)
