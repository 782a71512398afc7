"""Processes that have units of work, so that their messages come back when they are dead.

No lease and no clock: whoever has units holds a lock that goes away with the process, at once and for
certain. In SQLite, whose users are on one machine, that is a lock of the system on a file beside the
database; in PostgreSQL an advisory lock of a session, which ends with the connection. Who finds an owner
whose lock is free backs all of its units out. One that was cut off from PostgreSQL and lives on finds its
units gone when it goes on with them (2003, backed out); so no message has two owners.
"""

from __future__ import annotations

import fcntl
import glob
import itertools
import os
import secrets
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Final
from weakref import WeakSet

from sqlalchemy import BigInteger, Connection, bindparam, func, select

from selectroute.queues.errors import MQRC_BACKED_OUT, failed
from selectroute.queues.sql_statements import (
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
    """A process that has a database of queues open, as an owner of units. Safe for threads."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = Lock()
        self._id: int | None = None
        self._buried: int | None = None
        self._file: int | None = None
        self._session: Connection | None = None
        self._units = itertools.count(1)
        _ALL.add(self)

    def __del__(self) -> None:
        self._let_go()

    @property
    def id(self) -> int | None:
        """The id of this owner; None while it is not in the database."""
        return self._id

    def next_unit(self) -> int:
        """Return the number of a new unit, on whatever queue of this database."""
        return next(self._units)

    def enter(self) -> int:
        """Return the id of this owner, who is in the database from now on."""
        with self._lock:
            if self._id is not None and self._id == self._buried:
                self._id = None  # units that begin from now on are another owner's
                self._let_go()
            if self._id is None:
                id = secrets.randbits(62)
                try:
                    self._hold(id)
                    with self._store.writing() as connection:
                        connection.execute(OWNER_ENTERS, {"id": id})
                except BaseException:
                    self._let_go()
                    raise
                self._id = id
            return self._id

    def check(self, connection: Connection, id: int) -> None:
        """Check that an owner is still in the database, and keep it there while the transaction lasts.

        Raises MQError 2003: it was taken for dead.
        """
        if connection.execute(OWNER_KEPT, {"own": id}).first() is None:
            self._buried = id
            raise failed(MQRC_BACKED_OUT, "this process was cut off from the database")

    def leave(self) -> None:
        """Back all units out, and be an owner no more."""
        with self._lock:
            id, self._id = self._id, None
            try:
                if id is not None:
                    with self._store.writing() as connection:
                        _back_out(connection, id)
            finally:
                self._let_go()
            if id is not None and self._store.is_sqlite:
                _path(self._store, id).unlink(missing_ok=True)

    def sweep(self) -> None:
        """Bury those of whom nothing is left but a file: they died just when they entered or were buried."""
        if self._store.is_sqlite:
            path = Path(self._store.path)
            for file in path.parent.glob(f"{glob.escape(path.name)}.owner-*"):
                with suppress(ValueError):
                    self.bury(int(file.name.rpartition("-")[2], 16))

    def others(self, connection: Connection) -> list[int]:
        """Return all other owners that are in the database, dead or alive."""
        return [id for id in connection.execute(OWNERS).scalars() if id != self._id]

    def bury(self, id: int) -> bool:
        """Back out the units of another owner if it is dead. Returns whether it was."""
        return self._bury_by_file(id) if self._store.is_sqlite else self._bury_by_session(id)

    def _bury_by_file(self, id: int) -> bool:
        path = _path(self._store, id)
        file: int | None = None
        with suppress(FileNotFoundError):  # then somebody is just burying it, or was while he died
            file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            if file is not None:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    return False
            with self._store.writing() as connection:
                _back_out(connection, id)
            path.unlink(missing_ok=True)
        finally:
            if file is not None:
                os.close(file)
        return True

    def _bury_by_session(self, id: int) -> bool:
        with self._store.writing() as connection:
            if not connection.execute(_TRY_LOCK, {"own": id}).scalar():
                return False
            _back_out(connection, id)
            return True

    def _hold(self, id: int) -> None:
        """Hold the lock of an id: before it is in the database, so that nobody takes it for dead."""
        if not self._store.is_sqlite:
            with named_errors():
                self._session = self._store.engine.connect().execution_options(isolation_level="AUTOCOMMIT")
                self._session.execute(_LOCK, {"own": id})
            return
        path = _path(self._store, id)
        try:
            while self._file is None:
                file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                fcntl.flock(file, fcntl.LOCK_EX)
                if path.exists():
                    self._file = file
                else:  # `sweep` of another process took it for one that was left behind
                    os.close(file)
        except OSError as error:
            raise ReadOnlyError(f"{path} cannot be made: {error.strerror}") from error

    def _let_go(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
        if self._session is not None:
            with suppress(Exception):  # it may be the connection that broke
                self._session.invalidate()
                self._session.close()
            self._session = None

    def forked(self) -> None:
        """Forget what is the parent's: its lock would outlive it in a child."""
        self._lock = Lock()
        self._id = None
        if self._file is not None:
            os.close(self._file)
            self._file = None


_ALL: Final[WeakSet[Owner]] = WeakSet()


def _forked() -> None:
    for one in list(_ALL):
        one.forked()


os.register_at_fork(after_in_child=_forked)


def _path(store: Store, id: int) -> Path:
    return Path(f"{store.path}.owner-{id:016x}")


def _back_out(connection: Connection, id: int) -> None:
    """Back out all units of an owner, who is then not in the database any more."""
    given = {"own": id}
    # Whoever puts or gets in one of its units just now has it locked, and is waited for.
    if connection.execute(OWNER_LOCKED, given).first() is None:
        return
    connection.execute(RELEASED_BY_OWNER, given)
    connection.execute(BACK_OUT_PUTS_OF_OWNER, given)
    connection.execute(BACK_OUT_GETS_OF_OWNER, given)
    connection.execute(OWNER_LEAVES, given)
