"""Liveness of processes with units of work, so that units of a dead process are backed out.

Without leases or clocks: a process with units holds a lock that the system releases when the process ends. In
SQLite, which is used from one machine, this is a lock on a file next to the database; in PostgreSQL an
advisory lock of a session, which ends with the connection. A process that finds an owner with a free lock
backs out all units of that owner. An owner that lost its connection to PostgreSQL and is still alive gets
2003 (backed out) for its units, so that no message has two owners.
"""

from __future__ import annotations

import glob
import itertools
import os
import secrets
from contextlib import ExitStack, suppress
from pathlib import Path
from threading import Lock
from typing import Final
from weakref import WeakSet

from sqlalchemy import BigInteger, Connection, bindparam, func, select

from selectroute.durable.lock import FileLock
from selectroute.queues.errors import MQRC_BACKED_OUT, failed
from selectroute.queues.sql.statements import (
    BACK_OUT_GETS_OF_OWNER,
    BACK_OUT_PUTS_OF_OWNER,
    OWNER_ENTERS,
    OWNER_KEPT,
    OWNER_LEAVES,
    OWNER_LOCKED,
    OWNERS,
    RELEASED_BY_OWNER,
)
from selectroute.store.engine import Store, named_errors
from selectroute.store.errors import ReadOnlyError

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
    for one in list(_ALL):
        one.forked()


os.register_at_fork(after_in_child=_forked)


def _path(store: Store, id: int) -> Path:
    return Path(f"{store.path}.owner-{id:016x}")


def _back_out(connection: Connection, id: int) -> None:
    """Back out all units of an owner and remove it from the database."""
    given = {"own": id}
    # Waits for running puts and gets in the owner's units, which lock this row.
    if connection.execute(OWNER_LOCKED, given).first() is None:
        return
    connection.execute(RELEASED_BY_OWNER, given)
    connection.execute(BACK_OUT_PUTS_OF_OWNER, given)
    connection.execute(BACK_OUT_GETS_OF_OWNER, given)
    connection.execute(OWNER_LEAVES, given)
