"""Selectors that come and go are found wherever they are: in the index, or in a snapshot."""

import random
from itertools import pairwise

import pytest

import selectroute as sr
from selectroute.queues import waiting_selectors
from selectroute.queues.waiting_selectors import WaitingSelectors

MESSAGES = [sr.Message(properties={"a": a, "b": "xyz"[a % 3]}) for a in range(6)]


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(waiting_selectors, "NEWEST", 4)
    monkeypatch.setattr(waiting_selectors, "LARGE", 16)


def expected(known, message):
    return {name for name, selector in known.items() if selector.matches(message)}


@pytest.mark.parametrize("seed", range(4))
def test_all_that_are_there_are_found_and_no_other(small, seed):
    chance = random.Random(seed)
    selectors, known = WaitingSelectors(), {}
    for _ in range(300):
        name = f"s{chance.randrange(60)}"
        if name in known:
            selectors.remove(name)
            del known[name]
        else:
            text = chance.choice(("a = {0}", "a > {0} AND b = 'x'", "b <> 'y' OR a = {0}", "a + 1 = {0}"))
            known[name] = sr.Selector(text.format(chance.randrange(6)))
            selectors.add(name, known[name])
        if chance.random() < 0.2:
            for message in MESSAGES:
                found = selectors.match(message)
                assert len(found) == len(set(found))
                assert set(found) == expected(known, message)
    for name in list(known):
        selectors.remove(name)
    assert not any(selectors.match(message) for message in MESSAGES)
    assert not selectors._levels, "what nothing waits for takes no memory"


def test_snapshots_are_merged_until_they_are_large(small):
    selectors = WaitingSelectors()
    for number in range(200):
        selectors.add(f"s{number}", sr.Selector(f"a = {number}"))
        sizes = [len(level.live) for level in selectors._levels]
        assert len(selectors._newest) < 4
        assert all(one >= min(16, 2 * other) for one, other in pairwise(sizes)), sizes
    assert len(selectors._levels) <= 200 // 16 + 3


def test_a_selector_that_comes_back_with_another_text_counts_once(small):
    selectors = WaitingSelectors()
    for number in range(5):
        selectors.add(f"s{number}", sr.Selector("a = 1"))
    selectors.remove("s0")
    assert "s0" not in selectors.match(MESSAGES[1])
    selectors.add("s0", sr.Selector("a = 2"))
    assert "s0" not in selectors.match(MESSAGES[1])
    assert selectors.match(MESSAGES[2]) == ["s0"]
