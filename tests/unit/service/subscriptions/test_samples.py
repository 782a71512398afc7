"""Sample of recent messages over HTTP: added, listed, its identifiers, and dry runs on it."""

from types import SimpleNamespace

import pytest

from selectroute.registry import reports
from selectroute.service.subscriptions import recent_messages
from selectroute.service.subscriptions.samples import EXAMPLES
from tests.unit.service.conftest import client_of, problem, service

ADD = "/v1/queries/stream/messages"
DRY = "/v1/subscriptions:dry-run"


def car(weight, topic="cars/eu", **others):
    return {"headers": {"JMSType": "car"}, "properties": {"weight": weight, **others}, "topic": topic}


def add(client, *messages):
    answer = client.post(ADD, json={"messages": list(messages)})
    assert answer.status_code == 204, answer.text


def tried(client, id=None, **subscription):
    body = {"id": id, "subscription": subscription or None}
    answer = client.post(DRY, json={name: part for name, part in body.items() if part is not None})
    assert answer.status_code == 200, answer.text
    return answer.json()


def counts(found):
    """How many are gained, lost and unchanged."""
    return tuple(found[name]["count"] for name in ("gained", "lost", "unchanged"))


def weights(kind):
    return [one["message"]["properties"]["weight"] for one in kind["examples"]]


def test_the_newest_messages_come_first_and_without_their_bodies(client):
    assert client.get("/v1/messages").json() == {"items": []}
    add(client, car(1) | {"body": "secret"}, car(2))
    add(client, car(3))
    found = client.get("/v1/messages", params={"limit": 2}).json()["items"]
    assert [one["message"]["properties"]["weight"] for one in found] == [3, 2]
    assert found[0]["query"] == "stream" and found[0]["time"].endswith("Z")
    assert "secret" not in client.get("/v1/messages").text


@pytest.mark.parametrize(
    ("messages", "kind", "pointer"),
    [
        ([], "invalid-body", "/messages"),
        ([car(1)] * 201, "invalid-body", "/messages"),
        ([car(1), {"properties": {"a": [1]}}], "invalid-message", "/messages/1"),
        ([{"colour": "red"}], "invalid-message", "/messages/0"),
        ([car(1, text="x" * reports.MAX_SAMPLED)], "invalid-subscription", "/messages"),
    ],
)
def test_a_wrong_report_is_refused_whole(shared, messages, kind, pointer):
    assert pointer in str(problem(shared.post(ADD, json={"messages": messages}), 422, kind))
    assert shared.get("/v1/messages").json() == {"items": []}


def test_identifiers_are_listed_with_types_and_values(client):
    add(client, car(1, color="red"), car({"type": "int", "value": 2}), car(3.5, color=None))
    found = client.get("/v1/messages/identifiers").json()
    assert found["messages"] == 3
    rows = {one["name"]: one for one in found["items"]}
    weight = {"name": "weight", "types": ["long", "int", "double"], "messages": 3}
    assert rows["weight"] == {**weight, "values": ["1", "2", "3.5"]}
    assert rows["JMSType"]["values"] == ["car"] and rows["color"]["messages"] == 1
    assert [one["name"] for one in found["items"]] == ["JMSType", "weight", "color"]


def test_a_dry_run_tells_what_a_change_gains_and_loses(client):
    client.put("/v1/subscriptions/heavy", json={"selector": "weight > 10", "topic": "cars/+"})
    add(client, *(car(weight) for weight in range(0, 30)), car(99, topic="boats"))
    found = tried(client, "heavy", selector="weight > 20", topic="cars/+")
    assert (found["messages"], counts(found)) == (31, (0, 10, 9))
    assert weights(found["lost"]) == [20, 19, 18, 17, 16][:EXAMPLES]
    assert found["oldest"] == found["newest"] and found["oldest"].endswith("Z")
    assert counts(tried(client, "heavy", selector="weight > 10")) == (1, 0, 19)
    assert counts(tried(client, "heavy")) == (0, 19, 0)
    assert counts(tried(client, selector="JMSType = 'car'")) == (31, 0, 0)
    assert client.get("/v1/subscriptions/heavy").json()["selector"] == "weight > 10"


def test_a_dry_run_without_a_sample_says_that_there_are_no_messages(client):
    found = tried(client, selector="a = 1")
    assert (found["messages"], found["oldest"], counts(found)) == (0, None, (0, 0, 0))


def test_a_dry_run_of_what_cannot_be_stored_is_refused_as_a_change_would_be(client):
    client.put("/v1/subscriptions/heavy", json={"selector": "weight > 10"})
    answer = client.post(DRY, json={"subscription": {"selector": "weight >"}})
    assert problem(answer, 422, "invalid-selector")["errors"]
    problem(client.post(DRY, json={"subscription": {"topic": "cars/e+u"}}), 422, "invalid-topic-filter")
    problem(client.post(DRY, json={"id": "nothing", "subscription": {}}), 404, "subscription-not-found")
    extended = {"selector": "Root.XMLNSC.a = 1", "seltype": "EXTENDED", "dialect": "ibm-mq"}
    answer = client.post(DRY, json={"subscription": extended})
    assert "the sample has no bodies" in answer.text and answer.status_code == 422


def test_what_another_process_adds_is_seen_and_what_was_parsed_is_not_parsed_again(registry, monkeypatch):
    parsed, of = [], recent_messages.Message.from_json
    counted = SimpleNamespace(from_json=lambda data: parsed.append(1) or of(data))
    monkeypatch.setattr(recent_messages, "Message", counted)
    with service(registry) as client:
        registry.streams.note_messages("q", [car(1), car(2)])
        assert counts(tried(client, selector="weight > 0")) == (2, 0, 0)
        registry.streams.note_messages("q", [car(3)])
        assert counts(tried(client, selector="weight > 0")) == (3, 0, 0)
    assert len(parsed) == 3


def test_a_token_for_some_topics_sees_only_their_messages(registry):
    registry.streams.note_messages("q", [car(1), car(2, topic="boats"), car(3, topic=None) | {"topic": None}])
    registry.streams.note_messages("q", [car(4, topic="cars/+"), car(5, topic="a/#/b")])
    with client_of(registry, "writer", ["cars/#"]) as client:
        found = client.get("/v1/messages").json()["items"]
        assert [one["message"]["topic"] for one in found] == ["cars/+", "cars/eu"]
        assert client.get("/v1/messages/identifiers").json()["messages"] == 2
        found = tried(client, selector="weight > 0", topic="cars/#")
        assert (found["messages"], counts(found)) == (2, (2, 0, 0))
        problem(client.post(DRY, json={"subscription": {"topic": "boats"}}), 403, "forbidden")
        problem(client.post(ADD, json={"messages": [car(1)]}), 403, "forbidden")
