"""How many messages a lookup in memory looks at, whatever the queue holds; the order behind it."""

from __future__ import annotations

import random

import pytest

import selectroute as sr
from selectroute.queues.memory import MAX_INDEXES, MemoryQueue
from tests.support.queue_calls import hex_of, id_of
from tests.support.queue_invariants import check


def looked_at(queue, call, *args, **kwargs):
    """How many messages a call looked at."""
    before = queue.statistics.looked_at
    try:
        call(*args, **kwargs)
    except sr.MQError as error:
        assert error.reason == 2033
    return queue.statistics.looked_at - before


def filled(count, **settings):
    queue = MemoryQueue(sr.QueueSettings(**settings))
    for number in range(count):
        queue.put(
            str(number).encode(),
            msg_id=id_of(f"m{number}"),
            correl_id=id_of(f"c{number}"),
            group_id=id_of(f"g{number // 10}"),
            msg_seq_number=number % 10 + 1,
            priority=number % 3,
            properties={"color": f"c{number % 100}", "weight": number},
        )
    return queue


@pytest.mark.parametrize("count", [100, 10_000])
def test_a_lookup_by_ids_looks_at_the_messages_of_its_id_in_a_queue_of_any_depth(count):
    queue = filled(count)
    ids = {"msg_id": id_of("m57"), "correl_id": id_of("c57"), "group_id": id_of("g5"), "msg_seq_number": 8}
    for mask in (1, 2, 3, 4, 5, 6, 7, 11):
        asked = {name: ids[name] for bit, name in enumerate(ids) if mask >> bit & 1}
        assert looked_at(queue, queue.browse, **asked) == 1, asked
    asked = {"group_id": ids["group_id"], "msg_seq_number": 8}
    assert 1 <= looked_at(queue, queue.browse, **asked) <= 10, "the group has ten messages"
    text = hex_of(ids["msg_id"])
    assert looked_at(queue, queue.browse, selector=f"JMSMessageID = '{text}'") == 1
    assert looked_at(queue, queue.browse, selector=f"JMSMessageID = '{text}' AND weight > 3") == 1
    in_jms = sr.Selector(f"JMSMessageID = '{text}'", "jms")
    assert looked_at(queue, queue.browse, selector=in_jms) == 1
    assert looked_at(queue, queue.get, **ids) == 1
    assert looked_at(queue, queue.get, **ids) == 0
    assert queue.statistics.scans == 0


def test_ids_that_many_share_get_an_index_together():
    queue = MemoryQueue()
    for number in range(2_000):
        ids = {"correl_id": id_of(f"c{number % 2}"), "group_id": id_of("g")}
        queue.put(**ids, msg_seq_number=number + 1)
    asked = {"group_id": id_of("g"), "msg_seq_number": 1_900}
    assert looked_at(queue, queue.browse, **asked) == 1_900
    assert looked_at(queue, queue.browse, **asked) == 1
    assert queue.statistics.indexes_made == 1
    both = {"correl_id": id_of("c1"), "msg_seq_number": 2_000}
    assert [looked_at(queue, queue.browse, **both) for _ in range(3)][-1] <= 1
    check(queue)


def test_a_selector_walks_through_the_queue_once_and_is_then_looked_up():
    queue = filled(2_000)
    chosen = "color = 'c77' AND weight > 100"
    first = looked_at(queue, queue.browse, selector=chosen)
    assert first > 16
    assert queue.statistics.scans == 1
    while queue.statistics.indexes_made == 0:
        looked_at(queue, queue.browse, selector=f"color = 'none' AND weight > {queue.statistics.scans}")
    scans = queue.statistics.scans
    assert looked_at(queue, queue.get, selector=chosen) <= 2
    assert looked_at(queue, queue.get, selector="color = 'c3'") == 1
    assert looked_at(queue, queue.get, selector="color IN ('c4', 'c5') AND weight > 0") <= 4
    assert queue.statistics.scans == scans
    check(queue)


def test_what_equates_nothing_is_a_counted_walk():
    queue = filled(500)
    for scans in (1, 2):
        assert looked_at(queue, queue.get, selector="weight > 1000") == 500
        assert queue.statistics.scans == scans
    assert queue.statistics.indexes_made == 0


def test_there_are_only_so_many_indexes_and_the_latest_used_stay():
    queue = filled(200)
    for number in range(3 * MAX_INDEXES):
        looked_at(queue, queue.browse, selector=f"missing{number} = 1 OR color = 'none'")
        looked_at(queue, queue.browse, selector="color = 'none'")
    assert len(queue._store._messages._indexes) == MAX_INDEXES
    assert queue.statistics.indexes_made == 3 * MAX_INDEXES + 1, "that of the color is made once"
    check(queue)


def test_selectors_with_too_many_combinations_are_looked_up_by_some_of_them():
    queue = filled(300)
    colors = ", ".join(f"'c{number}'" for number in range(200))
    names = ", ".join(f"'x{number}'" for number in range(9))
    chosen = f"color IN ({colors}) AND JMSType IN ({names}) OR weight = 299 AND color IN ({colors})"
    for _ in range(3):
        assert queue.browse(selector=chosen).body == b"299"


@pytest.mark.parametrize("order", ["priority", "fifo"])
def test_the_order_holds_however_messages_leave_and_come_back(order):
    """Runs and lists of shared ids grow and shrink, and what was taken comes back into the middle of them."""
    chance = random.Random(7)
    queue = MemoryQueue(sr.QueueSettings(order=order))
    unit = queue.unit()
    for step in range(6_000):
        queue.put(correl_id=id_of(f"c{step % 7}"), priority=chance.choice([1, 4, 4, 4, 4]))
        if step % 3 == 0 or step > 4_000:
            asked = {"correl_id": id_of(f"c{chance.randrange(7)}")}
            looked_at(queue, queue.get, **asked, syncpoint=unit)
        if step > 4_000:
            looked_at(queue, queue.get, syncpoint=unit)
        if step % 500 == 499:
            check(queue)
            unit.backout() if chance.random() < 0.5 else unit.commit()
            unit = queue.unit()
            check(queue)
    unit.backout()
    check(queue)
    while queue.depth:
        queue.get()
    check(queue)


def test_an_empty_queue_holds_nothing_of_what_was_there():
    queue = filled(300)
    looked_at(queue, queue.browse, selector="color = 'none'")
    while queue.depth:
        queue.get(selector="weight >= 0")
    messages = queue._store._messages
    assert len(messages._indexes) == 1
    assert not any(index.by_values for index in messages._indexes.values())
    assert messages._by_msg_id.__sizeof__() == {}.__sizeof__(), "an emptied table would keep its size"
    check(queue)
