"""The engine: transactions that are whole or nothing, also when the disk says no."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import combinations
from pathlib import Path
from threading import Event

import pytest

pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed (the extra `service`)")

from sqlalchemy import Column, Integer, MetaData, Table, bindparam, delete, event, insert, select

from selectroute.registry.registry import Registry
from selectroute.store import engine
from selectroute.store.engine import START, Store, canonical, chained, row_digest
from selectroute.store.errors import (
    BusyError,
    DamagedError,
    InvalidUrlError,
    NoDatabaseError,
    ReadOnlyError,
    ReplacedError,
    StoreError,
)

metadata = MetaData()
number = Table("number", metadata, Column("n", Integer, primary_key=True))


def opened(path, first=(0,)):
    rows = [{"n": n} for n in first]
    return Store(f"sqlite:///{path}", metadata, lambda connection: connection.execute(insert(number), rows))


def numbers(store):
    with store.reading() as connection:
        return list(connection.execute(select(number.c.n)).scalars())


@pytest.fixture
def path(tmp_path):
    return tmp_path / "x.db"


@pytest.fixture
def store(path):
    with closing(opened(path)) as store:
        yield store


def test_a_new_database_is_whole_and_alone_in_its_folder(path):
    with closing(opened(path, (1, 2))) as store:
        assert numbers(store) == [1, 2]
    assert [*path.parent.iterdir()] == [path]


def test_a_database_that_could_not_be_begun_is_not_there(tmp_path):
    with pytest.raises(ZeroDivisionError):
        Store(f"sqlite:///{tmp_path}/x.db", metadata, lambda _: 1 / 0)
    assert list(tmp_path.iterdir()) == []


def test_an_empty_file_is_no_new_database(tmp_path):
    (tmp_path / "x.db").touch()
    with pytest.raises(DamagedError, match="no table number"):
        opened(tmp_path / "x.db")


def test_a_database_with_other_tables_gets_these_beside_them(path):
    opened(path).close()
    others = MetaData()
    letter = Table("letter", others, Column("n", Integer, primary_key=True))
    with pytest.raises(NoDatabaseError, match="no table letter"):
        Store(f"sqlite:///{path}", others)
    for _ in range(2):
        store = Store(f"sqlite:///{path}", others, lambda made: made.execute(insert(letter), {"n": 7}))
        with closing(store), store.reading() as connection:
            assert list(connection.execute(select(letter.c.n)).scalars()) == [7]
    with closing(opened(path)) as store:
        assert numbers(store) == [0]


def test_commits_are_synced(store):
    with store.writing() as connection:
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2  # FULL
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"


def test_a_single_statement_is_a_transaction_and_gives_its_rows(path):
    take = delete(number).where(number.c.n == bindparam("wanted")).returning(number.c.n)
    with closing(opened(path, (1, 2))) as store, closing(opened(path)) as other:
        assert store.single(take, {"wanted": 2}) == [(2,)]
        assert numbers(other) == [1]
        assert store.single(take, {"wanted": 2}) == []
        with pytest.raises(StoreError, match="UNIQUE"):
            store.single(insert(number).values(n=bindparam("new")), {"new": 1})
        assert store.single(take, {"wanted": 1}) == [(1,)], "an error spoils nothing"
        assert numbers(other) == []


def test_a_block_that_raises_leaves_nothing(store):
    for bulk in (False, True):
        with pytest.raises(KeyError), store.writing(bulk=bulk) as connection:
            connection.execute(insert(number), {"n": 5})
            raise KeyError
        assert numbers(store) == [0]


def test_a_reader_sees_one_state(store):
    with store.reading() as connection:
        assert list(connection.execute(select(number.c.n)).scalars()) == [0]
        with store.writing() as other:
            other.execute(insert(number), {"n": 1})
        assert list(connection.execute(select(number.c.n)).scalars()) == [0]
    assert numbers(store) == [0, 1]


def test_a_bulk_transaction_does_not_wait_for_a_reader(store, tmp_path):
    log = tmp_path / "x.db-wal"
    returned = Event()

    def write():
        with store.writing(bulk=True) as connection:
            connection.execute(insert(number), [{"n": n} for n in range(1, 10_000)])
        returned.set()

    with ThreadPoolExecutor(1) as pool:
        with store.reading() as connection:
            assert list(connection.execute(select(number.c.n)).scalars()) == [0]
            written = pool.submit(write)
            assert returned.wait(30), "the writer waits until the reader is done"
        written.result()
        assert log.stat().st_size > 50_000
        with store.reading() as connection:
            assert connection.exec_driver_sql("PRAGMA busy_timeout").scalar() == engine.BUSY_SECONDS * 1_000
        with store.writing(bulk=True) as connection:  # nobody reads: the log of both is cleared up
            connection.execute(delete(number))
        with store.reading() as connection:
            assert connection.exec_driver_sql("PRAGMA cache_size").scalar() == -engine._CACHE_KIB
        store._truncation.shutdown()
        assert log.stat().st_size == 0


def test_the_commit_of_a_bulk_transaction_does_not_copy_its_log(tmp_path, monkeypatch):
    may_copy = Event()
    copy_log = Store._truncate_log
    monkeypatch.setattr(Store, "_truncate_log", lambda store: may_copy.wait(60) and copy_log(store))
    store = opened(tmp_path / "x.db")
    before = (tmp_path / "x.db").stat().st_size
    with store.writing(bulk=True) as connection:
        connection.exec_driver_sql(
            "INSERT INTO number WITH RECURSIVE count(n) AS "
            "(SELECT 1 UNION ALL SELECT n + 1 FROM count WHERE n < 1000000) SELECT n FROM count"
        )
    long = engine._LOG_PAGES * 4_096
    assert (tmp_path / "x.db-wal").stat().st_size > long  # a shorter one would be left in any case
    assert (tmp_path / "x.db").stat().st_size == before
    with store.reading() as connection:
        assert connection.exec_driver_sql("PRAGMA wal_autocheckpoint").scalar() == engine._LOG_PAGES
    may_copy.set()
    store._truncation.shutdown()
    assert (tmp_path / "x.db").stat().st_size > long
    assert (tmp_path / "x.db-wal").stat().st_size == 0
    store.close()


def test_a_long_log_is_truncated_when_it_begins_anew(tmp_path, monkeypatch):
    monkeypatch.setattr(engine, "_LOG_BYTES", 8_192)
    store = opened(tmp_path / "x.db")
    with store.writing() as connection:
        connection.execute(insert(number), [{"n": n} for n in range(1, 10_000)])
    log = tmp_path / "x.db-wal"
    assert log.stat().st_size > 50_000
    with store.reading() as connection:
        connection.exec_driver_sql("SELECT 1")
    with sqlite3.connect(tmp_path / "x.db") as other:
        other.execute("PRAGMA wal_checkpoint(PASSIVE)")
    with store.writing() as connection:
        connection.execute(delete(number).where(number.c.n == 7))
    assert log.stat().st_size <= 16_384
    store.close()


def test_a_writer_that_waits_too_long_is_told_who_is_in_the_way(path, monkeypatch):
    monkeypatch.setattr(engine, "BUSY_SECONDS", 0.05)
    with closing(opened(path)) as one, closing(opened(path)) as other:
        with one.writing():
            for store in (one, other):
                with pytest.raises(BusyError), store.writing():
                    pass
        with other.writing() as connection:
            connection.execute(insert(number), {"n": 1})
        assert numbers(one) == [0, 1]


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(ReadOnlyError):
        opened(tmp_path / "missing" / "x.db")


def test_a_password_is_not_repeated():
    with pytest.raises(InvalidUrlError) as caught:
        Store("mysql://root:hunter2@localhost/x", metadata)
    assert "hunter2" not in str(caught.value)
    assert not isinstance(caught.value, NoDatabaseError)


def test_a_database_that_is_not_there_is_told_from_a_url_of_something_else(tmp_path):
    with pytest.raises(NoDatabaseError, match="there is no database"):
        Store(f"sqlite:///{tmp_path}/x.db", metadata)


_FULL = """
    import json, os, resource, sys
    from selectroute.index.specification import SubscriptionSpec
    from selectroute.registry.registry import Registry
    from selectroute.store.errors import ReadOnlyError, StoreError

    url = "sqlite:///" + sys.argv[1]
    refused = kept = 0
    with Registry.open(url) as registry:
        registry.register(SubscriptionSpec("a = 0"), id="first")
        _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
        size = max(os.path.getsize(sys.argv[1] + suffix) for suffix in ("", "-wal"))
        # Each write of a commit fails in turn: a little more space each time, until it fits.
        for number in range(150):
            resource.setrlimit(resource.RLIMIT_FSIZE, (size + 2_048 * number, most))
            before = registry.revision
            try:
                registry.register(SubscriptionSpec("b = '" + "x" * 3_000 + "'"), id=f"s{number}")
                kept += 1
            except ReadOnlyError:
                refused += 1
                assert registry.revision == before
                assert [one.id for one in registry.list(name=f"s{number}").items] == []
            assert registry.get("first").selector == "a = 0"
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
        registry.register(SubscriptionSpec("c = 1"), id="last")
        registry.verify()
        assert len(registry) == kept + 2 == registry.revision
    with Registry.open(url) as registry:
        assert len(registry) == kept + 2
    print(json.dumps([refused, kept]))
"""


def test_a_full_disk_undoes_the_whole_change_and_is_survived(path):
    environment = {**os.environ, "PYTHONPATH": str(Path(engine.__file__).parents[2])}
    command = [sys.executable, "-c", textwrap.dedent(_FULL), path]
    ended = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert ended.returncode == 0, ended.stderr
    refused, kept = json.loads(ended.stdout)
    assert refused > 3 and kept > 3


def test_a_database_that_may_not_be_written_is_read(tmp_path):
    opened(tmp_path / "x.db").close()
    os.chmod(tmp_path / "x.db", 0o444)
    if os.access(tmp_path / "x.db", os.W_OK):
        pytest.skip("this user may write everything")
    store = opened(tmp_path / "x.db")
    assert numbers(store) == [0]
    with pytest.raises(ReadOnlyError), store.writing() as connection:
        connection.execute(insert(number), {"n": 1})
    store.close()


def _older_copy(path, folder):
    os.replace(path, folder / "away")
    shutil.copy(folder / "older", path)


@pytest.mark.parametrize(
    "harm, says",
    [
        (lambda path, folder: os.replace(path, folder / "away"), "is gone"),
        (_older_copy, "replaced by another"),
        (lambda path, folder: (shutil.copy(path, folder / "away"), os.truncate(path, 0)), "truncated"),
    ],
    ids=["removed", "replaced", "truncated"],
)
def test_what_is_written_to_a_file_that_is_not_there_any_more_is_not_acknowledged(tmp_path, harm, says):
    path = tmp_path / "store.db"
    with closing(opened(path)) as store:
        shutil.copy(path, tmp_path / "older")
        statement = insert(number).values(n=bindparam("n"))
        store.single(statement, {"n": 1})
        harm(path, tmp_path)

        def read():
            with store.reading() as connection:
                connection.execute(select(number)).all()

        def write():
            with store.writing() as connection:
                connection.execute(statement, {"n": 2})

        for call in (read, write, lambda: store.single(statement, {"n": 2})):
            with pytest.raises(ReplacedError, match=says):
                call()
        with ThreadPoolExecutor(20) as pool:  # new connections make no new file
            for done in [pool.submit(read) for _ in range(20)]:
                assert isinstance(done.exception(), ReplacedError)
        assert path.exists() is (says != "is gone")
        if says != "truncated":
            os.replace(tmp_path / "away", path)
            write()
            assert numbers(store) == [0, 1, 2]


def test_a_commit_to_a_file_that_is_replaced_meanwhile_is_not_acknowledged(tmp_path):
    path = tmp_path / "store.db"
    with closing(opened(path)) as store, pytest.raises(ReplacedError), store.writing() as connection:
        connection.execute(insert(number), {"n": 1})
        os.replace(path, tmp_path / "away")


def test_the_name_of_a_file_may_be_anything(tmp_path):
    path = tmp_path / "a b#ü&mode=ro.db"
    with closing(opened(path)) as store:
        store.single(insert(number).values(n=bindparam("n")), {"n": 1})
    assert path.exists()


@pytest.mark.parametrize("umask", [0o022, 0o000])
def test_a_new_database_is_its_owners_alone_with_all_that_stands_beside_it(tmp_path, umask):
    before = os.umask(umask)
    try:
        with Registry.open(f"sqlite:///{tmp_path}/r.db") as registry:
            registry.tokens.add("admin")
            registry.import_([b'{"id": "a"}'])
            found = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.glob("r.db*")}
    finally:
        os.umask(before)
    assert {"r.db", "r.db-wal", "r.db-shm"} <= set(found)
    assert set(found.values()) == {0o600}


def test_a_database_that_is_there_keeps_its_mode(tmp_path):
    with Registry.open(f"sqlite:///{tmp_path}/r.db"):
        pass
    (tmp_path / "r.db").chmod(0o660)
    with Registry.open(f"sqlite:///{tmp_path}/r.db") as registry:
        registry.import_([b'{"id": "a"}'])
    assert stat.S_IMODE((tmp_path / "r.db").stat().st_mode) == 0o660


def test_many_rows_are_one_statement(store):
    """One statement a row gives Python's lock up each time: all writers waited for it."""
    seen = []

    @event.listens_for(store.engine, "before_cursor_execute")
    def _executed(connection, cursor, statement, parameters, context, executemany):
        seen.append((statement.partition("(")[0].strip(), statement.count("?")))

    with store.writing() as connection:
        connection.execute(insert(number), [{"n": n} for n in range(1, 1_000)])
    assert [one for one in seen if one[0].startswith("INSERT")] == [("INSERT INTO number", 999)]
    assert numbers(store) == list(range(1_000))


def test_fields_that_differ_are_written_differently():
    rows = [(), (None,), (None, None), ("",), ("", ""), ("a", "b"), ("ab",), ("1:a",), ("a", None), ("-",)]
    rows += [(1,), (11,)]
    for one, other in combinations(rows, 2):
        assert canonical(*one) != canonical(*other), (one, other)


def test_a_number_is_what_its_digits_are():
    assert row_digest(12) == row_digest("12")  # the databases disagree on the types of what they return


def test_a_chain_depends_on_all_before_it():
    one, other = chained(START, "a"), chained(START, "b")
    assert chained(one, "c") != chained(other, "c")
    assert len(one) == len(START) == 32
