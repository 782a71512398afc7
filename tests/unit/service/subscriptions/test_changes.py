"""The change log over HTTP."""

import threading
import time

import pytest

from selectroute.index.specification import SubscriptionSpec
from tests.unit.service.conftest import client_of, problem

PATH = "/v1/changes"


def test_changes_come_in_their_order_and_whole_revisions(client, add):
    id = add("a = 1")["id"]
    client.post(f"/v1/subscriptions/{id}:pause")
    client.post(f"/v1/subscriptions/{id}:resume", json={"from": "last-processed"})
    client.delete(f"/v1/subscriptions/{id}", headers={"If-Match": "*"})
    found = client.get(PATH).json()
    assert found["revision"] == 4
    assert [one["op"] for one in found["changes"]] == ["add", "pause", "resume", "remove"]
    assert {one["id"] for one in found["changes"]} == {id}
    assert (found["changes"][2]["from"], found["changes"][2]["paused_at"]) == ("last-processed", 2)
    assert found["changes"][3]["subscription"] is None
    assert [one["revision"] for one in client.get(PATH, params={"after": 2}).json()["changes"]] == [3, 4]
    assert len(client.get(PATH, params={"limit": 1}).json()["changes"]) == 1
    nothing = {"changes": [], "revision": 4, "complete": 4, "next_cursor": None}
    assert client.get(PATH, params={"after": 2**63 - 1}).json() == nothing


def test_a_revision_of_any_size_comes_in_answers_of_a_limit(client, registry):
    registry.import_(f'{{"id": "s{number}"}}' for number in range(7))
    registry.register(SubscriptionSpec(), id="last")
    answer = client.get(PATH, params={"limit": 3})
    found, complete = [], []
    while True:
        data = answer.json()
        assert len(data["changes"]) <= 3
        found += [one["id"] for one in data["changes"]]
        complete.append(data["complete"])
        if "link" not in answer.headers:
            break
        assert data["next_cursor"] in answer.headers["link"]
        answer = client.get(answer.headers["link"].partition("<")[2].partition(">")[0])
    assert found == [*(f"s{number}" for number in range(7)), "last"]
    assert complete == [0, 0, 2] and data["next_cursor"] is None


def test_only_the_kinds_of_changes_that_are_asked_for_come(client, add):
    id = add()["id"]
    for step in ("pause", "resume", "pause", "resume"):
        client.post(f"/v1/subscriptions/{id}:{step}")
    answer = client.get(PATH, params={"op": ["resume", "remove"], "limit": 1})
    assert [(one["op"], one["revision"]) for one in answer.json()["changes"]] == [("resume", 3)]
    answer = client.get(answer.headers["link"].partition("<")[2].partition(">")[0])
    assert [(one["op"], one["revision"]) for one in answer.json()["changes"]] == [("resume", 5)]
    assert "link" not in answer.headers
    problem(client.get(PATH, params={"op": "rename"}), 400, "invalid-request")


def test_what_is_no_cursor_is_refused(client):
    problem(client.get(PATH, params={"cursor": "abc"}), 422, "invalid-subscription")
    problem(client.get(PATH, params={"cursor": "a b"}), 400, "invalid-request")


def test_a_request_waits_for_a_change_and_gets_it_at_once(client, add):
    started = time.monotonic()
    later = threading.Timer(0.3, add, args=["a = 1"])
    later.start()
    found = client.get(PATH, params={"after": 0, "wait": 30}).json()
    later.join()  # it has its answer before the client is closed
    assert [one["op"] for one in found["changes"]] == ["add"]
    assert 0.2 < time.monotonic() - started < 28


@pytest.mark.parametrize(
    "query", ["after=-1", "after=x", "limit=0", "limit=1001", "wait=31", "wait=-1", "wait=nan"]
)
def test_a_query_that_cannot_be_is_refused(shared, query):
    problem(shared.get(f"{PATH}?{query}"), 400, "invalid-request")


@pytest.mark.parametrize("path", ["a b", "q:x/batches", "x" * 129])
def test_a_query_of_another_name_is_told_what_a_name_is(shared, path):
    body = {"source": "x", "can_replay": True} if "/" not in path else {"batch": 1, "revision": 1}
    found = problem(shared.post(f"/v1/queries/{path}", json=body), 422, "invalid-body")
    assert found["errors"][0]["pointer"] == "/query" and "subscription" not in found["detail"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("q", {"source": "x", "can_replay": 1}),
        ("q", {"source": "a\nb", "can_replay": True}),
        ("q", {"can_replay": True}),
        ("q/batches", {"batch": "1", "revision": 1}),
        ("q/batches", {"batch": 1, "revision": -1}),
        ("q/batches", {"batch": 2**63, "revision": 1}),
    ],
)
def test_a_report_that_cannot_be_is_refused(shared, path, body):
    problem(shared.post(f"/v1/queries/{path}", json=body), 422, "invalid-body")


def test_a_subscription_has_its_history_newest_first_even_after_it_is_gone(client, add):
    id, other = add("a = 1")["id"], add("b = 1")["id"]
    path = f"/v1/subscriptions/{id}/changes"
    client.post(f"/v1/subscriptions/{id}:pause")
    client.post(f"/v1/subscriptions/{other}:pause")
    client.delete(f"/v1/subscriptions/{id}", headers={"If-Match": "*"})
    found = client.get(path).json()
    changes = [("remove", 5), ("pause", 3), ("add", 1)]
    assert [(one["op"], one["revision"]) for one in found["changes"]] == changes
    assert found["next_cursor"] is None and found["changes"][2]["subscription"]["selector"] == "a = 1"
    page = client.get(path, params={"limit": 2}).json()
    assert [one["op"] for one in page["changes"]] == ["remove", "pause"]
    page = client.get(path, params={"limit": 2, "cursor": page["next_cursor"]}).json()
    assert [one["op"] for one in page["changes"]] == ["add"] and page["next_cursor"] is None
    problem(client.get("/v1/subscriptions/nothing/changes"), 404, "subscription-not-found")
    problem(client.get(path, params={"cursor": "bm8"}), 422, "invalid-subscription")


def test_a_token_for_some_topics_sees_the_history_of_those_alone(registry):
    registry.register(SubscriptionSpec(topic="cars/eu"), id="moved")
    registry.register(SubscriptionSpec(topic="boats"), id="hidden")
    registry.replace("moved", SubscriptionSpec(topic="boats"))
    registry.pause("moved")
    with client_of(registry, "reader", ["cars/#"]) as client:
        found = client.get("/v1/subscriptions/moved/changes").json()
        changes = [(one["op"], one["subscription"] is None) for one in found["changes"]]
        assert changes == [("remove", True), ("add", False)]
        assert found["next_cursor"] is None and not any("digest" in one for one in found["changes"])
        for query in ("", "?cursor=OTk5LjA"):  # one that would name changes that are hidden
            problem(client.get(f"/v1/subscriptions/hidden/changes{query}"), 404, "subscription-not-found")
