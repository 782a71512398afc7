"""Lists: by filters, page by page, stable under change."""

from __future__ import annotations

import pytest

from selectroute.index.errors import InvalidSpecError
from selectroute.index.specification import SubscriptionSpec
from selectroute.registry.changes import Operation
from selectroute.registry.pages import MAX_LIMIT, statement_of
from selectroute.registry.registry import Registry


def fill(registry, count=10):
    registry.apply(
        Operation(
            "add",
            f"s{number:03}",
            SubscriptionSpec(
                "a = 1",
                topic=None if number % 3 == 0 else f"t/{number % 3}",
                dialect="ibm-mq" if number % 2 else "jms",
                labels={"team": f"t{number % 4}", "env": "prod"},
                name=f"name {number}",
            ),
        )
        for number in range(count)
    )


def ids(page):
    return [one.id for one in page.items]


def every(registry, **filters):
    found, cursor = [], None
    while True:
        page = registry.list(cursor=cursor, **filters)
        found += ids(page)
        cursor = page.next_cursor
        if cursor is None:
            return found


def test_pages_hold_every_subscription_once_in_the_order_of_ids(registry):
    fill(registry, 25)
    assert every(registry, limit=4) == [f"s{number:03}" for number in range(25)]
    assert registry.list(limit=25).next_cursor is None


def test_ids_are_ordered_byte_by_byte_on_every_database(registry):
    given = ["B", "a", "_", "Z.1", "z-1", "A", "0", "-x", ".x", "b"]
    registry.apply(Operation("add", one, SubscriptionSpec()) for one in given)
    assert every(registry, limit=3) == sorted(given)


@pytest.mark.parametrize(
    ("filters", "wanted"),
    [
        ({"topic": "t/1"}, [1, 4, 7]),
        ({"dialect": "jms"}, [0, 2, 4, 6, 8]),
        ({"status": "paused"}, [2, 7]),
        ({"status": "active", "dialect": "ibm-mq"}, [1, 3, 5, 9]),
        ({"label": "team=t1"}, [1, 5, 9]),
        ({"label": "env=prod", "topic": "t/2"}, [2, 5, 8]),
        ({"name": "name 4"}, [4]),
        ({"name": "name 4", "dialect": "ibm-mq"}, []),
        ({"topic": "t/1", "status": "paused", "dialect": "ibm-mq", "label": "team=t3"}, [7]),
        ({"topic": "t/9"}, []),
        ({"status": "asleep"}, []),
    ],
)
def test_each_filter_leaves_what_it_says(registry, filters, wanted):
    fill(registry)
    registry.pause("s002")
    registry.pause("s007")
    assert every(registry, limit=2, **filters) == [f"s{number:03}" for number in wanted]


def test_filters_follow_a_change(registry):
    fill(registry)
    registry.change("s001", {"topic": None, "labels": {"team": None}, "dialect": "jms"})
    registry.remove("s004")
    assert every(registry, topic="t/1") == ["s007"]
    assert every(registry, label="team=t1") == ["s005", "s009"]
    assert "s001" in every(registry, dialect="jms")


def test_long_topic_filters_are_found_like_short_ones(registry):
    long = ["/".join(["ü" * 100] * 90) + end for end in ("/a", "/b")]
    for topic in long:
        registry.register(SubscriptionSpec(topic=topic))
    assert [one.topic for one in registry.list(topic=long[1]).items] == [long[1]]


def test_a_cursor_is_stable_while_others_come_and_go(registry):
    fill(registry, 20)
    first = registry.list(limit=5)
    registry.remove("s004")  # where the cursor stands
    registry.remove("s006")
    registry.register(SubscriptionSpec(), id="s000a")
    registry.register(SubscriptionSpec(), id="s010a")
    rest = registry.list(limit=100, cursor=first.next_cursor)
    wanted = [f"s{number:03}" for number in range(5, 20) if number != 6]
    assert ids(rest) == sorted([*wanted, "s010a"])


def test_a_cursor_is_of_its_filters(registry):
    fill(registry)
    cursor = registry.list(limit=2, dialect="jms").next_cursor
    with pytest.raises(InvalidSpecError, match="for other filters") as caught:
        registry.list(limit=2, dialect="ibm-mq", cursor=cursor)
    assert caught.value.pointer == "/cursor"
    with pytest.raises(InvalidSpecError, match="for other filters"):
        registry.list(limit=2, cursor=cursor)


def test_a_list_has_an_order(registry):
    for number in (3, 1, 2, 0):
        registry.register(
            SubscriptionSpec(name=f"n{9 - number}", topic="t" if number else None), id=f"s{number}"
        )
    registry.pause("s1")
    registry.remove("s0")
    registry.replace("s3", SubscriptionSpec("a = 1", name="n6", topic="t"))
    wanted = {"id": ["s1", "s2", "s3"], "name": ["s3", "s2", "s1"], "newest": ["s3", "s1", "s2"]}
    for order, expected in wanted.items():
        for filters in ({}, {"topic": "t"}, {"dialect": "jms"}):
            found, cursor = [], None
            while not found or cursor is not None:
                page = registry.list(limit=1, cursor=cursor, order=order, **filters)
                found, cursor = found + ids(page), page.next_cursor
            assert found == expected
        active = [one for one in expected if one != "s1"]
        assert ids(registry.list(order=order, status="active")) == active
        assert ids(registry.list(order=order, status="paused")) == ["s1"]
    cursor = registry.list(limit=1, order="name").next_cursor
    with pytest.raises(InvalidSpecError, match="another order"):
        registry.list(limit=1, cursor=cursor)
    with pytest.raises(InvalidSpecError, match="an order must be id, name, newest"):
        registry.list(order="size")


@pytest.mark.parametrize("cursor", ["", "x", "AAAA", "ü", "%%%", "MS4yLjM", "\x00", "A" * 10_000])
def test_what_is_no_cursor_is_refused(registry, cursor):
    with pytest.raises(InvalidSpecError) as caught:
        registry.list(cursor=cursor)
    assert caught.value.pointer == "/cursor"


@pytest.mark.parametrize("limit", [0, -1, MAX_LIMIT + 1])
def test_a_limit_is_one_to_a_thousand(registry, limit):
    with pytest.raises(InvalidSpecError) as caught:
        registry.list(limit=limit)
    assert caught.value.pointer == "/limit"


def test_a_label_filter_is_name_and_value(registry):
    with pytest.raises(InvalidSpecError) as caught:
        registry.list(label="team")
    assert caught.value.pointer == "/label"


def test_every_filter_is_answered_from_an_index_in_its_order(tmp_path):
    asked = {"topic": "t", "status": "active", "dialect": "jms", "name": "n", "label": "a=b"}
    with Registry.open(f"sqlite:///{tmp_path}/x.db") as registry:
        for names in ([], *([name] for name in asked), list(asked)):
            statement = statement_of({name: asked[name] for name in names}, 50, None)
            text = str(statement.compile(registry._store.engine, compile_kwargs={"literal_binds": True}))
            with registry._store.reading() as connection:
                plan = [row[-1] for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}")]
            assert not any("TEMP B-TREE" in step for step in plan), (names, plan)
            assert not names or not any(step.startswith("SCAN") for step in plan), (names, plan)


@pytest.mark.parametrize("order", ["name", "newest"])
def test_a_list_without_filters_is_read_in_its_order(tmp_path, order):
    with Registry.open(f"sqlite:///{tmp_path}/x.db") as registry:
        for filters in ({}, {"status": "active"}, {"dialect": "jms"}):
            statement = statement_of(filters, 50, None, order)
            text = str(statement.compile(registry._store.engine, compile_kwargs={"literal_binds": True}))
            with registry._store.reading() as connection:
                plan = [row[-1] for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}")]
            assert not any("TEMP B-TREE" in step for step in plan), (filters, plan)
