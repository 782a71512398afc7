"""Clients of a service who register subscriptions, each on a connection of its own.

``python -m bench.registry.clients URL[,URL…] CLIENTS PREFER < BODIES`` sends a body a line, each client one
after the other, to one of the services; with the preference ``return=minimal`` or none (``-``). It writes a
line of JSON for each answer: the ETag, and the nanoseconds when its request was sent and when it came.

It shares the machine with the service, so it does as little as it can for a request: an event loop or a
library for HTTP would take as long as a third of the service's own work.
"""

from __future__ import annotations

import json
import re
import selectors
import socket
import sys
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

_END = b"\r\n\r\n"
_CREATED = b" 201 "
_LENGTH = re.compile(rb"\r\ncontent-length: (\d+)\r\n", re.IGNORECASE)
_ETAG = re.compile(rb'\r\netag: "(\d+)"\r\n', re.IGNORECASE)
_MOST = 1 << 16


class _Client:
    """One connection, which sends the next body when the last one was answered."""

    def __init__(self, connection: socket.socket, head: bytes, bodies: Iterator[bytes]) -> None:
        self._connection = connection
        self._head = head
        self._bodies = bodies
        self._received = b""
        self._sent = 0
        self.answers: list[tuple[int, int, int]] = []

    def send(self) -> bool:
        """Send the next body; return whether there is one."""
        body = next(self._bodies, None)
        if body is None:
            return False
        self._received = b""
        self._sent = time.perf_counter_ns()
        self._connection.sendall(b"%bContent-Length: %d\r\n\r\n%b" % (self._head, len(body), body))
        return True

    def receive(self) -> bool:
        """Take a part of an answer, and after its end send the next body; return whether more is to come."""
        data = self._connection.recv(_MOST)
        self._received += data
        end = self._received.find(_END)
        length = _LENGTH.search(self._received)
        whole = end >= 0 and len(self._received) - end - len(_END) >= (int(length[1]) if length else 0)
        if not whole and data:
            return True
        etag = _ETAG.search(self._received)
        if etag is None or _CREATED not in self._received[:20]:
            raise RuntimeError(f"an answer that is not 201: {self._received[:500]!r}")
        self.answers.append((int(etag[1]), self._sent, time.perf_counter_ns()))
        return self.send()


def _run(urls: list[str], clients: int, prefer: str, bodies: list[bytes]) -> list[tuple[int, int, int]]:
    rest = iter(bodies)
    made = []
    with selectors.DefaultSelector() as waiting:
        for number in range(clients):
            asked = urlsplit(urls[number % len(urls)])
            host, port = str(asked.hostname), int(asked.port or 80)
            head = _head(f"{host}:{port}", prefer)
            connection = socket.create_connection((host, port))
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            made.append(_Client(connection, head, rest))
            waiting.register(connection, selectors.EVENT_READ, made[-1])
        for key in [*waiting.get_map().values()]:
            if not key.data.send():
                waiting.unregister(key.fileobj)
        while waiting.get_map():
            for key, _ in waiting.select():
                if not key.data.receive():
                    waiting.unregister(key.fileobj)
    return [answer for client in made for answer in client.answers]


def _head(host: str, prefer: str) -> bytes:
    """Return the request's lines up to the length of its body."""
    lines = ["POST /v1/subscriptions HTTP/1.1", f"Host: {host}", "Content-Type: application/json"]
    lines += [] if prefer == "-" else [f"Prefer: {prefer}"]
    return "".join(f"{line}\r\n" for line in lines).encode()


if __name__ == "__main__":
    given = [line.rstrip(b"\n") for line in sys.stdin.buffer]
    for answer in _run(sys.argv[1].split(","), int(sys.argv[2]), sys.argv[3], given):
        print(json.dumps(answer))
