"""Short lists in rows: against plain lists."""

from __future__ import annotations

import random
from itertools import islice

import pytest

from selectroute.queues.memory.postings import LONGEST, Rows


def test_rows_have_what_lists_have_however_places_come_and_go():
    chance = random.Random(1)
    rows, wanted = Rows(), {}
    for place in range(1, 12_000):
        action = chance.random()
        if (action < 0.3 and len(wanted) < 6_000) or not wanted:
            pair = [place, place + 100_000]
            chance.shuffle(pair)
            wanted[rows.make(*pair)] = sorted(pair)
        elif action < 0.6:
            number, places = chance.choice(list(islice(reversed(wanted.items()), 50)))
            other = chance.choice([place, 200_000 + place])
            assert rows.add(number, other) == (len(places) < LONGEST)
            if len(places) < LONGEST:
                places.append(other)
                places.sort()
        else:
            number, places = chance.choice(list(islice(reversed(wanted.items()), 50)))
            gone = places.pop(chance.randrange(len(places)))
            left = rows.remove(number, gone)
            assert left == (places[0] if len(places) == 1 else 0)
            if left:
                del wanted[number]
        if place % 200 == 0:
            assert all(list(rows.listed(number)) == places for number, places in wanted.items())
            assert len(rows) == len(wanted)


def test_a_full_row_takes_no_more_and_stays_as_it_is():
    rows = Rows()
    number = rows.make(2, 1)
    assert all(rows.add(number, place) for place in range(3, LONGEST + 1))
    assert not rows.add(number, 99)
    assert list(rows.listed(number)) == [*range(1, LONGEST + 1)]
    rows.drop(number)
    assert len(rows) == 0
    assert rows.make(7, 8) == number


def test_what_is_not_in_a_row_cannot_be_taken_out():
    rows = Rows()
    with pytest.raises(ValueError, match="not in"):
        rows.remove(rows.make(1, 2), 3)
