"""Subscriptions with the same selector share an entry, and each still gets its messages once."""

import random

import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pytest

import selectroute as sr
from selectroute.index.describe import statistics
from selectroute.index.errors import InvariantError
from selectroute.index.invariants import verify_snapshot
from tests.support.merging import merge
from tests.unit.index.test_snapshot_files import with_tables

DISTINCT = (
    *("JMSType = 't1'", "JMSType = 't1' AND weight > 5", "JMSType = 't1' AND weight BETWEEN 2 AND 7"),
    *("JMSType = 't1' AND weight BETWEEN 2 AND 9", "JMSType = 't1' AND color LIKE '%d'"),
    *("JMSType = 't1' OR color = 'red'", "JMSType = 't1' OR color = 'red' OR weight = 6"),
    *("JMSType IN ('t1', 't2') AND weight > 5", "color LIKE 're%'", "color LIKE '%d' OR weight > 5"),
    *("weight > 100", "", "JMSType = 't1' OR JMSType = 't1'"),
    "JMSType = 't1' AND weight > 5 OR weight > 5 AND JMSType = 't1'",
)
MESSAGES = pa.table(
    {
        "JMSType": ["t1", "t2", None, "t1"],
        "weight": pa.array([6, 6, 1, None], pa.int64()),
        "color": ["red", "blue", "red", None],
    }
)


def built(selectors):
    snapshot = sr.build_snapshot((f"s{number}", one, None) for number, one in enumerate(selectors))
    verify_snapshot(snapshot)
    return snapshot


def shared(selectors, copies, seed=1):
    """A snapshot of copies of selectors in a random order, and those selectors by id."""
    listed = list(selectors) * copies
    random.Random(seed).shuffle(listed)
    snapshot = built(listed)
    assert len(snapshot.segments[0].tables.ordinal_first), "entries are shared"
    return snapshot, {f"s{number}": one for number, one in enumerate(listed)}


def assert_matches(snapshot, registered):
    """Each message reaches those that the reference evaluator selects, each once."""
    for row, ids in zip(MESSAGES.to_pylist(), snapshot.match(MESSAGES).ids().to_pylist(), strict=True):
        headers, properties = {"JMSType": row.pop("JMSType")}, row
        message = sr.Message(headers=headers, properties=properties)
        wanted = {id for id, one in registered.items() if sr.Selector(one).matches(message)}
        assert set(ids) == wanted
        assert len(ids) == len(wanted), "each subscription once"


@pytest.mark.parametrize("copies", [1, 2, 3, 4])
@pytest.mark.parametrize(
    "selector",
    [
        "JMSType = 't1' OR JMSType = 't1'",
        "JMSType = 't1' OR JMSType = 't1' OR JMSType = 't1'",
        "JMSType = 't1' AND color = 'red' OR color = 'red' AND JMSType = 't1'",
        "weight = 6 OR weight = 6.0",
        "JMSType = 't1' AND weight > 5 OR JMSType = 't1' AND 5 < weight",
        "weight + 1 = 7 OR weight + 1 = 7",
        "color LIKE '%d' OR color LIKE '%d'",
    ],
)
def test_a_subscription_that_has_a_clause_twice_gets_the_message_once(selector, copies):
    assert_matches(built([selector] * copies), {f"s{number}": selector for number in range(copies)})


@pytest.mark.parametrize("copies", [2, 3, 70])
def test_all_that_share_an_entry_get_the_message_once(copies):
    assert_matches(*shared(DISTINCT, copies))


def test_a_thousand_selectors_of_a_hundred_thousand_subscriptions_take_the_memory_of_a_thousand():
    selectors = [f"JMSType = 't{n % 50}' AND weight > {n}" for n in range(1_000)]
    alone, many = built(selectors), built(selectors * 100)
    assert many.nbytes < alone.nbytes + 8 * 1_000 + 8 * len(many)
    found = statistics(many)
    assert (found.entries, found.subscriptions_per_entry) == (1_000, 100.0)
    assert statistics(alone).subscriptions_per_entry == 1.0


def test_few_that_are_alike_are_not_shared(tmp_path):
    snapshot = built([f"weight = {n}" for n in range(100)] + ["weight = 1"])
    assert not len(snapshot.segments[0].tables.ordinal_first)
    sr.publish(snapshot, tmp_path)
    verify_snapshot(sr.Snapshot.open(tmp_path))


def test_a_change_splits_one_off_until_it_is_like_others_again():
    snapshot, registered = shared(DISTINCT, 5)
    of_first = [id for id, one in registered.items() if one == DISTINCT[5]]
    snapshot = snapshot.changed(
        [sr.Replace(of_first[0], "weight = 1"), sr.Remove(of_first[1]), sr.Add("new", DISTINCT[5])]
    )
    registered |= {of_first[0]: "weight = 1", "new": DISTINCT[5]}
    del registered[of_first[1]]
    assert_matches(snapshot, registered)
    merged = sr.Snapshot.of(merge(snapshot))
    assert_matches(merged, registered)
    assert len(merged.segments) == 1
    assert statistics(merged).subscriptions_per_entry > 4


def test_a_published_snapshot_is_shared_too(tmp_path):
    snapshot, registered = shared(DISTINCT, 4)
    sr.publish(snapshot, tmp_path)
    opened = sr.Snapshot.open(tmp_path)
    assert len(opened.segments[0].tables.ordinal_first)
    assert_matches(opened, registered)


def test_subscriptions_with_many_clauses_stay_apart_and_right():
    many = " OR ".join(f"color = 'c{n}' AND weight > {n}" for n in range(70))
    _, registered = shared(["weight = 6", "JMSType = 't1' OR color = 'red'"], 300)
    snapshot = built([*registered.values(), many, many])
    assert len(snapshot.segments[0].tables.ordinal_first)
    messages = pa.table({"color": ["c3"], "weight": [50]})
    assert sorted(snapshot.match(messages)[0].tolist()) == [600, 601]


def test_a_subscription_that_shares_an_entry_twice_is_noticed():
    snapshot = built(["weight = 1"] * 4)
    with pytest.raises(InvariantError, match="ascend"):
        verify_snapshot(with_tables(snapshot, entry_ordinal=np.array([0, 1, 1, 2], np.int32)))


@pytest.mark.parametrize("wrong", [[0], [0, 1], [1, 2, 3, 4], [0, 2, 2, 4], [0, 3, 2, 4], [0, 1, 2, 5]])
def test_what_would_lead_the_kernel_astray_is_refused(wrong):
    snapshot = built(["weight = 1", "weight = 2", "weight = 3"] * 2)
    assert len(snapshot.segments[0].tables.ordinal_first) == 4
    with pytest.raises(InvariantError):
        verify_snapshot(with_tables(snapshot, ordinal_first=np.array(wrong, np.int64)))
