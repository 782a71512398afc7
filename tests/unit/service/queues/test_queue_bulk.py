"""Count, purge and move of messages over HTTP: with the number that was seen, and in limited time."""

import pytest

from selectroute.queues.sql import bulk as bulks
from selectroute.service.limits import ServiceLimits
from tests.unit.service.conftest import problem, service

PATH = "/v1/queues"
NOTHING = {"full": 0, "too_long": 0, "in_use": 0}


def fill(client, name="A", count=6, **settings):
    assert client.put(f"{PATH}/{name}", json=settings).status_code == 201
    queue = client.app.state.service.queues.open(name)
    for number in range(count):
        queue.put(b"x" * number, correl_id=bytes([number % 2 + 1]) * 24, properties={"number": number})
    return queue


def counts(client, name, **lookup):
    found = client.get(f"{PATH}/{name}:count", params=lookup)
    assert found.status_code == 200, found.text
    return found.json()


def test_messages_are_counted_and_purged_by_ids_and_by_a_selector(client):
    fill(client)
    assert counts(client, "A") == {"count": 6, "exact": True}
    by_id = {"correlationId": "ID:" + "01" * 24}
    assert counts(client, "A", **by_id)["count"] == 3
    assert counts(client, "A", **by_id, selector="number > 0")["count"] == 2
    done = client.post(f"{PATH}/A:purge", json={**by_id, "selector": "number > 0", "expected": 2}).json()
    assert done == {"matched": {"count": 2, "exact": True}, "done": 2, "stayed": NOTHING, "position": None}
    assert counts(client, "A")["count"] == 4
    assert client.post(f"{PATH}/A:purge").json()["done"] == 4
    assert counts(client, "A")["count"] == 0


def test_messages_are_moved_and_what_does_not_fit_stays(client):
    fill(client)
    other = fill(client, "B/C", 1, max_depth=4, max_message_length=3)
    done = client.post(f"{PATH}/A:move", json={"to": "B/C", "selector": "number > 0", "expected": 5}).json()
    assert (done["done"], done["stayed"], done["position"]) == (3, {**NOTHING, "too_long": 2}, None)
    again = client.post(f"{PATH}/A:move", json={"to": "B/C"}).json()
    assert (again["done"], again["stayed"]) == (0, {**NOTHING, "full": 3})
    assert (counts(client, "A")["count"], counts(client, "B%2FC")["count"]) == (3, 4)
    assert [other.get().body for _ in range(4)] == [b"", b"x", b"xx", b"xxx"]
    back = client.post(f"{PATH}/A:move", json={"to": "B/C"}).json()
    # The empty one; of the others both are too long.
    assert (back["done"], back["stayed"]) == (1, {**NOTHING, "too_long": 2})


@pytest.mark.parametrize("action", ["purge", "move"])
def test_another_number_than_was_seen_is_refused_with_both(client, action):
    fill(client)
    fill(client, "B", 0)
    to = {"to": "B"} if action == "move" else {}
    found = problem(client.post(f"{PATH}/A:{action}", json={**to, "expected": 7}), 409, "count-changed")
    assert (found["expected"], found["found"]) == (7, 6)
    assert (counts(client, "A")["count"], counts(client, "B")["count"]) == (6, 0)


@pytest.mark.parametrize("action", ["purge", "move"])
def test_a_call_that_takes_long_answers_and_the_next_goes_on(registry, monkeypatch, action):
    monkeypatch.setattr(bulks, "CHUNK", 4)
    to = {"to": "B"} if action == "move" else {}
    with service(registry, limits=ServiceLimits(bulk_seconds=1e-9)) as client:
        queue = fill(client, count=6)
        other = fill(client, "B", 0)
        first = client.post(f"{PATH}/A:{action}", json={**to, "expected": 6}).json()
        assert first["done"] == 4
        assert (queue.depth, other.depth) == (2, 4 if to else 0)
        queue.put(b"later", priority=9)
        second = client.post(f"{PATH}/A:{action}", json={**to, "position": first["position"]}).json()
        assert (second["done"], second["matched"]["count"], second["position"]) == (2, 2, None)
        assert queue.get().body == b"later" and other.depth == (6 if to else 0)


def test_what_cannot_be_meant_changes_nothing(client):
    queue = fill(client)
    for path, body, status, kind in (
        ("A:purge", {"selector": "a ="}, 422, "invalid-selector"),
        ("A:purge", {"messageId": "ID:12"}, 422, "invalid-body"),
        ("A:purge", {"expected": -1}, 422, "invalid-body"),
        ("A:purge", {"position": "7"}, 422, "invalid-body"),
        ("A:purge", {"to": "B"}, 422, "invalid-body"),
        ("A:purge", {"corelationId": "x"}, 422, "invalid-body"),
        ("NOTHING:purge", {}, 404, "queue-not-found"),
        ("A:move", {}, 422, "invalid-body"),
        ("A:move", {"to": "A"}, 422, "invalid-queue"),
        ("A:move", {"to": "NOTHING"}, 404, "queue-not-found"),
        ("A:move", {"to": "a b"}, 404, "queue-not-found"),
        ("NOTHING:move", {"to": "A"}, 404, "queue-not-found"),
    ):
        problem(client.post(f"{PATH}/{path}", json=body), status, kind)
        assert queue.depth == 6, path
    problem(client.get(f"{PATH}/A:count?selector=a+%3D"), 422, "invalid-selector")
    problem(client.get(f"{PATH}/A:count?corelationId=x"), 400, "invalid-request")
    problem(client.get(f"{PATH}/B:count"), 404, "queue-not-found")
