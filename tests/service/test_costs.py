"""What one caller may cost: no request makes others wait."""

from __future__ import annotations

import asyncio
import time

import pytest

from selectroute.service import models
from selectroute.service.calls import MOST_FAULTS, SMALL_BODY
from tests.service.conftest import problem

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
