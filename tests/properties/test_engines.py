"""Index and kernel agree with the reference evaluator on every selector and message."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import selectroute as sr
from selectroute.clauses.normal_form import MAX_CLAUSES, clauses_of
from selectroute.index.invariants import verify_snapshot
from selectroute.selector.dialect import dialect
from selectroute.topics import TopicFilter, level_value
from tests.support.components import NIGHTLY
from tests.support.index_invariants import verify_index
from tests.support.strategies import checked_selectors, table_of, table_rows

pytestmark = pytest.mark.slow

TOPICS = (
    "a", "a/b", "+", "#", "a/#", "+/b", "#/b",
    "a/#/b/#", "#/+", "cars/+/de", "#/eu/#", "cars/eu/de", "/", "a/+/#",
)  # fmt: skip
registries = st.lists(
    st.tuples(checked_selectors() | st.just(sr.Selector("")), st.none() | st.sampled_from(TOPICS)),
    min_size=24,
    max_size=24,
)
batches = st.lists(table_rows(), min_size=24, max_size=24)
thorough = settings(
    max_examples=144 if NIGHTLY else 12, deadline=None, suppress_health_check=list(HealthCheck)
)


def expected(registry: list[tuple[sr.Selector, str | None]], message: sr.Message) -> set[str]:
    """The ids that the reference evaluator selects, one selector after the other."""
    return {
        f"s{number}"
        for number, (selector, topic) in enumerate(registry)
        if (topic is None or TopicFilter.parse(topic).matches(message.topic)) and selector.matches(message)
    }


def index_of(registry: list[tuple[sr.Selector, str | None]]) -> sr.Index:
    index = sr.Index()
    for number, (selector, topic) in enumerate(registry):
        index.add(f"s{number}", selector, topic)
    return index


def check_kernel(snapshot: sr.Snapshot, registry: list[Any], batch: Sequence[sr.Message]) -> list[set[str]]:
    """Check what a snapshot gives for messages, all at once and one by one; return it."""
    ids = snapshot.ids.to_pylist()
    wanted = [expected(registry, message) for message in batch]
    at_once = snapshot.match(table_of(batch, snapshot.reads))
    for message, row, chosen in zip(batch, at_once, wanted, strict=True):
        for found in ([ids[ordinal] for ordinal in row], snapshot.match_one(message).ids()):
            assert set(found) == chosen
            assert len(found) == len(chosen), "each subscription once"
    return wanted


@thorough
@given(registries, batches)
def test_index_and_kernel_agree_with_the_reference(registry, batch):
    index = index_of(registry)
    verify_index(index)
    snapshot = index.freeze()
    verify_snapshot(snapshot)
    for message, wanted in zip(batch, check_kernel(snapshot, registry, batch), strict=True):
        matched = index.match(message)
        assert set(matched) == wanted
        assert len(matched) == len(wanted), "each subscription once"
        for id in ("s0", "s1"):
            explanation = index.explain(id, message)
            assert explanation.matched == (id in wanted) == any(step.holds for step in explanation.steps)


CLAUSES = [
    "a = 1", "a > 0", "b = 'x' AND a < 2", "b LIKE '%a'", "color IS NULL", "NOT (a >= 1)", "weight < 7.5"
]  # fmt: skip
ored = st.lists(st.sampled_from(CLAUSES), min_size=1, max_size=4).map(" OR ".join).map(sr.Selector)
"""Selectors of few clauses, so that many have one twice, in one order or another."""


@settings(thorough, max_examples=48 if NIGHTLY else 4)
@given(
    st.lists(st.sampled_from(range(8)), min_size=30, max_size=60),
    registries,
    st.tuples(st.tuples(ored, st.none()), st.tuples(ored, st.sampled_from(TOPICS))),
    batches,
)
def test_entries_that_are_shared_agree_with_the_reference(drawn, some, repeating, batch):
    pool = [*some[:6], *repeating]
    registry = [pool[number] for number in drawn]
    # As texts: a selector that is parsed alone has no clause twice.
    snapshot = sr.build_snapshot(
        {"id": f"s{n}", "selector": selector.text or None, "topic": topic, "dialect": selector.dialect}
        for n, (selector, topic) in enumerate(registry)
    )
    verify_snapshot(snapshot)
    check_kernel(snapshot, registry, batch)


@thorough
@given(checked_selectors(max_leaves=12), batches)
def test_a_selector_is_true_exactly_when_a_clause_holds(selector, batch):
    clauses = clauses_of(selector.expression, dialect(selector.dialect))
    assert len(clauses) <= MAX_CLAUSES
    for message in batch:
        assert any(clause.holds(message.value) for clause in clauses) is selector.matches(message)


@pytest.mark.parametrize("bound", [1, 3])
def test_clauses_beyond_the_bound_keep_the_meaning(bound, monkeypatch):
    """With a tiny bound nearly every selector has an opaque part, so that path is compared, too."""
    monkeypatch.setattr("selectroute.clauses.normal_form.MAX_CLAUSES", bound)

    @settings(thorough, max_examples=24 if NIGHTLY else 2)
    @given(registries, batches)
    def agree(registry, batch):
        index = index_of(registry)
        for message, wanted in zip(batch, check_kernel(index.freeze(), registry, batch), strict=True):
            assert set(index.match(message)) == wanted

    agree()


@given(st.text("ab+#/", min_size=1, max_size=8), st.text("ab/", max_size=8))
def test_literals_of_a_topic_filter_hold_exactly_where_it_matches(filter_text, topic):
    levels = ["#" if "#" in level else "+" if "+" in level else level for level in filter_text.split("/")]
    topic_filter = TopicFilter.parse("/".join(levels) or "a")

    def lookup(name):
        return level_value(name, topic)

    assert all(literal.holds(lookup) for literal in topic_filter.literals()) is topic_filter.matches(topic)


def test_many_subscriptions_under_crowded_keys_agree_with_the_reference():
    """Enough clauses that pairs of attributes, sorted groups and splits are really used."""
    chance = random.Random(7)
    shapes = (
        "JMSType = 't{n4}' AND color = 'c{n5}' AND weight > {n99}",
        "color IN ('c1', 'c{n5}') AND JMSType = 't1' AND NOT (weight <= {n99}.5)",
        "JMSType = 't{n4}' AND weight BETWEEN {n50} AND {n99}",
        "color = 'c{n5}' OR weight = {n9} OR JMSType = 't2'",
        "weight < {n99}F AND urgent",
        "color IS NULL AND weight >= {n99}",
        "color LIKE '%{n5}' AND JMSType <> 't1'",
        "weight * 2 > {n200} AND JMSPriority = {n3}",
    )
    numbers = {f"n{limit}": limit for limit in (3, 4, 5, 9, 50, 99, 200)}

    def selector():
        drawn = {name: chance.randrange(limit) for name, limit in numbers.items()}
        return chance.choice(shapes).format(**drawn)

    registry = [(sr.Selector(selector()), chance.choice([None, None, "a/+", "#/b"])) for _ in range(3_000)]
    index = index_of(registry)
    snapshot = index.freeze()
    verify_index(index)
    verify_snapshot(snapshot)
    batch = [
        sr.Message(
            headers={"JMSType": f"t{chance.randrange(5)}", "JMSPriority": sr.Int(chance.randrange(4))},
            properties={
                "color": chance.choice([None, f"c{chance.randrange(6)}"]),
                "weight": chance.choice(
                    [chance.randrange(100), sr.Float(chance.randrange(100)), 7.5, "7", None]
                ),
                "urgent": chance.choice([True, False, "true"]),
            },
            topic=chance.choice([None, "a/b", "a", "x/y/b"]),
        )
        for _ in range(60)
    ]
    for message, wanted in zip(batch, check_kernel(snapshot, registry, batch), strict=True):
        assert set(index.match(message)) == wanted
