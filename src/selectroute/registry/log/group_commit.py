"""Group commit: changes of many callers in few transactions.

A commit waits for the disk. What arrives in the meantime is committed together by the next one (DeWitt et
al., "Implementation techniques for main memory database systems", SIGMOD 1984), so that the rate of changes
grows with the number of callers.

A commit is delayed until as many changes wait as there were at the end of the last one (as with PostgreSQL's
``commit_delay``), at most by some times as long as that took: the interpreter runs one thread at a time, its
callers are answered and ask again one after the other, and twice as many commits take almost twice as long. A
caller alone does not wait, nor does a change that comes `RECENT_SECONDS` after the last commit.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, TypeVar, cast

from sqlalchemy.exc import SQLAlchemyError

from selectroute.registry.authorization import EVERYTHING, Permission
from selectroute.registry.log.revision import PendingRevision
from selectroute.registry.log.transaction import Transaction
from selectroute.registry.specification import Checks

_T = TypeVar("_T")

MOST: Final = 256
"""Operations from which on a transaction takes no further change, so that none waits long for the others."""

_DELAY: Final = 4
"""Longest delay of a commit, as a multiple of the time that the last one took."""

RECENT_SECONDS: Final = 0.02
"""Time after a commit in which its callers are expected again, and the longest delay of a commit."""


class Unit(Future[_T]):
    """Change of one caller: one revision, all or nothing; its result is there once the change is durable.

    Args:
        work: makes the change and returns its result. Called in another thread than the caller's.
        checks: of the specifications.
        by: the caller's permission.
        operations: their number, for the size of a group.
    """

    def __init__(
        self,
        work: Callable[[PendingRevision], _T],
        checks: Checks,
        by: Permission = EVERYTHING,
        operations: int = 1,
    ) -> None:
        super().__init__()
        self._work = work
        self.checks = checks
        self._by = by
        self.operations = operations
        self._made: _T | None = None
        self.error: BaseException | None = None
        """Error that the caller has in place of the result."""

    def run(self, transaction: Transaction) -> None:
        """Make the change in a transaction.

        An error undoes it and is kept for the caller; those of the database, which end the
        transaction, are raised.
        """
        self.error = None  # of an earlier try with others
        transaction.begin()
        try:
            revision = PendingRevision(transaction, self.checks, self._by)
            self._made = self._work(revision)
            revision.finish()
        except SQLAlchemyError:
            raise
        except Exception as error:
            transaction.undo()
            self.error = error

    def end(self) -> None:
        """Give the caller the result, or the error."""
        if self.error is not None:
            self.set_exception(self.error)
        else:
            self.set_result(cast(_T, self._made))


class GroupCommit:
    """Queue of changes, which a thread commits.

    Args:
        commit: makes several changes in one transaction, with `Unit.run`. If it raises, none was made.
    """

    def __init__(self, commit: Callable[[Sequence[Unit[Any]]], None]) -> None:
        self._commit = commit
        self._thread = ThreadPoolExecutor(1, "selectroute-commit")  # started by the first change
        self._submitted = threading.Condition()
        self._waiting: deque[Unit[Any]] = deque()
        self._is_running = False
        self._expected = 0
        """Changes that were committed or waiting at the end of the last commit."""
        self._delay = 0.0
        """Longest delay of the next commit, in seconds."""
        self._ended = 0.0
        """Time of its end."""

    def submit(self, units: Sequence[Unit[Any]]) -> None:
        """Have changes committed together with those of other callers.

        A change that is cancelled before its commit begins is not made.
        """
        with self._submitted:
            if not self._is_running:
                self._thread.submit(self._run)
                self._is_running = True
            self._waiting.extend(units)
            if len(self._waiting) >= self._expected:
                self._submitted.notify()

    def close(self) -> None:
        """End the thread, after the changes that wait."""
        self._thread.shutdown()

    def _run(self) -> None:
        while group := self._next_group():
            began = time.monotonic()
            try:
                self._commit(group)
            except BaseException as error:
                for unit in group:
                    unit.error = error
            self._ended = time.monotonic()
            self._delay = min(_DELAY * (self._ended - began), RECENT_SECONDS)
            self._expected = len(group) + len(self._waiting)
            for unit in group:
                unit.end()

    def _next_group(self) -> list[Unit[Any]]:
        """Take the first changes of the queue, once those that are expected are there; none if none waits."""
        with self._submitted:
            if self._waiting and time.monotonic() < self._ended + RECENT_SECONDS:
                self._submitted.wait_for(lambda: len(self._waiting) >= self._expected, self._delay)
            group: list[Unit[Any]] = []
            operations = 0
            while self._waiting and operations < MOST:
                unit = self._waiting.popleft()
                if unit.set_running_or_notify_cancel():
                    group.append(unit)
                    operations += unit.operations
            self._is_running = bool(group)
            return group
