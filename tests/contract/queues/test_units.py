"""Units of work: commit, backout, and whose they are."""

from __future__ import annotations

import pytest

from tests.support.queue_calls import bodies, id_of, reason_of


def test_a_put_is_there_when_its_unit_is_committed_in_the_place_of_the_put(queue):
    unit = queue.unit()
    queue.put(b"a", correl_id=id_of("c"), syncpoint=unit)
    queue.put(b"b")
    assert queue.depth == 1
    assert reason_of(queue.get, correl_id=id_of("c")) == 2033
    assert reason_of(queue.get, correl_id=id_of("c"), syncpoint=unit) == 2033
    unit.commit()
    assert [queue.get().body for _ in range(2)] == [b"a", b"b"]


def test_a_put_that_is_backed_out_never_was(queue):
    unit = queue.unit()
    queue.put(b"a", syncpoint=unit)
    unit.backout()
    assert queue.depth == 0


def test_a_get_that_is_backed_out_comes_back_to_its_place_and_is_counted(queue):
    for number in range(3):
        queue.put(str(number).encode(), correl_id=id_of("c"), properties={"k": 1})
    for count in (1, 2):
        unit = queue.unit()
        message = queue.get(syncpoint=unit)
        assert (message.body, message.descriptor.backout_count) == (b"0", count - 1)
        assert queue.depth == 2
        assert queue.browse(selector="k = 1").body == b"1"
        unit.backout()
    assert queue.get(selector="JMSXDeliveryCount = 3").body == b"0"
    assert [queue.get(correl_id=id_of("c")).body for _ in range(2)] == [b"1", b"2"]


def test_a_get_that_is_backed_out_uncounted_comes_back_as_it_was(queue):
    queue.put(b"a")
    unit = queue.unit()
    queue.get(syncpoint=unit)
    unit.backout(counts=False)
    assert queue.get().descriptor.backout_count == 0


def test_a_get_that_is_committed_is_gone(queue):
    queue.put(b"a")
    with queue.unit() as unit:
        queue.get(syncpoint=unit)
    assert queue.depth == 0
    assert reason_of(unit.commit) == reason_of(unit.backout) == 2232
    assert reason_of(queue.put, syncpoint=unit) == reason_of(queue.get, syncpoint=unit) == 2232


def test_an_exception_backs_a_unit_out(queue):
    queue.put(b"a")
    with pytest.raises(ZeroDivisionError), queue.unit() as unit:
        queue.get(syncpoint=unit)
        queue.put(b"b", syncpoint=unit)
        raise ZeroDivisionError
    assert bodies(queue) == [b"a"]


def test_the_messages_of_a_unit_count_towards_the_depth_that_is_allowed(make):
    queue = make(max_depth=2)
    queue.put(b"a")
    unit = queue.unit()
    queue.get(syncpoint=unit)
    queue.put(b"b", syncpoint=unit)
    assert (reason_of(queue.put, b"c"), queue.depth) == (2053, 0)
    unit.backout()
    unit = queue.unit()
    queue.put(b"b", syncpoint=unit)
    assert (reason_of(queue.put, b"c"), queue.depth) == (2053, 1)
    unit.commit()
    assert queue.depth == len(queue) == 2


def test_a_unit_is_for_its_own_queue(make):
    one, other = make(), make()
    assert reason_of(one.put, syncpoint=other.unit()) == 2018
    assert reason_of(one.get, syncpoint=object()) == 2018


def test_a_closed_queue_refuses_everything(make):
    queue = make()
    unit, cursor = queue.unit(), queue.cursor()
    queue.put(b"a")
    queue.close()
    calls = (queue.put, queue.get, queue.browse, cursor.first, cursor.under, unit.commit)
    assert {reason_of(call) for call in calls} == {2019}
    queue.close()
