"""Search of subscriptions over HTTP, beside a search of each of them."""

import itertools

import pytest

from selectroute.index.specification import SubscriptionSpec
from selectroute.registry.model import Operation
from selectroute.selector.selector import Selector
from selectroute.service.subscriptions import bulk, search
from tests.unit.service.conftest import client_of, problem, service

PATH = "/v1/subscriptions:search"
EVERYWHERE = ("id", "name", "topic", "selector", "identifier")
TEXTS = ("car", "CAR", "weight", "Weight", "eu", "%", "_", "\\", "s1", "s", "'", "ä", "nothing")


@pytest.fixture
def filled(registry):
    """Subscriptions with all that can be searched for, some of them paused, changed and removed."""
    selectors = ("JMSType = 'car'", "weight > 3 AND car = 'Weight_%'", "name = 'ä\\ü'", "", "body_weight < 1")
    topics = (None, "cars/eu", "CARS/%", "boats")
    made = []
    for number, (selector, topic) in enumerate(itertools.product(selectors, topics)):
        spec = SubscriptionSpec(selector, topic=topic, name=f"name of Car {number}" if number % 3 else None)
        made.append(Operation("add", f"s{number:02}", spec))
    registry.apply(made)
    for number in range(0, 20, 4):
        registry.pause(f"s{number:02}")
    registry.replace("s01", SubscriptionSpec("other = 1", topic="planes"))
    registry.remove("s02")
    return registry


def brute(registry, text, fields, sees=lambda topic: True):
    found = []
    for one in registry.list(limit=1_000).items:
        given = {"id": one.id, "name": one.name, "topic": one.topic or "", "selector": one.selector}
        has = any(text.casefold() in value.casefold() for name, value in given.items() if name in fields)
        has |= "identifier" in fields and text in Selector(one.selector).identifiers
        found += [one.id] if has and sees(one.topic) else []
    return found


def ids(client, **params):
    """Return all ids of a search, page by page."""
    found = []
    while True:
        data = client.get(PATH, params=params).json()
        found += [one["id"] for one in data["items"]]
        if data["next_cursor"] is None:
            return found
        params["cursor"] = data["next_cursor"]


def test_everything_with_the_text_is_found_once_and_in_order(filled):
    wheres = [(), *((name,) for name in EVERYWHERE), ("name", "identifier", "topic")]
    with service(filled) as client:
        for fields, text in itertools.product(wheres, TEXTS):
            wanted = brute(filled, text, fields or EVERYWHERE)
            for limit in (1, 3, 50):
                assert ids(client, text=text, field=fields, limit=limit) == wanted, (text, fields, limit)


def test_a_search_is_among_those_with_the_values(filled):
    for filters in (
        {"status": "paused"},
        {"status": "active"},
        {"topic": "cars/eu"},
        {"name": "name of Car 5"},
    ):
        with service(filled) as client:
            listed = {one.id for one in filled.list(limit=1_000, **filters).items}
            for text in TEXTS:
                wanted = [id for id in brute(filled, text, EVERYWHERE) if id in listed]
                assert ids(client, text=text, **filters, limit=2) == wanted


def test_a_token_for_some_topics_finds_no_others(filled):
    filled.tokens.add("admin")
    with client_of(filled, "reader", topics=["cars/#"]) as client:
        for text in TEXTS:
            wanted = brute(filled, text, EVERYWHERE, lambda topic: topic == "cars/eu")
            assert ids(client, text=text, limit=2) == wanted, text
        problem(client.get(PATH, params={"text": "a", "cursor": "MS5zMDE"}), 422, "invalid-subscription")


def test_a_search_that_takes_long_goes_on_where_it_stopped(filled, monkeypatch):
    monkeypatch.setattr(bulk, "_SEARCH_SECONDS", 0.0)
    monkeypatch.setattr(search, "_PAGE", 2)
    monkeypatch.setattr(search, "_FEW", 2)
    with service(filled) as client:
        assert len(client.get(PATH, params={"text": "s"}).json()["items"]) <= 1
        for text in ("s", "car", "nothing", "weight"):
            assert ids(client, text=text) == brute(filled, text, EVERYWHERE), text


@pytest.mark.parametrize("params", [{}, {"text": ""}, {"text": "a", "field": "destination"}, {"text": "a\0"}])
def test_a_wrong_search_is_refused(shared, params):
    problem(shared.get(PATH, params=params), 400, "invalid-request")
