"""Last deliveries and rates of subscriptions over HTTP."""

from datetime import UTC, datetime

import pytest

from selectroute.registry.model import time_text
from tests.unit.service.conftest import bearer, problem, service

PATH = "/v1/subscriptions"
REPORTS = "/v1/queries/stream/reports"
COUNTS = {"messages": 10, "routed": 7, "unrouted": 2, "dead_lettered": 1, "deliveries": 30}


def report(client, number, **busiest):
    one = {"batch": number, "revision": 1, "ended": time_text(datetime.now(UTC)), "busiest": busiest}
    one |= COUNTS
    assert client.post(REPORTS, json={"batches": [one]}).status_code == 204
    return one


@pytest.fixture
def filled(registry):
    registry.import_(
        f'{{"id": "{id}", "topic": "{topic}"}}' for id, topic in (("a", "cars/eu"), ("b", "boats"))
    )
    return registry


def test_the_activity_of_a_subscription_is_what_the_newest_batch_says_of_it(filled):
    with service(filled) as client:
        names = ("last_delivered", "query", "batch", "deliveries", "per_second")
        nothing = {"id": "a", **dict.fromkeys(names)}
        assert client.get(f"{PATH}/a/activity").json() == nothing
        assert client.get(f"{PATH}:activity?id=a").json() == {"items": []}
        first = report(client, 1, a=40, gone=7)
        of_first = {"last_delivered": first["ended"], "query": "stream", "batch": 1, "deliveries": 40}
        assert client.get(f"{PATH}/a/activity").json() == nothing | of_first
        assert client.get(REPORTS).json()["batches"][0]["busiest"] == {"a": 40, "gone": 7}
        report(client, 2, a=10, b=1)
        found = client.get(f"{PATH}/a/activity").json()
        assert (found["batch"], found["deliveries"]) == (2, 10) and found["per_second"] > 0
        items = client.get(f"{PATH}:activity?id=b&id=gone&id=a&id=b").json()["items"]
        assert [(one["id"], one["batch"], one["deliveries"]) for one in items] == [("b", 2, 1), ("a", 2, 10)]
        problem(client.get(f"{PATH}/gone/activity"), 404, "subscription-not-found")
        for wrong in ("", "?id=a%20b", "?" + "&".join(["id=a"] * 101)):
            problem(client.get(f"{PATH}:activity{wrong}"), 400, "invalid-request")


def test_a_token_for_some_topics_sees_the_activity_of_its_own_and_no_stream(filled):
    filled.streams.note_reports("stream", [{"batch": 1, "busiest": {"a": 1, "b": 2}}], {})
    with service(filled, headers=bearer(filled.tokens.add("reader", topics=["cars/#"])[1])) as client:
        problem(client.get(f"{PATH}/b/activity"), 404, "subscription-not-found")
        (one,) = client.get(f"{PATH}:activity?id=b&id=a").json()["items"]
        assert (one["id"], one["deliveries"], one["query"]) == ("a", 1, None)
        assert client.get(f"{PATH}/a/activity").json() == one
    with service(filled, headers=bearer(filled.tokens.add("reader")[1])) as client:
        assert {one["query"] for one in client.get(f"{PATH}:activity?id=b&id=a").json()["items"]} == {
            "stream"
        }
