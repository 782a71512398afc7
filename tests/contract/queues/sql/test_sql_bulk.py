"""Purge and move of many messages, and their count before: chunk by chunk, nothing lost, nothing twice."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed (the extra `service`)")

from sqlalchemy import event

from selectroute.queues.errors import CountChangedError, MQError
from selectroute.queues.queue import MessageCount
from selectroute.queues.settings import QueueSettings
from selectroute.queues.sql import bulk as bulks
from selectroute.queues.sql.queue import SqlQueue, SqlQueues
from tests.support.queue_calls import bodies, created, id_of, reason_of


@pytest.fixture
def queues(url, clock):
    with SqlQueues(url, clock=clock) as opened:
        yield opened


@pytest.fixture
def small_chunks(monkeypatch):
    monkeypatch.setattr(bulks, "CHUNK", 3)
    monkeypatch.setattr(bulks, "_COMPARED_AT_ONCE", 4)


def filled(queues, name="A", count=10, **settings):
    queue = created(queues, name, QueueSettings(**settings))
    for number in range(count):
        properties = {"number": number, "color": ("red", "green", "blue")[number % 3]}
        queue.put(str(number).encode(), correl_id=id_of(f"c{number % 2}"), properties=properties)
    return queue


LOOKUPS = [
    ({}, range(10)),
    ({"correl_id": id_of("c1")}, (1, 3, 5, 7, 9)),
    ({"correl_id": id_of("c2")}, ()),
    ({"selector": "number >= 7"}, (7, 8, 9)),
    ({"selector": "color = 'red'"}, (0, 3, 6, 9)),
    ({"selector": "color IN ('red', 'blue') AND number < 4"}, (0, 2, 3)),
    ({"selector": "color = 'red' OR number > 5"}, (0, 3, 6, 7, 8, 9)),
    ({"correl_id": id_of("c0"), "selector": "color = 'red' OR number = 4"}, (0, 4, 6)),
    ({"selector": "1 = 2"}, ()),
]


def everything_done(bulk):
    """Take all steps of a bulk; return how many messages were done."""
    while bulk.step():
        pass
    return bulk.result.done


@pytest.mark.parametrize("indexed", [False, True], ids=["scanned", "indexed"])
@pytest.mark.parametrize(("lookup", "found"), LOOKUPS)
def test_a_purge_removes_what_was_counted_and_nothing_else(queues, small_chunks, lookup, found, indexed):
    queue = filled(queues)
    if indexed:
        queue._store.indexes._make(("color",))
    assert queue.count(**lookup) == MessageCount(len(found), True)
    done = queue.purge(expected=len(found), **lookup)
    assert (done.done, done.stayed.total, done.is_complete) == (len(found), 0, True)
    left = [str(number).encode() for number in range(10) if number not in found]
    assert bodies(queue) == left
    assert queue.count(**lookup).count == 0
    assert queue.count(selector="color = 'blue'").count == sum(int(one) % 3 == 2 for one in left)


@pytest.mark.parametrize("indexed", [False, True], ids=["scanned", "indexed"])
@pytest.mark.parametrize(("lookup", "found"), LOOKUPS)
def test_a_move_takes_what_was_counted_to_the_end_of_the_other_queue(
    queues, small_chunks, lookup, found, indexed
):
    queue, other = filled(queues), created(queues, "B")
    other.put(b"before", properties={"color": "red"})
    for one in (queue, other) if indexed else ():
        one._store.indexes._make(("color",))
    done = queue.move("B", expected=len(found), **lookup)
    assert (done.done, done.stayed.total, done.is_complete) == (len(found), 0, True)
    assert bodies(queue) == [str(number).encode() for number in range(10) if number not in found]
    assert bodies(other) == [b"before", *(str(number).encode() for number in found)]
    # They are found there by all that they are found by: also by the keys of an index.
    reds = [number for number in found if number % 3 == 0]
    assert other.count(selector="color = 'red'").count == 1 + len(reds)
    assert [one.body for one in other.listed(20, selector="color = 'red'")] == [b""] * (1 + len(reds))
    assert other.get(selector="color = 'red'").body == b"before"
    other.put(b"after")
    assert bodies(other)[-1] == b"after"


def test_a_moved_message_is_the_same_but_for_its_place_and_backout_count(queues, clock):
    queue, other = created(queues, "A"), created(queues, "B", QueueSettings(default_priority=9))
    ids = {"msg_id": id_of("m"), "correl_id": id_of("c"), "group_id": id_of("g")}
    others = {"msg_seq_number": 7, "offset": 5, "last_in_group": True, "priority": 2, "persistence": True}
    properties = {"JMSType": "car", "weight": 3000, "raw": b"\1\2", "none": None}
    queue.put(b"\0body\xff", **ids, **others, expiry=600, properties=properties)
    with pytest.raises(RuntimeError), queue.unit() as unit:
        queue.get(syncpoint=unit)
        raise RuntimeError
    before = queue.browse()
    assert before.descriptor.backout_count == 1
    clock.now += 10
    assert queue.move("B").done == 1
    after = other.browse()
    assert after.body == before.body and after.properties == before.properties
    changed = {"msg_token": after.descriptor.msg_token, "backout_count": 0, "expiry": 500}
    assert after.descriptor == before.descriptor._replace(**changed)
    assert other.get(msg_token=after.descriptor.msg_token).body == before.body
    clock.now += 100
    assert queue.depth == other.depth == 0


@pytest.mark.parametrize("order", ["priority", "fifo"])
def test_messages_are_moved_in_the_order_of_delivery(queues, small_chunks, order):
    queue, other = created(queues, "A"), created(queues, "B", QueueSettings(order=order))
    for number in range(10):
        queue.put(str(number).encode(), priority=number % 4)
    delivered = bodies(queue)
    queue.move("B")
    assert bodies(other) == delivered
    other.put(b"urgent", priority=9)
    assert bodies(other)[0 if order == "priority" else -1] == b"urgent"


def test_what_does_not_fit_stays_and_the_answer_says_why(queues, small_chunks):
    queue = created(queues, "A")
    for number in range(12):
        queue.put(b"x" * (9 if number == 1 else 1), properties={"number": number})
    other = created(queues, "B", QueueSettings(max_depth=7, max_message_length=8))
    with other.unit() as unit:  # a message in a unit takes room
        other.put(b"own", syncpoint=unit)
        done = queue.move("B", selector="number < 11")
        assert (done.matched, done.done) == (MessageCount(11, True), 6)
        assert (done.stayed.full, done.stayed.too_long, done.stayed.in_use) == (4, 1, 0)
        assert done.is_complete
    assert (queue.depth, other.depth) == (6, 7)
    assert [queue.browse(selector=f"number = {one}").body for one in (7, 8, 9, 10, 11)] == [b"x"] * 5
    again = queue.move("B")
    assert (again.done, again.stayed.full, again.stayed.too_long) == (0, 5, 1)


def test_large_messages_are_moved_a_few_at_a_time(queues, monkeypatch):
    monkeypatch.setattr(bulks, "_CHUNK_BYTES", 100)
    queue, other = created(queues, "A"), created(queues, "B")
    for size in (60, 60, 200, 10, 10):
        queue.put(b"x" * size)
    bulk = queue.bulk(to="B")
    bulk.count()
    depths = []
    while bulk.step():
        depths.append(other.depth)
    assert depths == [1, 2, 3]
    assert (other.depth, queue.depth) == (5, 0)


def test_messages_in_units_are_left_alone(queues):
    queue, other = filled(queues, count=4), created(queues, "B")
    with queue.unit() as unit:
        queue.get(syncpoint=unit)
        queue.put(b"new", syncpoint=unit)
        assert queue.count().count == 3
        assert queue.move("B").done == 3
        unit.backout()
    assert (queue.depth, other.depth) == (1, 3)
    with queue.unit() as unit:
        queue.get(syncpoint=unit)
        assert queue.purge().done == 0
        unit.backout()
    assert queue.purge().done == 1


@pytest.mark.parametrize("call", ["purge", "move"])
def test_another_count_than_was_seen_changes_nothing(queues, call):
    queue, other = filled(queues, count=4), created(queues, "B")
    to = ("B",) if call == "move" else ()
    for expected in (3, 5):
        with pytest.raises(CountChangedError) as caught:
            getattr(queue, call)(*to, expected=expected)
        assert (caught.value.expected, caught.value.actual) == (expected, 4)
    assert (queue.depth, other.depth) == (4, 0)
    assert getattr(queue, call)(*to, expected=4).done == 4


@pytest.mark.parametrize("to", [None, "B"], ids=["purge", "move"])
def test_what_arrives_after_the_count_is_not_touched(queues, small_chunks, to):
    queue = filled(queues, count=4)
    created(queues, "B")
    bulk = queue.bulk(to=to)
    bulk.count(4)
    queue.put(b"urgent", priority=9)
    assert bulk.step()
    queue.put(b"later")
    assert everything_done(bulk) == 4
    assert bodies(queue) == [b"urgent", b"later"]


def test_a_count_of_a_long_queue_by_a_selector_says_that_there_may_be_more(queues, monkeypatch):
    queue = filled(queues)
    monkeypatch.setattr(bulks, "MOST_COMPARED", 6)
    assert queue.count(selector="number >= 4") == MessageCount(2, False)
    assert queue.count(selector="number < 6") == MessageCount(6, False)
    assert queue.count() == MessageCount(10, True)
    assert queue.count(correl_id=id_of("c0")) == MessageCount(5, True)
    monkeypatch.setattr(bulks, "MOST_COMPARED", 10)
    assert queue.count(selector="number >= 4") == MessageCount(6, True)
    monkeypatch.setattr(bulks, "MOST_COMPARED", 6)
    assert queue.purge(selector="number >= 4", expected=2).done == 6


class FailsAt:
    """A database that fails at one of the statements that change it, or before their commit."""

    def __init__(self, queue, number):
        self.left = number
        self.has_failed = False
        engine = queue._store._store.engine
        event.listen(engine, "before_cursor_execute", self.executes)
        event.listen(engine, "commit", self.commits)

    def executes(self, connection, cursor, statement, *_):
        self.writes = "FOR UPDATE" in statement or not statement.startswith(("SELECT", "BEGIN", "PRAGMA"))
        if self.writes:
            self.fail_if_due()

    def commits(self, connection):
        if self.writes:
            self.fail_if_due()

    def fail_if_due(self):
        self.left -= 1
        if self.left == 0:
            self.has_failed = True
            raise OSError("the process is killed")


@pytest.mark.parametrize("to", [None, "B"], ids=["purge", "move"])
def test_a_fault_anywhere_leaves_whole_chunks_and_the_same_call_goes_on(queues, url, clock, small_chunks, to):
    queue, other = filled(queues), created(queues, "B")
    other._store.indexes._make(("color",))
    everything = bodies(queue)
    number = faults = 0
    while queue.depth:
        number += 1
        with SqlQueue(url, "A", clock=clock) as again:
            bulk = again.bulk(to=to)
            bulk.count()
            fault = FailsAt(again, number)
            with suppress(OSError):
                everything_done(bulk)
            faults += fault.has_failed
            left, moved = bodies(queue), bodies(other)
            assert bulk.result.done % 3 == 0 or not left
            if to is None:
                assert (moved, left) == ([], everything[len(everything) - len(left) :])
            else:
                assert moved + left == everything
                reds = sum(int(body) % 3 == 0 for body in moved)
                assert other.count(selector="color = 'red'").count == reds
    assert faults >= 4


def test_another_object_goes_on_from_the_position_of_one(queues, small_chunks):
    queue = filled(queues)
    first = queue.bulk(selector="number >= 8")
    first.count()
    assert first.step()
    assert (first.result.done, first.position) == (0, (10, 4 + (5 << 56)))
    queue.put(b"later", properties={"number": 8})
    second = queue.bulk(selector="number >= 8")
    assert second.count(2, first.position).count == 2
    assert everything_done(second) == 2
    assert queue.count(selector="number >= 8").count == 1


def test_a_queue_that_is_deleted_meanwhile_loses_no_message(queues, small_chunks):
    queue = filled(queues)
    created(queues, "B")
    bulk = queue.bulk(to="B")
    bulk.count()
    queues.delete("B")
    assert reason_of(bulk.step) == 2085
    assert queue.depth == 10
    assert reason_of(queue.move, "B") == 2085
    assert reason_of(queue.move, "A") == 2152
    bulk = queue.bulk()
    bulk.count()
    queues.delete("A", purge=True)
    assert reason_of(bulk.step) == 2019


def test_a_call_that_waits_on_the_other_queue_gets_what_is_moved(queues):
    queue, other = filled(queues, count=3), created(queues, "B")
    got = []
    waiting = threading.Thread(target=lambda: got.append(other.get(selector="number = 2", wait=30).body))
    waiting.start()
    queue.move("B")
    waiting.join()
    assert got == [b"2"]
    assert (queue.depth, other.depth) == (0, 2)


def test_with_consumers_and_moves_both_ways_each_message_is_got_once(queues, url, clock, small_chunks):
    """Two moves in opposite directions, an index that is made, and consumers of both queues."""
    filled(queues, count=60)
    filled(queues, "B", count=60)
    got, go = [], threading.Barrier(5, timeout=60)

    def mover(source, to):
        with SqlQueue(url, source, clock=clock) as queue:
            go.wait()
            for _ in range(3):
                queue.move(to, selector="number < 30")

    def consumer(name):
        with SqlQueue(url, name, clock=clock) as queue:
            go.wait()
            for number in range(20):
                try:
                    with queue.unit() as unit:
                        found = queue.get(syncpoint=unit)
                        if number % 5 == 0:
                            unit.backout()
                        else:
                            got.append((found.descriptor.msg_id, found.body))
                except MQError as error:
                    assert error.reason == 2033

    def indexer():
        with SqlQueue(url, "A", clock=clock) as queue:
            go.wait()
            queue._store.indexes._make(("color",))

    works = [(mover, "A", "B"), (mover, "B", "A"), (consumer, "A"), (consumer, "B"), (indexer,)]
    with ThreadPoolExecutor(len(works)) as pool:
        for done in [pool.submit(*work) for work in works]:
            done.result()
    for name in "AB":
        queue = queues.open(name)
        while queue.depth:
            found = queue.get()
            got.append((found.descriptor.msg_id, found.body))
    assert len(set(got)) == len(got) == 120
    assert set(Counter(body for _, body in got).values()) == {2}
