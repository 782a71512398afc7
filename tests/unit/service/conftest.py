"""A service in this process, on a registry of its own."""

from __future__ import annotations

import shutil
import warnings
from contextlib import contextmanager

import pytest

from selectroute.queues.sql.queues import SqlQueues
from selectroute.registry.registry import Registry
from selectroute.service.app import create_app

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Starlette's test client announces another HTTP library
    from fastapi.testclient import TestClient

CAR = {
    "headers": {"JMSType": "car"},
    "properties": {"weight": {"type": "int", "value": 3000}},
    "topic": "cars/eu",
}


@contextmanager
def service(registry, **options):
    """A client of a service that runs; headers are those of every request."""
    headers = options.pop("headers", None)
    app = create_app(registry, **options)
    with TestClient(
        app, base_url="http://localhost", headers=headers, raise_server_exceptions=False
    ) as client:
        yield client


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory):
    """A database with all tables and no rows. A copy takes a tenth of the time of a new one."""
    path = tmp_path_factory.mktemp("empty") / "subscriptions.db"
    Registry.open(f"sqlite:///{path}").close()
    with SqlQueues(f"sqlite:///{path}") as queues:
        queues.create("Q")
        queues.delete("Q")
    return path


@pytest.fixture
def registry(tmp_path, empty_database):
    shutil.copy(empty_database, tmp_path)
    with Registry.open(f"sqlite:///{tmp_path}/subscriptions.db") as opened:
        yield opened


@pytest.fixture
def client(registry):
    with service(registry) as client:
        yield client


@pytest.fixture(scope="module")
def shared(empty_database, tmp_path_factory):
    """A client of an empty service that tests of a module share: those of requests that change nothing."""
    path = shutil.copy(empty_database, tmp_path_factory.mktemp("shared"))
    with Registry.open(f"sqlite:///{path}") as registry, service(registry) as client:
        yield client
        assert registry.revision == 0 and not registry.streams()


@pytest.fixture
def add(client):
    """Register a subscription; its answer."""

    def call(selector="", **fields):
        answer = client.post("/v1/subscriptions", json={"selector": selector, **fields})
        assert answer.status_code == 201, answer.text
        return answer.json()

    return call


def problem(answer, status, kind):
    """Check that an answer is this problem document, or has it in an error of IBM's form; returns it."""
    assert answer.status_code == status, answer.text
    found = answer.json()
    if answer.url.path.startswith("/ibmmq/"):
        assert answer.headers["content-type"] == "application/json"
        (error,) = found["error"]
        found = error["problem"]
        assert (error["reasonCode"], error["message"]) == (
            found.get("mqrc", 0),
            f"{error['msgId']}: {found['detail']}",
        )
    else:
        assert answer.headers["content-type"] == "application/problem+json"
    assert found["type"] == f"urn:selectroute:problem:{kind}", found
    assert found["status"] == status
    assert found["title"]
    assert found["detail"]
    assert found["instance"] == f"urn:uuid:{answer.headers['x-request-id']}"
    return found
