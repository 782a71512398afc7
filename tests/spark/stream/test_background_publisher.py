"""The thread behind the stream: what it is given is done in order, and an error reaches everybody."""

from __future__ import annotations

import threading

import pytest
from selectroute.spark.stream.background_publisher import BackgroundPublisher


@pytest.fixture
def failures():
    return []


@pytest.fixture
def behind(failures):
    behind = BackgroundPublisher(failures.append)
    yield behind
    behind.close()


def test_all_is_done_in_order_and_who_gives_waits_for_what_was_given_before(behind, failures):
    done, go = [], threading.Event()

    def first():
        assert go.wait(60)
        done.append(1)

    behind.give(first)
    assert not behind.wait_until_sent(0.01) and done == []
    giver = threading.Thread(target=behind.give, args=(lambda: done.append(2),))
    giver.start()
    giver.join(0.05)
    assert giver.is_alive() and done == []
    go.set()
    giver.join(60)
    assert behind.wait_until_sent() and done == [1, 2] and failures == []


def test_it_is_done_in_another_thread(behind):
    names = []
    behind.give(lambda: names.append(threading.current_thread().name))
    assert behind.wait_until_sent() and names == ["selectroute-publisher"]


def test_an_error_reaches_who_settles_who_gives_and_who_is_to_be_told(behind, failures):
    done, told = [], threading.Event()
    behind._on_failure = lambda error: (failures.append(error), told.set())
    behind.give(lambda: 1 // 0)
    for call in (behind.wait_until_sent, lambda: behind.give(lambda: done.append(1)), behind.wait_until_sent):
        with pytest.raises(ZeroDivisionError):
            call()
    assert told.wait(60)
    assert done == [] and [type(one) for one in failures] == [ZeroDivisionError]


def test_closed_it_does_what_it_has_been_given_and_ends(behind):
    done = []
    behind.give(lambda: done.append(1))
    behind.close()
    behind._thread.join(60)
    assert not behind._thread.is_alive() and done == [1]
