"""Writes that go on while a batch is matched, and removals that no batch waits for."""

import threading

import pytest

from selectroute.spark.batch.router import Ahead


def failing(error):
    def work():
        raise error

    return work


def test_writes_are_waited_for_and_removals_are_not():
    ahead, held, written = Ahead(), threading.Event(), threading.Event()
    ahead.remove(held.wait)
    ahead.start(written.set)
    ahead.wait()
    assert written.is_set() and not held.is_set()
    held.set()
    ahead.forget()


def test_removals_are_made_one_after_the_other():
    ahead, made = Ahead(), []
    for number in range(300):  # more than may be outstanding
        ahead.remove(lambda number=number: made.append(number))
        ahead.wait()
    assert len(made) >= 200
    ahead.forget()
    assert made == list(range(300))


def test_the_error_of_a_removal_is_raised_when_it_is_known_and_after_those_of_writes():
    ahead, failed = Ahead(), threading.Event()
    ahead.remove(failing(OSError("of a removal")))
    ahead.remove(failed.set)  # made after it
    failed.wait()
    ahead.start(failing(OSError("of a write")))
    with pytest.raises(OSError, match="of a write"):
        ahead.wait()
    ahead.wait()
    ahead.remove(failing(OSError("of a removal")))
    ahead.forget()
    ahead.wait()
