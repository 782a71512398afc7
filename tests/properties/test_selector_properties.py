"""What holds for every selector, every message and every text."""

import json
import re

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from selectroute.selector import (
    DIALECTS,
    JMS,
    KINDS,
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
from selectroute.selector.dialect import dialect
from selectroute.selector.evaluate import condition
from selectroute.selector.fields import PREFIX, SYNONYMS
from selectroute.selector.limits import UNLIMITED
from selectroute.selector.names import INVALID_NAMES
from selectroute.selector.syntax.ast import CONDITIONS, MatchId, postorder
from selectroute.selector.values import not_
from tests.support.components import NIGHTLY
from tests.support.strategies import expressions, messages, selectors, strings, texts

# A strategy is costly to make, so there is one of each dialect.
SELECTORS = {name: selectors(dialect=name) for name in DIALECTS}
each_dialect = pytest.mark.parametrize("name", DIALECTS)
in_each = settings(
    max_examples=240 if NIGHTLY else 30, deadline=None, suppress_health_check=list(HealthCheck)
)
WITH_NOT = [name for name in DIALECTS if "NOT" not in dialect(name).lacks]


def selector_in(name, text):
    return Selector(text, name, limits=UNLIMITED)


@given(expressions())
def test_parsing_what_was_printed_gives_the_same_tree(expression):
    """Of any tree: one that was made by hand, too."""
    text = to_text(expression)
    again = parse(text, JMS)
    assert again == expression and hash(again) == hash(expression)
    assert to_text(again) == text
    assert repr(again) == repr(expression)


@each_dialect
@in_each
@given(data=st.data())
def test_printing_is_canonical_and_parses_back_in_every_dialect(name, data):
    """Of trees that a text gave: a dialect may have made other literals of it, or a match of ids."""
    selector = selector_in(name, data.draw(SELECTORS[name]))
    again = selector_in(name, selector.canonical)
    assert again.expression == selector.expression and hash(again.expression) == hash(selector.expression)
    assert again.canonical == selector.canonical
    assert again.identifiers == selector.identifiers


@pytest.mark.slow
@each_dialect
@settings(in_each, max_examples=600 if NIGHTLY else 60)
@given(text=texts())
@example(text="a = '\udfff'")
@example(text="\x00")
@example(text='a = "0x0"')
def test_any_text_is_a_selector_or_an_error_whose_span_is_inside_it(name, text):
    try:
        selector = Selector(text, name)
    except InvalidSelectorError as error:
        start, end = error.span
        assert 0 <= start <= end <= len(text)
        assert error.kind in KINDS and error.dialect == name
        assert len(set(error.expected)) == len(error.expected)
        assert "^" in str(error).splitlines()[2] and str(error).encode()
        data = json.loads(json.dumps(error.to_dict()))
        assert (data["offset"], data["length"]) == (start, len(error.underlined))
        assert error.suggestion is None or Selector(error.suggestion, name)
    else:
        assert selector_in(name, selector.canonical).expression == selector.expression


@each_dialect
@in_each
@given(data=st.data())
def test_the_span_of_a_condition_is_a_selector_for_it(name, data):
    text = data.draw(SELECTORS[name])
    for node in postorder(selector_in(name, text).expression):
        assert 0 <= node.span.start < node.span.end <= len(text)
        if isinstance(node, CONDITIONS):
            alone = selector_in(name, text[node.span.start : node.span.end]).expression
            assert alone == node or isinstance(alone, MatchId)  # alone, an id is matched as one


@each_dialect
@in_each
@given(data=st.data(), message=messages())
def test_explanation_agrees_with_evaluation(name, data, message):
    selector = selector_in(name, data.draw(SELECTORS[name]))
    explanation = selector.explain(message)
    assert explanation.truth is selector.evaluate(message)
    assert json.loads(explanation.to_json()) == json.loads(json.dumps(explanation.to_dict()))
    str(explanation).encode()
    assert all(sentence.isprintable() for sentence in explanation.sentences)


@pytest.mark.parametrize("name", WITH_NOT)
@in_each
@given(data=st.data(), message=messages())
def test_not_not_changes_nothing_and_not_negates(name, data, message):
    text = data.draw(SELECTORS[name])
    selector = selector_in(name, text)
    assume(not isinstance(selector.expression, MatchId))  # it is one only alone
    assume(not (dialect(name).name_rules and message.value(INVALID_NAMES)))
    truth = condition(selector.expression, message.value, dialect(name))
    whole = isinstance(truth, Truth)  # otherwise an operation makes the selector false as a whole: also these

    def seen(other):
        return selector_in(name, other).evaluate(message)

    assert selector.evaluate(message) is (truth if whole else Truth.FALSE)
    assert seen(f"NOT ({text})") is (not_(truth) if whole else Truth.FALSE)
    assert seen(f"NOT (NOT ({text}))") is (truth if whole else Truth.FALSE)
    assert seen(f"({text}) AND TRUE") is (truth if whole else Truth.FALSE)
    assert seen(f"({text}) OR FALSE") is (truth if whole else Truth.FALSE)
    assert seen(f"({text}) OR TRUE") is (Truth.TRUE if whole else Truth.FALSE)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("short", "long", "names"),
    [
        ("a BETWEEN b AND weight", "a >= b AND a <= weight", ["jms"]),
        ("a NOT BETWEEN b AND weight", "a < b OR a > weight", ["jms"]),
        ("a BETWEEN b + 1 AND 2 * weight", "a >= b + 1 AND a <= 2 * weight", ["jms"]),
        ("a IN ('a', 'b')", "a = 'a' OR a = 'b'", WITH_NOT),
        ("a LIKE 'ab'", "a = 'ab'", WITH_NOT),
        ("a IS NOT NULL", "NOT a IS NULL", WITH_NOT),
        ("color NOT IN ('a', 'b')", "color <> 'a' AND color <> 'b'", WITH_NOT),
        ("a = b", "b = a", WITH_NOT),
        ("a < b", "b > a", WITH_NOT),
        ("a = 1 AND b = 'a'", "b = 'a' AND a = 1", list(DIALECTS)),
        ("a = 1 OR b = 'a'", "NOT (NOT a = 1 AND NOT b = 'a')", WITH_NOT),
    ],
)
@settings(in_each, max_examples=200 if NIGHTLY else 25)
@given(data=st.data(), message=messages())
def test_equivalences_of_the_standard_hold(short, long, names, data, message):
    name = data.draw(st.sampled_from(names))
    assert Selector(short, name).evaluate(message) is Selector(long, name).evaluate(message)


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


@each_dialect
@in_each
@given(data=st.data(), message=messages())
def test_evaluation_only_depends_on_the_names_the_selector_reads(name, data, message):
    own = dialect(name)
    assume(not (own.name_rules and message.value(INVALID_NAMES)))  # a rule is broken by any name
    selector = selector_in(name, data.draw(SELECTORS[name]))
    reads = set(selector.identifiers)
    # What is read under one name of a field may stand under another.
    derived = [own.fields.get(one) or own.id_fields.get(one) for one in reads]
    if any(field is not None and field.removeprefix(PREFIX) in SYNONYMS for field in derived):
        reads.update(SYNONYMS)
    fewer = Message(
        {one: value for one, value in message.headers.items() if one in reads},
        {one: value for one, value in message.properties.items() if one in reads},
    )
    assert selector.evaluate(fewer) is selector.evaluate(message)
    assert isinstance(selector.evaluate(message), Truth)
