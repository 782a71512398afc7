"""Transactions on several queues: works that are done whole or not at all, messages owned, bodies shared."""

from __future__ import annotations

import pytest

pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed (the extra `service`)")

from sqlalchemy import func, insert, select

from selectroute.amqp.performatives import Properties, write
from selectroute.amqp.types import Symbol, binary, described, encode, string
from selectroute.queues.lookup import Lookup, match_of
from selectroute.queues.message.put_validation import validate_put
from selectroute.queues.settings import QueueSettings
from selectroute.queues.sql.queue import SqlQueues
from selectroute.queues.sql.tables import message, shared_body
from selectroute.queues.sql.transaction import QueuePut, QueueTake, QueueWork, transact
from tests.support.queue_calls import bodies, created, reason_of

LONG = b"x" * 200


@pytest.fixture
def queues(url):
    with SqlQueues(url) as opened:
        yield opened


@pytest.fixture
def opened(queues):
    return [created(queues, name) for name in "ABC"]


def puts(stores, body=LONG, *, owned=False, **fields):
    """Puts of one message to several queues."""
    checked = validate_put(QueueSettings(), body, **fields)
    return [QueuePut(queue._store, checked, owned) for queue in stores]


def taken(queue, most=10, selector=None):
    """Messages that are taken, by a transaction of their own."""
    take = QueueTake(queue._store, Lookup(match_of("jms", selector=selector)), most)
    transact([], [take])
    return take.records


def rows_of(queue, table):
    with queue._store.database.store.reading() as connection:
        return connection.execute(select(func.count()).select_from(table)).scalar_one()


def test_several_queues_get_a_message_whose_body_is_stored_once(opened):
    transact([QueueWork(puts(opened)), QueueWork(puts(opened[:1], b"alone"))])
    assert rows_of(opened[0], shared_body) == 1
    assert rows_of(opened[0], message) == 4
    assert [queue.get().body for queue in opened] == [LONG, LONG, LONG]
    assert bodies(opened[0]) == [b"alone"]
    assert rows_of(opened[0], shared_body) == 0


def test_a_shared_body_stays_until_the_last_message_is_gone_whichever_way(opened, queues, clock):
    a, b, c = opened
    for _ in range(2):
        transact([QueueWork(puts(opened))])
    assert a.purge().done == 2
    b.move("C")
    assert rows_of(a, shared_body) == 2
    unit = c.unit()
    assert [c.get(syncpoint=unit).body for _ in range(3)] == [LONG] * 3
    unit.commit()
    assert bodies(c) == [LONG]
    assert rows_of(a, shared_body) == 1
    queues.delete("C", purge=True)
    assert rows_of(a, shared_body) == 0


def test_bodies_that_two_removals_at_once_leave_are_removed_later(opened, monkeypatch):
    database = opened[0]._store.database
    monkeypatch.setattr("selectroute.queues.sql.database._ORPHAN_SECONDS", 0.0)
    transact([QueueWork(puts(opened))])
    with database.store.writing() as connection:
        connection.execute(insert(shared_body), [{"body": LONG}] * 3)
    database.remove_orphans_if_due()
    assert rows_of(opened[0], shared_body) == (4 if database.store.is_sqlite else 1)
    assert [queue.get().body for queue in opened] == [LONG] * 3


def test_a_work_that_is_refused_is_not_done_and_the_others_are(queues, opened):
    small = queues.open("A")
    full = created(queues, "FULL", QueueSettings(max_depth=2))
    works = [
        QueueWork(puts([full, small])),
        QueueWork(puts([small, full, full])),
        QueueWork(puts([full, small], b"last")),
    ]
    transact(works)
    assert [work.error and work.error.reason for work in works] == [None, 2053, None]
    assert bodies(full) == bodies(small) == [LONG, b"last"]
    queues.delete("B")
    work = QueueWork(puts([opened[1], small]))
    transact([work])
    assert work.error.reason == 2085
    assert bodies(small) == [LONG, b"last"]


def test_owned_messages_are_settled_or_put_back_with_or_without_their_count(opened):
    queue = opened[0]
    for number in range(4):
        queue.put(b"%d" % number)
    records = taken(queue)
    assert [record.body for record in records] == [b"0", b"1", b"2", b"3"]
    assert queue.depth == 0
    first, second, third, fourth = [(queue._store, record.queue_key) for record in records]
    transact([QueueWork(settled=[first, second], put_back=[(*third, 1), (*fourth, 0)])])
    assert [(one.body, one.backout_count) for one in taken(queue)] == [(b"2", 1), (b"3", 0)]


def test_messages_are_put_settled_and_taken_in_one_transaction(opened):
    requests, replies, _ = opened
    requests.put(b"request")
    (request,) = taken(requests)
    reply = QueuePut(replies._store, validate_put(QueueSettings(), b"reply"), owned=True)
    take = QueueTake(requests._store, Lookup(match_of("jms")), 5)
    transact(
        [
            QueueWork([reply], settled=[(requests._store, request.queue_key)]),
            QueueWork(puts([requests], b"next")),
        ],
        [take],
    )
    assert [record.body for record in take.records] == [b"next"]
    assert (requests.depth, replies.depth) == (0, 0)
    transact([QueueWork(put_back=[(replies._store, reply.record.queue_key, 0)])])
    assert replies.get().body == b"reply"


def test_the_first_matches_of_a_selector_are_taken(opened):
    queue = opened[0]
    for number in range(6):
        queue.put(b"%d" % number, properties={"n": number}, priority=number)
    assert [record.body for record in taken(queue, 2, "n < 4")] == [b"3", b"2"]
    assert [record.body for record in taken(queue, 9)] == [b"5", b"4", b"1", b"0"]
    assert taken(queue) == taken(queue, 1, "n = 1") == []


def test_messages_of_a_process_that_closes_come_back_counted(opened, queues, url):
    opened[0].put(b"a")
    assert len(taken(opened[0])) == 1
    transact([QueueWork(puts(opened[1:2], b"b", owned=True))])
    queues.close()
    with SqlQueues(url) as others:
        for name in "AB":
            assert others.open(name).get().descriptor.backout_count == 1


def test_an_owner_that_was_taken_for_dead_does_nothing_more(opened, url):
    queue = opened[0]
    queue.put(b"a")
    (record,) = taken(queue)
    owner = queue._store.database.owner
    owner._let_go()
    with SqlQueues(url) as others:
        assert others.open("A").get().body == b"a"
    assert reason_of(transact, [QueueWork(settled=[(queue._store, record.queue_key)])]) == 2003
    transact([QueueWork(puts([queue], b"b"))])
    assert [one.body for one in taken(queue)] == [b"b"]


def test_a_waiting_call_is_woken(opened):
    woken = []
    calls = [queue.call(lambda queue=queue: woken.append(queue.name)) for queue in opened]
    assert [call.look() for call in calls] == [None] * 3
    transact([QueueWork(puts(opened[:1])), QueueWork(puts(opened[1:2], owned=True))])
    assert woken == ["A"]
    (put,) = puts(opened[1:2], owned=True)
    transact([QueueWork([put])])
    transact([QueueWork(put_back=[(opened[1]._store, put.record.queue_key, 0)])])
    assert woken == ["A", "B"]
    for call in calls:
        call.end()


@pytest.mark.parametrize(
    ("section", "body"),
    [
        (described(0x77, string("héllo")), "héllo".encode()),
        (described(0x77, binary(b"\0\1")), b"\0\1"),
        (described(0x77, encode(None)), b""),
        (described(0x75, binary(b"ab")) + described(0x75, binary(b"cd")), b"abcd"),
        (described(0x77, encode({"a": 1})), described(0x77, encode({"a": 1}))),
    ],
)
def test_the_body_of_a_message_of_amqp_is_what_its_application_sees(opened, section, body):
    whole = write(Properties("ID:1", content_type=Symbol("text/plain"))) + section
    checked = validate_put(QueueSettings(), whole)._replace(is_amqp=True, timestamp=7, expiration=0)
    transact([QueueWork([QueuePut(opened[0]._store, checked)])])
    (record,) = opened[0]._store.listed(Lookup(match_of("jms")), 1)
    assert record.is_amqp
    assert opened[0].browse().body == body
    assert opened[0].browse().descriptor.timestamp == 7
    assert taken(opened[0])[0].body == whole
