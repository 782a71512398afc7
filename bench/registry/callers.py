"""Requests of another caller to a service, as costly as one request can be made.

``python -m bench.registry.callers SHAPE URL`` asks it again and again until it is ended.

The shapes are those with which one caller made others wait for seconds before there were budgets.
"""

from __future__ import annotations

import http.client
import json
import signal
import socket
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final
from urllib.parse import urlsplit

_JSON: Final = {"Content-Type": "application/json"}
_LINES: Final = {"Content-Type": "application/x-ndjson"}

_asked_to_end: list[bool] = []
_STEP: Final = 1_000
_CONNECTIONS: Final = 400
_SECONDS: Final = 600.0


def _expanding(number: int) -> str:
    """A selector of 340 characters and 512 clauses."""
    pairs = [f"(a{i}={number} OR b{i}=2)" for i in range(9)]
    return " AND ".join([*pairs, *(f"c{i}=1" for i in range(6))])


def _nested(number: int) -> str:
    """A selector of 3 KB that takes long to bring into its normal form."""
    depth = 115
    return "".join(f"(p{i}a{number}=1 OR (p{i}b{number}=2 AND " for i in range(depth)) + "c=1" + "))" * depth


def _lines(first: int) -> bytes:
    numbers = range(first, first + 300)
    return "\n".join(json.dumps({"id": f"caller-{n}", "selector": _expanding(n)}) for n in numbers).encode()


def _batch(first: int) -> bytes:
    numbers = range(first, first + 120)
    operations = [{"op": "add", "id": f"caller-{n}", "spec": {"selector": _nested(n)}} for n in numbers]
    return json.dumps({"operations": operations}).encode()


def _explained(_: int) -> bytes:
    properties = {f"p{n}": "x" * 500 for n in range(900)}
    ids = [f"r{n}" for n in range(100)]
    return json.dumps({"message": {"properties": properties}, "subscriptions": ids}).encode()


REQUESTS: Final[dict[str, tuple[str, str, dict[str, str], Callable[[int], bytes]]]] = {
    "import": ("POST", "/v1/subscriptions:import", _LINES, _lines),
    "batch": ("POST", "/v1/subscriptions:batch", _JSON, _batch),
    "wrong-body": (
        "POST",
        "/v1/messages:explain",
        _JSON,
        lambda _: b'{"message":{},"subscriptions":[' + b"1," * 500_000 + b"1]}",
    ),
    "wrong-members": (
        "POST",
        "/v1/subscriptions",
        _JSON,
        lambda _: b"{%b}" % b",".join(b'"%d":1' % i for i in range(90_000)),
    ),
    "explain": ("POST", "/v1/messages:explain", _JSON, _explained),
    "changes": ("GET", "/v1/changes?limit=1000", {}, lambda _: b""),
    "export": ("GET", "/v1/subscriptions:export", {}, lambda _: b""),
}
"""By shape: method, path, headers and body of the request that one connection repeats; a body is made of a
number that is larger each time, by which new subscriptions have new ids.
"""


def _repeat(shape: str, address: str) -> None:
    method, path, headers, body_of = REQUESTS[shape]
    connection = http.client.HTTPConnection(address, timeout=_SECONDS)
    first = 0
    while not _asked_to_end:
        body = body_of(first)
        first += _STEP
        try:
            connection.request(method, path, body, headers)
            connection.getresponse().read()
        except (http.client.HTTPException, OSError):  # refused before the whole body was sent
            connection.close()
            time.sleep(0.01)


def _hold(address: str, first: bytes) -> None:
    """Hold connections that send so much and nothing more; each that is closed is opened again."""
    host, port = address.split(":")
    opened: list[socket.socket] = []

    def open_one() -> socket.socket:
        made = socket.create_connection((host, int(port)), _SECONDS)
        made.sendall(first)
        made.setblocking(False)
        return made

    while not _asked_to_end:
        while len(opened) < _CONNECTIONS:
            opened.append(open_one())
        time.sleep(0.1)
        opened = [one for one in opened if not _is_closed(one)]


def _is_closed(one: socket.socket) -> bool:
    try:
        if one.recv(4_096):
            return False
    except BlockingIOError:
        return False
    except OSError:
        pass
    one.close()
    return True


HELD: Final = {
    "idle": b"",
    "slow-headers": b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nX-A:",
    "slow-imports": (
        b"POST /v1/subscriptions:import HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-ndjson\r\n"
        b"Content-Length: 1000000\r\n\r\n" + b'{"id":'
    ),
}
"""By shape: what each of `_CONNECTIONS` connections sends before it sends nothing more."""

SHAPES: Final = (*REQUESTS, *HELD)

PAGES: Final = "pages"
"""Shape of people who read the console: each goes from screen to screen, and reads each for some seconds."""

_PEOPLE: Final = 20
_READS_SECONDS: Final = 10.0
_SCREENS: Final = (
    "overview",
    "subscriptions",
    "subscriptions/r0",
    "who-gets",
    "queues",
    "subscriptions?text=r1",
)


def _pause(seconds: float) -> None:
    until = time.monotonic() + seconds
    while not _asked_to_end and time.monotonic() < until:
        time.sleep(0.1)


def _read_pages(address: str, person: int) -> None:
    connection = http.client.HTTPConnection(address, timeout=_SECONDS)
    first = person % len(_SCREENS)
    _pause(_READS_SECONDS * person / _PEOPLE)  # they do not click at the same time
    while not _asked_to_end:
        for screen in _SCREENS[first:] + _SCREENS[:first]:
            connection.request("GET", f"/console/{screen}")
            answer = connection.getresponse()
            answer.read()
            if answer.status != 200:
                raise RuntimeError(f"{screen}: {answer.status}")
            _pause(_READS_SECONDS)


def main(arguments: list[str]) -> None:
    """Ask until the process is told to end (SIGTERM), and for the answer to the last request."""
    shape, url = arguments
    signal.signal(signal.SIGTERM, lambda *_: _asked_to_end.append(True))
    address = urlsplit(url).netloc
    if shape in REQUESTS:
        _repeat(shape, address)
    elif shape == PAGES:
        with ThreadPoolExecutor(_PEOPLE) as people:
            for done in [people.submit(_read_pages, address, person) for person in range(_PEOPLE)]:
                done.result()
    else:
        _hold(address, HELD[shape])


if __name__ == "__main__":
    main(sys.argv[1:])
