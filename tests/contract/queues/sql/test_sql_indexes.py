"""Selectors on queues in a database: looked up by what they equate, once that pays."""

from __future__ import annotations

import sqlite3

import pytest

pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed (the extra `service`)")

from sqlalchemy.dialects import sqlite

import selectroute as sr
from selectroute.queues.sql import lookup as sql_indexes
from selectroute.queues.sql import statements as sql_statements
from selectroute.queues.sql.queue import SqlQueue
from tests.support.queue_calls import id_of, reason_of


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path}/queues.db"


@pytest.fixture
def queue(url, monkeypatch):
    monkeypatch.setattr(sql_indexes, "_ENOUGH", 50)
    with SqlQueue.create(url, "A") as queue:
        yield queue


def fill(queue, count=200):
    for number in range(count):
        queue.put(
            str(number).encode(),
            correl_id=id_of("c"),
            properties={"n": number, "color": "blue" if number % 50 == 49 else "red"},
        )


def looked_at(queue, call, **given):
    """How many messages a call looks at, and what it finds."""
    before = queue.statistics.looked_at
    found = call(**given)
    return queue.statistics.looked_at - before, found.body


def test_what_is_asked_for_again_and_again_is_indexed_and_looked_up(queue):
    fill(queue)
    assert looked_at(queue, queue.browse, selector="n = 150") == (151, b"150")
    assert (queue.statistics.scans, queue.statistics.indexes_made) == (1, 1)
    assert looked_at(queue, queue.browse, selector="n = 170") == (1, b"170")
    assert looked_at(queue, queue.get, selector="n = 170 AND color = 'red'") == (1, b"170")
    assert reason_of(queue.get, selector="n = 170") == 2033
    assert queue.statistics.scans == 1


def test_messages_put_later_and_by_others_are_found_and_those_gone_leave_no_key(queue, url, tmp_path):
    fill(queue)
    queue.browse(selector="n = 150")
    with SqlQueue(url, "A") as other:
        other.put(b"late", properties={"n": 1_000})
        assert looked_at(other, other.browse, selector="n = 1000") == (1, b"late")
    unit = queue.unit()
    queue.get(selector="n = 1000", syncpoint=unit)
    assert reason_of(queue.get, selector="n = 1000") == 2033
    unit.backout()
    assert looked_at(queue, queue.get, selector="n = 1000") == (1, b"late")
    for _ in range(200):
        queue.get()
    with sqlite3.connect(tmp_path / "queues.db") as connection:
        assert connection.execute("SELECT count(*) FROM queue_key").fetchone() == (0,)
    connection.close()


def test_an_index_keeps_the_order_of_the_queue_and_the_place_of_a_cursor(queue):
    fill(queue)
    queue.browse(selector="n = 150")
    for body, priority in ((b"low", 0), (b"high", 9)):
        queue.put(body, properties={"n": 7}, priority=priority)
    cursor = queue.cursor()
    assert [cursor.next(selector="n = 7").body for _ in range(3)] == [b"high", b"7", b"low"]
    assert reason_of(cursor.next, selector="n = 7") == 2033


def test_what_changes_with_a_backout_is_never_indexed(queue):
    fill(queue)
    for _ in range(3):
        assert reason_of(queue.browse, selector="JMSXDeliveryCount = 2") == 2033
    assert queue.statistics.indexes_made == 0
    with queue.unit() as unit:
        queue.get(syncpoint=unit)
        unit.backout()
    assert queue.browse(selector="JMSXDeliveryCount = 2").body == b"0"


def test_ids_and_attributes_narrow_together(queue):
    fill(queue)
    queue.put(b"other", correl_id=id_of("d"), properties={"color": "blue"})
    assert looked_at(queue, queue.browse, selector="color = 'blue'", correl_id=id_of("d")) == (1, b"other")
    assert queue.statistics.scans == 0


@pytest.mark.parametrize(
    ("shape", "index"),
    [
        ((), "sqlite_autoindex_queue_message_1 (queue=?)"),
        ((0,), "queue_message_msg_id (queue=? AND msg_id=?)"),
        ((0, 1), "queue_message_msg_id (queue=? AND msg_id=?)"),
        ((0, 1, 2), "queue_message_msg_id (queue=? AND msg_id=?)"),
        ((1,), "queue_message_correl_id (queue=? AND correl_id=?)"),
        ((2, 3, 4), "queue_message_group_id (queue=? AND group_id=?)"),
    ],
)
@pytest.mark.parametrize("in_unit", [False, True])
def test_a_get_by_ids_is_one_statement_that_searches_and_sorts_nothing(
    queue, tmp_path, shape, index, in_unit
):
    compiled = sql_statements.take(shape, in_unit).compile(dialect=sqlite.dialect())
    with sqlite3.connect(tmp_path / "queues.db") as connection:
        rows = connection.execute(f"EXPLAIN QUERY PLAN {compiled}", [None] * len(compiled.positiontup))
        plan = [row[3] for row in rows]
    connection.close()
    assert plan == [
        "SEARCH queue_message USING INDEX sqlite_autoindex_queue_message_1 (queue=? AND place=?)",
        "SCALAR SUBQUERY 1",
        f"SEARCH queue_message_1 USING INDEX {index}",
        "CORRELATED SCALAR SUBQUERY 2",
        "SEARCH queue_body USING INTEGER PRIMARY KEY (rowid=?)",
    ]


def test_at_most_so_many_indexes_are_kept(queue, monkeypatch):
    monkeypatch.setattr(sql_indexes, "MAX_INDEXES", 2)
    for number in range(100):
        queue.put(str(number).encode(), properties={name: number for name in "abc"})
    for name in "abc":
        assert queue.browse(selector=f"{name} = 99").body == b"99"
    assert queue.statistics.indexes_made == 3
    assert looked_at(queue, queue.browse, selector="c = 98") == (1, b"98")
    assert looked_at(queue, queue.browse, selector="a = 98")[0] == 99, "the oldest gave way"


def test_numbers_equal_after_promotion_have_one_key(queue):
    fill(queue)
    queue.browse(selector="n = 150")
    queue.put(b"float", properties={"n": sr.Float(0.5)})
    queue.put(b"nan", properties={"n": float("nan")})
    queue.put(b"text", properties={"n": "7"})
    assert looked_at(queue, queue.get, selector="n = 0.5") == (1, b"float")
    assert looked_at(queue, queue.get, selector="n = 7.0") == (1, b"7")
    assert looked_at(queue, queue.get, selector="n = '7'") == (1, b"text")
