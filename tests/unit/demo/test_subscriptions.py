import hashlib
import json

import pytest

import selectroute as sr
from selectroute.demo.flights import read_flights
from selectroute.demo.subscriptions import WATCHED, WATCHED_CHANGED, generate, read_jsonl, write_jsonl
from selectroute.topics import TopicFilter


@pytest.fixture(scope="module")
def flights():
    return read_flights()


@pytest.fixture(scope="module")
def some(flights):
    return generate(flights, 5_000, 1)


def test_same_seed_gives_the_same_subscriptions_everywhere(some):
    # A digest, so that a change of the generator or of Python's generator is seen: the demo's figures change
    # with it.
    text = json.dumps([(one.id, one.selector, one.topic) for one in some])
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == "3b860c04529f17e2"


def test_another_seed_gives_others(flights, some):
    assert generate(flights, 5_000, 2) != some


def test_a_larger_set_has_the_asked_size_and_unique_ids(flights):
    many = generate(flights, 20_000, 1)
    assert len(many) == len({one.id for one in many}) == 20_000


def test_every_selector_and_filter_is_valid(some):
    for one in some:
        sr.Selector(one.selector)
        if one.topic is not None:
            TopicFilter.parse(one.topic)


def test_every_operator_of_the_dialect_is_used(some):
    texts = " ; ".join(one.selector for one in some)
    for word in (
        "JMSCorrelationID =",
        "IN (",
        "NOT IN",
        "BETWEEN",
        "NOT BETWEEN",
        "LIKE",
        "IS NULL",
        "IS NOT NULL",
    ):
        assert word in texts
    for word in ("NOT (", " OR ", "<>", ">=", " - ", " * ", " / "):
        assert word in texts


def test_some_have_a_topic_filter_and_some_nothing_else(some):
    filters = {one.topic for one in some if one.topic}
    assert any("+" in topic for topic in filters) and any("#" in topic for topic in filters)
    assert any(not one.selector for one in some)
    assert all(one.selector or one.topic for one in some)


def test_the_watched_subscription_comes_first_and_is_changed_to_match_more(flights):
    assert generate(flights, 1, 1) == [WATCHED]
    assert WATCHED.id == WATCHED_CHANGED.id and WATCHED.selector != WATCHED_CHANGED.selector


def test_rows_read_back_as_written(some, tmp_path):
    rows = [(some[0], 1, 2), (some[1], 1, None)]
    write_jsonl(tmp_path / "subscriptions.jsonl", rows)
    assert list(read_jsonl(tmp_path / "subscriptions.jsonl")) == rows
    first = json.loads((tmp_path / "subscriptions.jsonl").read_text().splitlines()[0])
    assert first.keys() == {"id", "topic", "selector", "dialect", "from", "to"}
