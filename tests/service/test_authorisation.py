"""The matrix of role × call × topic: what a token may do, and everything that it may not."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest

import selectroute as sr
from selectroute.queues.sql_queue import SqlQueue
from selectroute.service.app import create_app
from selectroute.service.calls import ROLE
from tests.service.conftest import CAR, problem, service

pytestmark = pytest.mark.slow

RANK = {"reader": 1, "writer": 2, "admin": 3}
PATH = "/v1/subscriptions"
NDJSON = {"Content-Type": "application/x-ndjson"}
ANY = {"If-Match": "*"}
QUEUES = "/v1/queues"
MESSAGES = "/ibmmq/rest/v3/messaging/qmgr/{qmgr}/queue/{queue}"
KEPT = MESSAGES.format(qmgr="selectroute", queue="KEPT")

CALLS = {
    ("get", PATH): lambda c: c.get(PATH),
    ("post", PATH): lambda c: c.post(PATH, json={"topic": "cars/eu"}),
    ("get", f"{PATH}/{{id}}"): lambda c: c.get(f"{PATH}/seen"),
    ("put", f"{PATH}/{{id}}"): lambda c: c.put(f"{PATH}/seen", json={"topic": "cars/eu"}, headers=ANY),
    ("patch", f"{PATH}/{{id}}"): lambda c: c.patch(f"{PATH}/seen", json={"labels": {"a": "b"}}, headers=ANY),
    ("delete", f"{PATH}/{{id}}"): lambda c: c.delete(f"{PATH}/seen", headers=ANY),
    ("post", f"{PATH}/{{id}}:pause"): lambda c: c.post(f"{PATH}/seen:pause"),
    ("post", f"{PATH}/{{id}}:resume"): lambda c: c.post(f"{PATH}/seen:resume"),
    ("post", f"{PATH}:batch"): lambda c: c.post(
        f"{PATH}:batch", json={"operations": [{"op": "pause", "id": "seen"}]}
    ),
    ("post", f"{PATH}:import"): lambda c: c.post(
        f"{PATH}:import", content=b'{"topic": "cars/x"}', headers=NDJSON
    ),
    ("get", f"{PATH}:export"): lambda c: c.get(f"{PATH}:export"),
    ("get", "/v1/changes"): lambda c: c.get("/v1/changes"),
    ("get", "/v1/queries"): lambda c: c.get("/v1/queries"),
    ("post", "/v1/queries/{query}"): lambda c: c.post(
        "/v1/queries/q", json={"source": "s", "can_replay": True}
    ),
    ("post", "/v1/queries/{query}/batches"): lambda c: c.post(
        "/v1/queries/q/batches", json={"batch": 1, "revision": 1}
    ),
    ("post", "/v1/tokens"): lambda c: c.post("/v1/tokens", json={"role": "reader"}),
    ("get", "/v1/tokens"): lambda c: c.get("/v1/tokens"),
    ("delete", "/v1/tokens/{token}"): lambda c: c.delete(f"/v1/tokens/{spare(c)}"),
    ("post", "/v1/selectors:check"): lambda c: c.post("/v1/selectors:check", json={"selector": "a = 1"}),
    ("post", "/v1/messages:match"): lambda c: c.post("/v1/messages:match", json={"message": CAR}),
    ("post", "/v1/messages:explain"): lambda c: c.post(
        "/v1/messages:explain", json={"message": CAR, "subscriptions": ["seen"]}
    ),
    ("get", QUEUES): lambda c: c.get(QUEUES),
    ("get", f"{QUEUES}/{{name}}"): lambda c: c.get(f"{QUEUES}/KEPT"),
    ("put", f"{QUEUES}/{{name}}"): lambda c: c.put(f"{QUEUES}/SPARE"),
    ("delete", f"{QUEUES}/{{name}}"): lambda c: c.delete(f"{QUEUES}/{spare_queue(c)}"),
    ("post", f"{MESSAGES}/message"): lambda c: c.post(f"{KEPT}/message", content=b"x"),
    ("get", f"{MESSAGES}/message"): lambda c: c.get(f"{KEPT}/message"),
    ("delete", f"{MESSAGES}/message"): lambda c: c.delete(f"{KEPT}/message"),
    ("get", f"{MESSAGES}/messagelist"): lambda c: c.get(f"{KEPT}/messagelist"),
    ("get", "/v1/limits"): lambda c: c.get("/v1/limits"),
    ("get", "/metrics"): lambda c: c.get("/metrics"),
    ("get", "/healthz"): lambda c: c.get("/healthz"),
    ("get", "/readyz"): lambda c: c.get("/readyz"),
}
"""One request of each call that succeeds for whoever may make it."""

FREE = {"/healthz", "/readyz"}

WHOLE = {
    "/v1/queries",
    "/v1/queries/{query}",
    "/v1/queries/{query}/batches",
    "/v1/tokens",
    "/v1/tokens/{token}",
    QUEUES,
    f"{QUEUES}/{{name}}",
    f"{MESSAGES}/message",
    f"{MESSAGES}/messagelist",
}
"""What concerns all subscriptions, or none: not for a token that is limited to topics."""

HIDDEN = {
    "get": lambda c: c.get(f"{PATH}/hidden"),
    "put": lambda c: c.put(f"{PATH}/hidden", json={"topic": "cars/eu"}, headers=ANY),
    "patch": lambda c: c.patch(f"{PATH}/hidden", json={"topic": "cars/eu"}, headers=ANY),
    "delete": lambda c: c.delete(f"{PATH}/hidden", headers=ANY),
    "pause": lambda c: c.post(f"{PATH}/hidden:pause"),
    "resume": lambda c: c.post(f"{PATH}/hidden:resume"),
    "explain": lambda c: c.post("/v1/messages:explain", json={"message": CAR, "subscriptions": ["hidden"]}),
    "batch": lambda c: c.post(f"{PATH}:batch", json={"operations": [{"op": "remove", "id": "hidden"}]}),
}
"""Requests about a subscription, each answered as if there were none."""

OUTSIDE = {
    "post": lambda c, topic: c.post(PATH, json=topic),
    "put": lambda c, topic: c.put(f"{PATH}/new", json=topic),
    "put over": lambda c, topic: c.put(f"{PATH}/seen", json=topic, headers=ANY),
    "patch": lambda c, topic: c.patch(f"{PATH}/seen", json={"topic": topic.get("topic")}, headers=ANY),
    "batch add": lambda c, topic: c.post(f"{PATH}:batch", json={"operations": [{"op": "add", **topic}]}),
    "batch replace": lambda c, topic: c.post(
        f"{PATH}:batch", json={"operations": [{"op": "replace", "id": "seen", **topic}]}
    ),
    "import": lambda c, topic: c.post(f"{PATH}:import", content=json.dumps(topic), headers=NDJSON),
}
"""Requests that would make a subscription with a topic filter."""


@pytest.fixture
def filled(registry):
    rows = [
        {"id": "seen", "topic": "cars/+/de"},
        {"id": "seen-too", "topic": "cars/#"},
        {"id": "hidden", "topic": "boats/#", "name": "hidden-name"},
        {"id": "hidden-all"},
        {"id": "hidden-wider", "topic": "#"},
    ]
    registry.import_(map(json.dumps, rows))
    with SqlQueue.create(registry.url, "KEPT") as queue:
        queue.put(b"message")
    return registry


def spare(client):
    """The id of a token that nobody uses."""
    return client.app.state.service.registry.add_token("reader", name="spare")[0].id


def spare_queue(client):
    """The name of an empty queue that nobody uses."""
    with suppress(sr.MQError):
        client.app.state.service.queues.create("EMPTY")
    return "EMPTY"


def client_of(registry, role, topics=()):
    _, secret = registry.add_token(role, topics=topics)
    return service(registry, headers={"Authorization": f"Bearer {secret}"})


def test_every_call_of_the_service_is_in_the_matrix(registry):
    paths = create_app(registry).openapi()["paths"]
    assert {(method, path) for path, methods in paths.items() for method in methods} == set(CALLS)


@pytest.mark.parametrize("role", RANK)
@pytest.mark.parametrize("topics", [(), ("cars/#",)], ids=["all", "cars"])
def test_a_call_is_for_its_role_and_those_above(filled, role, topics):
    documented = create_app(filled).openapi()["paths"]
    with client_of(filled, role, topics) as client:
        for (method, path), request in CALLS.items():
            before = filled.revision
            messages = depth(filled)
            answer = request(client)
            if RANK[role] < RANK[documented[path][method][ROLE]] or (topics and path in WHOLE):
                assert problem(answer, 403, "forbidden")["mqrc"] == 2035
                assert filled.revision == before
                assert depth(filled) == messages
            else:
                # Whether it is ready is nothing to be refused.
                assert answer.status_code < 300 or path == "/readyz", (method, path, answer.text)
            if (method, path) == ("delete", f"{PATH}/{{id}}") and answer.status_code == 200:
                filled.import_([json.dumps({"id": "seen", "topic": "cars/+/de"})])


def depth(registry):
    with SqlQueue(registry.url, "KEPT") as queue:
        return queue.depth


@pytest.mark.parametrize("call", CALLS, ids=lambda call: " ".join(call))
def test_no_call_but_health_is_answered_without_a_token(filled, call):
    before = filled.revision
    with service(filled, tokens_needed=True) as client:
        answer = CALLS[call](client)
    if call[1] in FREE:
        assert answer.status_code in (200, 503)
    else:
        problem(answer, 401, "unauthorised")
    assert filled.revision == before


@pytest.mark.parametrize("role", RANK)
def test_what_a_token_may_not_see_does_not_exist_for_it(filled, role):
    before = filled.revision
    with client_of(filled, role, ["cars/#"]) as client:
        for name, request in HIDDEN.items():
            answer = request(client)
            if role == "reader" and name not in ("get", "explain"):
                problem(answer, 403, "forbidden")
                continue
            found = problem(answer, 404, "subscription-not-found")
            absent = problem(client.get(f"{PATH}/nobody-has-this"), 404, "subscription-not-found")
            assert found["detail"] == absent["detail"]
        assert filled.revision == before


@pytest.mark.parametrize("role", ["writer", "admin"])
@pytest.mark.parametrize(
    "topic", [{}, {"topic": "#"}, {"topic": "boats/x"}, {"topic": "cars"}, {"topic": "+/eu"}], ids=str
)
def test_nothing_is_made_outside_a_tokens_topics(filled, role, topic):
    before = filled.revision
    with client_of(filled, role, ["cars/+/#", "planes"]) as client:
        for request in OUTSIDE.values():
            assert problem(request(client, topic), 403, "forbidden")["mqrc"] == 2035
        one = {"operations": [{"op": "add", "topic": "planes"}, {"op": "add", **topic}]}
        found = problem(client.post(f"{PATH}:batch", json=one), 403, "forbidden")
        assert found["errors"][0]["pointer"] == "/operations/1/topic"
        replacing = client.post(f"{PATH}:import?mode=replace", content=b'{"topic": "cars/x"}', headers=NDJSON)
        problem(replacing, 403, "forbidden")
        assert filled.revision == before
        assert client.post(PATH, json={"topic": "planes"}).status_code == 201


@pytest.mark.parametrize("role", RANK)
def test_nothing_of_what_is_hidden_is_in_any_answer(filled, role):
    with client_of(filled, role, ["cars/#"]) as client:
        listed = client.get(PATH, params={"limit": 1})
        ids = [one["id"] for one in listed.json()["items"]]
        while "link" in listed.headers:
            listed = client.get(listed.headers["link"].partition("<")[2].partition(">")[0])
            ids += [one["id"] for one in listed.json()["items"]]
        assert sorted(ids) == ["seen", "seen-too"]
        for params in ({"name": "hidden-name"}, {"topic": "boats/#"}, {"topic": "#"}):
            assert client.get(PATH, params=params).json()["items"] == []
        exported = client.get(f"{PATH}:export").text.splitlines()
        assert sorted(json.loads(line)["id"] for line in exported) == ["seen", "seen-too"]
        matched = client.post("/v1/messages:match", json={"message": {"topic": "cars/eu/de"}}).json()
        assert sorted(matched["ids"]) == ["seen", "seen-too"]
        assert matched["total"] == 2
        changes = client.get("/v1/changes").json()["changes"]
        assert sorted(one["id"] for one in changes) == ["seen", "seen-too"]
        for path in (PATH, f"{PATH}:export", "/v1/changes", "/metrics"):
            assert "hidden" not in client.get(path).text


def test_to_a_token_what_leaves_its_topics_is_removed(filled):
    with client_of(filled, "reader", ["cars/#"]) as client:
        after = filled.revision
        filled.change("seen", {"topic": "boats/x"})
        filled.pause("seen")
        filled.change("hidden", {"topic": "cars/new"})
        filled.remove("hidden-all")
        filled.remove("seen-too")
        found = client.get("/v1/changes", params={"after": after}).json()
        assert [(one["op"], one["id"]) for one in found["changes"]] == [
            ("remove", "seen"),
            ("replace", "hidden"),
            ("remove", "seen-too"),
        ]
        assert found["changes"][0]["subscription"] is None
        assert found["revision"] == filled.revision
