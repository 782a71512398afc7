"""Calls that wait without a thread: rung when they should look again, and nothing is lost in between."""

from __future__ import annotations

import threading

import pytest

pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed (the extra `service`)")

from selectroute.queues.sql.queue import SqlQueue
from tests.support.queue_calls import id_of, reason_of


@pytest.fixture
def queue(url):
    with SqlQueue.create(url, "A") as made:
        yield made


def test_a_call_is_rung_by_the_message_that_it_waits_for_and_no_other(queue):
    rung = []
    call = queue.call(lambda: rung.append(1), correl_id=id_of("c"))
    assert call.look() is None
    queue.put(b"other", correl_id=id_of("d"))
    assert rung == []
    queue.put(b"mine", correl_id=id_of("c"))
    assert rung == [1]
    assert call.look().body == b"mine"
    assert queue.get().body == b"other"


def test_what_is_there_is_got_at_once(queue):
    queue.put(b"a")
    assert queue.call(lambda: None).look().body == b"a"
    assert queue.depth == 0
    assert reason_of(queue.call, lambda: None, msg_id=b"x") == 2206


def test_one_that_browses_leaves_it_there(queue):
    rung = threading.Event()
    call = queue.call(rung.set, browses=True, selector="k = 1")
    assert call.look() is None
    queue.put(b"a", properties={"k": 1})
    assert rung.is_set()
    assert call.look().body == b"a"
    assert queue.depth == 1


def test_a_message_of_another_process_rings_too(queue, url):
    rung = threading.Event()
    call = queue.call(rung.set)
    assert call.look() is None
    with SqlQueue(url, "A") as other:
        other.put(b"a")
    assert rung.wait(60)
    assert call.look().body == b"a"


def test_a_call_that_ends_when_it_was_rung_lets_the_next_one_have_it(queue):
    first, second = threading.Event(), threading.Event()
    calls = [queue.call(one.set) for one in (first, second)]
    assert [call.look() for call in calls] == [None, None]
    queue.put(b"a")
    assert first.is_set()
    assert not second.is_set()
    calls[0].end()
    assert second.wait(60)
    assert calls[1].look().body == b"a"


def test_who_finds_another_message_than_the_one_it_was_rung_for_wakes_the_others(queue):
    first, second = threading.Event(), threading.Event()
    calls = [queue.call(one.set) for one in (first, second)]
    assert [call.look() for call in calls] == [None, None]
    unit = queue.unit()
    queue.put(b"urgent", priority=9, syncpoint=unit)
    queue.put(b"a")  # rings the first
    calls[1].end()
    calls[1] = queue.call(second.set)
    second.clear()
    unit.commit()
    first.clear()
    assert calls[0].look().body == b"urgent"
    assert calls[1].look().body == b"a"


def test_what_is_got_in_a_unit_comes_back_with_it(queue):
    unit = queue.unit()
    call = queue.call(lambda: None, syncpoint=unit)
    assert call.look() is None
    queue.put(b"a")
    assert call.look().body == b"a"
    assert reason_of(queue.get) == 2033
    unit.backout()
    assert queue.get().descriptor.backout_count == 1


def test_a_call_on_a_queue_that_closes_is_rung_and_told(queue):
    rung = threading.Event()
    call = queue.call(rung.set)
    assert call.look() is None
    queue.close()
    assert rung.is_set()
    assert reason_of(call.look) == 2019
    call.end()


def test_a_list_has_the_first_matches_without_their_bodies(queue):
    for number in range(40):
        queue.put(b"x" * 100, properties={"even": number % 2 == 0, "number": number}, priority=number % 10)
    assert len(queue.listed(100)) == 40
    assert len(queue.listed(3)) == 3
    found = queue.listed(100, selector="even AND number < 10")
    assert [message.properties["number"].value for message in found] == [8, 6, 4, 2, 0]
    assert {message.body for message in found} == {b""}
    one = queue.listed(1, msg_id=found[2].descriptor.msg_id)
    assert [message.descriptor for message in one] == [found[2].descriptor]
    assert queue.listed(10, selector="number > 100") == []
    assert queue.depth == 40


def test_messages_of_other_processes_ring_those_that_wait_for_them_only(queue, url):
    requests = {name: {"correl_id": id_of(name)} for name in "ab"}
    requests["heavy"] = {"browses": True, "selector": "weight > 100"}
    requests["light"] = {"browses": True, "selector": "weight < 100"}
    rung = {name: threading.Event() for name in requests}
    calls = {name: queue.call(rung[name].set, **request) for name, request in requests.items()}
    assert [call.look() for call in calls.values()] == [None] * 4
    with SqlQueue(url, "A") as other:
        for priority in (9, 0, 4):
            other.put(b"for nobody", correl_id=id_of("c"), priority=priority)
        other.put(b"b", correl_id=id_of("b"), priority=9, properties={"weight": 200})
        assert rung["b"].wait(60) and rung["heavy"].wait(60)
        assert not rung["a"].is_set() and not rung["light"].is_set()
        assert calls["b"].look().body == b"b"
        unit = other.unit()
        other.put(b"a", correl_id=id_of("a"), syncpoint=unit)
        assert not rung["a"].wait(0.2)
        unit.commit()
        assert rung["a"].wait(60)
        assert calls["a"].look().body == b"a"
    for call in calls.values():
        call.end()


def test_after_too_many_messages_to_look_at_everybody_looks(queue, url, monkeypatch):
    monkeypatch.setattr("selectroute.queues.sql.watch.MOST_ARRIVALS", 3)
    rung = threading.Event()
    call = queue.call(rung.set, correl_id=id_of("a"))
    assert call.look() is None
    with SqlQueue(url, "A") as other:
        # With the lock held it does not get on: it sees them in two parts at most, and one is more than 3.
        with queue._store.watch._lock:
            for _ in range(8):
                other.put(correl_id=id_of("b"))
        assert rung.wait(60)
    assert call.look() is None
    call.end()


def test_for_strings_that_take_long_to_compare_everybody_looks(queue, monkeypatch):
    monkeypatch.setattr("selectroute.queues.sql.watch.MOST_COMPARED", 3_000)
    rung = []
    calls = [queue.call(lambda: rung.append(1), browses=True, selector=f"a LIKE '%x_{n}%'") for n in range(2)]
    calls += [queue.call(lambda: rung.append(2), correl_id=id_of("a"))]
    assert [call.look() for call in calls] == [None] * 3
    queue.put(properties={"a": "x" * 1_400})  # one that waits for an id compares no strings
    assert rung == []
    queue.put(properties={"a": "x" * 1_600})
    assert rung == [1, 1, 2]
    assert [call.look() for call in calls] == [None] * 3
    for call in calls:
        call.end()
