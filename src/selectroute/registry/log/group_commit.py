"""Group commit: changes of many callers in few transactions.

A commit waits for the disk. What arrives in the meantime is committed together by the next one (DeWitt et
al., "Implementation techniques for main memory database systems", SIGMOD 1984), so that the rate of changes
grows with the number of callers, and a single caller waits no longer than without.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, TypeVar, cast

from sqlalchemy.exc import SQLAlchemyError

from selectroute.registry.authorization.permission import EVERYTHING, Permission
from selectroute.registry.log.revision import Revision
from selectroute.registry.log.transaction import Transaction
from selectroute.registry.specification import Checks
from selectroute.store.errors import UnavailableError

_T = TypeVar("_T")

_INTERRUPTED: Final = "the change was interrupted: look whether it took effect"

MOST: Final = 2_000
"""Operations from which on a transaction takes no further change, so that none waits long for the others."""


class Unit(Generic[_T]):
    """Change of one caller: one revision, all or nothing.

    Args:
        work: makes the change and returns its result. May be called in another thread than the caller's.
        checks: of the specifications.
        by: the caller's permission.
        operations: their number, for the size of a group.
    """

    def __init__(
        self, work: Callable[[Revision], _T], checks: Checks, by: Permission = EVERYTHING, operations: int = 1
    ) -> None:
        self._work = work
        self._checks = checks
        self._by = by
        self.operations = operations
        self.woken: threading.Event | None = None
        """Set when the change is done, or when its caller is the one to commit the next group. None if its
        caller was the first one, which commits its changes itself.
        """
        self.is_done = False
        self._result: _T | None = None
        self._error: BaseException | None = None

    @property
    def names(self) -> Sequence[str]:
        """Names that the change gives to subscriptions, as far as they are known."""
        return self._checks.names

    def run(self, transaction: Transaction) -> None:
        """Make the change in a transaction. An error undoes it and is kept for the caller; those of the
        database, which end the transaction, are raised.
        """
        self._error = None  # of an earlier try with others
        transaction.begin()
        try:
            revision = Revision(transaction, self._checks, self._by)
            self._result = self._work(revision)
            revision.finish()
        except SQLAlchemyError:
            raise
        except Exception as error:
            transaction.undo()
            self._error = error

    def fail(self, error: BaseException) -> None:
        """Let the caller have this error in place of the result."""
        self._error = error

    def wait(self) -> None:
        """Wait until `wake`, unless the caller commits its changes itself."""
        if self.woken is not None:
            self.woken.wait()

    def wake(self) -> None:
        """Let the caller go on, if it waits."""
        if self.woken is not None:
            self.woken.set()

    def outcome(self) -> _T:
        """Return the result, or raise the error."""
        if self._error is not None:
            raise self._error
        return cast(_T, self._result)


class GroupCommit:
    """Queue of changes, which the caller at its head commits for all.

    Args:
        commit: makes several changes in one transaction, with `Unit.run`. If it raises, none was made.
    """

    def __init__(self, commit: Callable[[Sequence[Unit[Any]]], None]) -> None:
        self._commit = commit
        self._lock = threading.Lock()
        self._waiting: deque[Unit[Any]] = deque()
        self._is_led = False

    def run(self, units: Sequence[Unit[Any]]) -> None:
        """Commit changes with those of other threads; return when they are done, durably or by an error."""
        if not units:
            return
        with self._lock:
            if self._is_led:
                for unit in units:
                    unit.woken = threading.Event()
            self._waiting.extend(units)
            self._is_led = True
        try:
            for unit in units:
                unit.wait()
                if not unit.is_done:
                    self._lead()
        except BaseException:  # such as KeyboardInterrupt
            self._leave(units)
            raise

    def _lead(self) -> None:
        """Commit the first changes of the queue, and pass the lead on."""
        with self._lock:
            group = self._next_group()
        try:
            self._commit(group)
        except BaseException as error:
            is_usual = isinstance(error, Exception)
            for one in group:
                one.fail(error if is_usual else UnavailableError(_INTERRUPTED))
            if not is_usual:  # such as KeyboardInterrupt
                raise
        finally:
            self._pass_on()
            for one in group:
                one.is_done = True
                one.wake()

    def _next_group(self) -> list[Unit[Any]]:
        group, operations = [], 0
        while self._waiting and operations < MOST:
            group.append(self._waiting.popleft())
            operations += group[-1].operations
        return group

    def _pass_on(self) -> None:
        with self._lock:
            if self._waiting:
                self._waiting[0].wake()
            else:
                self._is_led = False

    def _leave(self, units: Sequence[Unit[Any]]) -> None:
        """Remove changes whose caller no longer waits; those that are being committed may take effect."""
        with self._lock:
            left = [one for one in units if one in self._waiting]
            for one in left:
                self._waiting.remove(one)
        if any(one.woken is None or one.woken.is_set() for one in left):  # this caller was to lead
            self._pass_on()
