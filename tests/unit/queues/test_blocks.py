"""Messages in blocks: against a sorted dictionary, as blocks are packed, nearly empty and full again."""

from __future__ import annotations

import random

import pytest

from selectroute.queues.memory import blocks as block
from selectroute.queues.memory.blocks import Blocks
from selectroute.queues.message.message import NO_ID
from selectroute.queues.message.queue_key import queue_key_of
from selectroute.queues.message.record import Record
from selectroute.selector.values.values import Int
from tests.support.queue_invariants import check_blocks


def record_of(arrival, priority=None, properties=None):
    fields = (b"m" * 24, b"c" * 24, NO_ID, 7, 1, True, 4, False, -1, 1_700_000_000_000, 2, 1_800_000_000_000)
    return Record(*fields, queue_key_of(arrival, priority), b"body", properties)


def test_a_packed_message_is_what_it_was():
    blocks = Blocks()
    records = [record_of(number, 5, {"n": Int(number)} if number % 3 else None) for number in range(1, 6_000)]
    for record in records:
        blocks.add(record)
    assert blocks._blocks[0].few is None
    assert [blocks.get(record.queue_key) for record in records] == records
    assert [type(field) for field in blocks.get(records[0].queue_key)] == [
        type(field) for field in records[0]
    ]


@pytest.mark.parametrize("usual", [0, 1, 200, 255, 256, 5_000])
def test_a_body_is_what_it_was_whatever_the_others_are(usual):
    """There is room for bodies as they usually are; the others are outside."""
    blocks, chance = Blocks(), random.Random(usual)
    records = []
    for arrival in range(1, block.LENGTH):
        length = usual if arrival % 7 else chance.choice([0, 1, 7, 8, 9, usual + 1, 3_000])
        records.append(record_of(arrival)._replace(body=chance.randbytes(length)))
        blocks.add(records[-1])
    (one,) = blocks._blocks.values()
    assert one.few is None
    assert (sum(content is not None for content in one.outside) < len(records) // 5) == (usual <= 255)
    assert [blocks.get(record.queue_key) for record in records] == records


def test_only_the_message_with_a_place_is_in_it():
    blocks = Blocks()
    blocks.add(record_of(3, 5))
    assert blocks.get(queue_key_of(3, 5)) == blocks.arrived(3) == record_of(3, 5)
    assert (
        blocks.get(queue_key_of(3, 6))
        is blocks.get(3)
        is blocks.arrived(4)
        is blocks.arrived(1 << 50)
        is None
    )


@pytest.mark.parametrize("priorities", [(None,), (4,), (0, 4, 9)])
def test_the_order_is_that_of_a_sorted_dictionary_whatever_goes_and_comes_back(priorities):
    chance = random.Random(len(priorities))
    blocks, wanted, gone = Blocks(), {}, []
    for arrival in range(1, 40_000):
        record = record_of(arrival, chance.choice(priorities))
        blocks.add(record)
        wanted[record.queue_key] = record
        leaving = 0 if arrival < 12_000 else 3 if arrival < 24_000 else 1
        for _ in range(leaving if wanted else 0):
            first = min(wanted) if chance.random() < 0.003 else next(iter(wanted))
            place = first if chance.random() < 0.5 else next(reversed(wanted))
            blocks.remove(place)
            gone.append(wanted.pop(place))
            if not wanted:
                break
        if gone and chance.random() < 0.2:
            back = gone.pop()
            blocks.add(back)
            wanted[back.queue_key] = back
        if arrival % 50 == 0:
            assert blocks.first() == (wanted[min(wanted)] if wanted else None)
        if arrival % 5_000 == 0:
            check_blocks(blocks)
            every = [wanted[place] for place in sorted(wanted)]
            assert list(blocks.walk()) == every
            after = chance.choice(every).queue_key if every else 0
            assert list(blocks.walk(after)) == [one for one in every if one.queue_key > after]
    for place in list(wanted):
        blocks.remove(place)
    assert blocks.first() is None
    assert blocks._blocks == {}
    assert list(blocks._runs) == []


def test_who_browses_message_by_message_has_a_block_walked_through_once(monkeypatch):
    blocks, walked = Blocks(), []
    for arrival in range(1, 6_000):
        blocks.add(record_of(arrival, 4))
    of_block = block.Block.slots

    def slots(self, urgency):
        walked.append(self.runs[urgency])
        return of_block(self, urgency)

    monkeypatch.setattr(block.Block, "slots", slots)
    after = -1
    for _ in range(20):
        after = next(blocks.walk(after)).queue_key
    assert after == queue_key_of(20, 4)
    assert [known is None for known in walked] == [True] + 19 * [False]


def test_a_block_with_few_messages_left_gives_its_memory_back():
    blocks = Blocks()
    for arrival in range(block.LENGTH):
        blocks.add(record_of(arrival + 1, 4))
    for arrival in range(block.LENGTH - 10):
        blocks.remove(queue_key_of(arrival + 1, 4))
    assert all(not one.packed and not one.outside for one in blocks._blocks.values())
    assert [record.queue_key for record in blocks.walk()] == [
        queue_key_of(arrival + 1, 4) for arrival in range(block.LENGTH - 10, block.LENGTH)
    ]
