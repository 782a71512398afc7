"""Units of work in a database, which end by a commit, a backout, or the death of their process.

Processes with units are watched without leases or clocks: such a process holds a lock that the system
releases when the process ends. In SQLite, which is used from one machine, this is a lock on a file next to
the database; in PostgreSQL an advisory lock of a session, which ends with the connection. A process that
finds an owner with a free lock backs out all units of that owner. An owner that lost its connection to
PostgreSQL and is still alive gets 2003 (backed out) for its units, so that no message has two owners.
"""

from __future__ import annotations

import glob
import itertools
import os
import secrets
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Final
from weakref import WeakSet

from sqlalchemy import BigInteger, Connection, bindparam, func, select

from selectroute.durable.lock import FileLock
from selectroute.queues.errors import MQRC_BACKED_OUT, failed
from selectroute.queues.sql.statements import (
    ANY_EXPIRED,
    BACK_OUT,
    BACK_OUT_OWNER,
    BACK_OUT_OWNER_HERE,
    COMMIT,
    EXPIRE,
    HELD_ROWS,
    JOINED,
    OWNER_ENTERS,
    OWNER_KEPT,
    OWNER_LEAVES,
    OWNER_LOCKED,
    OWNERS,
    RELEASED,
    RELEASED_BY_OWNER,
)
from selectroute.store.engine import Store, named_errors
from selectroute.store.errors import ReadOnlyError, StoreError

_LOCK: Final = select(func.pg_advisory_lock(bindparam("own", type_=BigInteger)))
_TRY_LOCK: Final = select(func.pg_try_advisory_xact_lock(bindparam("own", type_=BigInteger)))


class Owner:
    """This process as an owner of units in a database of queues. Safe for threads."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = Lock()
        self.id: int | None = None
        """Id of this owner; None while it is not in the database."""
        self._lost: int | None = None
        self._file: FileLock | None = None
        self._session: Connection | None = None
        self.units = itertools.count(1)
        """Numbers of new units, of any queue of this database."""
        _ALL.add(self)

    def __del__(self) -> None:
        self._let_go()

    def enter(self) -> int:
        """Insert this owner into the database if missing; return its id."""
        with self._lock:
            if self.id is not None and self.id == self._lost:
                self.id = None  # later units belong to a new owner
                self._let_go()
            if self.id is None:
                id = secrets.randbits(62)
                try:
                    self._hold(id)
                    with self._store.writing() as connection:
                        connection.execute(OWNER_ENTERS, {"id": id})
                except BaseException:
                    self._let_go()
                    raise
                self.id = id
            return self.id

    def check(self, connection: Connection, id: int) -> None:
        """Check that this owner is still in the database, and lock it for the transaction.

        Raises MQError 2003 if another process considered this owner dead.
        """
        if connection.execute(OWNER_KEPT, {"own": id}).first() is None:
            self._lost = id
            raise failed(MQRC_BACKED_OUT, "this process was cut off from the database")

    def leave(self) -> None:
        """Back out all units and remove this owner from the database."""
        with self._lock:
            id, self.id = self.id, None
            try:
                if id is not None:
                    with self._store.writing() as connection:
                        _back_out(connection, id)
            finally:
                self._let_go()
            if id is not None and self._store.is_sqlite:
                _path(self._store, id).unlink(missing_ok=True)

    def sweep(self) -> None:
        """Remove lock files without an owner, of processes that died while entering or being removed."""
        if self._store.is_sqlite:
            path = Path(self._store.path)
            for file in path.parent.glob(f"{glob.escape(path.name)}.owner-*"):
                with suppress(ValueError):
                    self.back_out_if_dead(int(file.name.rpartition("-")[2], 16))

    def others(self, connection: Connection) -> list[int]:
        """Return the ids of all other owners in the database, dead or alive."""
        return [id for id in connection.execute(OWNERS).scalars() if id != self.id]

    def back_out_if_dead(self, id: int) -> bool:
        """Back out the units of another owner if it is dead. Returns whether it was."""
        return self._back_out_by_file(id) if self._store.is_sqlite else self._back_out_by_session(id)

    def _back_out_by_file(self, id: int) -> bool:
        path = _path(self._store, id)
        with ExitStack() as held:
            try:
                held.enter_context(FileLock(path, wait=False, create=None))
            except BlockingIOError:
                return False
            except FileNotFoundError:
                pass  # another process is backing it out, or died doing so
            with self._store.writing() as connection:
                _back_out(connection, id)
            path.unlink(missing_ok=True)
        return True

    def _back_out_by_session(self, id: int) -> bool:
        with self._store.writing() as connection:
            if not connection.execute(_TRY_LOCK, {"own": id}).scalar():
                return False
            _back_out(connection, id)
            return True

    def _hold(self, id: int) -> None:
        """Acquire the lock of an id before its insertion, so that no process considers the owner dead."""
        if not self._store.is_sqlite:
            with named_errors():
                self._session = self._store.engine.connect().execution_options(isolation_level="AUTOCOMMIT")
                self._session.execute(_LOCK, {"own": id})
            return
        path = _path(self._store, id)
        try:
            while self._file is None:
                lock = FileLock(path, create=0o600)
                if path.exists():
                    self._file = lock
                else:  # removed by another process's `sweep`
                    lock.close()
        except OSError as error:
            raise ReadOnlyError(f"{path} cannot be created: {error.strerror}") from error

    def _let_go(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
        if self._session is not None:
            with suppress(Exception):  # the connection may be broken
                self._session.invalidate()
                self._session.close()
            self._session = None

    def forked(self) -> None:
        """Drop the lock inherited from the parent of a fork: otherwise it would outlive the parent."""
        self._lock = Lock()
        self.id = None
        if self._file is not None:
            self._file.close()
            self._file = None


_ALL: Final[WeakSet[Owner]] = WeakSet()


def _forked() -> None:
    for owner in list(_ALL):
        owner.forked()


os.register_at_fork(after_in_child=_forked)


def _path(store: Store, id: int) -> Path:
    return Path(f"{store.path}.owner-{id:016x}")


def _back_out(connection: Connection, id: int) -> None:
    """Back out all units of an owner and remove it from the database."""
    parameters = {"own": id}
    # Waits for running puts and gets in the owner's units, which lock this row.
    if connection.execute(OWNER_LOCKED, parameters).first() is None:
        return
    for statement in (RELEASED_BY_OWNER, *BACK_OUT_OWNER, OWNER_LEAVES):
        connection.execute(statement, parameters)


_CLEAN_UP_SECONDS: Final = 1.0
"""Minimum time between two clean-ups by calls that find a message; calls that find none always clean up
before they wait."""

_MOST_ROWS: Final = 64
"""Rows that count the messages of a queue, in PostgreSQL, before a clean-up makes one row of them."""


@dataclass(slots=True)
class UnitState:
    """Unit of work in a database: its number there, the counts of its puts and gets, and its queues.

    A unit whose process died is backed out by another one (see `Owner`).
    """

    number: int
    owner: int | None = None
    """Id of this process as an owner of units; None until something is put or got in the unit."""

    puts: int = 0
    gets: int = 0
    released: dict[int, Callable[[], None]] = field(default_factory=dict)
    """Functions to call when messages of the unit become visible, by the id of each of its queues."""

    lock: Lock = field(default_factory=Lock)
    """Held while something is put or got in the unit, and while it ends."""


class UnitEndings:
    """Commit and backout of units by an open queue, including those of dead processes. Safe for threads.

    Args:
        store: the database.
        owner: this process, as an owner of units in it.
        now: returns the parameters of statements: the queue and the time.
    """

    def __init__(self, store: Store, owner: Owner, now: Callable[[], Mapping[str, int]]) -> None:
        self.owner = owner
        self._store = store
        self._now = now
        self._forgotten: deque[UnitState] = deque()
        self._cleaned_up = self._joined = -_CLEAN_UP_SECONDS

    def end(self, state: UnitState, *, commit: bool, counts: bool = True) -> None:
        """Commit a unit or back it out; see `UnitOfWork.backout`.

        Raises MQError 2003 if a commit finds other numbers of puts and gets than the unit has made, because
        another process considered this one dead.
        """
        parameters = {"own": state.owner, "of_unit": state.number, "raised": int(counts)}
        releases = bool(state.puts if commit else state.gets)
        with self._store.writing() as connection:
            if releases:  # before any message is locked: making an index locks in the same order
                connection.execute(RELEASED, [{"in_queue": queue} for queue in sorted(state.released)])
            statements = COMMIT if commit else BACK_OUT
            changed = [connection.execute(statement, parameters).rowcount for statement in statements]
            if commit and changed != [state.puts, state.gets]:
                raise failed(MQRC_BACKED_OUT, "this process was cut off from the database")
        if releases:
            for released in state.released.values():
                released()

    def leave(self) -> None:
        """Back out all units of this process on this queue."""
        if self.owner.id is None:
            return
        parameters = {"own": self.owner.id, "in_queue": self._now()["in_queue"]}
        with self._store.writing() as connection:
            connection.execute(RELEASED, {"in_queue": parameters["in_queue"]})
            for statement in BACK_OUT_OWNER_HERE:
                connection.execute(statement, parameters)

    def forget(self, state: UnitState) -> None:
        """Schedule the backout of an unreachable unit; called when its memory is freed.

        The call may come inside a transaction of the same thread, so the next call backs the unit out.
        """
        self._forgotten.append(state)

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
                state = self._forgotten.popleft()
            except IndexError:  # another thread was faster
                break
            try:
                self.end(state, commit=False)
            except StoreError:
                self._forgotten.append(state)
                raise
            backed_out = True
        return backed_out
