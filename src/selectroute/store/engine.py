"""Database opened by its URL: concurrent reads, one write transaction at a time, inserts of many rows.

Rows have digests: alone, or chained so that each one vouches for all rows before it.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import secrets
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from functools import lru_cache
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import quote

from sqlalchemy import (
    Connection,
    Dialect,
    Engine,
    Executable,
    MetaData,
    PoolProxiedConnection,
    Table,
    create_engine,
    event,
    inspect,
    text,
)
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from selectroute.durable import disk
from selectroute.extras import importing
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

START = bytes(32)
"""Digest that the first row of a chain is chained to."""


def canonical(*fields: str | int | None) -> bytes:
    """Encode fields unambiguously for a digest: each text with its length; NULL differs from the empty text.

    >>> canonical("add", None, 7)
    b'3:add-1:7'
    """
    parts = [
        "-" if field is None else f"{len(text := field if type(field) is str else str(field))}:{text}"
        for field in fields
    ]
    return "".join(parts).encode(errors="surrogatepass")


def row_digest(*fields: str | int | None) -> bytes:
    """Return the SHA-256 of a row without a chain, 32 bytes."""
    return hashlib.sha256(canonical(*fields)).digest()


def chained(previous: bytes, *fields: str | int | None) -> bytes:
    """Return the SHA-256 of a row that follows the row with the digest `previous`, 32 bytes."""
    return hashlib.sha256(previous + canonical(*fields)).digest()


BUSY_SECONDS: Final = 60.0
"""Time that a writer waits for another one: an import of a million rows may take that long."""

_CACHE_KIB: Final = 16_384
"""SQLite's cache of pages, for each connection."""

_LOG_PAGES: Final = 1_000
"""Pages of the log from which on a commit copies them to the database: SQLite's default."""

_BULK_CACHE_KIB: Final = 131_072

_LOG_BYTES: Final = 64 << 20
"""Size to which SQLite truncates a longer log when it begins that anew."""

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
    """Database with the tables of `metadata`. Safe for use by threads.

    Args:
        url: ``sqlite:///path`` or ``postgresql+psycopg://user:password@host/database``.
        metadata: the tables.
        first_rows: writes the first rows of a new database. If given, a missing database is created, and one
            that holds only other tables gets these in addition.

    Raises:
        DamagedError: some of the tables are missing.
        InvalidUrlError: the URL names an unsupported kind of database.
        NoDatabaseError: there is no database and `first_rows` is not given.
        StoreError: any other error of the database, see `errors`.
    """

    def __init__(
        self, url: str, metadata: MetaData, first_rows: Callable[[Connection], None] | None = None
    ) -> None:
        self.url = _checked_url(url)
        self.is_sqlite = self.url.get_backend_name() == "sqlite"
        self._writer = threading.Lock()
        self._truncation = ThreadPoolExecutor(1, "selectroute-truncate-log")
        self._metadata = metadata
        if self.is_sqlite and not os.path.exists(self.path):
            if first_rows is None:
                raise NoDatabaseError(f"there is no database {self.path}")
            self._create_file(first_rows)
        self._file = _identity(self.path) if self.is_sqlite else None
        self.engine = _engine(self.url, self.is_sqlite, self.check_file)
        self._autocommit = _AutocommitStatements(self.engine)
        try:
            existing = self._tables()
            missing = [name for name in metadata.tables if name not in existing]
            # A new file is renamed into place with all of its tables: a file without tables was truncated.
            if len(missing) == len(metadata.tables) and (existing or not self.is_sqlite):
                if first_rows is None:
                    raise NoDatabaseError(f"{self.url.render_as_string()} has no table {missing[0]}")
                self._create_tables(first_rows)
            elif missing:
                raise DamagedError(f"the database has no table {missing[0]}")
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
        """Create all tables.

        Of two processes that do so at once, one waits, in SQLite at BEGIN, and then finds the tables
        of the other.
        """
        with self.writing() as connection:
            if not self.is_sqlite:
                connection.execute(text("SELECT pg_advisory_xact_lock(7311402)"))
            if not inspect(connection).has_table(next(iter(self._metadata.tables))):
                self._metadata.create_all(connection)
                first_rows(connection)

    def _create_file(self, first_rows: Callable[[Connection], None]) -> None:
        """Create a database under a temporary name and rename it when it is complete.

        SQLite takes an empty file for a database without tables: a truncated database must not pass for a new
        one, so a new one is never empty.
        """
        path = Path(self.path)
        # Readable by the owner only: it holds messages, selectors and hashes of tokens. SQLite gives its
        # -wal and -shm files the same mode.
        new = path.with_name(f"{path.name}.{secrets.token_hex(4)}.new")
        engine = _engine(self.url.set(database=str(new)), True, creates=True)
        try:
            os.close(os.open(new, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            with named_errors(), engine.begin() as connection:
                self._metadata.create_all(connection)
                first_rows(connection)
            engine.dispose()  # closing the last connection checkpoints the log into the file
            disk.name_if_absent(new, path)
        except OSError as error:
            raise ReadOnlyError(f"{path} cannot be created: {error.strerror or error}") from error
        finally:
            engine.dispose()
            for suffix in ("", "-wal", "-shm"):
                with suppress(FileNotFoundError, NotADirectoryError):
                    Path(f"{new}{suffix}").unlink()

    @property
    def path(self) -> str:
        """File of a SQLite database."""
        assert self.url.database is not None
        return self.url.database

    def check_file(self) -> None:
        """Raise `ReplacedError` if the file of a SQLite database is not the one that was opened. One stat.

        A process can go on writing to a removed or renamed file, where no other process sees the data; a
        later connection would open the new file under that path.
        """
        if self._file is None:
            return
        try:
            current = _identity(self.path)
        except OSError as error:
            raise ReplacedError(
                f"the database file is gone ({error.strerror}): put it back, or restart"
            ) from error
        if current != self._file:
            what = "was truncated" if current[:2] == self._file[:2] else "was replaced by another"
            raise ReplacedError(f"the database file {what}: put it back, or restart")

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Begin a read transaction: it sees one consistent state of the database, however long it lasts."""
        self.check_file()
        with named_errors(), self.engine.connect() as connection:
            if not self.is_sqlite:
                connection = connection.execution_options(isolation_level="REPEATABLE READ")
            with connection.begin():
                yield connection

    @contextmanager
    def writing(self, *, bulk: bool = False) -> Iterator[Connection]:
        """Begin the write transaction: committed when the block ends, rolled back when the block raises.

        With `bulk`, for many changes, SQLite uses a larger cache, and its log is copied to the database and
        truncated afterwards by a thread: for a million rows that takes two seconds.
        """
        self._acquire()
        try:
            self.check_file()
            with named_errors(), self.engine.connect() as connection:
                if self.is_sqlite:
                    connection = connection.execution_options(**{_WRITES: True})
                settings = _bulk_settings(connection) if bulk and self.is_sqlite else nullcontext()
                with settings, connection.begin():
                    yield connection
            self.check_file()  # a commit to a removed file is not acknowledged
        finally:
            self._writer.release()
            if bulk and self.is_sqlite:
                with suppress(RuntimeError):  # the store is being closed
                    self._truncation.submit(self._truncate_log)

    def single(self, statement: Executable, parameters: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        """Run one statement as a write transaction; return its rows as the driver does (true may be 1)."""
        if not self.is_sqlite:
            with self.writing() as connection:
                return [tuple(row) for row in connection.execute(statement, parameters)]
        self._acquire()
        try:
            self.check_file()
            with named_errors():
                rows = self._autocommit.run(statement, parameters)
            self.check_file()
            return rows
        finally:
            self._writer.release()

    def _acquire(self) -> None:
        if not self._writer.acquire(timeout=BUSY_SECONDS):
            raise BusyError(f"another writer held the database for more than {BUSY_SECONDS:g} s")

    def _truncate_log(self) -> None:
        """Truncate the log of hundreds of megabytes that a bulk transaction leaves."""
        # On a full disk, or with an open reader, a later commit clears up: it does not wait for a publisher
        # that reads a million rows. The connection stays open: once the last one is closed, a full disk
        # admits no new one, not even to read.
        with suppress(StoreError), named_errors(), self.engine.connect() as connection:
            driver: Any = connection.connection.driver_connection
            driver.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()  # copies it while others write
            driver.execute("PRAGMA busy_timeout = 0")
            try:
                driver.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            finally:
                driver.execute(f"PRAGMA busy_timeout = {BUSY_SECONDS * 1000:.0f}")

    def close(self) -> None:
        """Close all connections."""
        with self._writer:
            self._autocommit.close()
        self._truncation.shutdown()
        self.engine.dispose()


class _AutocommitStatements:
    """Connection to SQLite on which each statement is a transaction.

    SQLAlchemy's overhead for a transaction is three times the cost of a statement by key on a disk that
    syncs quickly. The statement is still SQLAlchemy's, compiled once, with parameters. Not thread-safe:
    writers hold the store's lock.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._connection: PoolProxiedConnection | None = None
        self._compiled: dict[Executable, tuple[str, list[str], dict[str, Any]]] = {}

    def run(self, statement: Executable, parameters: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        """Run a statement and return its rows as SQLite's driver does, once durable. Raises sqlite3.Error."""
        compiled = self._compiled.get(statement)
        if compiled is None:
            compiled = self._compiled[statement] = self._compile(statement)
        text, names, constants = compiled
        parameters = {**constants, **parameters}
        if self._connection is None:
            self._connection = self._engine.raw_connection()
            self._connection.detach()  # does not count against the pool's size
        cursor = self._connection.cursor()
        try:
            # The statement is a transaction by itself, committed when its last row is fetched.
            cursor.execute(text, [parameters[name] for name in names])
            return list(cursor.fetchall())
        except sqlite3.Error:
            self.close()
            raise

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _compile(self, statement: Any) -> tuple[str, list[str], dict[str, Any]]:
        compiled = statement.compile(dialect=self._engine.dialect)
        return str(compiled), list(compiled.positiontup or ()), dict(compiled.params)


@contextmanager
def _bulk_settings(connection: Connection) -> Iterator[None]:
    """Set a connection to SQLite for one large transaction."""
    connection.exec_driver_sql(f"PRAGMA cache_size = -{_BULK_CACHE_KIB}")
    # The commit would copy the log to the database before it returns.
    connection.exec_driver_sql("PRAGMA wal_autocheckpoint = 0")
    connection.rollback()
    try:
        yield
    finally:
        driver: Any = connection.connection.driver_connection
        with suppress(sqlite3.Error):
            driver.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
            driver.execute(f"PRAGMA wal_autocheckpoint = {_LOG_PAGES}").fetchall()


@contextmanager
def named_errors() -> Iterator[None]:
    """Translate SQLAlchemy's errors in the block into a `StoreError`."""
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
            # A statement of this code that fails on a schema created by this code: the schema was changed.
            return DamagedError(f"the schema of the database was changed: {says}")
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
        file = f": for a file write sqlite:///{url}" if re.fullmatch(r"[\w./~-]+", url) else ""
        raise InvalidUrlError(
            f"the URL is sqlite:///PATH, postgresql+psycopg://USER@HOST/DATABASE or http://HOST:PORT{file}"
        ) from None
    backend = parsed.get_backend_name()
    if backend == "postgresql":
        return parsed.set(drivername="postgresql+psycopg")
    if parsed.drivername not in ("sqlite", "sqlite+pysqlite"):
        raise InvalidUrlError(
            f"{backend} is not a supported database: use SQLite or PostgreSQL; a service is opened by "
            "selectroute.connect"
        )
    if not parsed.database or parsed.database == ":memory:" or parsed.database.startswith("file:"):
        raise InvalidUrlError("a database in SQLite is a file: sqlite:///PATH")
    return parsed


def _not_opened(path: str) -> str | None:
    """Return the operating system's reason why a file cannot be opened, which SQLite omits.

    Does not open the file: closing it again would release all locks that this process has on it.
    """
    if Path(path).is_dir():
        return os.strerror(errno.EISDIR)
    if not os.access(path, os.R_OK | os.W_OK):
        return os.strerror(errno.EACCES)
    folder = Path(path).parent
    return None if os.access(folder, os.W_OK) else f"{folder}: {os.strerror(errno.EACCES)}"


def _identity(path: str) -> tuple[int, int, bool]:
    """Return the device and inode of a file, and whether the file is non-empty."""
    status = os.stat(path)
    return status.st_dev, status.st_ino, status.st_size > 0


def _engine(
    url: URL, is_sqlite: bool, check_file: Callable[[], None] = lambda: None, creates: bool = False
) -> Engine:
    """Return the connection pool of a database.

    A file is only created if `creates`; `check_file` is called after each connection is opened, and its
    error closes the connection.
    """
    if not is_sqlite:
        with importing():  # the driver
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
    # Many rows in one statement: the driver releases the GIL for each statement, and gets it back a
    # millisecond later if other threads compute (300 lines imported: 0.9 s, now 0.1).
    engine.dialect.use_insertmanyvalues_wo_returning = True

    @event.listens_for(engine, "connect")
    def _connected(connection: sqlite3.Connection, _: object) -> None:
        cursor = connection.cursor()
        # An acknowledged commit survives a power failure: each commit syncs the log.
        try:
            cursor.execute("PRAGMA journal_mode = WAL")
        except UnicodeDecodeError as error:  # SQLite's message quotes the schema, of which bits were turned
            raise DamagedError("the database file is damaged: its schema is not text") from error
        cursor.execute("PRAGMA synchronous = FULL")
        cursor.execute("PRAGMA cell_size_check = ON")
        cursor.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        cursor.execute(f"PRAGMA journal_size_limit = {_LOG_BYTES}")
        cursor.close()

    @event.listens_for(engine, "begin")
    def _begun(connection: Connection) -> None:
        # By default the driver begins a transaction at the first write: too late for reads before the write.
        writes = connection.get_execution_options().get(_WRITES)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


_VALUES: Final = 32_766
"""Values in one statement, at most: as many as SQLite takes; PostgreSQL takes 65,535."""


def insert_rows(connection: Connection, table: Table, rows: Sequence[tuple[Any, ...]]) -> None:
    """Insert rows, each with a value for every column of the table in its order."""
    insert_values(connection, table, tuple(chain.from_iterable(rows)))


def insert_values(
    connection: Connection,
    table: Table,
    values: Sequence[Any],
    same: Mapping[str, str | int | None] = MappingProxyType({}),
) -> None:
    """Insert rows, as one list of the values of all rows, each in the order of the table's columns.

    The values leave out the columns of ``same``, which have one value in all rows.

    The values go to the driver as they are, in statements of many rows each: SQLAlchemy's own insertion looks
    at each value of each row, which takes longer than SQLite takes to store them. Few statements matter
    beside other threads: the driver gives up the interpreter's lock for each.
    """
    width = len(table.columns) - len(same)
    step = max(1, (_VALUES - len(same)) // width) * width
    constants = {name: value for name, value in same.items() if value is not None}
    names = tuple(column.name for column in table.columns if column.name not in same)
    for start in range(0, len(values), step):
        some = values[start : start + step]
        statement = _statement(connection.dialect, table, tuple(constants), names, len(some) // width)
        connection.exec_driver_sql(statement, (*constants.values(), *some))


@contextmanager
def indexes_later(connection: Connection, tables: Sequence[Table]) -> Iterator[None]:
    """Drop the indexes of these tables, and create them again at the end of the block.

    For a block that inserts at least as many rows as the tables have, in one transaction. Unique and
    partial indexes stay. Does nothing in PostgreSQL, where dropping an index waits for all readers.

    SQLite sorts the rows of a new index, outside of memory if there are many, which takes a fraction of what
    inserting each at its place takes. Readers have the indexes of their own state of the database. If the
    block raises, the transaction must be rolled back.
    """
    dropped = []
    if connection.dialect.name == "sqlite":
        for table in tables:
            dropped += [
                table_index
                for table_index in sorted(table.indexes, key=lambda index: str(index.name))
                if not table_index.unique and table_index.dialect_options["sqlite"]["where"] is None
            ]
    for index in dropped:
        index.drop(connection)
    yield
    for index in dropped:
        index.create(connection)


@lru_cache(maxsize=64)
def _statement(
    dialect: Dialect, table: Table, same: tuple[str, ...], columns: tuple[str, ...], rows: int
) -> str:
    names = dialect.identifier_preparer
    into = f"{names.format_table(table)} ({', '.join(map(names.quote, (*same, *columns)))})"
    mark = "?" if dialect.paramstyle == "qmark" else "%s"
    row = f"({', '.join([mark] * len(columns))})"
    values = f"VALUES {', '.join([row] * rows)}"
    if not same:
        return f"INSERT INTO {into} {values}"
    # Both databases name the columns of VALUES so.
    chosen = [*[mark] * len(same), *(f"column{number}" for number in range(1, len(columns) + 1))]
    return f"INSERT INTO {into} SELECT {', '.join(chosen)} FROM ({values}) AS given"
