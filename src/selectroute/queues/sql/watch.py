"""Waiting calls on a queue in a database: woken by puts on the same `SqlQueue`, and by polling for others."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Final

from selectroute.queues.lookup import LookupStatistics
from selectroute.queues.message.message import QueuedMessage
from selectroute.queues.message.record import StoredMessage
from selectroute.queues.waiting import Waiter, Waiters
from selectroute.store.errors import StoreError

POLL_SECONDS: Final = 0.05
"""Interval of polls for changes of other processes, by one thread while any call waits."""

MOST_ARRIVALS: Final = 1_000
"""Messages of other processes that are matched with waiting calls; for more, all calls are woken."""

LONG_STRINGS: Final = 1_024
MOST_COMPARED: Final = 1 << 24
"""Characters of a long message's strings, times the waiting calls with a selector, up to which they are
compared under the lock: LIKE takes up to 50 ns for each. For more, all are woken and look themselves."""


class QueueWatch:
    """Waiting calls of one `SqlStore`. Safe for threads.

    A woken call queries the database: another one may have been faster.

    invariant: while a call waits, a thread polls; every change since the last query of a call wakes it,
    except arrivals of messages that do not match.

    Args:
        statistics: counts the comparisons of wake-ups.
        changes: reads the numbers of arrivals on the queue and of releases by units, of all processes.
        arrived: reads the messages with arrival numbers above one and up to another.
        clean_up: called at each poll; backs out units of dead processes.
    """

    def __init__(
        self,
        statistics: LookupStatistics,
        changes: Callable[[], tuple[int, int]],
        arrived: Callable[[int, int], list[StoredMessage]],
        clean_up: Callable[[], object],
    ) -> None:
        self._changes = changes
        self._arrived = arrived
        self._clean_up = clean_up
        self._lock = threading.Lock()
        self._waiters = Waiters(statistics)
        self._arrivals = 0
        self._releases = 0
        self._own_keys: set[int] = set()
        self._own_releases = 0
        self._polls = False
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()

    @property
    def count(self) -> int:
        """Number of waiting calls."""
        return self._waiters.count

    @property
    def gets(self) -> int:
        """Number of waiting calls that take their message off the queue."""
        return self._waiters.gets

    def add(self, waiter: Waiter) -> None:
        """Add a waiting call; messages that become visible after this wake it."""
        with self._lock:
            if not self._polls and not self._closed.is_set():
                self._arrivals, releases = self._changes()
                self._releases = releases - self._own_releases
                self._own_keys.clear()
                self._polls = True
                self._thread = threading.Thread(target=self._poll, name="queue watch", daemon=True)
                self._thread.start()
            self._waiters.add(waiter)

    def remove(self, waiter: Waiter) -> None:
        """Remove a waiting call."""
        with self._lock:
            self._waiters.remove(waiter)

    def arrived(self, record: StoredMessage) -> None:
        """Wake the calls for a message that this process put: all browsing ones, and one that takes it."""
        with self._lock:
            if self._polls:
                self._own_keys.add(record.queue_key)
        self._offer((record,))

    def released(self) -> None:
        """Wake all calls, because a unit of this process released messages."""
        with self._lock:
            self._own_releases += 1
        self.wake_all()

    def wake_all(self) -> None:
        """Wake all calls."""
        with self._lock:
            woken = self._waiters.all()
            for waiter in woken:
                self._waiters.remove(waiter)
        for waiter in woken:
            waiter.hand_over()

    def close(self) -> None:
        """Wake all calls and stop polling. Afterwards the database is not used any more."""
        with self._lock:
            self._closed.set()
            thread = self._thread
        self.wake_all()
        if thread is not None:
            thread.join()

    def _offer(self, records: Iterable[StoredMessage]) -> None:
        for record in records:
            selecting = self._waiters.selecting
            values = (record.properties or {}).values() if selecting else ()
            strings = sum(len(value) for value in values if isinstance(value, str))
            if strings > LONG_STRINGS and strings * selecting > MOST_COMPARED:
                self.wake_all()
                continue
            with self._lock:
                woken = self._waiters.offer(record) if self._waiters.count else []
            for waiter in woken:
                waiter.hand_over()

    def _poll(self) -> None:
        while not self._closed.wait(POLL_SECONDS):
            with self._lock:
                if not self._waiters.count:
                    self._polls = False
                    return
            try:
                self._clean_up()
                arrivals, releases = self._changes()
                before, self._arrivals = self._arrivals, arrivals
                is_much = arrivals - before > MOST_ARRIVALS
                records = [] if is_much or arrivals == before else self._arrived(before, arrivals)
            except StoreError:  # woken calls query the database themselves and raise the error
                self.wake_all()
                continue
            with self._lock:
                foreign = releases - self._own_releases
                is_released = foreign != self._releases
                self._releases = foreign
                own, self._own_keys = self._own_keys, set()
            if is_much or is_released:
                self.wake_all()
            else:
                self._offer(record for record in records if record.queue_key not in own)


class WaitingCall:
    """Get or browse that waits: without a thread, if its waiters notify a function that it should look again.

    Not safe for threads. `end` it.

    Args:
        watch: the calls that wait on this queue.
        retry: looks for the message of a waiter, and takes it unless the call browses.
        to_message: converts a record to a message.
        new_waiter: creates a waiter for each wait.
    """

    def __init__(
        self,
        watch: QueueWatch,
        retry: Callable[[Waiter], StoredMessage | None],
        to_message: Callable[[StoredMessage], QueuedMessage],
        new_waiter: Callable[[], Waiter],
    ) -> None:
        self._watch = watch
        self._retry = retry
        self._to_message = to_message
        self._new_waiter = new_waiter
        self._waiter: Waiter | None = None

    def look(self) -> QueuedMessage | None:
        """Return the message if there is one now; otherwise the call is notified when one arrives.

        Raises MQError as `Queue.get` does, except 2033.
        """
        record = self.find()
        return None if record is None else self._to_message(record)

    def find(self) -> StoredMessage | None:
        """Return the record of the message if there is one now; see `look`."""
        before, self._waiter = self._waiter, self._new_waiter()
        # Register first, then look: a message that arrives in between notifies.
        self._watch.add(self._waiter)
        offered = None
        if before is not None:
            self._watch.remove(before)
            offered = before.record
        record = self._retry(self._waiter)
        if record is None:
            return None
        if offered is not None and offered.queue_key != record.queue_key:
            self._watch.wake_all()  # others may want the message that this call was woken for
        self._leave(record.queue_key)
        return record

    def wait(self, seconds: float) -> None:
        """Wait until the call should look again, or until the timeout."""
        if self._waiter is not None:
            self._waiter.wait(seconds)

    def end(self) -> None:
        """Stop waiting. A message that this call was notified of but did not take is offered to others."""
        self._leave(None)

    def _leave(self, queue_key: int | None) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None:
            self._watch.remove(waiter)
            if waiter.record is not None and waiter.record.queue_key != queue_key:
                self._watch.wake_all()
