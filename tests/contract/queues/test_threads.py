"""Many threads on one queue: each message has one winner, and the dead give theirs back."""

from __future__ import annotations

import gc
import threading
import time

import selectroute as sr
from selectroute import MatchOptions as M
from selectroute.queues.memory import MemoryQueue
from tests.support.queue_calls import EVERY_KIND, id_of


def run(count, work):
    """Run `work(number)` in so many threads at once, and raise what any of them raised."""
    barrier, errors = threading.Barrier(count, timeout=60), []

    def body(number):
        try:
            barrier.wait()
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=body, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert errors == []


def test_64_threads_on_one_id_have_one_winner(queue):
    for round_ in range(20):
        queue.put(b"prize", correl_id=id_of(f"c{round_}"), properties={"round": round_})
        winners, losers = [], []

        def work(number, round_=round_, winners=winners, losers=losers):
            asked = [
                {"match": M.CORREL_ID, "correl_id": id_of(f"c{round_}")},
                {"selector": f"round = {round_}"},
                {},
            ][number % 3]
            try:
                winners.append(queue.get(**asked).body)
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
            winners.append(queue.get(M.CORREL_ID, correl_id=id_of("c"), wait=60).body)
        except sr.MQError as error:
            losers.append(error.reason)

    threads = [threading.Thread(target=work) for _ in range(64)]
    for thread in threads:
        thread.start()
    ready.wait()
    queue.put(b"prize", correl_id=id_of("c"))
    until = time.monotonic() + 60
    while not winners:
        assert time.monotonic() < until
        time.sleep(0.01)
    assert queue.depth == 0
    queue.close()  # which ends the others' waiting
    for thread in threads:
        thread.join(60)
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
