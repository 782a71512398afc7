"""A registry that is verified beside the service."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing

import pytest

from selectroute.registry import verification
from selectroute.registry.model import SubscriptionSpec
from selectroute.store.errors import DamagedError
from tests.unit.service.conftest import problem, service

PATH = "/v1/subscriptions"


@pytest.fixture
def large(registry, monkeypatch):
    """A registry that counts as a large one."""
    monkeypatch.setattr(verification, "VERIFIED_FIRST", 0)
    for number in range(3):
        registry.register(SubscriptionSpec(f"a = {number}"), id=f"s{number}")
    return registry


def damage(registry):
    with closing(sqlite3.connect(registry._store.path)) as connection, connection:
        connection.execute("UPDATE change SET body = replace(body, 'a = 1', 'a = 7') WHERE id = 's1'")


def verified(client):
    """What /readyz says once the verification has ended."""
    while (answer := client.get("/readyz")).json().get("verification") in ("running", None):
        time.sleep(0.01)
    return answer


def test_a_large_registry_is_served_before_it_is_verified(large):
    with service(large, verify=True) as client:
        assert client.get(f"{PATH}/s0").status_code == 200
        answer = verified(client)
        while answer.json()["status"] != "ready":  # until its revision is published
            answer = client.get("/readyz")
        assert (answer.status_code, answer.json()["verification"]) == (200, "verified")
        evidence = client.get("/v1/health").json()["evidence"]
        assert {"ok": True, "text": "the registry is verified", "query": None, "job": None} in evidence
        assert client.post(PATH, json={"selector": "a = 9"}).status_code == 201


def test_a_large_registry_that_is_damaged_takes_no_changes(large):
    damage(large)
    with service(large, verify=True) as client:
        answer = verified(client)
        found = answer.json()
        assert (answer.status_code, found["status"], found["verification"]) == (503, "not ready", "damaged")
        assert found["reason"] == "the registry is damaged"
        for change in (
            client.post(PATH, json={"selector": "a = 9"}),
            client.delete(f"{PATH}/s0", headers={"If-Match": "*"}),
            client.post(f"{PATH}:batch", json={"operations": [{"op": "add", "selector": "a = 9"}]}),
            client.post(
                f"{PATH}:import",
                content=b'{"selector": "a = 9"}',
                headers={"Content-Type": "application/x-ndjson"},
            ),
        ):
            problem(change, 500, "damaged")
        assert client.get(f"{PATH}/s0").status_code == 200
        health = client.get("/v1/health").json()
        assert health["status"] == "attention" and "the registry is damaged" in health["verdict"].lower()


def test_a_small_registry_that_is_damaged_is_not_served(registry):
    for number in range(3):
        registry.register(SubscriptionSpec(f"a = {number}"), id=f"s{number}")
    damage(registry)
    with pytest.raises(DamagedError, match="table change is damaged"), service(registry, verify=True):
        pass


def test_a_process_that_breaks_off_is_told(large, monkeypatch):
    monkeypatch.setattr(verification.sys, "executable", "/bin/false")
    with service(large, verify=True) as client:
        answer = verified(client)
        assert answer.json()["verification"] == "failed"
        health = client.get("/v1/health").json()
        assert "could not be verified" in health["verdict"]


def test_a_service_that_stops_ends_its_verification(large, monkeypatch):
    monkeypatch.setattr(verification.sys, "executable", "/bin/cat")
    told = []
    with service(large, verify=True) as client:
        running = client.app.state.service.verification
        running._told = lambda *state: told.append(state)
        assert client.get("/readyz").json()["verification"] in ("running", "failed")
    running._process.wait(60)
    assert running._process.returncode is not None
