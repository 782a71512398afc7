"""Lines of subscriptions: what Arrow reads at once is what is read line by line."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selectroute.index import jsonl
from selectroute.index.errors import InvalidLinesError, RegistrationError
from selectroute.index.jsonl import build_from_lines
from tests.support.subscription_lines import read_subscriptions

TEXT = st.none() | st.text("a\0\n\x7fé}", max_size=3) | st.sampled_from(["a = 'é'", "cars/+"])
REVISION = st.none() | st.integers(-1, 4)
ROWS = st.fixed_dictionaries(
    {"id": st.text("abc", min_size=1, max_size=3)},
    optional={
        "selector": TEXT,
        "topic": TEXT,
        "dialect": TEXT,
        "from": REVISION,
        "to": REVISION,
        "destination": st.sampled_from(
            [
                None,
                {},
                {"kind": None, "name": None},
                {"name": "A"},
                {"kind": "none"},
                {"kind": "queue", "name": "A.b/c"},
                {"kind": "kafka", "name": "a"},
            ]
        ),
        "labels": st.none()
        | st.dictionaries(st.text("a=}é\n", max_size=2), st.text("a}\x7f", max_size=2), max_size=2),
        "name": TEXT,
        "revision": REVISION,
        "status": st.sampled_from([None, "active", "paused"]),
        "effective_from": st.none() | st.just([{"query": "q", "batch": 1}]),
    },
)


def one_by_one(lines, revision):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsonl, "_read_block", lambda lines: None)
        return read_subscriptions(lines, revision)


@settings(max_examples=40, deadline=None)
@given(st.lists(ROWS, max_size=8), REVISION, st.booleans(), st.sampled_from(["", "\n", " \n"]))
def test_a_block_is_read_as_its_lines_are(rows, revision, ascii, between):
    lines = []
    for row in rows:
        lines.append(json.dumps(row, ensure_ascii=ascii) + "\n")
        lines += [between] if between else []
    try:
        apart = one_by_one(lines, revision)
    except InvalidLinesError as error:
        with pytest.raises(InvalidLinesError) as refused:
            read_subscriptions(lines, revision)
        assert str(refused.value) == str(error)
        return
    at_once = read_subscriptions(lines, revision)
    assert at_once.table.equals(apart.table)
    assert at_once.lines.tolist() == apart.lines.tolist()
    step = 2 if between else 1
    assert set(at_once.lines.tolist()) <= set(range(1, step * len(rows) + 1, step))


@pytest.mark.parametrize("labels", ["{}", '{"team": "billing"}'])
def test_arrow_reads_what_is_sound(monkeypatch, labels):
    """Otherwise the test above would compare the slow path with itself."""
    monkeypatch.setattr(jsonl, "_row", None)
    lines = [f'{{"id": "a", "selector": "x = 1", "from": 1, "labels": {labels}}}\n', "\n", '{"id": "b"}']
    assert read_subscriptions(lines).lines.tolist() == [1, 3]


@pytest.mark.parametrize("others", [[], ['{"id": "labelled", "labels": {"a": "b"}}\n']])
@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (
            '{"id": "x", "selektor": "a=1"}',
            "/selektor: a subscription has no field `selektor`: did you mean `selector`?",
        ),
        ('{"id": "x", "Topic": null}', "/Topic: a subscription has no field `Topic`: did you mean `topic`?"),
        (
            '{"id": "x", "destination": {"kind": "none", "nmae": "A"}}',
            "/destination/nmae: a destination has no field `nmae`: did you mean `name`?",
        ),
    ],
)
def test_a_field_that_subscriptions_do_not_have_is_refused(others, line, sentence):
    """It would be a subscription without a selector, which gets every message."""
    with pytest.raises(RegistrationError) as refused:
        read_subscriptions([*others, '{"id": "good"}\n', line + "\n"])
    assert str(refused.value) == f"line {len(others) + 2}: {sentence}"


def test_a_subscription_that_is_paused_is_left_out():
    lines = ['{"id": "a", "status": "paused"}\n', '{"id": "b", "status": "active"}\n']
    assert read_subscriptions(lines).table["id"].to_pylist() == ["b"]
    with pytest.raises(RegistrationError, match="/status: a status must be active or paused"):
        read_subscriptions(['{"id": "a", "status": "of"}'])


def test_the_first_errors_are_told_and_the_others_counted():
    """Those of reading and of building, in the order of the lines."""
    lines = ['{"id": "a", "selector": "x = "}\n', "{\n", *['{"id": "good"}\n'] * 2]
    lines += ['{"id": "b b"}\n'] * 5_000
    with pytest.raises(InvalidLinesError) as refused:
        build_from_lines(lines)
    assert refused.value.count == 5_003
    assert [one.line for one in refused.value.problems] == [1, 2, 4, *range(5, 22)]
    kinds = [type(one.cause).__name__.removesuffix("Error") for one in refused.value.problems[:4]]
    assert kinds == ["InvalidSelector", "InvalidSpec", "DuplicateSubscription", "InvalidId"]


def test_destinations_are_read_as_text():
    given = [{"kind": "queue", "name": "A.b/c"}, {"kind": "kafka", "name": "a"}, {"kind": "none"}, None]
    given.append({"kind": "kafka", "name": "a?grouping=message"})
    lines = [json.dumps({"id": f"s{number}", "destination": one}) + "\n" for number, one in enumerate(given)]
    wanted = ["queue:A.b/c", "kafka:a", None, None, "kafka:a?grouping=message"]
    for found in (read_subscriptions(lines), one_by_one(lines, None)):
        assert found.table["destination"].to_pylist() == wanted


@pytest.mark.parametrize(
    "given",
    [
        "queue:A",
        {"kind": "queue"},
        {"kind": "queue", "name": "A B"},
        {"kind": "kafka", "name": "a b"},
        {"kind": "kafka", "name": "a?grouping=both"},
        {"kind": "none", "name": "A"},
        {"kind": 1, "name": "A"},
        {"kind": "files", "name": "A"},
        {"kind": "queue", "name": 1},
    ],
)
def test_a_destination_that_cannot_be_is_named_with_its_line(given):
    lines = ['{"id": "a"}\n', json.dumps({"id": "b", "destination": given}) + "\n"]
    with pytest.raises(RegistrationError, match="line 2: /destination"):
        read_subscriptions(lines)


def test_blocks_follow_each_other(monkeypatch):
    monkeypatch.setattr(jsonl, "_BLOCK", 3)
    told = []
    lines = [f'{{"id": "s{number}", "to": {number % 2 or "null"}}}\n' for number in range(10)]
    found = read_subscriptions(lines, progress=told.append)
    assert found.lines.tolist() == [1, 3, 5, 7, 9]
    assert found.table["id"].to_pylist() == ["s0", "s2", "s4", "s6", "s8"]
    assert told == [3, 6, 9, 10]


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ('{"id": "a", "to": 9223372036854775808}', "an integer of 64 bits"),
        ('{"id": "a", "from": 1.0}', "an integer of 64 bits"),
        ('{"id": "a", "seltype": "STANDARD"}', "the seltype is NONE"),
        ('{"id": "a", "seltype": "OTHER", "selector": "x = 1"}', "a seltype must be NONE"),
    ],
)
def test_the_line_that_is_no_subscription_is_named(line, sentence):
    lines = ['{"id": "first"}\n', "\n", line + "\n", '{"id": "last"}\n']
    with pytest.raises(RegistrationError, match=f"^line 3: .*{sentence}"):
        read_subscriptions(lines)


def test_the_line_of_what_cannot_be_built_is_named():
    lines = ['{"id": "a"}\n', "\n", '{"id": "gone", "to": 1}\n', '{"id": "a", "selector": "x = 1"}\n']
    with pytest.raises(RegistrationError, match=r"^line 4: subscription 'a' exists already"):
        build_from_lines(lines)
