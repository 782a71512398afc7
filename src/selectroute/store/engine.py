"""Database, opened by its URL: transactions that read, and one at a time that writes."""

from __future__ import annotations

import errno
import os
import secrets
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from sqlalchemy import Connection, Engine, Executable, MetaData, create_engine, event, inspect, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.schema import CreateColumn

from selectroute.durable import disk
from selectroute.store.errors import (
    BusyError,
    DamagedError,
    InvalidUrlError,
    NoDatabaseError,
    ReadOnlyError,
    ReplacedError,
    StoreError,
    UnavailableError,
)
from selectroute.store.head import Head, lost
from selectroute.store.single import AutocommitStatements

BUSY_SECONDS: Final = 60.0
"""How long a writer waits for another one: an import of a million rows may hold the database for so long."""

ADDED: Final = "added"
"""In a column's ``info``: it was added to a table that there was before, and may be NULL. A database of an
earlier release gets it when it is opened.
"""

_CACHE_KIB: Final = 16_384
"""SQLite's cache of pages, for each connection."""

_BULK_CACHE_KIB: Final = 131_072

_WRITES: Final = "selectroute_writes"

_FULL: Final = {
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_NOLFS,
}


class Store:
    """A database with the tables of `metadata`. Safe for use by threads.

    Args:
        url: ``sqlite:///path`` or ``postgresql+psycopg://user:password@host/database``.
        metadata: the tables.
        first_rows: writes what a new database begins with; with it, a database that is none yet becomes one,
            and one that holds other tables gets these beside them.

    ``head`` is where a database in a file marks what it acknowledged, and ``acknowledged`` the newest mark
    that was there when this was opened.

    Raises:
        DamagedError: the file is gone, and its head is there.
        InvalidUrlError: no such kind of database.
        NoDatabaseError: there is none and `first_rows` is not given.
        StoreError: as the database says, see the errors.
    """

    def __init__(
        self, url: str, metadata: MetaData, first_rows: Callable[[Connection], None] | None = None
    ) -> None:
        self.url = _checked_url(url)
        self.is_sqlite = self.url.get_backend_name() == "sqlite"
        self._writer = threading.Lock()
        self._metadata = metadata
        self.head = Head(self.path) if self.is_sqlite else None
        # Read before the database is: what is acknowledged meanwhile is in the database then.
        self.acknowledged = None if self.head is None else self.head.read()
        if self.is_sqlite and not os.path.exists(self.path):
            if self.head is not None and self.acknowledged is not None:
                raise lost(self.head, f"there is no file {self.path}")
            if first_rows is None:
                raise NoDatabaseError(f"there is no database {self.path}")
            self._create_file(first_rows)
        self._file = _identity(self.path) if self.is_sqlite else None
        self.engine = _engine(self.url, self.is_sqlite, self.check_file)
        self._autocommit = AutocommitStatements(self.engine)
        try:
            there = self._tables()
            missing = [name for name in metadata.tables if name not in there]
            # A file is renamed into place with all of its tables: one that has none at all was truncated.
            if len(missing) == len(metadata.tables) and (there or not self.is_sqlite):
                if first_rows is None:
                    raise NoDatabaseError(f"{self.url.render_as_string()} has no table {missing[0]}")
                self._create_tables(first_rows)
            elif missing:
                raise DamagedError(f"the database has no table {missing[0]}")
            else:
                self._add_columns()
        except BaseException as error:
            self.engine.dispose()
            if self.is_sqlite and isinstance(error, ReadOnlyError):
                sentence = f"{self.path} cannot be opened: {_not_opened(self.path) or error}"
                raise UnavailableError(sentence) from error
            raise

    def _tables(self) -> set[str]:
        with named_errors(), self.engine.connect() as connection:
            return set(inspect(connection).get_table_names())

    def _create_tables(self, first_rows: Callable[[Connection], None]) -> None:
        with self.writing() as connection:
            # Two that create at once: one waits, in SQLite to begin, and then finds everything.
            if not self.is_sqlite:
                connection.execute(text("SELECT pg_advisory_xact_lock(7311402)"))
            if not inspect(connection).has_table(next(iter(self._metadata.tables))):
                self._metadata.create_all(connection)
                first_rows(connection)

    def _missing_columns(self, connection: Connection) -> list[tuple[str, Any]]:
        found = []
        for table in self._metadata.tables.values():
            added = [column for column in table.columns if ADDED in column.info]
            if added:
                there = {column["name"] for column in inspect(connection).get_columns(table.name)}
                found += [(table.name, column) for column in added if column.name not in there]
        return found

    def _add_columns(self) -> None:
        """Add the columns that tables of an earlier release do not have."""
        with named_errors(), self.engine.connect() as connection:
            if not self._missing_columns(connection):
                return
        with self.writing() as connection:
            # Two that add at once: one waits, and then finds everything.
            if not self.is_sqlite:
                connection.execute(text("SELECT pg_advisory_xact_lock(7311402)"))
            for table, column in self._missing_columns(connection):
                described = CreateColumn(column).compile(dialect=self.engine.dialect)
                connection.exec_driver_sql(f"ALTER TABLE {table} ADD COLUMN {described}")

    def _create_file(self, first_rows: Callable[[Connection], None]) -> None:
        """Make a database under another name, and give it its own when it is whole.

        An empty file is a database without tables to SQLite: one that was truncated must not pass for a new
        one, so a new one is never empty.
        """
        path = Path(self.path)
        # It holds messages, selectors and hashes of tokens. What SQLite makes beside it gets the same mode.
        new = path.with_name(f"{path.name}.{secrets.token_hex(4)}.new")
        engine = _engine(self.url.set(database=str(new)), True, creates=True)
        try:
            os.close(os.open(new, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            with named_errors(), engine.begin() as connection:
                self._metadata.create_all(connection)
                first_rows(connection)
            engine.dispose()  # the last connection puts everything into the one file
            disk.name_if_absent(new, path)
        except OSError as error:
            raise ReadOnlyError(f"{path} cannot be made: {error.strerror or error}") from error
        finally:
            engine.dispose()
            for suffix in ("", "-wal", "-shm"):
                Path(f"{new}{suffix}").unlink(missing_ok=True)

    @property
    def path(self) -> str:
        """File of a SQLite database."""
        assert self.url.database is not None
        return self.url.database

    def check_file(self) -> None:
        """Raise `ReplacedError` if the file of a SQLite database is not the one that was opened. One stat.

        A process goes on with a file that was removed or renamed, and nobody else ever sees what it writes;
        a connection that is made later would read the file that is there now.
        """
        if self._file is None:
            return
        try:
            found = _identity(self.path)
        except OSError as error:
            raise ReplacedError(
                f"the database file is gone ({error.strerror}): put it back, or restart"
            ) from error
        if found != self._file:
            what = "was truncated" if found[:2] == self._file[:2] else "was replaced by another"
            raise ReplacedError(f"the database file {what}: put it back, or restart")

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Begin a transaction that sees one consistent state of the database, however long it lasts."""
        self.check_file()
        with named_errors(), self.engine.connect() as connection:
            if not self.is_sqlite:
                connection = connection.execution_options(isolation_level="REPEATABLE READ")
            with connection.begin():
                yield connection

    @contextmanager
    def writing(self, *, bulk: bool = False) -> Iterator[Connection]:
        """Begin the transaction that writes: wholly done when the block ends, wholly undone when it raises.

        A `bulk` one changes much: SQLite gets more memory for it, and clears up its log behind it.
        """
        self._acquire()
        try:
            self.check_file()
            with named_errors(), self.engine.connect() as connection:
                if self.is_sqlite:
                    connection = connection.execution_options(**{_WRITES: True})
                    if bulk and self.is_sqlite:
                        connection.exec_driver_sql(f"PRAGMA cache_size = -{_BULK_CACHE_KIB}")
                        connection.rollback()
                try:
                    with connection.begin():
                        yield connection
                finally:
                    if bulk and self.is_sqlite:
                        self._clear_up(connection)
            self.check_file()  # what is committed to a file that nobody finds is not acknowledged
        finally:
            self._writer.release()

    def single(self, statement: Executable, given: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        """Run one statement as a transaction that writes, and return its rows, as plain as the driver does:
        in SQLite truth is 1.
        """
        if not self.is_sqlite:
            with self.writing() as connection:
                return [tuple(row) for row in connection.execute(statement, given)]
        self._acquire()
        try:
            self.check_file()
            with named_errors():
                rows = self._autocommit.run(statement, given)
            self.check_file()
            return rows
        finally:
            self._writer.release()

    def _acquire(self) -> None:
        if not self._writer.acquire(timeout=BUSY_SECONDS):
            raise BusyError(f"another writer held the database for more than {BUSY_SECONDS:g} s")

    def _clear_up(self, connection: Connection) -> None:
        """Clear up after a bulk transaction: restore the usual cache, truncate the log of hundreds of
        megabytes.
        """
        driver: Any = connection.connection.driver_connection
        # A full disk, or somebody who reads: some later commit clears up. The connection stays as it is: if
        # it is the last one, none can be opened on a full disk any more, not even to read.
        with suppress(sqlite3.Error):
            driver.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
            driver.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def close(self) -> None:
        """Give all connections back."""
        with self._writer:
            self._autocommit.close()
        self.engine.dispose()


@contextmanager
def named_errors() -> Iterator[None]:
    """Turn what SQLAlchemy raises in the block into a `StoreError`."""
    try:
        yield
    except DBAPIError as error:
        raise _named(error.orig) from error
    except sqlite3.Error as error:
        raise _named(error) from error
    except PoolTimeoutError as error:
        raise BusyError("all connections to the database are in use") from error
    except SQLAlchemyError as error:
        raise StoreError(f"the database refuses: {error}") from error


def _named(cause: Any) -> StoreError:
    says = str(cause).strip().split("\n")[0]
    if isinstance(cause, sqlite3.Error):
        code = getattr(cause, "sqlite_errorcode", None)
        kind = None if code is None else code & 0xFF
        if kind in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB) or "decode to UTF-8" in says:
            return DamagedError(f"the database file is damaged: {says}")
        if kind in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return BusyError(f"another writer holds the database: {says}")
        if kind in _FULL:
            return ReadOnlyError(f"the database cannot be written: {says}")
        if kind == sqlite3.SQLITE_ERROR:
            # A schema that does not have what this code asks for, on a database that was made by it.
            return DamagedError(f"the database has other tables than were made: {says}")
        return StoreError(f"the database refuses: {says}")
    state = getattr(cause, "sqlstate", None) or ""
    if state in ("XX001", "XX002") or state.startswith("42"):
        return DamagedError(f"the database is damaged: {says}")
    if state == "25006" or state.startswith("53100"):
        return ReadOnlyError(f"the database cannot be written: {says}")
    if state in ("40001", "40P01", "55P03"):
        return BusyError(f"another transaction is in the way: {says}")
    if not state or state[:2] in ("08", "53", "57", "58"):
        return UnavailableError(f"the database cannot be reached: {says}")
    return StoreError(f"the database refuses: {says}")


def _checked_url(url: str) -> URL:
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise InvalidUrlError(
            "the URL is sqlite:///PATH, postgresql+psycopg://USER@HOST/DATABASE or http://HOST:PORT"
        ) from None
    backend = parsed.get_backend_name()
    if backend == "postgresql":
        return parsed.set(drivername="postgresql+psycopg")
    if parsed.drivername not in ("sqlite", "sqlite+pysqlite"):
        raise InvalidUrlError(f"{backend} is no database that is supported: SQLite and PostgreSQL are")
    if not parsed.database or parsed.database == ":memory:" or parsed.database.startswith("file:"):
        raise InvalidUrlError("a database in SQLite is a file: sqlite:///PATH")
    return parsed


def _not_opened(path: str) -> str | None:
    """Why a file cannot be opened, as the system says it; SQLite does not tell. Opening the file to see would
    end all locks that this process has on it.
    """
    if Path(path).is_dir():
        return os.strerror(errno.EISDIR)
    if not os.access(path, os.R_OK | os.W_OK):
        return os.strerror(errno.EACCES)
    folder = Path(path).parent
    return None if os.access(folder, os.W_OK) else f"{folder}: {os.strerror(errno.EACCES)}"


def _identity(path: str) -> tuple[int, int, bool]:
    """Return which file it is, and whether it has anything in it."""
    found = os.stat(path)
    return found.st_dev, found.st_ino, found.st_size > 0


def _engine(
    url: URL, is_sqlite: bool, check_file: Callable[[], None] = lambda: None, creates: bool = False
) -> Engine:
    """Return the connections to a database. A file is only made where `creates` says so, and each connection
    is to the file that `check_file` knows.
    """
    if not is_sqlite:
        return create_engine(url, pool_size=8, max_overflow=56, pool_pre_ping=True)
    path = quote(os.path.abspath(url.database or ""))
    mode = "rwc" if creates else "rw"

    def connected() -> sqlite3.Connection:
        connection = sqlite3.connect(
            f"file:{path}?mode={mode}",
            uri=True,
            timeout=BUSY_SECONDS,
            check_same_thread=False,
            isolation_level=None,
        )
        try:
            check_file()
        except BaseException:
            connection.close()
            raise
        return connection

    engine = create_engine(url, pool_size=8, max_overflow=56, creator=connected)
    # Many rows in one statement, not one after another: the driver gives Python's lock up for each statement,
    # and gets it back a millisecond later beside threads that compute (300 lines imported: 0.9 s, now 0.1).
    engine.dialect.use_insertmanyvalues_wo_returning = True

    @event.listens_for(engine, "connect")
    def _connected(connection: sqlite3.Connection, _: object) -> None:
        cursor = connection.cursor()
        # A commit that was acknowledged survives loss of power: the log is synced at each.
        cursor.execute("PRAGMA journal_mode = WAL")
        cursor.execute("PRAGMA synchronous = FULL")
        cursor.execute("PRAGMA cell_size_check = ON")
        cursor.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        cursor.close()

    @event.listens_for(engine, "begin")
    def _begun(connection: Connection) -> None:
        # The driver's own way begins a transaction at the first write only: too late to read before it.
        writes = connection.get_execution_options().get(_WRITES)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine
