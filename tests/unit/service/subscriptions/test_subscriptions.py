"""One subscription at a time over HTTP."""

import json
import time

import pytest

from selectroute.service.limits import ServiceLimits
from selectroute.service.subscriptions import subscriptions
from selectroute.service.subscriptions.waiting import BATCH_LOOK_SECONDS
from tests.support.waiting import wait_until
from tests.unit.service.conftest import meanwhile, problem, service

PATH = "/v1/subscriptions"


def test_a_registration_is_answered_with_its_place_and_etag(client):
    body = {"selector": "weight > 2500", "topic": "cars/+", "name": "heavy", "labels": {"team": "a"}}
    answer = client.post(PATH, json=body)
    made = answer.json()
    assert answer.status_code == 201 and answer.headers["location"] == f"{PATH}/{made['id']}"
    assert answer.headers["etag"] == f'"{made["revision"]}"'
    body |= {"dialect": "jms", "seltype": "STANDARD", "destination": {"kind": "none"}, "status": "active"}
    assert {name: made[name] for name in body} == body
    assert made["effective_from"] == [] and made["created"].endswith("Z")
    assert [one["kind"] for one in made.pop("warnings")] == ["not-indexable"]
    assert client.get(answer.headers["location"]).json() == made


def test_an_invalid_selector_says_where_and_what_was_expected(client, registry):
    found = problem(client.post(PATH, json={"selector": "color = \n 'red"}), 422, "invalid-selector")
    (fault,) = found["errors"]
    assert fault == {
        "pointer": "/selector", "reason": "string literal is never closed", "kind": "unterminated-string",
        "offset": 10, "length": 4, "line": 2, "column": 2, "expected": [],
        "hint": "write '' for a quote inside a string", "suggestion": "color = \n 'red'", "mqrc": 2551,
    }  # fmt: skip
    assert len(registry) == 0


@pytest.mark.parametrize(
    ("body", "kind", "pointer"),
    [
        ({"topic": "a+"}, "invalid-topic-filter", "/topic"),
        ({"topic": ""}, "invalid-topic-filter", "/topic"),
        ({"name": ""}, "invalid-subscription", "/name"),
        ({"name": "a\nb"}, "invalid-subscription", "/name"),
        ({"labels": {"": "a"}}, "invalid-subscription", "/labels/"),
        ({"labels": {"a/b~": "x" * 300}}, "invalid-subscription", "/labels/a~1b~0"),
        ({"labels": {"a": 1}}, "invalid-body", "/labels/a"),
        ({"destination": {"kind": "mail"}}, "invalid-body", "/destination/kind"),
        ({"destination": {"kind": "queue", "name": "A B"}}, "invalid-subscription", "/destination/name"),
        ({"destination": {"kind": "none", "path": "/etc"}}, "invalid-body", "/destination/path"),
        ({"dialect": "sql"}, "invalid-body", "/dialect"),
        ({"seltype": "EXTENDED"}, "invalid-subscription", "/seltype"),
        ({"seltype": "NONE", "selector": "a = 1"}, "invalid-subscription", "/seltype"),
        ({"selector": 1}, "invalid-body", "/selector"),
        ({"selektor": "a = 1"}, "invalid-body", "/selektor"),
        ({"id": "mine"}, "invalid-body", "/id"),
    ],
)
def test_a_field_that_cannot_be_is_named_and_nothing_is_stored(shared, body, kind, pointer):
    answer = shared.post(PATH, content=json.dumps(body), headers={"Content-Type": "application/json"})
    error = problem(answer, 422, kind)["errors"][0]
    assert error["pointer"] == pointer and error["reason"]
    assert shared.app.state.service.registry.revision == 0


def test_a_selector_beyond_the_limits_is_refused(client):
    for text, kind in (
        ("a = '" + "x" * 10_240 + "'", "too-long"),
        ("(" * 256 + "a = 1" + ")" * 256, "too-deep"),
        ("NOT " * 256 + "a = 1", "too-deep"),
    ):
        found = problem(client.post(PATH, json={"selector": text}), 422, "invalid-selector")
        assert found["errors"][0]["kind"] == kind
    assert client.post(PATH, json={"selector": "(" * 255 + "a = 1" + ")" * 255}).status_code == 201


def test_a_body_that_is_none_is_refused(shared):
    for body in (b"[]", b"null", b""):
        answer = shared.post(PATH, content=body, headers={"Content-Type": "application/json"})
        problem(answer, 422, "invalid-body")
    for headers in ({"Content-Type": "text/plain"}, {}, {"Content-Type": b"application/json\xa0"}):
        problem(shared.post(PATH, content=b"{}", headers=headers), 415, "unsupported-media-type")


@pytest.mark.parametrize(
    ("body", "reason", "place"),
    [
        (b'{\n "name" "a"}', "Expecting ':' delimiter at line 2, column 9", (10, 2, 9)),
        (b'{\n "name": NaN}', "NaN is not a number of JSON at line 2, column 10", (11, 2, 10)),
        (b'{"name": "\xff"}', "not valid UTF-8 at byte 11", None),
        (b"[" * 200_000, "nested too deeply", None),
    ],
)
def test_a_body_that_is_no_json_says_why_and_where(shared, body, reason, place):
    answer = shared.post(PATH, content=body, headers={"Content-Type": "application/json"})
    found = problem(answer, 400, "invalid-request")
    assert found["detail"].endswith(reason)
    (fault,) = found["errors"]
    assert (fault["pointer"], fault["reason"]) == ("", reason)
    assert (fault["offset"], fault["line"], fault["column"]) == place if place else "offset" not in fault


def test_a_name_is_unique(client, add):
    add(name="one")
    found = problem(client.post(PATH, json={"name": "one"}), 409, "name-taken")
    assert (found["errors"][0]["pointer"], found["mqrc"]) == ("/name", 2432)


def test_an_idempotency_key_gives_one_subscription(client, registry):
    key = {"Idempotency-Key": "k-1"}
    first, again = (client.post(PATH, json={"selector": "a = 1"}, headers=key) for _ in range(2))
    assert first.status_code == again.status_code == 201 and first.json() == again.json()
    assert first.headers["location"] == again.headers["location"]
    assert len(registry) == 1
    problem(client.post(PATH, json={"selector": "a = 2"}, headers=key), 422, "idempotency-conflict")
    problem(client.post(PATH, json={}, headers={"Idempotency-Key": ""}), 400, "invalid-request")
    assert len(registry) == 1


def test_what_is_known_already_is_not_sent_again(client, registry, add):
    made = add()
    path = f"{PATH}/{made['id']}"
    etag = client.get(path).headers["etag"]
    known = client.get(path, headers={"If-None-Match": f'"x", W/{etag}'})
    assert (known.status_code, known.content, known.headers["etag"]) == (304, b"", etag)
    assert client.get(path, headers={"If-None-Match": '"999"'}).status_code == 200
    registry.streams.note_batch("stream", 0, registry.revision)
    used = client.get(f"{path}?wait=20", headers={"If-None-Match": etag})
    assert used.json()["effective_from"], "which the ETag does not tell"
    problem(client.get(f"{PATH}/nobody"), 404, "subscription-not-found")
    problem(client.get(f"{PATH}/no body"), 404, "subscription-not-found")


def test_the_first_batch_of_each_query_is_shown_once_it_is_known(client, add):
    made = add()
    assert client.post("/v1/queries/q1", json={"source": "files", "can_replay": True}).status_code == 204
    batch = {"batch": 7, "revision": made["revision"]}
    assert client.post("/v1/queries/q1/batches", json=batch).status_code == 204
    assert client.get(f"{PATH}/{made['id']}").json()["effective_from"] == [{"query": "q1", "batch": 7}]


class TestPut:
    def test_an_id_of_the_callers_choice_is_registered_and_replaced_at_its_revision(self, client):
        made = client.put(f"{PATH}/mine", json={"selector": "a = 1"})
        assert made.status_code == 201
        problem(client.put(f"{PATH}/mine", json={}), 428, "precondition-required")
        etag = made.headers["etag"]
        done = client.put(f"{PATH}/mine", json={"selector": "a = 2"}, headers={"If-Match": etag})
        assert (done.status_code, done.json()["selector"]) == (200, "a = 2")
        assert done.headers["etag"] != etag
        stale = client.put(f"{PATH}/mine", json={}, headers={"If-Match": etag})
        found = problem(stale, 412, "stale-revision")
        assert (found["expected"], found["found"]) == (made.json()["revision"], done.json()["revision"])
        assert client.get(f"{PATH}/mine").json()["selector"] == "a = 2"

    def test_what_was_read_can_be_sent_back(self, client, add):
        made = add("a = 1", name="n")
        changed = {**made, "selector": "a = 2"}
        answer = client.put(f"{PATH}/{made['id']}", json=changed, headers={"If-Match": "*"})
        assert (answer.status_code, answer.json()["selector"]) == (200, "a = 2")
        found = problem(client.put(f"{PATH}/other", json=made), 422, "invalid-subscription")
        assert found["errors"][0]["pointer"] == "/id"

    def test_preconditions_of_one_that_is_not_there(self, client, add):
        problem(client.put(f"{PATH}/no", json={}, headers={"If-Match": '"1"'}), 404, "subscription-not-found")
        assert client.put(f"{PATH}/new", json={}, headers={"If-None-Match": "*"}).status_code == 201
        again = client.put(f"{PATH}/new", json={}, headers={"If-None-Match": "*", "If-Match": "*"})
        problem(again, 412, "stale-revision")
        problem(client.put(f"{PATH}/new", json={}, headers={"If-Match": "1"}), 400, "invalid-request")
        problem(client.put(f"{PATH}/new", json={}, headers={"If-Match": 'W/"2"'}), 412, "stale-revision")

    @pytest.mark.parametrize("id", ["a:b", "a b", "%C3%A4", "x" * 129])
    def test_an_id_that_cannot_be_says_what_one_is(self, shared, id):
        found = problem(shared.put(f"{PATH}/{id}", json={}), 422, "invalid-subscription")
        assert [(one["pointer"], one["mqrc"]) for one in found["errors"]] == [("/id", 2440)]
        assert "1 to 128 letters" in found["detail"]
        problem(shared.get(f"{PATH}/{id}"), 404, "subscription-not-found")
        assert shared.app.state.service.registry.revision == 0


class TestPatch:
    def test_a_merge_patch_changes_what_it_names(self, client, add):
        made = add("a = 1", name="n", topic="x/#", labels={"a": "1", "b": "2"})
        patch = {"selector": "a = 2", "topic": None, "labels": {"a": None, "c": "3"}}
        headers = {"If-Match": f'"{made["revision"]}"', "Content-Type": "application/merge-patch+json"}
        done = client.patch(f"{PATH}/{made['id']}", json=patch, headers=headers).json()
        assert (done["selector"], done["topic"], done["name"]) == ("a = 2", None, "n")
        assert done["labels"] == {"b": "2", "c": "3"}
        problem(client.patch(f"{PATH}/{made['id']}", json=patch, headers=headers), 412, "stale-revision")
        problem(client.patch(f"{PATH}/{made['id']}", json=patch), 428, "precondition-required")

    @pytest.mark.parametrize(
        ("patch", "pointer"),
        [({"status": "paused"}, "/status"), ({"colour": 1}, "/colour"), ({"labels": 1}, "/labels")],
    )
    def test_what_cannot_be_patched_is_named(self, client, add, patch, pointer):
        made = add()
        answer = client.patch(f"{PATH}/{made['id']}", json=patch, headers={"If-Match": "*"})
        assert problem(answer, 422, "invalid-subscription")["errors"][0]["pointer"] == pointer


def test_removing_answers_what_it_was(client, add):
    made = add("a = 1")
    path = f"{PATH}/{made['id']}"
    problem(client.delete(path), 428, "precondition-required")
    problem(client.delete(path, headers={"If-Match": '"77"'}), 412, "stale-revision")
    gone = client.delete(path, headers={"If-Match": f'"{made["revision"]}"'})
    assert gone.status_code == 200 and {**gone.json(), "warnings": []} == made
    problem(client.get(path), 404, "subscription-not-found")
    problem(client.delete(path, headers={"If-Match": "*"}), 404, "subscription-not-found")


def test_a_paused_subscription_is_resumed_and_says_what_can_be_replayed(client, add):
    made = add()
    path = f"{PATH}/{made['id']}"
    client.post("/v1/queries/q", json={"source": "files", "can_replay": False, "reason": "no checkpoint"})
    paused = client.post(f"{path}:pause")
    assert (paused.status_code, paused.json()["status"]) == (200, "paused")
    assert paused.json()["revision"] > made["revision"]
    problem(client.post(f"{path}:resume", json={"from": "yesterday"}), 422, "invalid-body")
    problem(client.post(f"{path}:resume", headers={"If-Match": '"1"'}), 412, "stale-revision")
    resumed = client.post(f"{path}:resume", json={"from": "last-processed"}).json()
    assert resumed["status"] == "active"
    assert resumed["backfill"] == [{"query": "q", "can_replay": False, "reason": "no checkpoint"}]
    client.post(f"{path}:pause")
    assert client.post(f"{path}:resume").json()["backfill"] == []
    problem(client.post(f"{PATH}/nobody:pause"), 404, "subscription-not-found")


def test_a_client_that_prefers_it_gets_no_body(client, add):
    minimal = {"Prefer": "return=minimal"}
    made = client.post(PATH, json={}, headers=minimal)
    assert (made.status_code, made.content) == (201, b"")
    assert made.headers["preference-applied"] == "return=minimal"
    path = made.headers["location"]
    calls = [
        client.put(path, json={"selector": "a = 1"}, headers={**minimal, "If-Match": "*"}),
        client.patch(path, json={}, headers={**minimal, "If-Match": "*"}),
        client.post(f"{path}:pause", headers=minimal),
        client.post(f"{path}:resume", headers=minimal),
        client.delete(path, headers={**minimal, "If-Match": "*"}),
    ]
    assert [(one.status_code, one.content) for one in calls] == [(204, b"")] * 5
    assert all(one.headers["etag"] for one in calls)


def test_an_unknown_member_or_parameter_is_refused_with_a_suggestion(client, add):
    found = problem(client.post(PATH, json={"selektor": "a = 1"}), 422, "invalid-body")
    assert found["errors"][0]["reason"] == "there is no such field: did you mean `selector`?"
    found = problem(client.post(PATH, json={"destination": {"{kind}": 1}}), 422, "invalid-body")
    assert found["errors"][0]["pointer"] == "/destination/{kind}"
    add("a = 1")
    found = problem(client.get(PATH, params={"statsu": "paused"}), 400, "invalid-request")
    assert found["detail"] == "no parameter statsu: did you mean `status`?"


class TestWarnings:
    """Whoever registers a selector is told what a check would say of it."""

    TEXT = "color = red"

    def test_they_are_those_of_a_check(self, client):
        checked = client.post("/v1/selectors:check", json={"selector": self.TEXT}).json()["warnings"]
        assert [one["kind"] for one in checked] and checked[0]["length"]
        body = {"selector": self.TEXT}
        assert client.post(PATH, json=body).json()["warnings"] == checked
        put = client.put(f"{PATH}/a", json=body)
        assert (put.status_code, put.json()["warnings"]) == (201, checked)
        again = client.put(f"{PATH}/a", json=body, headers={"If-Match": "*"})
        assert (again.status_code, again.json()["warnings"]) == (200, checked)
        patch = client.patch(f"{PATH}/a", json={"topic": "t"}, headers={"If-Match": "*"})
        assert patch.json()["warnings"] == checked
        right = client.patch(f"{PATH}/a", json={"selector": "color = 'red'"}, headers={"If-Match": "*"})
        assert right.json()["warnings"] == []

    def test_in_a_batch_they_are_of_selectors_that_it_gives(self, client, monkeypatch):
        def warnings(*operations):
            answer = client.post(f"{PATH}:batch", json={"operations": operations})
            return [one["warnings"] for one in answer.json()["subscriptions"]]

        mistaken = {"selector": self.TEXT}
        found = warnings({"op": "add", "id": "a", **mistaken}, {"op": "add", "id": "b"})
        assert found[0] and found[1] == []
        found = warnings({"op": "pause", "id": "a"}, {"op": "replace", "id": "b", **mistaken})
        assert found[0] == [] and found[1]
        monkeypatch.setattr(subscriptions, "CHECKED_SECONDS", 0)
        assert warnings({"op": "add", **mistaken}, {"op": "resume", "id": "a"}) == [None, []]

    def test_what_was_answered_may_be_put_again(self, client):
        made = client.post(PATH, json={"selector": self.TEXT})
        headers = {"If-Match": made.headers["etag"]}
        assert client.put(made.headers["location"], json=made.json(), headers=headers).status_code == 200
        line = json.dumps({**made.json(), "id": "copy", "name": "copy"})
        headers = {"Content-Type": "application/x-ndjson"}
        assert client.post(f"{PATH}:import", content=line, headers=headers).json()["rows"] == 1

    def test_an_extended_selector_and_an_empty_one_have_none(self, client):
        for body in ({}, {"selector": "a == 1 ~", "dialect": "ibm-mq", "seltype": "EXTENDED"}):
            answer = client.post(PATH, json=body)
            assert (answer.status_code, answer.json()["warnings"]) == (201, [])


class TestWaitingForABatch:
    def test_the_answer_comes_with_the_first_batch_that_used_the_change(self, client, registry, add):
        path = f"{PATH}/{add()['id']}?wait=30"
        with meanwhile(lambda: client.get(path)) as found:
            until_waiting(client, 1)
            registry.streams.note_batch("stream", 3, 0)  # of an older revision
            registry.streams.note_batch("stream", 4, 1)
            begun = time.monotonic()
        assert found[0].json()["effective_from"] == [{"query": "stream", "batch": 4}]
        assert client.get(path).json() == found[0].json()
        assert time.monotonic() - begun < 20 and len(client.app.state.service.batch_waiting) == 0

    def test_many_wait_by_one_question_to_the_database(self, client, registry, add, monkeypatch):
        path = f"{PATH}/{add()['id']}?wait=20"
        asked, real = [], registry.streams.newest_used
        monkeypatch.setattr(registry.streams, "newest_used", lambda: asked.append(1) or real())
        with meanwhile(*[lambda: client.get(path)] * 20) as found:
            until_waiting(client, 20)
            asked.clear()
            begun = time.monotonic()
            time.sleep(1)
            most = 2 + (time.monotonic() - begun) / (BATCH_LOOK_SECONDS / 2)
            assert len(asked) <= most, "not 100 in a second"
            registry.streams.note_batch("stream", 4, 1)
        assert [one.json()["effective_from"][0]["batch"] for one in found] == [4] * 20

    def test_in_vain_it_is_answered_as_it_is(self, registry):
        registry.import_([b'{"id": "a"}'])
        with service(registry, limits=ServiceLimits(wait_seconds=0.3, waiting=1)) as client:
            known = {"If-None-Match": client.get(f"{PATH}/a?wait=30").headers["etag"]}
            assert client.get(f"{PATH}/a?wait=30", headers=known).status_code == 304
            problem(client.get(f"{PATH}/a?wait=31"), 400, "invalid-request")
            problem(client.get(f"{PATH}/b?wait=30"), 404, "subscription-not-found")


def until_waiting(client, count):
    waiting = client.app.state.service.batch_waiting
    wait_until(lambda: len(waiting) >= count, 60, "the requests wait")
