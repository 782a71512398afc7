"""Subscriptions near a message are those that one condition with another truth would deliver to."""

from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import selectroute as sr
from selectroute.index import near_misses as module
from selectroute.index.near_misses import near
from selectroute.selector.dialect import dialect
from selectroute.selector.evaluate import evaluate
from selectroute.selector.syntax import ast
from selectroute.selector.values import Truth
from selectroute.topics import TopicFilter
from tests.support.strategies import checked_selectors, messages

NOBODY = np.zeros(0, np.int32)
CAR = sr.Message(
    headers={"JMSType": "car"}, properties={"color": "blue", "weight": sr.Int(3000)}, topic="cars/eu"
)


def with_another_truth(node, chosen, truth):
    """The expression with a boolean literal in place of one of its conditions."""
    if node is chosen:
        return ast.Literal(truth)
    match node:
        case ast.And(operands) | ast.Or(operands):
            return type(node)(tuple(with_another_truth(one, chosen, truth) for one in operands))
        case ast.Not(operand):
            return ast.Not(with_another_truth(operand, chosen, truth))
    return node


def conditions(node):
    if isinstance(node, ast.And | ast.Or | ast.Not):
        return [found for one in ast.children(node) for found in conditions(one)]
    return [node]


def expected(selector, topic, message):
    """The conditions that alone keep the selector from being TRUE, one after the other tried."""
    root = selector.expression
    if root is None or selector.matches(message):
        return []
    if topic is not None and not TopicFilter.parse(topic).matches(message.topic):
        return []
    return sorted(
        selector.text[slice(*one.span)]
        for one in conditions(root)
        if any(
            evaluate(with_another_truth(root, one, truth), message.value, dialect(selector.dialect))
            is Truth.TRUE
            for truth in (True, False)
        )
    )


def found_by(selectors, message, limit=1_000):
    """The ids near a message, with the texts of their conditions."""
    index = sr.Index()
    for number, (selector, topic) in enumerate(selectors):
        index.add(f"s{number}", selector, topic)
    nearby = near(index.freeze(), message, limit, NOBODY)
    assert nearby.complete
    return {one.id: sorted(part.text for part in one.conditions) for one in nearby.subscriptions}


def brute(selectors, message):
    found = {f"s{number}": expected(*one, message) for number, one in enumerate(selectors)}
    return {id: texts for id, texts in found.items() if texts}


# What shapes take out: literals of selectors that are one AND, at the edges of the types of numbers.
numbers = st.sampled_from(
    ["0", "5", "-5", "5.0", "2.5", "16777217", "16777216", "9007199254740993", "999999999999999999"]
)
comparisons = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])
ins = st.sampled_from(["IN", "NOT IN"])
operands = st.one_of(
    st.builds("{} {} {}".format, st.sampled_from("nm"), comparisons, numbers),
    st.builds("{} {} {}".format, numbers, st.sampled_from(["<", "="]), st.sampled_from("nm")),
    st.builds(
        "{} {} '{}'".format, st.sampled_from("sn"), st.sampled_from(["=", "<>"]), st.sampled_from("ab")
    ),
    st.builds("s {} ('{}', '{}')".format, ins, st.sampled_from("abc"), st.just("a''")),
    st.builds("s LIKE '{}%'".format, st.sampled_from("ab")),
    st.builds("n BETWEEN {} AND {}".format, numbers, numbers),
    st.sampled_from(["flag", "NOT flag", "s IS NULL", "m IS NOT NULL", "n + 1 > 5", "(n = 5 OR s = 'a')"]),
)
ands = st.builds(
    lambda parts, name: sr.Selector(" AND ".join(parts), name),
    st.lists(operands, min_size=1, max_size=4),
    st.sampled_from(["jms", "ibm-jms", "ibm-mq"]),
)
EDGES = [
    sr.Long(16777217), sr.Long(2**63 - 1), sr.Float(16777216.0), sr.Double(float("nan")), sr.Double(1e300)
]  # fmt: skip
values = st.sampled_from(
    ["a", "b", "a'", True, False, sr.Int(5), sr.Byte(0), sr.Long(-5), sr.Double(2.5), *EDGES]
)
FILTERS = [
    "a", "a/b", "+/b", "#", "a/#", "#/b", "+", "a/#/b/#", "/", "a.b/+", "#/#", "a/+/#", "a/b/#", "+/+/c"
]  # fmt: skip
TOPICS = ["a", "a/b", "a/c/b", "/", "a.b/x", "axb/x", "+/b", "b", "a/b/c", "//"]
topics = st.none() | st.sampled_from(FILTERS)
small = st.builds(
    lambda properties, topic: sr.Message(properties=properties, topic=topic),
    st.dictionaries(st.sampled_from(["n", "m", "s", "flag"]), values),
    st.none() | st.sampled_from(TOPICS),
)
thorough = settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[phase for phase in Phase if phase is not Phase.shrink],  # it may take minutes
)


@thorough
@given(st.lists(st.tuples(ands, topics), min_size=8, max_size=24), small)
def test_near_are_those_that_one_condition_keeps_from_a_message(selectors, message):
    assert found_by(selectors, message) == brute(selectors, message)


@pytest.mark.nightly
@thorough
@given(st.lists(st.tuples(checked_selectors(), topics), min_size=8, max_size=8), messages())
def test_that_is_so_of_any_selector_of_any_dialect(selectors, message):
    assert found_by(selectors, message) == brute(selectors, message)


@pytest.mark.parametrize("topic", [None, *TOPICS])
def test_of_all_topic_filters_those_that_match_are_near(topic):
    selectors = [(sr.Selector("a = 1"), one) for one in [None, *FILTERS]]
    message = sr.Message(topic=topic)
    assert found_by(selectors, message).keys() == brute(selectors, message).keys()


def snapshot_of(*texts):
    return sr.build_snapshot([(f"s{number}", text) for number, text in enumerate(texts)])


def test_the_condition_is_named_with_what_it_saw():
    snapshot = snapshot_of("JMSType = 'car' AND weight > 5000", "JMSType = 'bus' AND weight > 5000")
    (one,) = near(snapshot, CAR, 10, NOBODY).subscriptions
    assert asdict(one) == {
        "id": "s0",
        "topic": None,
        "selector": "JMSType = 'car' AND weight > 5000",
        "conditions": [{"text": "weight > 5000", "truth": "false", "saw": ["weight is int 3000"]}],
    }


def test_either_operand_of_an_or_would_do_and_what_is_negated_must_be_false():
    snapshot = snapshot_of("color = 'red' OR weight > 5000", "NOT color = 'blue'")
    either, negated = near(snapshot, CAR, 10, NOBODY).subscriptions
    assert [part.text for part in either.conditions] == ["color = 'red'", "weight > 5000"]
    assert [(part.text, part.truth) for part in negated.conditions] == [("color = 'blue'", "true")]


def test_an_operation_that_makes_the_whole_selector_false_is_one_condition():
    index = sr.Index()
    index.add("one", "weight = 'x' OR weight > 1000", dialect="ibm-mq")
    index.add("two", "weight = 'x' OR color > 5", dialect="ibm-mq")
    (one,) = near(index.freeze(), CAR, 10, NOBODY).subscriptions
    assert asdict(one)["conditions"] == [
        {"text": "weight = 'x'", "truth": "void", "saw": ["weight is int 3000"]}
    ]


def test_what_is_removed_matched_or_extended_is_not_near():
    index = sr.Index()
    for id in ("gone", "stays"):
        index.add(id, "color = 'red'")
    index.add("extended", "color = 'red'", dialect="ibm-mq", extended=True)
    index.add("all")
    changed = index.freeze().changed([sr.Remove("gone"), sr.Add("new", "weight > 5000")])
    assert {one.id for one in near(changed, CAR, 10, NOBODY).subscriptions} == {"stays", "new"}
    matched = changed.find(["stays"]).astype(np.int32)
    assert [one.id for one in near(changed, CAR, 10, matched).subscriptions] == ["new"]
    assert near(changed, CAR, 10, NOBODY, lambda topic: False).subscriptions == []


def test_of_many_the_first_are_those_of_which_more_holds_and_there_are_no_more_than_asked_for():
    snapshot = snapshot_of("color = 'red'", "JMSType = 'car' AND weight > 1 AND color = 'red'")
    nearby = near(snapshot, CAR, 1, NOBODY)
    assert [one.id for one in nearby.subscriptions] == ["s1"] and not nearby.complete
    assert near(snapshot, CAR, 2, NOBODY).complete


def test_what_it_costs_is_bounded(monkeypatch):
    monkeypatch.setattr(module, "MOST_JUDGED", 3)
    snapshot = snapshot_of(*(f"color = 'blue' AND weight + {n} < 0 AND NOT (weight > 0)" for n in range(9)))
    nearby = near(snapshot, CAR, 10, NOBODY)
    assert nearby.subscriptions == [] and not nearby.complete


def test_many_shapes_are_judged_all_the_same(monkeypatch):
    monkeypatch.setattr(module, "_MOST_SHAPES", 0)
    snapshot = snapshot_of("color = 'red' AND weight > 1", "color = 'red' AND weight > 5000")
    assert [one.id for one in near(snapshot, CAR, 10, NOBODY).subscriptions] == ["s0"]


def test_a_topic_of_many_levels_and_odd_characters():
    topic = "/".join(["a.b", "c(", "é"] + ["x"] * 30)
    index = sr.Index()
    index.add("same", "a = 1", topic)
    index.add("other", "a = 1", topic[:-1] + "y")
    index.add("wild", "a = 1", "+/c(/#")
    index.add("dot", "a = 1", "axb/#")
    found = near(index.freeze(), sr.Message(topic=topic), 10, NOBODY).subscriptions
    assert {one.id for one in found} == {"same", "wild"}


def test_selectors_are_read_once_for_all_revisions_and_block_by_block(monkeypatch):
    read = []
    shapes = module.selector_shapes
    monkeypatch.setattr(module, "selector_shapes", lambda texts: read.append(len(texts)) or shapes(texts))
    monkeypatch.setattr(module, "_BLOCK", 4)
    texts = [f"color = '{name}' AND weight > {n}" for n, name in enumerate(["red", "blue", "", "it''s"] * 3)]
    snapshot = snapshot_of(*texts, "weight = 5.5 OR color = 'x'")
    by_hand = {f"s{n}" for n in range(12) if n % 4 != 1} | {"s12"}
    for _ in range(2):
        assert {one.id for one in near(snapshot, CAR, 20, NOBODY).subscriptions} == by_hand
    assert read == [4, 4, 4, 1]
    changed = snapshot.changed([sr.Remove("s0"), sr.Add("new", "color = 'red'")])
    assert {one.id for one in near(changed, CAR, 20, NOBODY).subscriptions} == by_hand - {"s0"} | {"new"}
    assert read == [4, 4, 4, 1, 1], "the change alone"
