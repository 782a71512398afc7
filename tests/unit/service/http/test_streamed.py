"""Exports to clients that do not take them: what they are read from is given back."""

import shutil
import socket
import struct
from contextlib import contextmanager

import pytest

from selectroute.registry.registry import Registry
from selectroute.service.limits import ServiceLimits
from tests.support.waiting import wait_until
from tests.unit.service.conftest import problem, running

EXPORT = "/v1/subscriptions:export"

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


def all_are_given_back(registry):
    """Check that no connection stays in use: the threads that look at the log have one each for moments."""
    pool = registry._store.engine.pool
    wait_until(lambda: not pool.checkedout(), 10, "no connection to the database is in use", 0.005)


@contextmanager
def taking_nothing(web):
    """A client that asked for an export and reads none of it."""
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        client.connect((web.base_url.host, web.base_url.port))
        client.sendall(f"GET {EXPORT} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        yield client


def test_more_exports_than_connections_that_hang_up_leave_none_in_use(large):
    with running(large) as (web, server):
        exporting = server.config.app.state.service.exporting
        for _ in range(CONNECTIONS + 1):
            with taking_nothing(web) as client:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                wait_until(lambda: exporting.borrowed_tokens, 60, "an export is begun", 0.001)
            wait_until(lambda: not exporting.borrowed_tokens, 60, "the export is over", 0.001)
        all_are_given_back(large)
        assert web.get(EXPORT).text.count("\n") == 3_000


def test_who_takes_nothing_is_left(large):
    with running(large, limits=ServiceLimits(stall_seconds=1)) as (web, server):
        exporting = server.config.app.state.service.exporting
        with taking_nothing(web):
            wait_until(lambda: exporting.borrowed_tokens, 60, "an export is begun", 0.001)
            wait_until(lambda: not exporting.borrowed_tokens, 60, "the export is over", 0.001)
            all_are_given_back(large)


def test_so_many_exports_and_no_more(large):
    with running(large, limits=ServiceLimits(exports=1)) as (web, server):
        exporting = server.config.app.state.service.exporting
        with taking_nothing(web):
            wait_until(lambda: not exporting.available_tokens, 60, "an export is begun", 0.001)
            answer = web.get(EXPORT)
            problem(answer, 429, "too-many-requests")
            assert answer.headers["retry-after"]
        wait_until(lambda: exporting.available_tokens, 60, "the export is over", 0.001)
        assert web.get(EXPORT).status_code == 200
