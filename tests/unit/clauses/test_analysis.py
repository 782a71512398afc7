"""What is said of a selector before any message comes, and that it is never wrong."""

from __future__ import annotations

import json
import math
import re
from itertools import product

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import selectroute as sr
from selectroute.clauses.analysis import (
    ALWAYS_FALSE,
    ALWAYS_TRUE,
    CONTRADICTORY,
    IMPOSSIBLE,
    MAX_WARNINGS,
    NOT_INDEXABLE,
    Analysis,
    analyse,
    check,
)
from selectroute.selector import DIALECTS, Byte, Double, Float, Int, Long, Message, Selector, Short
from selectroute.selector.limits import UNLIMITED
from selectroute.selector.names import INVALID_NAMES
from tests.support.strategies import checked_selectors, messages, texts

ALL = list(DIALECTS)
NOT_MQE = [name for name in ALL if name != "mqe"]


def kinds(text: str, dialect: str = "jms") -> list[str]:
    return [warning.kind for warning in check(text, dialect).warnings]


def underlined(analysis: Analysis, kind: str) -> list[str]:
    return [analysis.text[slice(*one.span)] for one in analysis.warnings if one.kind == kind]


def assert_sound(selector: Selector, batch: list[Message]) -> None:
    """No message contradicts a claim of the analysis."""
    analysis = analyse(selector)
    found = {warning.kind for warning in analysis.warnings}
    if not analysis.access:
        assert ALWAYS_FALSE in found
    parts = [Selector(text, selector.dialect, limits=UNLIMITED) for text in underlined(analysis, IMPOSSIBLE)]
    for message in batch:
        if ALWAYS_FALSE in found:
            assert not selector.matches(message)
        if ALWAYS_TRUE in found:
            named = selector.dialect == "ibm-mq" and message.value(INVALID_NAMES)
            assert selector.matches(message) or named
        assert not any(part.matches(message) for part in parts)
    json.dumps(analysis.to_dict())
    str(analysis).encode()


# ---- what is certain


# fmt: off
NEVER_TRUE = {
    "jms ibm-jms ibm-mq": [
        "FALSE", "a > 5 AND a < 3", "a > 5 AND a <= 5", "a >= 5 AND a = 4.5", "a = 5 AND a <> 5",
        "a > 5 AND a = 'x'", "a BETWEEN 5 AND 3", "a IN ('x', 'y') AND a = 'z'", "a LIKE '%' AND a > 1",
        "a IN ('x', 'y') AND NOT a IN ('y', 'x')", "a IN ('x', 'y') AND a IN ('y', 'z') AND a IN ('x', 'z')",
        "a = 'x' AND a LIKE 'y%'", "a LIKE 'xy' AND a = 'xyz'", "(a = 1 OR b = 1) AND a = 2 AND b = 2",
        "1 = 2 OR 2 < 1", "(a IS NULL) = (a IS NOT NULL)", "a > 9007199254740993 AND a < 9007199254740993",
        "JMSPriority = 3 AND NOT JMSPriority < 4",
    ],
    "jms ibm-jms ibm-mq mqe": [
        "a = 1 AND a = 2", "a = 1 AND a IS NULL", "a = 'x' AND a = 1", "a = TRUE AND a = FALSE",
        "JMSPriority = '4'", "JMSDeliveryMode = 'PERSISTED'",
    ],
    "jms": ["a = 5 AND NOT a = 5.0"],
    "jms ibm-jms": ["JMSPriority > 9", "JMSDeliveryMode = 1"],
    "ibm-mq mqe": ["JMSDeliveryMode = 'PERSISTENT'", "JMSDeliveryMode = 3"],
    "mqe": ["JMSPriority = 4.0", "a = 1 AND a = 1.0"],
    "ibm-mq": ['a = "0x00" AND a = "0x0000"', "JMSRedelivered = 1"],
}
# fmt: on


@pytest.mark.parametrize(
    ("dialects", "text"), [(names, text) for names, each in NEVER_TRUE.items() for text in each]
)
def test_a_selector_that_is_never_true_is_found(text, dialects):
    for dialect in dialects.split():
        analysis = check(text, dialect)
        first = analysis.warnings[0]
        assert (first.kind, first.reason) == (ALWAYS_FALSE, 2504), (dialect, text)
        assert first.span == (0, len(text)) and analysis.access == ()


@pytest.mark.parametrize(
    ("text", "dialects"),
    [
        ("TRUE", NOT_MQE),
        ("a = 1 OR TRUE", ["jms"]),
        ("1 < 2", NOT_MQE),
        (f"JMSMessageID = 'ID:{'00' * 24}'", ["ibm-jms"]),
    ],
)
def test_a_selector_that_is_always_true_is_found(text, dialects):
    for dialect in dialects:
        assert kinds(text, dialect) == [ALWAYS_TRUE], (dialect, text)


@pytest.mark.parametrize(
    ("text", "dialect"),
    [
        ("", "jms"),
        ("a = 1", "jms"),
        ("a = 1 AND a = 1.0", "jms"),
        ("a = 9007199254740993 AND a = 9007199254740992.0", "jms"),  # a long 2^53 + 1, as a double 2^53
        ("a = 16777217 AND a = 16777216F", "jms"),  # the same among floats
        ("a = 0.1F AND a > 0.1", "jms"),
        ("a < 1.1 AND a > 1.0999999999999996", "jms"),  # one double is between, and no float
        ("a >= 16777217 AND a < 16777217F", "jms"),  # the float 16777216 is not less than the long
        ("a >= 9007199254740993 AND a <= 9007199254740992.0", "jms"),
        ("NOT JMSPriority > 4 AND NOT JMSPriority < 5", "jms"),  # a column of strings
        ("a <> a", "jms"),
        ("a > 1 AND a < 3 AND b > 1 AND b < 3 AND a < b", "jms"),
        ("a * a = 2", "jms"),
        ("a = 'x' OR a = 1", "jms"),
        ("NOT (a = 'x') AND NOT (a = 1)", "jms"),
        ("JMSPriority = 12 AND jms.Pri = 12", "ibm-mq"),  # read from a property of that name
        ("jms.Dlv = 'x' AND Root.MQMD.Priority = 'high'", "ibm-mq"),
        ("JMSDeliveryMode = 2 AND JMSPriority = 4 AND JMSExpiration = 0", "mqe"),
        ("a LIKE 'x%' AND a LIKE '%y'", "jms"),
        ("JMSTimestamp = 1.0", "jms"),
    ],
)
def test_nothing_is_claimed_that_is_not_certain(text, dialect):
    assert not {ALWAYS_FALSE, ALWAYS_TRUE, CONTRADICTORY, IMPOSSIBLE} & set(kinds(text, dialect))


def test_a_contradiction_among_many_conditions_is_found():
    simple = " AND ".join(f"p{number} = {number}" for number in range(40))
    assert kinds(f"{simple} AND p7 = 8") == [ALWAYS_FALSE, CONTRADICTORY]


# ---- parts


def test_contradictory_conditions_are_named_with_both():
    analysis = check("JMSType = 'car' AND color = 'red' AND (weight > 5 AND color = 'blue') OR x = 1")
    assert underlined(analysis, CONTRADICTORY) == ["color = 'red' AND (weight > 5 AND color = 'blue'"]
    [warning] = analysis.warnings
    assert warning.sentence == "no value of `color` makes both `color = 'red'` and `color = 'blue'` true"
    assert kinds("a = 1 AND a = 1.0 AND a = TRUE OR b = 1") == [CONTRADICTORY]
    assert kinds("a = 1 AND a IS NOT NULL OR b = 1") == []
    assert kinds("a = 1 AND a = 1.0 OR b = 1") == []
    assert underlined(check("b = 1 OR a > 5 AND a < 3"), CONTRADICTORY) == ["a > 5 AND a < 3"]
    assert underlined(check("NOT (a = 'x' AND b = 1 AND NOT a = 'x')"), CONTRADICTORY)


@pytest.mark.parametrize(
    ("text", "dialect", "part", "sentence"),
    [
        ("JMSPriority = 12", "jms", "JMSPriority = 12", "`JMSPriority` is an int from 0 to 9"),
        ("JMSPriority LIKE '1%'", "jms", "JMSPriority LIKE '1%'", "`JMSPriority` is an int from 0 to 9"),
        ("JMSType > 5", "jms", "JMSType > 5", "`JMSType` is a string"),
        ("JMSType", "jms", "JMSType", "`JMSType` is a string"),
        ("JMSPriority = 'x'", "ibm-mq", "JMSPriority = 'x'", "`JMSPriority` is an int,"),
        ("JMSDeliveryMode = 'X'", "jms", "JMSDeliveryMode = 'X'", "is 'PERSISTENT' or 'NON_PERSISTENT'"),
        ("JMSDeliveryMode = 7", "mqe", "JMSDeliveryMode = 7", "`JMSDeliveryMode` is the int 1 or 2"),
        ("a BETWEEN 2 AND 1", "jms", "a BETWEEN 2 AND 1", "no value of `a` makes this true"),
        ("NOT (JMSType = 5)", "jms", "(JMSType = 5)", "`JMSType` is a string"),
    ],
)
def test_a_comparison_that_no_type_satisfies_is_underlined(text, dialect, part, sentence):
    joined = f"b = 1 AND {text}" if dialect == "mqe" else f"b = 1 OR {text}"
    analysis = check(joined, dialect)
    assert underlined(analysis, IMPOSSIBLE) == [part]
    assert any(sentence in warning.sentence for warning in analysis.warnings)


def test_a_selector_without_an_equality_is_not_indexable():
    said = "a part of the selector is judged for every message: it has no equality, only "
    warnings = check("a LIKE '%x' OR b > 5").warnings
    assert [warning.sentence for warning in warnings] == [f"{said}LIKE", f"{said}ranges or <>"]
    assert kinds("weight + 1 > 5 AND c <> 'x'") == [NOT_INDEXABLE]
    assert underlined(check("weight + 1 > 5 AND c <> 'x'"), NOT_INDEXABLE) == ["weight + 1 > 5"]
    assert kinds("JMSType = 'car' AND weight + 1 > 5") == []


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a LIKE 'x%'", ("a",)),
        ("a LIKE 'x%y_' AND b <> 'z'", ("a",)),
        ("a LIKE '!%x%' ESCAPE '!'", ("a",)),
        ("a LIKE '%x'", ()),
        ("a LIKE '_x%'", ()),
        ("a NOT LIKE 'x%'", ()),
        ("NOT (a LIKE 'x%')", ()),
    ],
)
def test_a_clause_is_found_by_its_prefix_exactly_where_a_snapshot_files_it_so(text, names):
    analysis = check(text)
    [access] = analysis.access
    assert (access.attributes, access.by_prefix) == (names, bool(names))
    assert (NOT_INDEXABLE in [warning.kind for warning in analysis.warnings]) == (not names)
    assert analysis.to_dict()["access"][0]["by_prefix"] == bool(names)
    snapshot = sr.build_snapshot([("s", text, None)])
    assert (len(snapshot.segments[0].tables.prefix_leaf) == 1) == bool(names)
    assert ("prefixes of a" in str(analysis)) == bool(names)


def test_access_names_the_attributes_of_each_kind_of_clause():
    analysis = check("JMSType = 'car' AND (color = 'red' OR weight > 5 OR weight < 1)")
    assert [(one.attributes, one.reason, one.clauses) for one in analysis.access] == [
        (("JMSType", "color"), None, 1),
        (("JMSType",), None, 2),
    ]
    assert check("jms.Pri = 4", "ibm-mq").access[0].attributes == ("jms.Pri",)
    assert check("JMSDeliveryMode = 2", "mqe").access[0].attributes == ("JMSDeliveryMode",)


def test_an_analysis_reads_well_and_is_data():
    analysis = check("JMSPriority > 9 OR\n color = 'red'")
    canonical = "JMSPriority > 9 OR color = 'red'"
    sentence = "`JMSPriority` is an int from 0 to 9, which never makes this true"
    assert str(analysis).splitlines() == [
        f"canonical  {canonical}",
        "reads      JMSPriority, color",
        "found by   color",
        f"warning    impossible-comparison: {sentence}",
        "           JMSPriority > 9 OR",
        "           ^^^^^^^^^^^^^^^",
    ]
    place = {"offset": 0, "length": 15, "line": 1, "column": 1, "reason": None}
    assert analysis.to_dict() == {
        "dialect": "jms",
        "canonical": canonical,
        "identifiers": ["JMSPriority", "color"],
        "access": [{"attributes": ["color"], "by_prefix": False, "reason": None, "clauses": 1}],
        "warnings": [{"kind": "impossible-comparison", "message": sentence, **place}],
    }
    assert str(check("")) == (
        "no selector: every message matches\nreads      no property\n"
        "found by   every message: it matches every message"
    )


def test_check_is_a_public_name_and_rejects_what_is_no_selector():
    assert sr.check is check
    with pytest.raises(sr.InvalidSelectorError):
        check("a ==")


def test_warnings_about_parts_are_bounded():
    assert len(kinds(" OR ".join(f"JMSPriority = {number}" for number in range(10, 60)))) <= MAX_WARNINGS + 2


@pytest.mark.slow
def test_a_large_selector_is_analysed_within_bounds():
    deep = Selector("NOT " * 50_000 + "a", limits=UNLIMITED)
    wide = Selector(" OR ".join(f"p{number % 50} = {number}" for number in range(2_000)), limits=UNLIMITED)
    listed = Selector(f"a IN ({', '.join(map(repr, map(str, range(10_000))))}) AND a = '7'", limits=UNLIMITED)
    twice = Selector(" AND ".join(f"a <> {number}" for number in range(2_000)), limits=UNLIMITED)
    for selector in (deep, wide, listed, twice):
        assert ALWAYS_FALSE not in {warning.kind for warning in analyse(selector).warnings}


# ---- soundness

EDGES = (0, 1, 2, 9, 10, 2**24, 2**24 + 1, 2**53, 2**53 + 1, 2**63 - 1)
NUMBERS = [make(edge) for edge in EDGES for make in (Long, Double, Float)]
VALUES = [
    *NUMBERS,
    *(make(edge) for edge in (0, 1, 2, 9, 10) for make in (Byte, Short, Int)),
    *(Float(math.nextafter(edge, way)) for edge in (1.0, 2.0**24) for way in (0, math.inf)),
    *(Double(math.nextafter(edge, way)) for edge in (1.0, 2.0**24, 2.0**53) for way in (0, math.inf)),
    *(make(value) for make in (Float, Double) for value in (math.nan, math.inf, -math.inf, -0.0, 0.5)),
    *("", "x", "xy", "y", "q", b"x", b"\0", b"", True, False, None),
]
LEAVES = [
    *(
        f"{{0}} {op} {number}"
        for op in ("=", "<>", "<", ">=")
        for number in ("1", "2", "1.0", "9007199254740993")
    ),
    *("{0} = 16777217", "{0} = 16777216F", "{0} > 9007199254740992.0", "{0} = 'x'", "{0} <> 'y'", "{0}"),
    *("{0} IS NULL", "{0} IS NOT NULL", "{0} IN ('x', 'y')", "{0} NOT IN ('x')", "{0} LIKE 'x%'"),
    *("{0} NOT LIKE 'x%'", "{0} LIKE 'xy'", "{0} LIKE '%'", "{0} BETWEEN 1 AND 2", "{0} NOT BETWEEN 1 AND 2"),
    *("{0} = {1}", "{0} + 1 > 2", "TRUE", "({0} > 1) = ({1} = 'x')", "({0} > 1) <> {1}"),
]
NAMES = ("a", "b", "JMSPriority", "JMSDeliveryMode")


def valid(text: str, dialect: str) -> bool:
    try:
        Selector(text, dialect)
    except sr.InvalidSelectorError:
        return False
    return True


LEAVES_OF = {name: [leaf for leaf in LEAVES if valid(leaf.format("a", "b"), name)] for name in ALL}


@st.composite
def contradictory(draw: st.DrawFn) -> Selector:
    """Selectors of many conditions on few names, often never true."""
    dialect = draw(st.sampled_from(ALL))
    names = st.sampled_from(NAMES if draw(st.booleans()) else NAMES[:1])
    leaf = st.builds(lambda one, a, b: one.format(a, b), st.sampled_from(LEAVES_OF[dialect]), names, names)
    joined = ["AND", "AND", "OR"]
    if dialect == "mqe":
        return Selector(" AND ".join(draw(st.lists(leaf, min_size=1, max_size=4))), dialect)
    tree = st.recursive(
        leaf,
        lambda inner: st.one_of(
            inner.map(lambda one: f"NOT ({one})"),
            st.builds(
                lambda parts, op: f"({f' {op} '.join(parts)})",
                st.lists(inner, min_size=2, max_size=4),
                st.sampled_from(joined),
            ),
        ),
        max_leaves=5,
    )
    return Selector(draw(tree), dialect, limits=UNLIMITED)


@st.composite
def near(draw: st.DrawFn) -> Message:
    """Messages whose values are where comparisons change."""
    value = st.sampled_from(VALUES)
    headers = {
        "JMSPriority": draw(st.sampled_from([None, Int(0), Int(1), Int(2), Int(9)])),
        "JMSDeliveryMode": draw(st.sampled_from([None, "PERSISTENT", "NON_PERSISTENT"])),
    }
    properties = {"a": draw(value), "b": draw(value)}
    if draw(st.integers(0, 4)) == 0:
        properties["jms.Pri"] = draw(value)
    return Message(headers, properties)


@settings(max_examples=60, deadline=None)
@given(contradictory(), st.lists(near(), min_size=20, max_size=40))
def test_no_message_contradicts_a_claim(selector, batch):
    assert_sound(selector, batch)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(checked_selectors(), st.lists(messages(), min_size=4, max_size=8))
def test_no_message_contradicts_a_claim_about_any_selector(selector, batch):
    assert_sound(selector, batch)


@pytest.mark.parametrize("dialect", ALL)
def test_two_conditions_on_one_name_that_are_not_called_contradictory_have_a_message(dialect):
    small = [one for one in LEAVES_OF[dialect] if not re.search(r"\{1\}|\+|%'|\d{8}|TRUE|NOT BETWEEN", one)]
    values = [Message(properties={"a": value}) for value in VALUES]
    for first, second in product(small, repeat=2):
        selector = Selector(f"{first} AND {second}".format("a"), dialect)
        is_false = ALWAYS_FALSE in {one.kind for one in analyse(selector).warnings}
        assert is_false is not any(map(selector.matches, values)), selector.text


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(texts(), st.sampled_from(ALL))
def test_check_raises_nothing_but_invalid_selector(text, dialect):
    try:
        analysis = check(text, dialect)
    except sr.InvalidSelectorError:
        return
    assert analysis.canonical == Selector(text, dialect).canonical


MISTAKES = ("compares-properties", "subtracts-properties", "date-arithmetic")


@pytest.mark.parametrize(
    ("text", "part", "advice"),
    [
        ("color = red", "color = red", "for a string write color = 'red'"),
        ("weight > 5 AND NOT (color <> red)", "(color <> red)", "for a string write color <> 'red'"),
        ("ts > 2020-01-01", "2020-01-01", "for a string write '2020-01-01'"),
        ("ts BETWEEN 01/02/2020 AND 5", "01/02/2020", "for a string write '01/02/2020'"),
        ("order-id = 5", "order-id", "for one property write order_id"),
        ("AMQPriority > 5", "AMQPriority", "the header is JMSPriority"),
    ],
)
def test_what_was_written_without_quotes_is_warned_of(text, part, advice):
    found = [one for one in check(text).warnings if one.kind in (*MISTAKES, "foreign-name")]
    assert [text[slice(*one.span)] for one in found] == [part]
    assert advice in found[0].sentence


def test_plausible_arithmetic_is_not_warned_of():
    for text in (
        "price < maximum", "bid - ask = 5", "end-start > 5", "a-b = 0", "weight > 10-2", "seconds > 24/2/1",
        "ts > 60*60*24", "ts = '2020-01-01'", "ts > 2020 - 01 - 01", "color = 'red'", "a = b + 1",
    ):  # fmt: skip
        assert not set(MISTAKES) & set(kinds(text)), text
