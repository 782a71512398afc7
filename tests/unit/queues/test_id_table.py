"""The table of ids: against a dictionary, as it grows, shrinks and is shared."""

from __future__ import annotations

import random

import pytest

from selectroute.queues.memory import id_table as module
from selectroute.queues.memory.id_table import Ids
from selectroute.queues.memory.postings import size_of, walk
from tests.support.queue_invariants import check_ids


def id_of(number):
    return number.to_bytes(24, "big")


@pytest.mark.parametrize("shared", [1, 3, 50])
def test_it_has_what_a_dictionary_has_however_ids_come_and_go(shared):
    """Its shards are made larger, then divided, then nearly empty; then they fill again."""
    chance = random.Random(shared)
    ids, wanted, places = Ids(), {}, {}
    for place in range(1, 60_001):
        filling = place < 20_000 or place > 40_000
        if filling or not places:
            own = id_of(chance.randrange(30_000 // shared))
            ids.add(own, place)
            wanted.setdefault(own, []).append(place)
            places[place] = own
        if not filling or place % 3 == 0:
            gone = next(reversed(places) if place % 2 else iter(places))
            own = places.pop(gone)
            ids.remove(own, gone)
            wanted[own].remove(gone)
            if not wanted[own]:
                del wanted[own]
        if place % 15_000 == 0:
            check_ids(ids, wanted)
    assert len({id(shard) for shard in ids._shards}) > 1 or shared > 3, "it was divided"
    assert all(list(walk(ids.get(own))) == listed for own, listed in wanted.items())
    absent = (id_of(number) for number in range(40_000, 41_000))
    assert all(ids.get(id) is None for id in absent)


def test_ids_of_one_hash_are_found_together(monkeypatch):
    """Whoever looks up an id compares the messages with it, so that is right, and only slow."""
    monkeypatch.setattr(module, "hash", lambda id: id[-1] % 3, raising=False)
    ids = Ids()
    for number in range(300):
        ids.add(id_of(number), number + 1)
    assert size_of(ids.get(id_of(7))) == 100
    for number in range(300):
        assert number + 1 in list(walk(ids.get(id_of(number))))
        ids.remove(id_of(number), number + 1)
    assert dict(ids.walk()) == {}


def test_a_table_that_is_nearly_empty_takes_little_memory():
    ids = Ids()
    for number in range(100_000):
        ids.add(id_of(number), number + 1)
    full = len({id(shard) for shard in ids._shards})
    for number in range(99_000):
        ids.remove(id_of(number), number + 1)
    left = len({id(shard) for shard in ids._shards})
    assert left <= full // 4
    check_ids(ids, {id_of(number): [number + 1] for number in range(99_000, 100_000)})
    for number in range(99_000):
        ids.add(id_of(number), number + 1)
    check_ids(ids, {id_of(number): [number + 1] for number in range(100_000)})


def test_what_is_not_there_cannot_be_taken_out():
    ids = Ids()
    ids.add(id_of(1), 7)
    with pytest.raises(KeyError):
        ids.remove(id_of(2), 7 + 1)
    assert ids.get(id_of(1)) == 7


def test_a_table_that_was_large_gives_its_memory_back_when_it_is_cleared():
    ids = Ids()
    for number in range(50_000):
        ids.add(id_of(number), number + 1)
    assert len(ids._shards) > 8
    ids.clear()
    assert sum(len(shard) for shard in ids._shards) == 2 * module._FIRST
    assert ids.get(id_of(3)) is None
