"""What holds for every selector, every message and every text."""

import json
import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from selectroute.selector import (
    JMS,
    InvalidSelectorError,
    Message,
    MessageError,
    Selector,
    Truth,
    compile_like,
    like,
    parse,
    to_text,
)
from selectroute.selector.ast import CONDITIONS, postorder
from selectroute.selector.limits import UNLIMITED
from selectroute.selector.truth import not_
from tests.strategies import expressions, messages, selectors, strings, texts

BIG = 10**6


@given(expressions())
def test_parsing_what_was_printed_gives_the_same_tree(expression):
    text = to_text(expression)
    again = parse(text, JMS)
    assert again == expression and hash(again) == hash(expression)
    assert to_text(again) == text
    assert repr(again) == repr(expression)


@given(texts())
@example("a = '\udfff'")
@example("\x00")
def test_any_text_is_a_selector_or_an_error_whose_span_is_inside_it(text):
    try:
        selector = Selector(text)
    except InvalidSelectorError as error:
        start, end = error.span
        assert 0 <= start <= end <= len(text)
        str(error).encode()
        json.dumps(error.to_dict())
        assert str(error).count("^") >= 1
    else:
        assert Selector(selector.canonical, limits=UNLIMITED).expression == selector.expression


@given(selectors())
def test_the_span_of_a_condition_is_a_selector_for_it(text):
    for node in postorder(parse(text, JMS)):
        assert 0 <= node.span.start < node.span.end <= len(text)
        if isinstance(node, CONDITIONS):
            assert parse(text[node.span.start : node.span.end], JMS) == node


@given(selectors(), messages())
def test_explanation_agrees_with_evaluation(text, message):
    selector = Selector(text, limits=UNLIMITED)
    explanation = selector.explain(message)
    assert explanation.truth is selector.evaluate(message)
    str(explanation).encode()
    json.dumps(explanation.to_dict())


@given(selectors(), messages())
def test_not_not_changes_nothing_and_not_negates(text, message):
    truth = Selector(text, limits=UNLIMITED).evaluate(message)
    assert Selector(f"NOT ({text})", limits=UNLIMITED).evaluate(message) is not_(truth)
    assert Selector(f"NOT (NOT ({text}))", limits=UNLIMITED).evaluate(message) is truth
    assert Selector(f"({text}) AND TRUE", limits=UNLIMITED).evaluate(message) is truth
    assert Selector(f"({text}) OR FALSE", limits=UNLIMITED).evaluate(message) is truth


@pytest.mark.parametrize(
    ("short", "long"),
    [
        ("a BETWEEN b AND weight", "a >= b AND a <= weight"),
        ("a NOT BETWEEN b AND weight", "a < b OR a > weight"),
        ("a BETWEEN b + 1 AND 2 * weight", "a >= b + 1 AND a <= 2 * weight"),
        ("a IN ('a', 'b')", "a = 'a' OR a = 'b'"),
        ("a LIKE 'ab'", "a = 'ab'"),
        ("a IS NOT NULL", "NOT a IS NULL"),
        ("color NOT IN ('a', 'b')", "color <> 'a' AND color <> 'b'"),
    ],
)
@settings(max_examples=50)
@given(message=messages())
def test_equivalences_of_the_standard_hold(short, long, message):
    assert Selector(short).evaluate(message) is Selector(long).evaluate(message)


@given(messages())
def test_message_survives_its_wire_form(message):
    assert Message.from_json(json.loads(json.dumps(message.to_json()))) == message


_MEMBERS = ("headers", "properties", "topic", "body", "type", "value", "JMSType", "JMSPriority", "a")
_KEYS = st.sampled_from(_MEMBERS) | st.text(max_size=2)
_TEXT = st.text(st.characters(exclude_categories=())) | st.sampled_from(["int", "float", "NaN"])
_ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | _TEXT,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_KEYS, inner, max_size=4),
    max_leaves=8,
)


@given(_ANY_JSON)
def test_any_json_is_a_message_or_a_message_error(data):
    try:
        message = Message.from_json(data)
    except MessageError as error:
        str(error).encode()
    else:
        assert Message.from_json(message.to_json()) == message


@given(strings | st.text("ab\n", max_size=12), st.text("ab%_!", max_size=8), st.sampled_from([None, "!"]))
def test_like_agrees_with_a_regular_expression(text, pattern, escape):
    try:
        operations = compile_like(pattern, escape)
    except ValueError:
        assert escape and pattern.endswith(escape)
        return
    regex = "".join(
        re.escape(op) if isinstance(op, str) else {"_": ".", "%": ".*"}[op.value] for op in operations
    )
    assert like(text, operations) is bool(re.fullmatch(regex, text, re.DOTALL))


@given(selectors(), messages())
def test_evaluation_only_depends_on_the_names_the_selector_reads(text, message):
    selector = Selector(text, limits=UNLIMITED)
    reads = set(selector.identifiers)
    fewer = Message(
        {name: value for name, value in message.headers.items() if name in reads},
        {name: value for name, value in message.properties.items() if name in reads},
    )
    assert selector.evaluate(fewer) is selector.evaluate(message)
    assert isinstance(selector.evaluate(message), Truth)
