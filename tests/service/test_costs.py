"""What one caller may cost: no request makes others wait."""

from __future__ import annotations

import asyncio
import json
import resource
import time

import pytest

from selectroute.registry.specification import PLAIN_LITERALS
from selectroute.service import models
from selectroute.service.calls import MOST_FAULTS, SMALL_BODY
from selectroute.service.limits import ServiceLimits
from tests.service.conftest import problem, service

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
def test_a_large_wrong_body_is_refused_at_its_first_faults(client, path, body):
    found = problem(client.post(path, content=body, headers=JSON), 422, "invalid-body")
    assert 1 <= len(found["errors"]) <= 2


def test_a_large_body_is_read_in_a_thread_and_a_small_one_is_not(client, monkeypatch):
    loops = []
    real = models._few

    def few(value):
        if not isinstance(value, dict):  # FastAPI asks once more whether the body is the model that it is
            return value
        try:
            asyncio.get_running_loop()
            loops.append(True)
        except RuntimeError:
            loops.append(False)
        return real(value)

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
                found = problem(send(30, text), 422, "too-costly")
                assert "conditions" in found["detail"]
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
