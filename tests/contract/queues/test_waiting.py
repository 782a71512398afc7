"""Calls that wait: who is woken, by what, and how many are looked at for it."""

from __future__ import annotations

import math
import threading
import time

import pytest

import selectroute as sr
from selectroute.queues.lookup import Lookup, match_of
from selectroute.queues.memory import MemoryQueue
from selectroute.queues.waiting import Waiter
from tests.support.queue_calls import id_of, reason_of
from tests.support.waiting import wait_until


class Getters:
    """Threads that get, each its own message; what they got, or the reason why not, by name."""

    def __init__(self, queue=None):
        self.queue = MemoryQueue() if queue is None else queue
        self.got = {}
        self.threads = []

    def start(self, name, call=None, **request):
        def work():
            try:
                self.got[name] = (call or self.queue.get)(**{"wait": 60, **request}).body
            except sr.MQError as error:
                self.got[name] = error.reason

        self.threads.append(threading.Thread(target=work, daemon=True))
        self.threads[-1].start()

    def until(self, count):
        """Wait until so many calls wait."""
        wait_until(lambda: self.queue._store._waiters.count == count, 60, "the calls wait", 0.001)

    def join(self):
        for thread in self.threads:
            thread.join(60)
        return self.got


@pytest.fixture
def getters():
    """Threads on a queue in memory."""
    return Getters()


def get_later(queue, deliver, **request):
    """Wait for a message without a thread; return what cancels that, and says whether it was in time."""
    lookup = Lookup(match_of(queue.settings.dialect, **request))
    waiter = Waiter(lookup, notify=lambda: deliver(queue._store.to_message(waiter.record)))
    assert queue._store.take(lookup, None, waiter) is None
    return lambda: queue._store._waiters.remove(waiter)


def test_who_waits_gets_the_message_that_is_put(queue):
    getters = Getters(queue)
    getters.start("a", wait=math.inf)
    time.sleep(0.05)
    queue.put(b"late")
    assert getters.join() == {"a": b"late"}


def test_a_wait_ends_when_its_time_is_over(queue):
    queue.put(b"a", correl_id=id_of("a"))
    assert reason_of(queue.get, correl_id=id_of("b"), wait=0) == 2033
    assert reason_of(queue.get, correl_id=id_of("b"), wait=0.01) == 2033
    assert reason_of(queue.browse, selector="a = 1", wait=0.01) == 2033
    queue.put(b"b", correl_id=id_of("b"))
    assert queue.depth == 2, "what nobody waits for any more stays"


def test_a_message_that_is_there_is_not_waited_for(queue):
    queue.put(b"a")
    assert queue.get(wait=60).body == b"a"


def test_each_waiting_call_gets_its_own_reply(getters):
    queue = getters.queue
    for number in range(20):
        getters.start(number, correl_id=id_of(f"c{number}"))
    getters.until(20)
    for number in reversed(range(20)):
        queue.put(str(number).encode(), correl_id=id_of(f"c{number}"))
    assert getters.join() == {number: str(number).encode() for number in range(20)}
    assert queue.statistics.waiters_looked_at == 20


def test_specific_waits_come_before_general_ones_and_older_before_younger(getters):
    queue = getters.queue
    requests = [{}, {"selector": "a = 1"}, {"correl_id": id_of("c")}, {"correl_id": id_of("c")}]
    for number, request in enumerate(requests, start=1):
        getters.start(number, **request)
        getters.until(number)
    for body in (b"first", b"second", b"third", b"fourth"):
        queue.put(body, correl_id=id_of("c"), properties={"a": 1})
    assert getters.join() == {3: b"first", 4: b"second", 2: b"third", 1: b"fourth"}


def test_the_most_properties_are_put_while_somebody_waits_with_a_selector(getters):
    queue = getters.queue
    getters.start("all", selector="p0 = 1 AND JMSXGroupID = 'g' AND JMSXGroupSeq = 2")
    getters.until(1)
    most = {"JMSXGroupID": "g", **{f"p{number}": 1 for number in range(996)}}
    queue.put(b"a", msg_seq_number=2, properties=most)
    assert getters.join() == {"all": b"a"}
    assert reason_of(queue.put, properties={**most, "p": 1}) == 2478


def test_all_who_browse_and_one_who_gets_are_woken(getters):
    queue = getters.queue
    for number in range(3):
        getters.start(f"browse {number}", call=queue.browse)
    getters.start("get 1")
    getters.until(4)
    getters.start("get 2")
    getters.until(5)
    queue.put(b"a")
    queue.put(b"b")
    got = getters.join()
    assert sorted(got.values()) == [b"a"] * 4 + [b"b"]
    assert {got["get 1"], got["get 2"]} == {b"a", b"b"}
    assert queue.depth == 0


def test_a_browse_waits_for_what_is_behind_its_cursor(getters):
    queue = getters.queue
    queue.put(b"a", priority=5)
    cursor = queue.cursor()
    cursor.next()
    getters.start("browse", call=cursor.next)
    getters.until(1)
    queue.put(b"ahead", priority=9)
    queue.put(b"behind", priority=5)
    assert getters.join() == {"browse": b"behind"}


def test_commit_and_backout_wake_who_waits():
    queue = MemoryQueue()
    for end in ("commit", "backout"):
        unit = queue.unit()
        if end == "commit":
            queue.put(b"commit", syncpoint=unit)
        else:
            queue.put(b"backout")
            queue.get(syncpoint=unit)
        getters = Getters(queue)
        getters.start(end)
        getters.until(1)
        getattr(unit, end)()
        assert getters.join() == {end: end.encode()}


def test_what_expired_in_a_unit_is_handed_to_nobody(clock):
    queue, got = MemoryQueue(clock=clock), []
    queue.put(expiry=10)
    unit = queue.unit()
    queue.get(syncpoint=unit)
    cancel = get_later(queue, got.append)
    clock.now += 1
    unit.backout()
    assert got == []
    assert cancel()


def test_what_is_handed_over_in_a_unit_comes_back_with_it(getters):
    queue = getters.queue
    unit = queue.unit()
    getters.start("in unit", syncpoint=unit)
    getters.until(1)
    queue.put(b"a")
    assert getters.join() == {"in unit": b"a"}
    assert queue.depth == 0
    unit.backout()
    assert queue.get().descriptor.backout_count == 1


def test_a_call_whose_unit_has_ended_gets_nothing(getters, monkeypatch):
    time_is_over = threading.Event()
    monkeypatch.setattr("selectroute.queues.waiting.Waiter.wait", lambda *_: time_is_over.wait(60))
    queue = getters.queue
    unit = queue.unit()
    getters.start("in unit", syncpoint=unit, wait=0.3)
    getters.until(1)
    unit.commit()
    queue.put(b"a")
    time_is_over.set()
    assert getters.join() == {"in unit": 2033}
    assert queue.depth == 1


def test_close_ends_every_wait(getters):
    queue = getters.queue
    getters.start("id", correl_id=id_of("c"))
    getters.start("selector", selector="a = 1")
    getters.start("any")
    getters.until(3)
    queue.close()
    assert getters.join() == {"id": 2019, "selector": 2019, "any": 2019}


@pytest.mark.slow
def test_a_reply_wakes_one_of_100_000_and_looks_at_no_other():
    queue = MemoryQueue()
    got = []
    count = 100_000
    for number in range(count):
        get_later(queue, got.append, correl_id=id_of(f"c{number}"))
    for number in (5, 99_999, 0):
        queue.put(str(number).encode(), correl_id=id_of(f"c{number}"))
    assert [message.body for message in got] == [b"5", b"99999", b"0"]
    assert queue.statistics.waiters_looked_at == 3
    queue.put(b"for nobody", correl_id=id_of("other"))
    assert queue.statistics.waiters_looked_at == 3
    assert queue.depth == 1


def test_a_message_wakes_one_of_many_selectors_and_looks_at_those_that_it_satisfies():
    queue = MemoryQueue()
    got = {}
    for number in range(200):
        get_later(
            queue,
            lambda message, number=number: got.update({number: message}),
            selector=f"account = 'a{number}' AND amount > 10",
        )
    queue.put(b"low", properties={"account": "a7", "amount": 5})
    queue.put(b"high", properties={"account": "a7", "amount": 50})
    assert {number: message.body for number, message in got.items()} == {7: b"high"}
    assert queue.statistics.waiters_looked_at == 1


@pytest.mark.parametrize("request_", [{}, {"selector": "a = 1"}, {"correl_id": id_of("c")}])
def test_of_many_that_wait_for_the_same_the_oldest_is_woken_and_no_other_looked_at(request_):
    queue = MemoryQueue()
    got = []
    for number in range(1_000):
        get_later(queue, lambda message, number=number: got.append(number), **request_)
    for _ in range(3):
        queue.put(correl_id=id_of("c"), properties={"a": 1})
    assert got == [0, 1, 2]
    assert queue.statistics.waiters_looked_at == 3


def test_waiting_without_a_thread_ends_with_the_message_or_when_it_is_cancelled():
    queue = MemoryQueue()
    got = []
    cancel = get_later(queue, got.append)
    queue.put(b"there")
    assert [message.body for message in got] == [b"there"]
    assert cancel() is False
    cancels = [get_later(queue, got.append, **request) for request in ({}, {"selector": "a = 1"})]
    cancels.append(get_later(queue, got.append, correl_id=id_of("c")))
    assert [cancel() for cancel in cancels] == [True] * 3
    assert [cancel() for cancel in cancels] == [False] * 3
    queue.put(b"later", correl_id=id_of("c"), properties={"a": 1})
    assert len(got) == 1
    assert queue.depth == 1


def test_an_interrupt_gives_back_what_was_handed_over(monkeypatch):
    queue = MemoryQueue()

    def interrupted(waiter, seconds):
        queue.put(b"a")
        raise KeyboardInterrupt

    monkeypatch.setattr("selectroute.queues.waiting.Waiter.wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        queue.get(wait=60)
    assert queue.get().body == b"a"
    with pytest.raises(KeyboardInterrupt):
        queue.browse(wait=60)
    assert queue.depth == 1
