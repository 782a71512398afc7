"""Many threads on one queue: each message has one winner, and the dead give theirs back."""

from __future__ import annotations

import gc
import threading
from concurrent.futures import ThreadPoolExecutor

import selectroute as sr
from selectroute.queues.memory import MemoryQueue
from tests.support.queue_calls import EVERY_KIND, id_of
from tests.support.waiting import wait_until


def run(count, work):
    """Run `work(number)` in so many threads at once, and raise what any of them raised."""
    barrier = threading.Barrier(count, timeout=60)

    def begun(number):
        barrier.wait()
        work(number)

    with ThreadPoolExecutor(count) as pool:
        for _ in pool.map(begun, range(count), timeout=120):
            pass


def test_64_threads_on_one_id_have_one_winner(queue):
    for turn in range(20):
        queue.put(b"prize", correl_id=id_of(f"c{turn}"), properties={"round": turn})
        by_id = {"correl_id": id_of(f"c{turn}")}
        winners, losers = [], []

        def work(number, turn=turn, by_id=by_id, winners=winners, losers=losers):
            try:
                winners.append(queue.get(**[by_id, {"selector": f"round = {turn}"}, {}][number % 3]).body)
            except sr.MQError as error:
                losers.append(error.reason)

        run(64, work)
        assert winners == [b"prize"]
        assert losers == [2033] * 63


def test_64_waiting_threads_on_one_id_have_one_winner(queue):
    winners, losers = [], []
    ready = threading.Barrier(65, timeout=60)

    def work():
        ready.wait()
        try:
            winners.append(queue.get(correl_id=id_of("c"), wait=60).body)
        except sr.MQError as error:
            losers.append(error.reason)

    with ThreadPoolExecutor(64) as pool:
        for _ in range(64):
            pool.submit(work)
        ready.wait()
        queue.put(b"prize", correl_id=id_of("c"))
        wait_until(lambda: winners, 60, "a winner")
        assert queue.depth == 0
        queue.close()  # which ends the others' waiting
    assert winners == [b"prize"]
    assert losers == [2019] * 63


@EVERY_KIND
def test_no_message_is_lost_or_got_twice_when_all_put_get_and_back_out(queue):
    got, each = [], 200

    def work(number):
        for step in range(each):
            name = f"{number}-{step}"
            queue.put(name.encode(), correl_id=id_of(name), priority=step % 10)
            unit = queue.unit()
            body = queue.get(syncpoint=unit, wait=60).body
            if step % 3:
                unit.commit()
                got.append(body)
            else:
                unit.backout()

    run(8, work)
    while queue.depth:
        got.append(queue.get().body)
    assert sorted(got) == sorted(f"{number}-{step}".encode() for number in range(8) for step in range(each))


def test_the_death_of_a_thread_backs_its_unit_out(queue):
    queue.put(b"a")

    def die():
        unit = queue.unit()
        queue.put(b"never", syncpoint=unit)
        queue.get(syncpoint=unit)

    thread = threading.Thread(target=die)
    thread.start()
    thread.join()
    gc.collect()
    message = queue.get(wait=60)
    assert (message.body, message.descriptor.backout_count) == (b"a", 1)
    assert queue.depth == 0


def test_a_unit_that_is_forgotten_while_the_queue_is_busy_is_backed_out_right_after():
    queue = MemoryQueue()
    queue.put(b"a")
    unit = queue.unit()
    queue.get(syncpoint=unit)
    with queue._store._lock:  # as when its memory is freed in the middle of a put
        del unit
        gc.collect()
        assert len(queue._store._messages) == 0
    queue.put(b"b", priority=0)
    assert [queue.get().body for _ in range(2)] == [b"a", b"b"]
