"""Merged segments mean the same, and are worth it when they are made."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

import selectroute as sr
from selectroute.index import changes as merge_module
from selectroute.index.changes import (
    DEAD_SHARE,
    MOST_SEGMENTS,
    RATIO,
    Add,
    Delta,
    Remove,
    Replace,
    merge_due,
    merge_size,
    merged,
    merged_part,
    merged_with,
    rolled_in,
)
from selectroute.index.compile import build as build_module
from selectroute.index.compile.build import SEGMENT_ROWS
from selectroute.index.invariants import verify_snapshot
from selectroute.index.publisher import Publisher
from selectroute.selector.limits import UNLIMITED
from tests.support.merging import merge
from tests.unit.index.changing import expected, found, live_ids, random_changes, random_messages


def of(count, prefix="s"):
    index = sr.Index()
    for number in range(count):
        index.add(f"{prefix}{number}", f"weight > {number}", "a/+" if number % 3 else None)
    return index.freeze(1)


@pytest.fixture(params=[SEGMENT_ROWS, 8])
def most_rows(request, monkeypatch):
    """The most rows of a segment: more than there are here, and few."""
    monkeypatch.setattr(build_module, "SEGMENT_ROWS", request.param)
    monkeypatch.setattr(merge_module, "SEGMENT_ROWS", request.param)
    return request.param


@pytest.mark.parametrize("seed", range(2))
def test_a_merge_of_any_segments_changes_no_match(seed, most_rows):
    chance = Random(seed)
    live: dict[str, tuple[str, str | None]] = {}
    snapshot = sr.Index().freeze()
    for _ in range(6):
        snapshot = snapshot.changed(random_changes(chance, live, chance.choice([1, 9, 30])))
    messages = random_messages(chance, 25)
    wanted = [expected(live, message) for message in messages]
    for first in range(len(snapshot.segments)):
        one = merged(snapshot, first, merged_part(snapshot, first))
        verify_snapshot(one)
        made = [segment.rows for segment in one.segments[first:]]
        assert len(made) <= -(-len(snapshot.ids) // most_rows) and max(made, default=0) <= most_rows
        assert live_ids(one) == sorted(live)
        assert found(one, messages) == wanted
    whole = merge(snapshot, 5)
    assert (whole.revision, whole.dead, len(whole.ids)) == (5, None, len(live))


@pytest.mark.parametrize("seed", range(3))
def test_what_changes_during_a_merge_is_rolled_in(seed, most_rows):
    chance = Random(seed)
    live: dict[str, tuple[str, str | None]] = {}
    then = sr.Index().freeze()
    for _ in range(4):
        then = then.changed(random_changes(chance, live, chance.choice([1, 30])))
    first = chance.randrange(len(then.segments))
    part = merged_part(then, first)
    now = then
    for _ in range(chance.randrange(4)):
        now = now.changed(random_changes(chance, live, chance.choice([1, 30])))
    result = rolled_in(then, first, part, now)
    verify_snapshot(result)
    assert live_ids(result) == sorted(live) and len(result) == len(live)
    messages = random_messages(chance, 25)
    assert found(result, messages) == [expected(live, message) for message in messages]


@pytest.mark.parametrize("seed", range(4))
def test_changes_merged_at_once_are_the_same_as_changed_and_then_merged(seed):
    chance = Random(seed)
    live: dict[str, tuple[str, str | None]] = {}
    snapshot = sr.Index().freeze()
    for _ in range(5):
        snapshot = snapshot.changed(random_changes(chance, live, chance.choice([1, 9, 30])))
    # Each subscription changes once.
    changes = list({one.id: one for one in random_changes(chance, dict(live), 40)}.values())
    changes = [one for one in changes if isinstance(one, Add) != (one.id in live)]
    delta = Delta(snapshot, changes, UNLIMITED)
    assert delta.is_plain and changes
    after = snapshot.changed(changes)
    assert merge_due(snapshot, 0, delta) == merge_due(after)
    for first in range(len(snapshot.segments)):
        assert merge_size(snapshot, first, delta) == merge_size(after, first)
        wanted = merged(after, first, merged_part(after, first))
        made = merged_with(delta, first)
        verify_snapshot(made)
        assert made.subscriptions == wanted.subscriptions
        assert len(made.segments) == len(wanted.segments)
        for one, other in zip(made.segments, wanted.segments, strict=True):
            assert one.rows == other.rows and one.removed.tolist() == other.removed.tolist()
            assert all(np.array_equal(*each) for each in zip(one.tables, other.tables, strict=True))


def test_a_wrong_selector_merged_at_once_raises_its_own_error(tmp_path):
    with Publisher(tmp_path, limits=UNLIMITED) as publisher:
        publisher.apply([Add("a", "x = 1")])
        before = publisher.snapshot
        for wrong in (Add("b", "x = "), Add("a", "x = 2"), Replace("c", "x = 1"), Remove("c")):
            with pytest.raises(sr.SelectRouteError) as error:
                publisher.apply([wrong])
            assert not isinstance(error.value, sr.BuildError)
        assert publisher.snapshot is before


def test_deltas_that_a_merge_does_not_concern_stay_the_same_objects():
    then = of(10).changed([Add("x"), Add("y")]).changed([Add("z")])
    now = then.changed([Add("late"), Remove("s3")])
    result = rolled_in(then, 1, merged_part(then, 1), now)
    assert result.segments[0] is now.segments[0] and result.segments[2] is now.segments[3]


def test_order_topics_and_types_survive_a_merge():
    index = sr.Index()
    index.add("c", "contains x", "a/#", dialect="ibm-mq", extended=True)
    index.add("b")
    snapshot = index.freeze().changed([Replace("b", "x = 1", "b/+"), Add("a", "y = 2", dialect="mqe")])
    rows = merge(snapshot).subscriptions.drop_columns(["destination"]).to_pylist()
    assert [tuple(row.values()) for row in rows] == [
        ("c", "a/#", "contains x", "ibm-mq", "EXTENDED"),
        ("b", "b/+", "x = 1", "jms", "STANDARD"),
        ("a", None, "y = 2", "mqe", "STANDARD"),
    ]


@pytest.mark.slow
def test_a_selector_that_other_limits_allowed_survives_a_merge():
    text = " OR ".join(f"x = {number}" for number in range(20_000))
    assert len(text) > 65_536
    snapshot = sr.Index().freeze().changed([Add("long", sr.Selector(text, limits=UNLIMITED)), Add("e")])
    with pytest.raises(sr.InvalidSelectorError):
        sr.Selector(text)
    assert merge(snapshot).subscriptions["selector"].to_pylist() == [text, ""]


def test_a_merge_is_due_when_a_segment_is_not_much_larger_than_what_came_after():
    snapshot = of(8 * RATIO)
    for count in (4, 1):
        snapshot = snapshot.changed([Add(f"d{count}-{n}") for n in range(count)])
    assert merge_due(snapshot) is None
    snapshot = snapshot.changed([Add("e")])
    assert merge_due(snapshot) == 2, "the two small ones"
    assert merge_size(snapshot, 2) == 2
    assert merge_due(snapshot.changed([Add("f")])) == 1, "and now what lies before them"
    assert merge_due(snapshot.changed([Add("f")]), sealed=2) == 2
    assert merge_due(snapshot, sealed=4) is None


def test_a_merge_of_everything_is_due_when_too_many_are_dead():
    snapshot = of(1_000)
    few = snapshot.changed([Remove(f"s{n}") for n in range(1_000 // DEAD_SHARE)])
    assert merge_due(few) is None
    more = few.changed([Remove("s999")])
    assert merge_due(more) == 0
    assert merge_due(more, sealed=3) is None


def test_segments_stay_few_and_rewriting_is_logarithmic():
    """A subscription a time: what is rewritten, for each change, is O(log n), and so is the number of
    segments."""
    chance = Random(1)
    sizes, rewritten = [1 << 20], 0
    most = 0
    changes = 20_000
    for _ in range(changes):
        sizes.append(chance.choice([1, 1, 1, 5, 60]))
        fake = _Sizes(sizes)
        due = merge_due(fake)
        if due is not None:
            rewritten += sum(sizes[due:])
            sizes[due:] = [sum(sizes[due:])]
        assert (
            all(size >= RATIO * sum(sizes[n + 1 :]) for n, size in enumerate(sizes))
            or len(sizes) == MOST_SEGMENTS
        )
        most = max(most, len(sizes))
    assert most <= MOST_SEGMENTS
    added = changes * 13.6
    assert rewritten / added < 40


class _Sizes:
    """As much of a snapshot as `merge_due` reads: segments of these sizes, nothing dead."""

    def __init__(self, sizes):
        self.segments = [_Rows(size) for size in sizes]
        self.deaths = [0] * len(sizes)
        self.firsts = [sum(sizes)]


class _Rows:
    def __init__(self, rows):
        self.rows, self.removed = rows, ()
