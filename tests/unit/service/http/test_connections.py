"""Connections that do not say what they want: each has its time, and none keeps another's place."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import time
from contextlib import ExitStack

import httpx
import pytest

from selectroute.service.http.protocol import AcceptErrors
from selectroute.service.limits import ServiceLimits
from tests.unit.service.test_server import running

pytestmark = pytest.mark.slow

QUICK = ServiceLimits(header_seconds=1, body_seconds=1, body_rate=1 << 30, stall_seconds=60)
HEAD = b"POST /v1/subscriptions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


def connected(url):
    host, _, port = url.removeprefix("http://").partition(":")
    found = socket.create_connection((host, int(port)))
    found.settimeout(30)
    return found


def rest(connection):
    """All that comes until the other side closes."""
    parts = []
    try:
        while part := connection.recv(65_536):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


@pytest.mark.parametrize(
    "sent, drip",
    [
        (b"", b""),
        (b"GET /healthz HTTP/1.1\r\n", b""),
        (b"GET /healthz HTTP/1.1\r\nX-Slow: ", b"x"),
        (HEAD + b"Content-Length: 1000\r\n\r\n", b" "),
        (
            HEAD.replace(b"subscriptions", b"subscriptions:import").replace(b"json", b"x-ndjson")
            + b"Content-Length: 1000\r\n\r\n",
            b" ",
        ),
    ],
    ids=["nothing", "half a head", "a head in drips", "a body in drips", "an import in drips"],
)
def test_who_sends_no_whole_request_in_time_is_told_and_closed(registry, sent, drip):
    with running(registry, limits=QUICK) as (url, _), connected(url) as connection:
        connection.sendall(sent)
        started = time.monotonic()
        connection.settimeout(0.1)
        answer = b""
        while time.monotonic() - started < 20:
            try:
                if drip:
                    connection.sendall(drip)
                part = connection.recv(65_536)
                if not part:
                    break
                answer += part
            except TimeoutError:
                continue
            except (BrokenPipeError, ConnectionResetError):
                break
        assert time.monotonic() - started < 15
        assert answer.startswith(b"HTTP/1.1 408"), answer
        assert b"urn:selectroute:problem:timed-out" in answer
        assert b"connection: close" in answer.lower()
    assert len(registry) == 0


def test_who_waits_for_a_change_or_a_message_may_take_longer(registry):
    with running(registry, limits=QUICK) as (url, _), httpx.Client(timeout=30, trust_env=False) as client:
        assert client.get(f"{url}/v1/changes?wait=3").status_code == 200
        client.put(f"{url}/v1/queues/Q")
        queue = f"{url}/ibmmq/rest/v3/messaging/qmgr/selectroute/queue/Q/message"
        assert client.delete(f"{queue}?wait=3000").status_code == 204


def test_there_are_no_more_connections_than_the_limit(registry):
    limits = QUICK.model_copy(update={"connections": 5, "header_seconds": 5})
    with running(registry, limits=limits) as (url, _), ExitStack() as held:
        idle = [held.enter_context(connected(url)) for _ in range(5)]
        time.sleep(0.5)
        with connected(url) as more:
            more.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert rest(more).startswith(b"HTTP/1.1 503")
        assert [rest(one)[:12] for one in idle] == [b"HTTP/1.1 408"] * 5
        assert httpx.get(f"{url}/healthz", trust_env=False).status_code == 200


def test_a_service_has_as_many_open_files_as_it_may(registry):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # What the tests before have open counts, too.
    low = min(len(os.listdir("/proc/self/fd")) + 256, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (low, hard))
    try:
        with running(registry):
            assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] >= min(hard, 65_536)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_that_none_can_be_accepted_is_said_once_and_counted():
    said, now = [], [0.0]
    errors = AcceptErrors(lambda reason, count: said.append((reason, count)), lambda: now[0])
    context = {
        "message": "socket.accept() out of system resource",
        "exception": OSError(24, "Too many open files"),
    }
    loop = asyncio.new_event_loop()
    for _ in range(2_000):
        errors(loop, context)
    now[0] = 11.0
    errors(loop, context)
    loop.close()
    assert said == [("Too many open files", 1), ("Too many open files", 2_000)]


def test_a_request_with_two_lengths_is_the_last_of_its_connection(registry):
    body = b"2\r\n{}\r\n0\r\n\r\n"
    with running(registry) as (url, _), connected(url) as connection:
        twice = b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n"
        connection.sendall(HEAD + twice + body)
        started = time.monotonic()
        answer = rest(connection)
        assert answer.startswith(b"HTTP/1.1 201")
        assert answer.lower().count(b"connection: close") == 1
        assert time.monotonic() - started < 4  # five seconds is how long it is kept otherwise
