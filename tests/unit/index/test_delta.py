"""Changes to a snapshot: deltas and tombstones mean what a new index would."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pyarrow as pa
import pytest

import selectroute as sr
from selectroute.index.changes import Add, Remove, Replace
from selectroute.index.describe import statistics
from selectroute.index.errors import (
    DuplicateSubscriptionError,
    InvalidIdError,
    InvariantError,
    UnknownSubscriptionError,
)
from selectroute.index.invariants import verify_snapshot
from selectroute.match.columns.from_messages import from_messages
from tests.support.merging import merge
from tests.unit.index.changing import expected, found, live_ids, random_changes, random_messages

MESSAGES = pa.record_batch({"JMSType": ["car", "bus", None], "weight": pa.array([3000, 10, 7], pa.int32())})


def base() -> sr.Snapshot:
    index = sr.Index()
    index.add("heavy", "JMSType = 'car' AND weight > 2500")
    index.add("light", "weight < 100")
    index.add("all")
    index.add("topic", topic="a/#")
    return index.freeze(7)


def ids(snapshot, messages=MESSAGES):
    return [sorted(snapshot.ids.take(row).to_pylist()) for row in snapshot.match(messages)]


def test_a_change_makes_another_snapshot_and_leaves_the_old_one_as_it_was():
    old = base()
    new = old.changed([Add("any", "weight > 0"), Remove("all"), Replace("light", "weight < 10")], 8)
    assert ids(new) == [["any", "heavy"], ["any"], ["any", "light"]]
    assert ids(old) == [["all", "heavy"], ["all", "light"], ["all", "light"]]
    assert (len(old), len(new)) == (4, 4)
    assert (old.revision, new.revision) == (7, 8)
    assert live_ids(new) == ["any", "heavy", "light", "topic"]
    verify_snapshot(new)


@pytest.mark.parametrize("many", [False, True])
def test_a_delta_has_destinations_and_what_is_replaced_keeps_its_own(monkeypatch, many):
    monkeypatch.setattr("selectroute.index.changes._MANY", 1 if many else 1_000)
    old = base().changed([Add("a", "weight = 1", destination="queue:A"), Add("b", "weight = 1")])
    changes = [Replace("a", "weight = 2"), Replace("b", "weight = 2", destination="queue:B")]
    new = old.changed([*changes, Add("c", destination="kafka:c")])
    none = new.changed([Replace("a", "weight = 3", destination=None)])
    wanted = [["queue:A", None], ["queue:A", "queue:B"], [None, "queue:B"]]
    for snapshot, own in zip((old, new, none), wanted, strict=True):
        texts = snapshot.subscriptions["destination"].to_pylist()
        assert [texts[ordinal] for ordinal in snapshot.find(["a", "b"])] == own
    assert merge(new).subscriptions["destination"].to_pylist()[-3:] == ["queue:A", "queue:B", "kafka:c"]


def test_segments_before_a_delta_are_shared_and_their_ordinals_stay():
    old = base()
    new = old.changed([Remove("heavy"), Add("b", "weight = 10")])
    newest = new.changed([Replace("b", "weight = 7")])
    assert newest.segments[:2] == new.segments and new.segments[0] is old.segments[0]
    assert newest.ids[1].as_py() == old.ids[1].as_py() == "light"
    assert newest.dead.tolist() == [True, False, False, False, True, False]
    assert newest.deaths == (1, 1, 0)
    memory = old.subscriptions["selector"].chunk(0).buffers()[2].address
    assert newest.subscriptions["selector"].chunk(0).buffers()[2].address == memory, "no copy of the table"


def test_replace_keeps_the_topic_unless_one_is_given():
    snapshot = base().changed([Replace("topic", "weight > 5")])
    batch = pa.record_batch({"weight": [7, 7], "@topic": ["a/b", "b"]})
    assert ["topic" in row for row in ids(snapshot, batch)] == [True, False]
    assert all("topic" in row for row in ids(snapshot.changed([Replace("topic", "weight > 5", None)]), batch))


def test_changes_in_one_go_follow_one_another():
    changes = [Add("x", "weight = 7"), Replace("x", "weight = 10"), Remove("x"), Add("x", "weight = 3000")]
    changes += [Remove("all"), Add("all", "weight = 7"), Remove("all")]
    snapshot = base().changed(changes)
    assert ids(snapshot) == [["heavy", "x"], ["light"], ["light"]]
    assert len(snapshot) == 4
    verify_snapshot(snapshot)


@pytest.mark.parametrize("many", [2, 1], ids=["one by one", "by shapes"])
@pytest.mark.parametrize(
    ("change", "error"),
    [
        (Add("light", "weight > 1"), DuplicateSubscriptionError),
        (Replace("none", "weight > 1"), UnknownSubscriptionError),
        (Remove("none"), UnknownSubscriptionError),
        (Remove("gone"), UnknownSubscriptionError),
        (Replace("gone", "weight > 1"), UnknownSubscriptionError),
        (Remove("é\ud800"), UnknownSubscriptionError),
        (Add("x", "weight >"), sr.InvalidSelectorError),
        (Replace("light", "weight >"), sr.InvalidSelectorError),
        (Add("no id"), InvalidIdError),
        (Add("x", topic="a/#b"), sr.SelectRouteError),
        (Add("x", "weight > 1", dialect="sql"), sr.SelectRouteError),
    ],
)
def test_what_an_index_refuses_is_refused_and_nothing_is_done(change, error, many, monkeypatch):
    monkeypatch.setattr("selectroute.index.changes._MANY", many)
    snapshot = base().changed([Add("gone"), Remove("heavy")]).changed([Remove("gone")])
    before = ids(snapshot)
    with pytest.raises(error):
        snapshot.changed([change])
    assert ids(snapshot) == before and len(snapshot) == 3
    assert ids(snapshot.changed([Add("gone", "weight = 7")]))[2] == sorted([*before[2], "gone"])


def test_everything_can_go_and_come_again():
    same = base().changed([], 9)
    assert (same.revision, len(same.segments), ids(same)) == (9, 1, ids(base()))
    snapshot = same.changed([Remove(id) for id in ("heavy", "light", "all", "topic")])
    assert len(snapshot) == 0 and ids(snapshot) == [[], [], []]
    assert snapshot.segments[1].rows == 0
    again = snapshot.changed([Add("light", "weight < 100")])
    assert ids(again) == [[], ["light"], ["light"]]
    of_nothing = sr.Index().freeze().changed([Add("a", "weight > 5")]).changed([Add("b", "weight > 8")])
    assert ids(of_nothing) == [["a", "b"], ["a", "b"], ["a"]]
    for one in (snapshot, again, of_nothing):
        verify_snapshot(one)


def test_statistics_count_the_living_and_say_where_the_dead_lie():
    found = statistics(base().changed([Remove("heavy"), Add("b", "JMSType = 'car'"), Add("c")]))
    assert found.subscriptions == 5
    assert [(one.rows, one.dead) for one in found.segments] == [(4, 1), (2, 0)]
    assert {one.attributes: one.entries for one in found.tuples}[("JMSType",)] == 2


def test_ids_are_found_wherever_they_lie():
    snapshot = (
        base().changed([Add("b"), Add("c")]).changed([Remove("b")]).changed([Replace("light", "x = 1")])
    )
    places = {"heavy": 0, "c": 5, "none": -1, "light": 6, "b": 4, "é": -1, "": -1}
    assert snapshot.ids.find([*places]).tolist() == [*places.values()]
    assert [one.as_py() for one in snapshot.ids] == snapshot.ids.to_pylist()
    assert snapshot.ids.take([6, 0, 6, 5, 1]).to_pylist() == ["light", "heavy", "light", "c", "light"]
    assert snapshot.ids.take([]).to_pylist() == []
    assert pa.array(snapshot.ids).to_pylist() == snapshot.ids.to_pylist()
    assert [snapshot.ids[n].as_py() for n in range(len(snapshot.ids))] == snapshot.ids.to_pylist()
    with pytest.raises(IndexError):
        snapshot.ids[len(snapshot.ids)]


def test_ids_whose_hashes_are_equal_are_told_apart(monkeypatch):
    monkeypatch.setattr(
        "selectroute.arrays.ids.string_hashes", lambda strings: np.zeros(len(strings), np.uint64)
    )
    names = [f"s{n}" for n in range(50)]
    index = sr.Index()
    for name in names:
        index.add(name)
    snapshot = index.freeze()
    assert snapshot.ids.find([*names[::-1], "none"]).tolist() == [*range(49, -1, -1), -1]
    assert len(snapshot.changed([Remove(name) for name in names[::2]])) == 25


def test_a_property_that_dialects_read_differently_is_a_column_for_both():
    """What may be bytes is for all segments together to say: here one reads `id` without byte strings."""
    index = sr.Index()
    index.add("mq", 'id = "0x41"', dialect="ibm-mq")
    snapshot = index.freeze().changed([Add("jms", "id = 'A'")])
    assert ids(snapshot, pa.record_batch({"id": ["A"]})) == [["jms"]]


def test_extended_subscriptions_come_and_go(monkeypatch):
    class Odd:
        def identifiers(self, selector):
            return ["weight"]

        def matches(self, selector, message):
            return message.value("weight").value % 2 == 1

    monkeypatch.setattr("selectroute.selector.extended.provider", lambda: Odd())
    monkeypatch.setattr("selectroute.selector.extended.usable_provider", lambda: Odd())
    monkeypatch.setattr("selectroute.match.extended.usable_provider", lambda: Odd())
    index = sr.Index()
    index.add("odd", "odd", dialect="ibm-mq", extended=True)
    old = index.freeze()
    assert ids(old) == [[], [], ["odd"]]
    both = old.changed([Add("too", "odd", dialect="ibm-mq", extended=True)])
    assert ids(both) == [[], [], ["odd", "too"]]
    one = both.changed([Remove("odd"), Add("plain", "weight = 7")])
    assert ids(one) == [[], [], ["plain", "too"]]
    assert one.extended.sum() == 1
    none = one.changed([Replace("too", "JMSType = 'bus'")])
    assert none.extended is None
    assert ids(none) == [[], ["too"], ["plain"]]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_random_changes_mean_what_the_reference_says(seed, monkeypatch):
    chance = Random(seed)
    monkeypatch.setattr("selectroute.index.changes._MANY", chance.choice([1, 8, 256]))
    live: dict[str, tuple[str, str | None]] = {}
    index = sr.Index()
    for change in random_changes(chance, live, 30):
        _to_index(index, change)
    snapshot = index.freeze()
    for _ in range(8):
        changes = random_changes(chance, live, chance.choice([1, 2, 25]))
        for change in changes:
            _to_index(index, change)
        snapshot = snapshot.changed(changes)
        verify_snapshot(snapshot)
        assert live_ids(snapshot) == sorted(live) and len(snapshot) == len(live)
        messages = random_messages(chance, 30)
        wanted = [expected(live, message) for message in messages]
        assert found(snapshot, messages) == wanted
        assert [sorted(index.match(message)) for message in messages] == wanted


def _to_index(index, change):
    if isinstance(change, Add):
        index.add(change.id, change.selector, change.topic)
    elif isinstance(change, Replace):
        index.replace(change.id, change.selector, change.topic)
    else:
        index.remove(change.id)


def test_a_batch_larger_than_one_and_an_empty_one_go_through_all_segments():
    snapshot = base().changed([Replace("light", "weight = 7")])
    table = pa.Table.from_batches([MESSAGES, MESSAGES])
    assert ids(snapshot, table) == ids(snapshot) * 2
    assert len(snapshot.match(MESSAGES.slice(0, 0))) == 0
    assert snapshot.match(MESSAGES).ordinals.dtype == np.int32
    assert snapshot.match(from_messages([sr.Message()], snapshot.reads)).offsets.dtype == np.int64


@pytest.mark.parametrize(
    ("removed", "sentence"),
    [
        ([4], "before its own"),
        ([-1], "before its own"),
        ([1, 0], "ascend"),
        ([0, 0], "ascend"),
        ([2], "removed once"),
        ([0], "an id belongs to one subscription"),
    ],
)
def test_verify_notices_tombstones_that_cannot_be(removed, sentence):
    snapshot = base().changed([Replace("all", "weight = 7")])
    extra = base().changed([Remove("light")]).segments[1]
    segments, tombstones = [*snapshot.segments], np.array(removed, np.int32)
    if sentence == "removed once":
        segments.append(replace(extra, removed=tombstones))
    else:
        if sentence == "an id belongs to one subscription":
            tombstones = extra.removed
        segments[1] = replace(segments[1], removed=tombstones)
    with pytest.raises(InvariantError, match=sentence):
        verify_snapshot(replace(snapshot, segments=tuple(segments)))
