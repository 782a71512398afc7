"""Lists: by filters, page by page, stable under change."""

from __future__ import annotations

import pytest

from selectroute.index.errors import InvalidSpecError
from selectroute.index.specification import SubscriptionSpec
from selectroute.registry.model import Operation
from selectroute.registry.registry import MAX_LIMIT, Registry, statement_of


def fill(registry, count=10):
    def spec(number):
        topic, dialect = number % 3 and f"t/{number % 3}", ("jms", "ibm-mq")[number % 2]
        labels = {"team": f"t{number % 4}", "env": "prod"}
        return SubscriptionSpec("a = 1", topic or None, dialect, labels=labels, name=f"name {number}")

    registry.apply(Operation("add", f"s{number:03}", spec(number)) for number in range(count))


def ids(page):
    return [one.id for one in page.items]


def every(registry, **filters):
    found, page = [], None
    while page is None or page.next_cursor is not None:
        page = registry.list(cursor=page and page.next_cursor, **filters)
        found += ids(page)
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
    for filters in ({"dialect": "ibm-mq"}, {}):
        with pytest.raises(InvalidSpecError, match="for other filters") as caught:
            registry.list(limit=2, cursor=cursor, **filters)
        assert caught.value.pointer == "/cursor"


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
            assert every(registry, limit=1, order=order, **filters) == expected
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


@pytest.mark.parametrize(
    ("name", "value"), [("label", "team"), *(("limit", limit) for limit in (0, -1, MAX_LIMIT + 1))]
)
def test_a_limit_is_one_to_a_thousand_and_a_label_has_a_value(registry, name, value):
    with pytest.raises(InvalidSpecError) as caught:
        registry.list(**{name: value})
    assert caught.value.pointer == f"/{name}"


ASKED = {"topic": "t", "status": "active", "dialect": "jms", "name": "n", "label": "a=b"}


@pytest.mark.parametrize(
    ("order", "several"),
    [
        ("id", [[], *([name] for name in ASKED), list(ASKED)]),
        *((order, [[], ["status"], ["dialect"]]) for order in ("name", "newest")),
    ],
)
def test_a_list_is_answered_from_an_index_in_its_order(tmp_path, order, several):
    with Registry.open(f"sqlite:///{tmp_path}/x.db") as registry, registry._store.reading() as connection:
        for names in several:
            statement = statement_of({name: ASKED[name] for name in names}, 50, None, order)
            query = statement.compile(registry._store.engine, compile_kwargs={"literal_binds": True})
            plan = [row[-1] for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {query}")]
            assert not any("TEMP B-TREE" in step for step in plan), (names, plan)
            if names and order == "id":
                assert not any(step.startswith("SCAN") for step in plan), (names, plan)
