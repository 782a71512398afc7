"""A short run of the random changes, and that it would find a fault."""

from __future__ import annotations

import pytest

from selectroute.index.snapshot import Snapshot
from tests.properties.fuzz import changes as fuzz

pytestmark = pytest.mark.slow

SHORT = 3_000


def test_random_changes_come_to_what_a_dict_has():
    tally = fuzz.Changer(seed=1, every=500).run(SHORT)
    assert tally.changes > SHORT and tally.refused > 10
    assert tally.most > 200 and tally.merges > 5
    assert tally.pairs > 10_000 and tally.matches > 1_000


def test_a_tombstone_that_is_forgotten_is_found(monkeypatch):
    monkeypatch.setattr(Snapshot, "deaths", property(lambda self: (0,) * len(self.segments)))
    with pytest.raises(AssertionError, match="the snapshot on"):
        fuzz.Changer(seed=2, every=50).run(400)


def test_what_an_index_keeps_of_removed_subscriptions_is_found(monkeypatch):
    changer = fuzz.Changer(seed=3, every=100)
    changer.index.statistics._totals["left"] = 1
    with pytest.raises(AssertionError, match="an empty index still has"):
        changer.run(100)


def test_a_run_can_be_made_again():
    one, other = (fuzz.Changer(seed=4, every=100) for _ in range(2))
    first, second = one.run(300), other.run(300)
    first.seconds = second.seconds = 0.0
    assert first == second
