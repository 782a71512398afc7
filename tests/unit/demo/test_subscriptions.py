import hashlib
import json
from itertools import product

import pytest

import selectroute as sr
from selectroute.demo.data import WATCHED, WATCHED_CHANGED, generate, read_flights, write_jsonl
from selectroute.topics import TopicFilter


@pytest.fixture(scope="module")
def flights():
    return read_flights()


@pytest.fixture(scope="module")
def some(flights):
    return generate(flights, 5_000)


def test_same_subscriptions_are_generated_everywhere(some):
    # A digest, so that a change of the generator or of Python's generator is seen: the demo's figures change
    # with it.
    text = json.dumps([(each.id, each.selector, each.topic) for each in some])
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == "e361bbfe1ae11a94"


def test_every_id_is_unique_and_every_selector_and_filter_is_valid(some):
    assert len({each.id for each in some}) == 5_000
    for each in some:
        sr.Selector(each.selector)
        assert each.selector or each.topic is not None
        if each.topic is not None:
            TopicFilter.parse(each.topic)


def test_every_operator_of_the_dialect_is_used(some):
    texts = " ; ".join(each.selector for each in some)
    words = "JMSCorrelationID =|IN (|NOT IN|BETWEEN|NOT BETWEEN|LIKE|IS NULL|IS NOT NULL"
    for word in [*words.split("|"), "NOT (", " OR ", "<>", ">=", " - ", " * ", " / "]:
        assert word in texts


def test_some_have_a_topic_filter_and_some_nothing_else(some):
    filters = {each.topic for each in some if each.topic}
    assert any("+" in topic for topic in filters) and any("#" in topic for topic in filters)
    assert any(not each.selector for each in some)


def test_the_watched_subscription_comes_first_and_its_change_is_written_with_its_revisions(flights, tmp_path):
    assert generate(flights, 1) == [WATCHED]
    both = product((WATCHED, WATCHED_CHANGED), (1, 2))
    assert [each.is_valid_at(revision) for each, revision in both] == [True, False, False, True]
    write_jsonl(tmp_path / "subscriptions.jsonl", [WATCHED, WATCHED_CHANGED])
    rows = [json.loads(line) for line in (tmp_path / "subscriptions.jsonl").read_text().splitlines()]
    fields = {"id": WATCHED.id, "topic": None, "dialect": "jms"}
    assert rows == [
        {**fields, "selector": WATCHED.selector, "from": 1, "to": 2},
        {**fields, "selector": WATCHED_CHANGED.selector, "from": 2, "to": None},
    ]
