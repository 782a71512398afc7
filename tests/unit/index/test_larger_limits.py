"""Selectors and names beyond the usual limits: accepted where that is said, then treated like any other."""

import pickle

import pyarrow as pa
import pytest

import selectroute as sr
from selectroute.index.compile.build import check_subscriptions
from selectroute.index.errors import BuildError
from selectroute.index.invariants import verify_snapshot
from selectroute.match.columns.from_messages import from_messages
from selectroute.selector.message import MAX_NAME_LENGTH, MessageError

LONG = sr.Limits(length=100_000)
COLORS = ", ".join(f"'color-{i:05}'" for i in range(800))
IN_LIST = f"color IN ({COLORS}) AND weight > {{}}"
CHAIN = " AND ".join(f"NOT (property_{i} = 'x{{0}}')" for i in range(600)) + " AND weight < 7"
NAME = "n" * (MAX_NAME_LENGTH + 1_000)
TEXTS = [
    *(IN_LIST.format(i) for i in range(40)),
    CHAIN.format(1),
    CHAIN.format(2),
    f"{NAME} = 3 AND weight > 1",
]
MESSAGES = [
    sr.Message(properties=properties, name_length=len(NAME))
    for properties in (
        {"color": "color-00007", "weight": 20},
        {"color": "color-00799", "weight": 3.5},
        {"color": "color-00800", "weight": 100},
        {"weight": 2, **{f"property_{i}": "x1" for i in range(600)}},
        {"weight": 2, **{f"property_{i}": "x3" for i in range(600)}},
        {NAME: 3, "weight": 2},
        {NAME: "3", "weight": 2},
    )
]


def ids_of(snapshot):
    return [sorted(ids) for ids in snapshot.match(from_messages(MESSAGES, snapshot.reads)).ids().to_pylist()]


def expected(texts):
    selectors = {f"s{number}": sr.Selector(text, limits=LONG) for number, text in enumerate(texts)}
    return [sorted(id for id, one in selectors.items() if one.matches(message)) for message in MESSAGES]


def subscriptions(texts):
    return [(f"s{number}", text) for number, text in enumerate(texts)]


def test_long_selectors_are_matched_alike_by_every_engine():
    assert all(len(text) > 10_240 for text in TEXTS[:-1])
    wanted = expected(TEXTS)
    assert any(wanted) and wanted[5] == ["s42"] and wanted[6] == []
    snapshot = sr.build_snapshot(subscriptions(TEXTS), limits=LONG)
    verify_snapshot(snapshot)
    assert ids_of(snapshot) == wanted
    index = sr.Index(limits=LONG)
    for id, text in subscriptions(TEXTS):
        index.add(id, text)
    assert [sorted(index.match(message)) for message in MESSAGES] == wanted
    assert index.explain("s7", MESSAGES[0]).matched
    assert ids_of(index.freeze()) == wanted


def test_a_selector_brings_its_own_limits():
    """`Selector` objects were accepted: what builds a snapshot of them does not ask again."""
    given = [(id, sr.Selector(text, limits=LONG)) for id, text in subscriptions(TEXTS)]
    assert ids_of(sr.build_snapshot(given)) == expected(TEXTS)
    with pytest.raises(BuildError, match="10,240"):
        sr.build_snapshot(subscriptions(TEXTS))
    with pytest.raises(TypeError, match="limits"):
        sr.build_snapshot([], limits=100_000)


@pytest.mark.parametrize("count", [1, 300])
def test_limits_may_be_lower_too(count):
    """Also where a shape is read once for many."""
    deep = [(f"s{i}", f"((((a = {i}))))") for i in range(count)]
    assert len(sr.build_snapshot(deep, limits=sr.Limits(nesting=4))) == count
    for limits in (sr.Limits(nesting=3), sr.Limits(length=10)):
        with pytest.raises(BuildError) as found:
            sr.build_snapshot(deep, limits=limits)
        assert found.value.count == count
        table = pa.table({"id": [id for id, _ in deep], "selector": [text for _, text in deep]})
        with pytest.raises(BuildError):
            check_subscriptions(table, limits)
        with pytest.raises(sr.InvalidSelectorError):
            sr.build_snapshot([]).changed([sr.Add(*one) for one in deep], limits=limits)


def test_who_opens_the_folder_later_needs_no_limits(tmp_path):
    sr.publish(sr.build_snapshot(subscriptions(TEXTS), limits=LONG), tmp_path)
    opened = sr.Snapshot.open(tmp_path)
    verify_snapshot(opened)
    assert ids_of(opened) == expected(TEXTS)
    with sr.Publisher(tmp_path) as publisher:
        publisher.apply([sr.Remove("s1"), sr.Add("short", "weight > 1000")])
        with pytest.raises(sr.InvalidSelectorError):
            publisher.apply([sr.Add("another", TEXTS[0])])
        publisher.merge()
        assert len(publisher.snapshot.segments) == 1
    wanted = [[id for id in ids if id != "s1"] for ids in expected(TEXTS)]
    assert ids_of(sr.Snapshot.open(tmp_path)) == wanted


@pytest.mark.parametrize("count", [1, 65])  # a delta of 64 is built, a smaller one indexed
def test_changes_and_publishers_take_limits(tmp_path, count):
    added = [sr.Add(f"s{number}", IN_LIST.format(number)) for number in range(count)]
    with pytest.raises(sr.InvalidSelectorError):
        sr.build_snapshot([]).changed(added)
    changed = sr.build_snapshot([]).changed(added, limits=LONG)
    wanted = sorted(f"s{number}" for number in range(min(count, 20)))
    assert ids_of(changed)[0] == wanted
    with sr.Publisher(tmp_path, limits=LONG) as publisher:
        publisher.apply(added)
        publisher.apply([sr.Replace("s0", IN_LIST.format(50))])
    assert ids_of(sr.Snapshot.open(tmp_path))[0] == wanted[1:]


def test_extended_selectors_have_the_same_length():
    row = {"id": "e", "selector": "x" * 20_000, "dialect": "ibm-mq", "seltype": "EXTENDED"}
    with pytest.raises(BuildError, match="20,000"):
        sr.build_snapshot([row])
    assert len(sr.build_snapshot([row], limits=LONG)) == 1


def test_a_message_keeps_a_name_that_it_was_made_with():
    with pytest.raises(MessageError, match="longer than 4,095"):
        sr.Message(properties={NAME: 3})
    with pytest.raises(MessageError, match="longer than 4,095"):
        sr.Message.from_json({"properties": {NAME: 3}})
    made = sr.Message.from_json({"properties": {NAME: 3}}, name_length=len(NAME))
    assert made == pickle.loads(pickle.dumps(made))  # noqa: S301  our own
