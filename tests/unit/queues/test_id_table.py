"""The table of ids: against a dictionary, as it grows, shrinks and is shared."""

from __future__ import annotations

import random
from array import array

import pytest

from selectroute.queues.memory import id_table as module
from selectroute.queues.memory.id_table import Ids
from selectroute.queues.memory.postings import size_of, walk
from tests.support.queue_invariants import check_ids, distinct


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


def kinds(ids):
    """The kinds of the shards of a table."""
    return {type(shard) for shard in ids._shards}


def test_what_most_ids_have_decides_how_wide_slots_are():
    ids, wanted = Ids(), {}

    def add(own, place):
        ids.add(id_of(own), place)
        wanted.setdefault(id_of(own), []).append(place)

    for place in range(1, 40_001):
        add(place // 10, place)
    assert kinds(ids) == {module._Wide}, "a table becomes wide while it is small"
    assert len(distinct(ids._shards)) > 1
    check_ids(ids, wanted)
    for place in range(100_000, 140_000):
        add(place, place)
    assert array in kinds(ids), "a wide shard that fills up with other ids becomes narrow"
    check_ids(ids, wanted)
    for own, places in wanted.items():
        for place in places:
            ids.remove(own, place)
    check_ids(ids, {})


def test_a_pair_takes_a_narrow_slot():
    ids = Ids()
    for place in range(1, 20_001):
        ids.add(id_of(place // 2), place)
    assert kinds(ids) == {array}


@pytest.mark.parametrize("wide", [False, True])
def test_a_slot_has_so_many_postings_and_a_list_has_more(wide):
    chance = random.Random(1)
    ids, wanted = Ids(), {}
    if wide:
        ids._copy(0, module._Wide)
    for number in range(300):
        wanted[id_of(number)] = chance.sample(range(1 + 100 * number, 101 + 100 * number), number % 20 + 1)
    for own, places in wanted.items():
        for place in places:
            ids.add(own, place)
    assert len(ids._lists) == sum(len(places) > module.LONGEST for places in wanted.values()) > 0
    check_ids(ids, {own: sorted(places) for own, places in wanted.items()})
    for own, places in wanted.items():
        for place in places[1:]:
            ids.remove(own, place)
    check_ids(ids, {own: places[:1] for own, places in wanted.items()})
    assert len(ids._free) == len(ids._lists), "one posting is no list"


@pytest.mark.parametrize("seed", range(12))
def test_small_shards_have_what_a_dictionary_has(monkeypatch, seed):
    """They are divided and merged, and become wide and narrow, again and again."""
    small = {"_FIRST": 16, "_SLOTS": 128, "_FARTHEST": 0, "_FARTHEST_WIDE": 0, "_SELDOM": 0, "_MANY": 3}
    for name, value in small.items():
        monkeypatch.setattr(module, name, value)
    chance = random.Random(seed)
    ids, wanted = Ids(), {}
    for step, place in enumerate(chance.sample(range(1, 4_000), 2_000)):
        if step % 400 == 0:
            leaving, sharing = chance.choice([0.4, 0.8]) if step else 0.2, chance.choice([1, 2, 20])
        if wanted and chance.random() < leaving:
            own = chance.choice(list(wanted))
            ids.remove(own, wanted[own].pop(chance.randrange(len(wanted[own]))))
            if not wanted[own]:
                del wanted[own]
        else:
            own = id_of(chance.randrange(200 // sharing))
            ids.add(own, place)
            wanted.setdefault(own, []).append(place)
        if step % 100 == 0:
            check_ids(ids, {own: sorted(listed) for own, listed in wanted.items()})
            if step % 300 == 0 and len(ids._shards) > 1:
                chosen = chance.randrange(len(ids._shards))
                if module._taken(ids._shards[chosen], module._width(ids._shards[chosen])) <= 4:
                    ids._copy(chosen, array if type(ids._shards[chosen]) is module._Wide else module._Wide)
    assert len(ids._shards) > 1


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


@pytest.mark.parametrize("each", [1, 10])
def test_what_is_not_there_cannot_be_taken_out(each):
    ids = Ids()
    ids.add(id_of(1), 7)
    for number in range(1_000):
        for place in range(each):
            ids.add(id_of(10 + number), 10 + each * number + place)
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
