"""Connections that do not say what they want: each has its time, and none keeps another's place."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import time
from contextlib import ExitStack
from types import SimpleNamespace

import httpx
import pytest

from selectroute.service.http import protocol
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


def test_a_body_is_not_awaited_of_a_caller_who_may_not_write(registry):
    _, secret = registry.add_token("reader")
    token = b"Authorization: Bearer " + secret.encode() + b"\r\n"
    with running(registry) as (url, _), connected(url) as connection:
        connection.sendall(HEAD + token + b"Content-Length: 1000\r\n\r\n")
        assert connection.recv(65_536).startswith(b"HTTP/1.1 403")


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


CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n"


@pytest.mark.parametrize(
    "sent",
    [
        HEAD + b"Content-Length: 2\r\n" + CHUNKED + b"\r\n",
        HEAD + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{} ",
        HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n" + CHUNKED + b"\r\n",
        HEAD + b"Transfer-Encoding: identity\r\n\r\n{}",
        HEAD + b"Host: other\r\nContent-Length: 2\r\n\r\n{}",
        HEAD + b"X-Folded: one\r\n two\r\nContent-Length: 2\r\n\r\n{}",
        HEAD + b"X-Space : one\r\nContent-Length: 2\r\n\r\n{}",
        HEAD + b"X-Null: \x00\r\nContent-Length: 2\r\n\r\n{}",
        HEAD.replace(b"1.1", b"2.0") + b"Content-Length: 2\r\n\r\n{}",
        HEAD.replace(b"Host: localhost\r\n", b"") + b"Content-Length: 2\r\n\r\n{}",
        HEAD.replace(b"/v1", "/ü".encode()) + b"Content-Length: 2\r\n\r\n{}",
        HEAD.replace(b"POST", b"INVENTED") + b"Content-Length: 2\r\n\r\n{}",
        HEAD + b"X-Long: " + b"x" * 400_000,
    ],
    ids=[
        "a length and chunks",
        "two lengths",
        "another coding",
        "two codings",
        "an unknown coding",
        "two hosts",
        "a folded header",
        "a space before a colon",
        "a null character",
        "another version",
        "a missing host",
        "a path of other characters",
        "an unknown method",
        "a head without an end",
    ],
)
def test_what_two_servers_may_read_differently_is_refused_and_the_connection_closed(registry, sent):
    """RFC 9112: a proxy in front of the service must not see other requests than the service."""
    with running(registry) as (url, _), connected(url) as connection:
        connection.sendall(sent)
        answer = rest(connection)
    assert answer.startswith(b"HTTP/1.1 400"), answer
    assert answer.count(b"HTTP/1.1 4") == 1
    assert answer.lower().count(b"connection: close") == 1
    assert len(registry) == 0


def test_what_follows_a_body_is_not_taken_for_headers(registry):
    _, secret = registry.add_token("writer")
    get = b"GET /v1/subscriptions HTTP/1.1\r\nHost: localhost\r\n"
    with running(registry) as (url, _), connected(url) as connection:
        connection.sendall(HEAD + CHUNKED + b"Authorization: Bearer " + secret.encode() + b"\r\n\r\n")
        connection.sendall(get + b"Connection: close\r\n\r\n")
        answer = rest(connection)
    assert [part[:3] for part in answer.split(b"HTTP/1.1 ")[1:]] == [b"401", b"401"]
    assert len(registry) == 0


def test_requests_that_are_sent_at_once_are_answered_in_order_and_then_what_is_wrong(registry):
    get = b"GET /v1/%s HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with running(registry) as (url, _), connected(url) as connection:
        connection.sendall(
            get % b"changes?wait=1" + get % b"subscriptions" + get % b"nothing" + b"garbage\r\n\r\n"
        )
        answer = rest(connection)
    assert [part[:3] for part in answer.split(b"HTTP/1.1 ")[1:]] == [b"200", b"200", b"404"]
    assert answer.split(b"HTTP/1.1 ")[-1].lower().count(b"connection: close") == 1


class Sent:
    """Transport that keeps what is written."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.closed = False

    def write(self, data: bytes) -> None:
        self.writes.append(data)

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize(
    ("method", "written", "sent"),
    [
        ("GET", [b"head", b"body"], [b"headbody"]),
        ("GET", [b"head", b"first", b"second"], [b"headfirst", b"second"]),
        ("GET", [b"head", b""], [b"head"]),
        ("HEAD", [b"head"], [b"head"]),
    ],
)
def test_a_head_is_sent_with_the_first_part_of_its_body(method, written, sent):
    transport, cycle = Sent(), SimpleNamespace(response_started=False, scope={"method": method})
    one = protocol._OneWrite(transport, cycle)
    one.write(b"100 Continue")
    assert transport.writes == [b"100 Continue"]
    cycle.response_started = True
    for data in written:
        one.write(data)
    assert transport.writes[1:] == sent


def test_a_head_without_its_body_is_sent_before_the_connection_is_closed():
    transport, cycle = Sent(), SimpleNamespace(response_started=True, scope={"method": "GET"})
    one = protocol._OneWrite(transport, cycle)
    one.write(b"head")
    assert (transport.writes, transport.closed) == ([], False)
    one.close()
    assert (b"".join(transport.writes), transport.closed) == (b"head", True)
