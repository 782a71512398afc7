"""What one caller may cost: no request makes others wait."""

import asyncio
import json
import resource
import threading
import time

import anyio
import pytest

from selectroute.index.specification import SubscriptionSpec
from selectroute.registry.specification import PLAIN_LITERALS
from selectroute.service.http import call, middleware, models
from selectroute.service.http.call import MOST_FAULTS, SMALL_BODY
from selectroute.service.limits import ServiceLimits
from selectroute.service.subscriptions import messages
from selectroute.service.subscriptions.changes import LOOKED_AT
from tests.unit.service.conftest import bearer, client_of, meanwhile, problem, service

JSON = {"Content-Type": "application/json"}


@pytest.mark.parametrize(
    "path, body",
    [
        ("/v1/messages:explain", b'{"message":{},"subscriptions":[' + b"1," * 500_000 + b"1]}"),
        ("/v1/subscriptions:batch", b'{"operations":[' + b"{}," * 340_000 + b"{}]}"),
        (
            "/v1/subscriptions:batch",
            b'{"operations":[{"op":"add","labels":{%b}}]}' % b",".join(b'"%d":1' % i for i in range(90_000)),
        ),
        ("/v1/subscriptions", b"{%b}" % b",".join(b'"%d":1' % i for i in range(90_000))),
        ("/v1/subscriptions", b'{"labels":{%b}}' % b",".join(b'"%d":1' % i for i in range(90_000))),
        ("/v1/tokens", b'{"role":"reader","topics":[' + b"1," * 500_000 + b"1]}"),
    ],
    ids=["explain", "batch", "labels of a batch", "members", "labels", "topics"],
)
def test_a_large_wrong_body_is_refused_at_its_first_faults(shared, path, body):
    found = problem(shared.post(path, content=body, headers=JSON), 422, "invalid-body")
    assert 1 <= len(found["errors"]) <= 2


def test_a_large_body_is_read_in_a_thread_and_a_small_one_is_not(client, monkeypatch):
    loops, real = [], models._few

    def few(value):
        if isinstance(value, dict):
            loops.append(asyncio._get_running_loop() is not None)
        return real(value) if isinstance(value, dict) else value

    monkeypatch.setattr(models, "_few", few)
    for padding, in_loop in ((0, True), (SMALL_BODY, False)):
        loops.clear()
        body = {"selector": "a = 1" + " " * (padding and 10_000), "labels": {"a": " " * 200}}
        body["labels"] |= {str(i): "x" * 200 for i in range(40 if padding else 0)}
        assert client.post("/v1/subscriptions", json=body).status_code == 201
        assert set(loops) == {in_loop}, loops


def test_faults_of_a_body_are_told_beside_those_of_the_path(client):
    """Whether it is read in a thread or not: what is no id has no subscription, whatever else is wrong."""
    for size in (0, 2 * SMALL_BODY):
        body = {"from": "x" * size}
        problem(client.post("/v1/subscriptions/%21:resume", json=body), 404, "subscription-not-found")
        found = problem(client.post("/v1/subscriptions/x:resume", json=body), 422, "invalid-body")
        assert [one["pointer"] for one in found["errors"]] == ["/from"]
    body = {f"{i}" * 30: 1 for i in range(99)}
    found = problem(client.post("/v1/subscriptions", json=body), 422, "invalid-body")
    assert len(found["errors"]) == 99 <= MOST_FAULTS


def test_a_wrong_megabyte_takes_less_time_than_its_faults_would(client):
    body = b'{"message":{},"subscriptions":[' + b"1," * 524_000 + b"1]}"
    started = time.process_time()
    problem(client.post("/v1/messages:explain", content=body, headers=JSON), 422, "invalid-body")
    assert time.process_time() - started < 2  # 4 s when each item was a fault


SIXTEEN = "(a=1 OR b=1) AND (c=1 OR d=1) AND (e=1 OR f=1) AND (g=1 OR h=1) AND x{}=1 AND y=2 AND z=3 AND w=4"


def test_what_selectors_multiply_out_to_is_limited_for_a_batch_and_an_import(registry):
    """Each of them has 16 clauses of 8 literals, 128; 14 are paid for by its length, 32 by the limit."""
    limits = ServiceLimits(expanded_literals=10 * (128 - PLAIN_LITERALS))
    with service(registry, limits=limits) as client:
        assert client.get("/v1/limits").json()["expanded_literals"] == limits.expanded_literals

        def batch(count, text=SIXTEEN):
            operations = [{"op": "add", "selector": text.format(number)} for number in range(count)]
            return client.post("/v1/subscriptions:batch", json={"operations": operations})

        def import_(count, text=SIXTEEN):
            lines = "".join(json.dumps({"selector": text.format(n)}) + "\n" for n in range(count))
            headers = {"Content-Type": "application/x-ndjson"}
            return client.post("/v1/subscriptions:import", content=lines, headers=headers)

        for send in (batch, import_):
            for text in (SIXTEEN, SIXTEEN.format(0)):  # of one shape, of one text
                assert send(10, text).status_code in (200, 201)
                assert "conditions" in problem(send(30, text), 422, "too-costly")["detail"]
            assert send(100, "(a = 1 OR b = 2) AND c = {}").status_code in (200, 201)
        assert len(registry) == 240


@pytest.mark.slow
def test_selectors_that_multiply_out_are_published_in_seconds(registry):
    """A thousand of 512 clauses each took 100 s and 5 GB, in which nobody's change was published."""
    pairs = " AND ".join(f"(property_a{i} = {{0}} OR property_b{i} = 2)" for i in range(9))
    text = pairs + " AND " + " AND ".join(f"c{i} = {{0}}" for i in range(6))
    lines = "".join(json.dumps({"selector": text.format(n)}) + "\n" for n in range(1_000))
    with service(registry) as client:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        started = time.process_time()
        headers = {"Content-Type": "application/x-ndjson"}
        done = client.post("/v1/subscriptions:import", content=lines, headers=headers)
        assert done.status_code == 200, done.text
        while client.get("/readyz").json().get("published") != done.json()["revision"]:
            assert time.process_time() - started < 40
            time.sleep(0.5)
        assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024 < 500


def test_a_page_over_hidden_changes_looks_at_some_and_goes_on(registry, monkeypatch):
    lines = [json.dumps({"id": f"s{number:04}", "topic": "hidden"}) for number in range(LOOKED_AT + 50)]
    registry.import_(lines)
    registry.register(SubscriptionSpec("a = 1", "mine/a"), id="seen")
    looked, real = [], registry.as_of
    monkeypatch.setattr(registry, "as_of", lambda *given: looked.append(given) or real(*given))
    with client_of(registry, "reader", topics=["mine/#"]) as client:
        first = client.get("/v1/changes").json()
        assert (first["changes"], first["complete"]) == ([], 0)
        assert len(looked) == LOOKED_AT
        second = client.get("/v1/changes", params={"cursor": first["next_cursor"]}).json()
        assert len(looked) == LOOKED_AT + 50
        assert [one["id"] for one in second["changes"]] == ["seen"]
        assert (second["next_cursor"], second["complete"]) == (None, 2)


def test_explaining_ends_when_its_time_is_over(registry):
    ids = [f"s{number}" for number in range(20)]
    registry.import_([json.dumps({"id": id, "selector": "a = 1"}) for id in ids])
    with service(registry, limits=ServiceLimits(explain_seconds=1e-6)) as client:
        body = {"message": {"properties": {"a": 1}}, "subscriptions": ids[:1]}
        assert len(client.post("/v1/messages:explain", json=body).json()["explanations"]) == 1
        answer = client.post("/v1/messages:explain", json={**body, "subscriptions": ids})
        detail = problem(answer, 413, "too-large")["detail"]
        assert detail.startswith("1 of 20 explanations took more than 1e-06 seconds")


def test_so_many_explain_at_once_and_others_wait_without_a_thread(registry, monkeypatch):
    registry.import_([b'{"id": "a"}'])
    inside, most, lock = [0], [0], threading.Lock()
    real = messages.explained

    def slow(*given):
        with lock:
            inside[0] += 1
            most[0] = max(most[0], inside[0])
        time.sleep(0.05)
        with lock:
            inside[0] -= 1
        return real(*given)

    monkeypatch.setattr(messages, "explained", slow)
    with service(registry) as client:
        body = {"message": {}, "subscriptions": ["a"]}
        with meanwhile(*[lambda: client.post("/v1/messages:explain", json=body).status_code] * 12) as codes:
            pass
        assert codes == [200] * 12
        assert most[0] <= client.app.state.service.explaining.total_tokens == 4


@pytest.mark.parametrize("path", ["/v1/changes", "/v1/subscriptions"])
def test_a_large_page_is_written_item_by_item(client, registry, monkeypatch, path):
    """The encoder would keep the interpreter from all others for all the 8 MB that a page may have."""
    selector = "a = '" + "x" * 5_000 + "'"
    registry.import_([json.dumps({"id": f"s{number}", "selector": selector}) for number in range(100)])
    sizes, real = [], call.as_json
    monkeypatch.setattr(call, "as_json", lambda data: sizes.append(len(found := real(data))) or found)
    answer = client.get(path, params={"limit": 100})
    assert len(answer.content) > 500_000 > 10_000 > max(sizes)
    assert len(answer.json()["items" if "items" in answer.json() else "changes"]) == 100
    assert answer.content == real(answer.json())


def test_answers_401_come_later_for_an_address_that_gets_many(registry, monkeypatch):
    _, secret = registry.tokens.add("reader")
    monkeypatch.setattr(middleware, "REFUSED_BURST", 3)
    monkeypatch.setattr(middleware, "REFUSED_PER_SECOND", 0.001)
    monkeypatch.setattr(middleware, "HELD_BACK_SECONDS", 77)
    asked, sleep = [], anyio.sleep

    async def slept(seconds):
        asked.append(seconds)
        await sleep(0 if seconds == 77 else seconds)

    monkeypatch.setattr(anyio, "sleep", slept)
    with service(registry) as client:

        def is_held_back(headers, status):
            asked.clear()
            assert client.get("/v1/subscriptions", headers=headers).status_code == status
            return 77 in asked

        wrong = {"Authorization": "Bearer srt_" + "x" * 43}
        held_back = [is_held_back(headers, 401) for headers in ({}, wrong, {}, {}, wrong)]
        assert held_back == [False, False, False, True, True]
        assert not is_held_back(bearer(secret), 200)
        assert client.get("/healthz").is_success
