"""All queues of a database over one pool: made, opened, deleted; their units have one owner."""

from __future__ import annotations

import sqlite3

import pytest

pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed (the extra `service`)")

import selectroute as sr
from selectroute.queues.settings import QueueSettings
from selectroute.queues.sql.queue import SqlQueue, SqlQueues
from tests.support.queue_calls import bodies, created, id_of, reason_of


@pytest.fixture
def queues(url):
    with SqlQueues(url) as opened:
        yield opened


def test_before_the_first_queue_there_is_none_and_nothing_is_made(queues, url, tmp_path):
    assert queues.names() == []
    for call in (queues.open, queues.settings, queues.delete):
        assert reason_of(call, "A") == 2085
    assert not url.startswith("sqlite") or list(tmp_path.iterdir()) == []


def test_queues_are_made_beside_a_registry_whose_changes_they_survive(url):
    with sr.Registry.open(url) as registry, SqlQueues(url) as queues:
        made = registry.register(sr.SubscriptionSpec("a = 1"))
        assert queues.names() == []
        created(queues, "A").put(b"a")
        registry.remove(made.id)
        assert queues.open("A").get().body == b"a"
    with sr.Registry.open(url) as registry:  # which verifies it
        assert len(registry) == 0
    with SqlQueue.create(url, "B") as queue:
        assert bodies(queue) == []


def test_a_queue_has_the_settings_with_which_it_was_made(queues):
    settings = QueueSettings(order="fifo", max_depth=3, dialect="jms")
    assert queues.create("A", settings) and not queues.create("A", settings)
    assert queues.settings("A") == queues.open("A").settings == settings
    created(queues, "B")
    assert queues.settings("B") == QueueSettings()
    assert queues.names() == ["A", "B"]
    assert reason_of(queues.create, "A") == 2100
    assert reason_of(queues.create, "a b") == 2152


def test_a_queue_is_opened_once_and_anew_when_it_was_deleted_elsewhere(queues, url):
    first = created(queues, "A")
    assert queues.open("A") is first
    with SqlQueues(url) as others:
        others.delete("A")
    assert reason_of(queues.open, "A") == 2085
    SqlQueue.create(url, "A", QueueSettings(max_depth=1)).close()
    again = queues.open("A")
    assert again.settings.max_depth == 1
    again.put()
    assert reason_of(first.put) == 2019


def test_who_has_a_deleted_queue_open_puts_to_no_other(queues, url):
    created(queues, "A")
    with SqlQueue(url, "A") as opened:
        queues.delete("A")
        later = created(queues, "B")
        assert reason_of(opened.put, b"lost") == 2085
        assert reason_of(opened.get) == 2033
        assert later.depth == 0


def test_a_queue_with_messages_is_deleted_only_when_they_may_go_too(queues, clock):
    queue = created(queues, "A")
    queue.put(b"kept", properties={"k": 1})
    assert reason_of(queues.delete, "A") == 2055
    assert queue.get().body == b"kept"
    queue.put()
    other = created(queues, "B")
    other.put(b"of another")
    queues.delete("A", purge=True)
    assert queues.names() == ["B"]
    assert bodies(other) == [b"of another"]
    assert reason_of(queues.delete, "A", purge=True) == 2085


def test_what_has_expired_holds_no_queue(url, clock):
    with SqlQueues(url, clock=clock) as queues:
        created(queues, "A").put(expiry=1)
        clock.now += 1
        queues.delete("A")
        assert queues.names() == []


def test_messages_in_units_hold_a_queue_also_when_it_is_to_be_purged(queues):
    queue = created(queues, "A")
    for begun in (queue.put, queue.get):
        unit = queue.unit()
        begun(syncpoint=unit)
        for purge in (False, True):
            assert reason_of(queues.delete, "A", purge=purge) == 2055
        unit.commit()
    queues.delete("A")


def test_what_the_dead_had_in_units_holds_no_queue(queues, url):
    created(queues, "A").put(b"a")
    dying = SqlQueue(url, "A")
    unit = dying.unit()
    dying.get(syncpoint=unit)
    dying._store._owner._let_go()  # what the system does when the process dies
    assert reason_of(queues.delete, "A") == 2055
    queues.delete("A", purge=True)


def test_units_of_all_queues_are_apart_though_their_owner_is_one(queues, url, tmp_path):
    one, other = created(queues, "A"), created(queues, "B")
    for queue in (one, other):
        queue.put(b"1")
        queue.put(b"2")
    units = [queue.unit() for queue in (one, other, one, other)]
    for queue, unit in zip((one, other, one, other), units, strict=True):
        queue.get(syncpoint=unit)
    if url.startswith("sqlite"):
        assert len(list(tmp_path.glob("*.owner-*"))) == 1
        with sqlite3.connect(tmp_path / "queues.db") as connection:
            assert connection.execute("SELECT count(*) FROM queue_owner").fetchone() == (1,)
        connection.close()
    units[0].commit()
    units[1].backout()
    assert (one.depth, other.depth) == (0, 1)
    units[2].backout()
    units[3].commit()
    assert bodies(one) == [b"2"]
    assert bodies(other) == [b"1"]


def test_a_queue_that_is_closed_backs_out_its_own_units_only(queues):
    one, other = created(queues, "A"), created(queues, "B")
    one.put(b"a", correl_id=id_of("c"))
    other.put(b"b")
    of_one, of_other = one.unit(), other.unit()
    one.get(syncpoint=of_one)
    one.put(b"never", syncpoint=of_one)
    other.get(syncpoint=of_other)
    one.close()
    again = SqlQueue(queues._connected(), "A")
    assert [(m.body, m.descriptor.backout_count) for m in [again.get()]] == [(b"a", 1)]
    assert reason_of(again.get) == 2033
    assert reason_of(of_one.commit) == 2019
    of_other.commit()
    assert other.depth == 0


@pytest.mark.parametrize("is_committed", [True, False])
def test_a_unit_spans_the_queues_of_its_database(queues, is_committed):
    orders, replies = created(queues, "ORDERS"), created(queues, "REPLIES")
    orders.put(b"order")
    woken = []
    calls = [queue.call(lambda queue=queue: woken.append(queue.name)) for queue in (orders, replies)]
    unit = orders.unit()
    assert orders.get(syncpoint=unit).body == b"order"
    replies.put(b"reply", syncpoint=unit)
    assert [call.look() for call in calls] == [None, None]
    unit.commit() if is_committed else unit.backout()
    assert (bodies(orders), bodies(replies)) == (([], [b"reply"]) if is_committed else ([b"order"], []))
    assert sorted(woken) == ["ORDERS", "REPLIES"]
    for call in calls:
        call.end()
    assert reason_of(replies.put, syncpoint=unit) == 2232


def test_a_unit_of_another_database_is_refused(queues, tmp_path):
    with SqlQueues(f"sqlite:///{tmp_path}/other.db") as others:
        assert reason_of(created(others, "A").put, syncpoint=created(queues, "A").unit()) == 2018


def test_a_unit_of_which_one_queue_was_closed_is_not_committed(queues):
    one, other = created(queues, "A"), created(queues, "B")
    other.put(b"b")
    unit = one.unit()
    one.put(b"a", syncpoint=unit)
    other.get(syncpoint=unit)
    other.close()
    assert reason_of(unit.commit) == 2003
    assert bodies(queues.open("A")) == []
    queues.close()
    assert bodies(queues.open("B")) == [b"b"]
