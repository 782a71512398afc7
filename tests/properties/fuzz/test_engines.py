"""The comparison of engines, a short run of it; and that it finds what is wrong."""

from __future__ import annotations

import numpy as np
import pytest

import selectroute as sr
from selectroute.index.compile import build, hot_keys
from selectroute.spark.partitions.snapshot import PartitionedSnapshot
from tests.properties.fuzz import engines

NONE = np.zeros(0, np.int64)

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def shapes_are_templates_and_leaves_are_divided(monkeypatch):
    monkeypatch.setattr(build, "FEW", 2)
    monkeypatch.setattr(hot_keys, "WORTH", 0.2)


def test_every_engine_agrees_on_a_few_rounds():
    pairs, shares = zip(*(engines.check(engines.make(0, number)) for number in range(4)), strict=True)
    assert sum(pairs) >= 4 * engines.SUBSCRIPTIONS * engines.MESSAGES
    assert shares[2], "a registry that repeats its selectors has no shared entries"


def test_a_round_is_known_by_its_number():
    assert engines.make(3, 5) == engines.make(3, 5)
    assert engines.make(3, 5) != engines.make(3, 6)


@pytest.mark.parametrize(
    ("owner", "method", "wrong", "said"),
    [
        (sr.Index, "match", lambda index, message: [], "index misses s"),
        (sr.Index, "match", lambda index, message: [one.id for one in index], "index wrongly gives s"),
        (PartitionedSnapshot, "addresses", lambda *_: (NONE, NONE), "built, in partitions misses s"),
    ],
)
def test_a_lost_and_a_wrong_match_are_found(monkeypatch, owner, method, wrong, said):
    monkeypatch.setattr(owner, method, wrong)
    with pytest.raises(AssertionError, match=said):
        engines.check(engines.make(0, 0))
