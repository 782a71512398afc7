"""Exports to clients that do not take them: what they are read from is given back."""

from __future__ import annotations

import shutil
import socket
import struct
import time
from contextlib import contextmanager

import httpx
import pytest

from selectroute.registry.registry import Registry
from selectroute.service.limits import ServiceLimits
from tests.support.waiting import wait_until
from tests.unit.service.conftest import problem
from tests.unit.service.test_server import running

EXPORT = b"GET /v1/subscriptions:export HTTP/1.1\r\nHost: localhost\r\n\r\n"

CONNECTIONS = 64
"""Connections to the database that there are at most."""


LABELS = ", ".join(f'"{name}": "{"x" * 250}"' for name in "abcdefgh")


@pytest.fixture(scope="module")
def large(empty_database, tmp_path_factory):
    """A registry whose export fits into no buffer."""
    path = shutil.copy(empty_database, tmp_path_factory.mktemp("large"))
    with Registry.open(f"sqlite:///{path}") as registry:
        registry.import_(f'{{"id": "s{n:05}", "labels": {{{LABELS}}}}}' for n in range(3_000))
        yield registry


def is_given_back(registry):
    """Whether no connection stays in use: the threads that look at the log have one each for moments."""
    for _ in range(2_000):
        if not registry._store.engine.pool.checkedout():
            return True
        time.sleep(0.005)
    return False


@contextmanager
def taking_nothing(url):
    """A client that asked for an export and reads none of it."""
    host, _, port = url.removeprefix("http://").partition(":")
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        client.connect((host, int(port)))
        client.sendall(EXPORT)
        yield client


def test_more_exports_than_connections_that_hang_up_leave_none_in_use(large):
    with running(large) as (url, server):
        exporting = server.config.app.state.service.exporting
        for _ in range(CONNECTIONS + 1):
            with taking_nothing(url) as client:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                wait_until(lambda: exporting.borrowed_tokens, 60, "an export is begun", 0.001)
            wait_until(lambda: not exporting.borrowed_tokens, 60, "the export is over", 0.001)
        assert is_given_back(large)
        answer = httpx.get(f"{url}/v1/subscriptions:export", timeout=60, trust_env=False)
        assert answer.text.count("\n") == 3_000


def test_who_takes_nothing_is_left(large):
    with running(large, limits=ServiceLimits(stall_seconds=1)) as (url, server):
        exporting = server.config.app.state.service.exporting
        with taking_nothing(url):
            wait_until(lambda: exporting.borrowed_tokens, 60, "an export is begun", 0.001)
            wait_until(lambda: not exporting.borrowed_tokens, 60, "the export is over", 0.001)
            assert is_given_back(large)


def test_so_many_exports_and_no_more(large):
    with running(large, limits=ServiceLimits(exports=1)) as (url, server):
        exporting = server.config.app.state.service.exporting
        with taking_nothing(url):
            wait_until(lambda: not exporting.available_tokens, 60, "an export is begun", 0.001)
            answer = httpx.get(f"{url}/v1/subscriptions:export", timeout=60, trust_env=False)
            problem(answer, 429, "too-many-requests")
            assert answer.headers["retry-after"]
        wait_until(lambda: exporting.available_tokens, 60, "the export is over", 0.001)
        assert httpx.get(f"{url}/v1/subscriptions:export", timeout=60, trust_env=False).status_code == 200
