"""Connections that do not say what they want: each has its time, and none keeps another's place."""

from __future__ import annotations

import asyncio
import os
import resource
import time
from contextlib import ExitStack, suppress
from types import SimpleNamespace

import pytest

from selectroute.service.http import protocol
from selectroute.service.http.protocol import AcceptErrors
from selectroute.service.limits import ServiceLimits
from tests.unit.service.conftest import connected, rest, running

pytestmark = pytest.mark.slow

QUICK = ServiceLimits(header_seconds=1, body_seconds=1, body_rate=1 << 30, stall_seconds=60)
HEAD = b"POST /v1/subscriptions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
IMPORT = HEAD.replace(b"subscriptions", b"subscriptions:import").replace(b"json", b"x-ndjson")


@pytest.mark.parametrize(
    "sent, drip",
    [
        (b"", b""),
        (b"GET /healthz HTTP/1.1\r\n", b""),
        (b"GET /healthz HTTP/1.1\r\nX-Slow: ", b"x"),
        (HEAD + b"Content-Length: 1000\r\n\r\n", b" "),
        (IMPORT + b"Content-Length: 1000\r\n\r\n", b" "),
    ],
    ids=["nothing", "half a head", "a head in drips", "a body in drips", "an import in drips"],
)
def test_who_sends_no_whole_request_in_time_is_told_and_closed(registry, sent, drip):
    with running(registry, limits=QUICK) as (web, _), connected(web) as connection:
        connection.sendall(sent)
        started = time.monotonic()
        connection.settimeout(0.1)
        answer, part = b"", b" "
        with suppress(BrokenPipeError, ConnectionResetError):
            while part and time.monotonic() - started < 20:
                connection.sendall(drip)
                with suppress(TimeoutError):
                    part = connection.recv(65_536)
                    answer += part
        assert time.monotonic() - started < 15
        assert answer.startswith(b"HTTP/1.1 408"), answer
        assert b"urn:selectroute:problem:timed-out" in answer
        assert b"connection: close" in answer.lower()
    assert len(registry) == 0


def test_a_body_is_not_awaited_of_a_caller_who_may_not_write(registry):
    _, secret = registry.tokens.add("reader")
    with running(registry) as (web, _), connected(web) as connection:
        connection.sendall(HEAD + f"Authorization: Bearer {secret}\r\nContent-Length: 1000\r\n\r\n".encode())
        assert connection.recv(65_536).startswith(b"HTTP/1.1 403")


def test_who_waits_for_a_change_or_a_message_may_take_longer(registry):
    with running(registry, limits=QUICK) as (web, _):
        assert web.get("/v1/changes?wait=3").status_code == 200
        web.put("/v1/queues/Q")
        queue = "/ibmmq/rest/v3/messaging/qmgr/selectroute/queue/Q/message"
        assert web.delete(f"{queue}?wait=3000").status_code == 204


def test_there_are_no_more_connections_than_the_limit(registry):
    limits = QUICK.model_copy(update={"connections": 5, "header_seconds": 5})
    with running(registry, limits=limits) as (web, _), ExitStack() as held:
        idle = [held.enter_context(connected(web)) for _ in range(5)]
        time.sleep(0.5)
        with connected(web) as more:
            more.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert rest(more).startswith(b"HTTP/1.1 503")
        assert [rest(one)[:12] for one in idle] == [b"HTTP/1.1 408"] * 5
        assert web.get("/healthz").status_code == 200


def test_a_service_has_as_many_open_files_as_it_may(registry):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # What the tests before have open counts, too.
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(len(os.listdir("/proc/self/fd")) + 256, hard), hard))
    try:
        with running(registry):
            assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] >= min(hard, 65_536)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_that_none_can_be_accepted_is_said_once_and_counted():
    said, now = [], [0.0]
    errors = AcceptErrors(lambda reason, count: said.append((reason, count)), lambda: now[0])
    error = OSError(24, "Too many open files")
    context = {"message": "socket.accept() out of system resource", "exception": error}
    loop = asyncio.new_event_loop()
    for _ in range(2_000):
        errors(loop, context)
    now[0] = 11.0
    errors(loop, context)
    loop.close()
    assert said == [("Too many open files", 1), ("Too many open files", 2_000)]


CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n"


TWO_BYTES = b"Content-Length: 2\r\n\r\n{}"
SMUGGLED = {
    "a length and chunks": HEAD + b"Content-Length: 2\r\n" + CHUNKED + b"\r\n",
    "two lengths": HEAD + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{} ",
    "another coding": HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    "two codings": HEAD + b"Transfer-Encoding: chunked\r\n" + CHUNKED + b"\r\n",
    "an unknown coding": HEAD + b"Transfer-Encoding: identity\r\n\r\n{}",
    "two hosts": HEAD + b"Host: other\r\n" + TWO_BYTES,
    "a folded header": HEAD + b"X-Folded: one\r\n two\r\n" + TWO_BYTES,
    "a space before a colon": HEAD + b"X-Space : one\r\n" + TWO_BYTES,
    "a null character": HEAD + b"X-Null: \x00\r\n" + TWO_BYTES,
    "another version": HEAD.replace(b"1.1", b"2.0") + TWO_BYTES,
    "a missing host": HEAD.replace(b"Host: localhost\r\n", b"") + TWO_BYTES,
    "a path of other characters": HEAD.replace(b"/v1", "/ü".encode()) + TWO_BYTES,
    "an unknown method": HEAD.replace(b"POST", b"INVENTED") + TWO_BYTES,
    "a head without an end": HEAD + b"X-Long: " + b"x" * 400_000,
}


@pytest.mark.parametrize("sent", SMUGGLED.values(), ids=SMUGGLED)
def test_what_two_servers_may_read_differently_is_refused_and_the_connection_closed(registry, sent):
    """RFC 9112: a proxy in front of the service must not see other requests than the service."""
    with running(registry) as (web, _), connected(web) as connection:
        connection.sendall(sent)
        answer = rest(connection)
    assert answer.startswith(b"HTTP/1.1 400") and answer.count(b"HTTP/1.1 4") == 1, answer
    assert answer.lower().count(b"connection: close") == 1
    assert len(registry) == 0


def test_what_follows_a_body_is_not_taken_for_headers(registry):
    _, secret = registry.tokens.add("writer")
    get = b"GET /v1/subscriptions HTTP/1.1\r\nHost: localhost\r\n"
    with running(registry) as (web, _), connected(web) as connection:
        connection.sendall(HEAD + CHUNKED + b"Authorization: Bearer " + secret.encode() + b"\r\n\r\n")
        connection.sendall(get + b"Connection: close\r\n\r\n")
        answer = rest(connection)
    assert [part[:3] for part in answer.split(b"HTTP/1.1 ")[1:]] == [b"401", b"401"]
    assert len(registry) == 0


def test_requests_that_are_sent_at_once_are_answered_in_order_and_then_what_is_wrong(registry):
    get = b"GET /v1/%s HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with running(registry) as (web, _), connected(web) as connection:
        three = get % b"changes?wait=1" + get % b"subscriptions" + get % b"nothing"
        connection.sendall(three + b"garbage\r\n\r\n")
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
