"""Subscriptions read by shape are those that are read one by one."""

import gc
import re

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import selectroute as sr
from selectroute.clauses.normal_form import clauses_of
from selectroute.index.compile import build
from selectroute.index.compile.build import rebuilt
from selectroute.index.compile.shapes import (
    Shape,
    clauses_by_shape,
    seen_template,
    selector_shapes,
    template_of,
    topic_shapes,
)
from selectroute.index.errors import BuildError, DestinationError, DuplicateSubscriptionError, InvalidIdError
from selectroute.index.invariants import verify_snapshot
from selectroute.index.snapshot import build_snapshot
from selectroute.index.specification import COLUMNS, check, literal_count, prepare
from selectroute.match.columns.from_messages import from_messages
from selectroute.match.match import match
from selectroute.selector.dialect import dialect as dialect_named
from selectroute.topics import InvalidTopicFilterError
from tests.properties.test_engines import TOPICS, expected
from tests.support.components import NIGHTLY
from tests.support.corpus_rows import rows
from tests.support.index_invariants import verify_index
from tests.support.strategies import checked_selectors, messages

LITERALS = st.sampled_from(
    [
        *("'a'", "'b'", "'red'", "''", "'it''s'", "'%a_'"),
        *("0", "1", "5", "18", "16777216", "16777217", "999999999999999999"),
        *("0.0", "1.5", "16777217.0", "0.000000000000001"),
    ]
)
_LITERAL = re.compile(r"'(?:[^']|'')*'|(?<![\w.])\d+(?:\.\d+)?(?![\w.])")


@pytest.fixture(autouse=True)
def every_shape_is_a_template(monkeypatch):
    monkeypatch.setattr(build, "FEW", 1)


def table_of(registry):
    return pa.table(
        {
            "id": [f"s{number}" for number in range(len(registry))],
            "selector": [selector.text for selector, _ in registry],
            "topic": pa.array([topic for _, topic in registry], pa.string()),
            "dialect": [selector.dialect for selector, _ in registry],
        }
    )


def matched(snapshot, batch):
    ids = snapshot.ids.to_pylist()
    found = snapshot.match(from_messages(batch, snapshot.reads))
    return [sorted(ids[ordinal] for ordinal in row) for row in found]


@st.composite
def registries(draw):
    """Selectors, and others of the same shapes with other literals."""
    found = []
    for _ in range(8):
        selector = draw(checked_selectors() | st.just(sr.Selector("")))
        topic = draw(st.none() | st.sampled_from(TOPICS))
        found.append((selector, topic))
        for _ in range(2):
            text = _LITERAL.sub(lambda _: draw(LITERALS), selector.text)
            try:
                other = sr.Selector(text, selector.dialect)
            except sr.InvalidSelectorError:
                other = selector
            found.append((other, topic and draw(st.sampled_from(TOPICS))))
    return found


@pytest.mark.slow
@settings(max_examples=80 if NIGHTLY else 8, deadline=None, suppress_health_check=list(HealthCheck))
@given(registries(), st.lists(messages(), min_size=16, max_size=16))
def test_a_snapshot_built_by_shapes_selects_what_the_reference_does(registry, batch):
    snapshot = build_snapshot(table_of(registry))
    verify_snapshot(snapshot)
    assert matched(snapshot, batch) == [sorted(expected(registry, message)) for message in batch]


@pytest.mark.slow
@settings(max_examples=48 if NIGHTLY else 5, deadline=None, suppress_health_check=list(HealthCheck))
@given(registries(), st.lists(messages(), min_size=8, max_size=8))
def test_an_index_that_knows_the_shapes_selects_what_the_reference_does(registry, batch):
    for selector, _ in registry:  # at the second time, a shape becomes a template
        clauses_by_shape(selector.text, selector.dialect)
    index = sr.Index()
    for number, (selector, topic) in enumerate(registry):
        index.add(f"s{number}", selector.text, topic, dialect=selector.dialect)
    verify_index(index)
    for message in batch:
        assert sorted(index.match(message)) == sorted(expected(registry, message))


def test_a_shape_that_was_seen_twice_has_a_template():
    texts = [f"proof_of_shape = '{word}' AND weight > -{number}" for number, word in enumerate("xyz")]
    assert clauses_by_shape(texts[0], "jms") is None
    for text in texts[1:]:
        clauses = clauses_of(sr.Selector(text).expression, dialect_named("jms"))
        assert clauses_by_shape(text, "jms") == clauses
        assert literal_count(seen_template(text, "jms")[0].clauses) == literal_count(clauses) == 2


@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow])
@given(checked_selectors(), st.sampled_from([None, "a/+/b"]))
def test_checking_a_selector_counts_the_literals_of_its_clauses(selector, topic):
    for _ in range(2):  # at the second time, a shape becomes a template
        clauses_by_shape(selector.text, selector.dialect)
    made = prepare("x", selector.text, topic, selector.dialect, False)
    found = check(selector.text, topic, selector.dialect, False)
    assert found == (made.seltype, literal_count(made.clauses))


@pytest.mark.parametrize(
    "dialect", ["jms", *(pytest.param(name, marks=pytest.mark.slow) for name in ("ibm-jms", "ibm-mq", "mqe"))]
)
def test_the_corpus_is_selected_as_its_rows_say(dialect):
    chosen = [row for row in rows() if row.verdict.get(dialect, "invalid") != "invalid"]
    registry = [(sr.Selector(row.selector, dialect), None) for row in chosen]
    snapshot = build_snapshot(table_of(registry))
    sent = [sr.Message.from_json(row.message) for row in chosen]
    found = snapshot.match(from_messages(sent, snapshot.reads))
    wrong = [
        row.selector for i, row in enumerate(chosen) if (i in found[i]) != (row.verdict[dialect] == "true")
    ]
    assert wrong == []


def test_what_is_in_the_snapshot_is_what_index_and_freeze_make():
    triples = [
        (f"s{number}", f"JMSType = 't{number % 7}' AND weight > {number}", "a/b" if number % 2 else None)
        for number in range(200)
    ]
    index = sr.Index()
    index.add_many(triples)
    ours, theirs = build_snapshot(triples), index.freeze()
    assert ours.subscriptions.equals(theirs.subscriptions)
    assert ours.nbytes == theirs.nbytes
    assert ours.reads == theirs.reads
    assert len(ours) == 200
    for nothing in ([], pa.table({"id": pa.chunked_array([], pa.string())})):
        empty = build_snapshot(nothing)
        verify_snapshot(empty)
        assert len(empty) == 0 and matched(empty, [sr.Message()]) == [[]]


def test_what_is_scanned_is_counted_by_what_each_selector_has():
    patterns = ["abc%", "%abc", "_b%", "ab%", "%"]
    selectors = [f"color LIKE '{pattern}'" for pattern in patterns * 2] + [
        f"a <> {n} AND b <> 1" for n in range(3)
    ]
    snapshot = build_snapshot((f"s{number}", text, None) for number, text in enumerate(selectors))
    reasons = {"it has no equality, only LIKE": 6, "it has no equality, only ranges or <>": 3}
    assert snapshot.scanned == reasons


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("JMSType = 'car' AND weight > 2500", "JMSType = \x01 AND weight > \x03"),
        ("a = 'it''s' OR b IN ('x','y')", "a = \x01 OR b IN (\x01,\x01)"),
        ("a1 = 10.5 AND b2 < -7", "a1 = \x02 AND b2 < -\x03"),
        ("a = 1e3 OR a = 0x1F OR a = 07 OR a = 5L", "a = 1e3 OR a = 0x1F OR a = 07 OR a = 5L"),
    ],
)
def test_plain_literals_are_taken_out_of_a_shape(text, shape):
    [found] = selector_shapes(pa.array([text])).to_pylist()
    assert found == shape
    slots = Shape.of_marked(found).slots(pa.array([text]))
    assert Shape.of_marked(found).filled([slot[0].as_py() for slot in slots]) == text


def test_levels_are_taken_out_of_a_topic_filter():
    found = topic_shapes(pa.array(["cars/+/de/#", "a//b", None])).to_pylist()
    assert found == ["\x04/+/\x04/#", "\x04//\x04", None]


@pytest.mark.parametrize(
    ("marked", "dialect"),
    [
        ("a = \x01 AND a = \x01", "jms"),  # two equalities of one property
        ("a + \x03 > \x03", "jms"),  # judged as a whole
        ("\x01 = \x01", "jms"),  # the same for every message
        ("a LIKE \x01 ESCAPE \x01", "jms"),  # one character each
        ("a = \x03 OR b = 0x3FEF31", "jms"),  # that literal is the sample
        ("JMSMessageID = \x01", "ibm-jms"),  # perhaps an id
        ("JMSPriority = \x03", "mqe"),  # an int, not a long
        ("a = \x01 OR", "jms"),
    ],
)
def test_a_shape_that_does_not_decide_has_no_template(marked, dialect):
    assert template_of(Shape.of_marked(marked), None, dialect) is None


def test_a_mark_in_a_text_is_no_slot():
    with pytest.raises(BuildError) as caught:
        build_snapshot([("s1", "a = 'x' AND b = \x01", None)])
    assert isinstance(caught.value.cause, sr.InvalidSelectorError)
    snapshot = build_snapshot([("s1", "a = 'x\x01y'", None)])
    assert matched(snapshot, [sr.Message(properties={"a": "x\x01y"})]) == [["s1"]]


GROUPING = r"after a topic may follow \?grouping="
KINDS = ".*queue:NAME or kafka:TOPIC"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        *((f"kafka:a?{more}", GROUPING) for more in ("grouping=", "grouping=both", "b=c")),
        *((text, KINDS) for text in ("mail:me", "files:mine", "queue:A B", "queue:")),
    ],
)
def test_a_destination_to_which_nothing_can_be_delivered_is_refused(text, said):
    destinations = [None, "kafka:a?grouping=message", text, text]
    rows = pa.table({"id": ["a", "b", "c", "d"], "destination": destinations})
    with pytest.raises(BuildError, match=rf"subscription 'c' \(row 2\): {said}") as caught:
        build_snapshot(rows)
    assert isinstance(caught.value.cause, DestinationError)


@pytest.mark.parametrize(
    ("triples", "row", "cause"),
    [
        (
            [("ok", "a = 1", None), ("bad", "a = = 1", None), ("worse", "b =", None)],
            1,
            sr.InvalidSelectorError,
        ),
        ([("ok", "a = 1", None), ("ok", "a = 2", None)], 1, DuplicateSubscriptionError),
        ([("no spaces", "a = 1", None)], 0, InvalidIdError),
        ([("", None, None)], 0, InvalidIdError),
        ([("s1", None, "a/b+"), ("s2", "=", None)], 0, InvalidTopicFilterError),
        ([("s1", "a = " + "'x' OR a = " * 2_000 + "'y'", None)], 0, sr.InvalidSelectorError),
        ([("s1", None, "a/" * 6_000)], 0, InvalidTopicFilterError),
    ],
)
def test_the_first_subscription_that_is_none_is_named(triples, row, cause):
    with pytest.raises(BuildError) as caught:
        build_snapshot(triples)
    assert caught.value.row == row
    assert isinstance(caught.value.cause, cause)
    assert str(caught.value.cause) in str(caught.value)


def test_what_was_accepted_under_other_limits_is_rebuilt_whatever_columns_its_table_has():
    large = " OR ".join(f"weight = {number}" for number in range(3_000))
    with pytest.raises(BuildError):
        build_snapshot([("large", large, None)])
    for columns in (
        {"selector": [large, ""], "id": ["large", "all"]},
        {"destination": ["there", None], "labels": [1, 2], "topic": ["a", "b"], "selector": [large, None],
         "seltype": pa.nulls(2, pa.string()), "id": ["large", "all"]},
    ):  # fmt: skip
        made = rebuilt(pa.table(columns), 7)
        assert made.revision == 7 and made.subscriptions.column_names == list(COLUMNS)
        assert made.subscriptions["seltype"].to_pylist() == ["STANDARD", "NONE"]
        assert made.subscriptions["dialect"].to_pylist() == ["jms", "jms"]
        assert made.subscriptions["destination"].to_pylist() == (columns.get("destination") or [None, None])
        found = match(made, from_messages([sr.Message(properties={"weight": 2_999}, topic="a")], made.reads))
        assert {*made.ids.take(found[0]).to_pylist()} == (
            {"large"} if "topic" in columns else {"large", "all"}
        )


def test_progress_is_told():
    told = []
    texts = ((f"s{number}", f"a = {number} OR b = '{number}'", None) for number in range(25_000))
    build_snapshot(texts, progress=told.append)
    assert told and told[-1] <= 25_000 and told == sorted(told)


@pytest.mark.parametrize("columns", [{"id": ["a"], "selektor": ["x = 1"]}, {"selector": ["x = 1"]}])
def test_a_table_has_the_columns_of_subscriptions(columns):
    with pytest.raises(
        sr.SelectRouteError, match=r"no column `selektor`: did you mean `selector`\?|has the column `id`"
    ):
        build_snapshot(pa.table(columns))


def test_nothing_that_a_build_leaves_refers_to_itself():
    """The collector of cycles stops all threads of a service: an import of much would stop it for long."""
    texts = [
        "(a = 1 OR b = 'x') AND (c LIKE 'y%' OR NOT d IN ('p', 'q')) AND e BETWEEN 1 AND 2",
        "(a > 1) = b OR c + 1 > d OR f IS NULL",
        "JMSType = 'car' AND weight > 2500",
        "NOT (a NOT BETWEEN 1 AND 2 AND b = TRUE)",
    ]
    rows = [{"id": f"s{n}", "selector": text, "topic": "cars/+/x"} for n, text in enumerate(texts * 2)]
    build_snapshot(rows)  # what is made once stays
    gc.collect()
    gc.disable()
    try:
        build_snapshot(rows)
        assert gc.collect() == 0
    finally:
        gc.enable()
