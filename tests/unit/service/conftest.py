"""A service in this process, on a registry of its own."""

import shutil
import socket
import threading
import warnings
from contextlib import contextmanager, suppress
from dataclasses import fields

import httpx
import pytest

from selectroute.job_output import AuditTotals, LettersLeft, ReplayProgress
from selectroute.queues.sql.queue import SqlQueues
from selectroute.registry.registry import Registry
from selectroute.service.app import create_app
from selectroute.service.server import bound

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Starlette's test client announces another HTTP library
    from starlette.testclient import TestClient

CAR = {
    "headers": {"JMSType": "car"},
    "properties": {"weight": {"type": "int", "value": 3000}},
    "topic": "cars/eu",
}


@contextmanager
def service(registry, headers=None, **options):
    """A client of a service that runs; headers are those of every request."""
    options = {"app": create_app(registry, **options), "base_url": "http://localhost", "headers": headers}
    with TestClient(raise_server_exceptions=False, **options) as client:
        yield client


def bearer(secret):
    return {"Authorization": f"Bearer {secret}"}


def client_of(registry, role, topics=(), **patterns):
    """A client of a service that runs, with a new token."""
    _, secret = registry.tokens.add(role, topics=topics, **patterns)
    return service(registry, bearer(secret))


@contextmanager
def meanwhile(*calls):
    """Make each call in a thread of its own; gives the list of their results, which is whole at the end."""
    results = []
    threads = [threading.Thread(target=lambda call=call: results.append(call())) for call in calls]
    for thread in threads:
        thread.start()
    try:
        yield results
    finally:
        for thread in threads:
            thread.join(60)


@contextmanager
def running(registry, host="127.0.0.1", **options):
    """A client of a server in a thread of this process, and the server."""
    urls, ready = [], threading.Event()
    app = create_app(registry, **options)
    server = bound(app, host, 0, started=lambda url: (urls.append(url), ready.set()))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        assert ready.wait(60)
        url = f"http://127.0.0.1:{urls[0].rpartition(':')[2]}"
        limits = httpx.Limits(max_connections=None)  # many threads use it
        with httpx.Client(base_url=url, timeout=60, trust_env=False, limits=limits) as web:
            yield web, server
    finally:
        server.should_exit = True
        thread.join()


def connected(web):
    """A connection to a server, without a request."""
    return socket.create_connection((web.base_url.host, web.base_url.port), 60)


def rest(connection):
    """All that comes until the other side closes."""
    parts = []
    with suppress(ConnectionResetError):
        while part := connection.recv(65_536):
            parts.append(part)
    return b"".join(parts)


class Job:
    """A job with so many dead letters, of which it tells these."""

    has_run = staticmethod(lambda: True)
    is_held = staticmethod(lambda: False)
    waiting = staticmethod(list)

    def __init__(self, count, *told):
        self.count, self.told = count, told

    def letters(self, wanted, limit, **_):
        return [("0.0", one) for one in self.told]

    def left(self, wanted=None):
        return [LettersLeft(0, "read", "too-large", self.count)]

    def all_left(self):
        return self.left()

    def replay(self, wanted, expected):
        return "20260131T120000000000-00000000", expected

    def replayed(self, id):
        told = {"letters": 3, "taken": 0, "batch": None, "batches": []}
        return ReplayProgress(request=id, done=False, state="waiting", **told)

    def audit(self):
        names = {field.name for field in fields(AuditTotals)} - {"pending", "findings", "more"}
        return AuditTotals(**dict.fromkeys(names, 0), pending=[], findings=[])


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
        assert registry.revision == 0 and not registry.streams.all()


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
