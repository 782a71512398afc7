"""Clients of a service who register subscriptions, each on a connection of its own.

``python -m bench.registry.clients URL CLIENTS PREFER < BODIES`` sends a body a line, each client one after
the other; with the preference ``return=minimal`` or none (``-``). It writes a line of JSON for each answer:
the ETag, and the nanoseconds it took.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Iterator
from functools import partial
from typing import Any
from urllib.parse import urlsplit

_END = b"\r\n\r\n"
_CREATED = b" 201 "


class _Client(asyncio.Protocol):
    """One connection, which sends the next body when the last one was answered."""

    def __init__(
        self, head: bytes, bodies: Iterator[bytes], answers: list[tuple[int, int]], done: Any
    ) -> None:
        self._head = head
        self._bodies = bodies
        self._answers = answers
        self._done = done
        self._received = b""
        self._sent = 0

    def connection_made(self, transport: Any) -> None:
        """Send the first body."""
        self._transport = transport
        self._send()

    def _send(self) -> None:
        body = next(self._bodies, None)
        if body is None:
            self._transport.close()
            return
        self._received = b""
        self._sent = time.perf_counter_ns()
        self._transport.write(b"%bContent-Length: %d\r\n\r\n%b" % (self._head, len(body), body))

    def data_received(self, data: bytes) -> None:
        """Take a part of an answer."""
        self._received += data
        head, end, body = self._received.partition(_END)
        if not end:
            return
        fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
        if len(body) < int(fields.get(b"content-length", 0)):
            return
        if _CREATED not in head[:20]:
            self._done.set_exception(RuntimeError(f"an answer that is not 201: {self._received[:500]!r}"))
            self._transport.abort()
            return
        took = time.perf_counter_ns() - self._sent
        self._answers.append((int(fields[b"etag"].strip(b'"')), took))
        self._send()

    def connection_lost(self, error: Exception | None) -> None:
        """Be one of those that have ended."""
        if not self._done.done():
            self._done.set_result(None)


async def _run(url: str, clients: int, prefer: str, bodies: list[bytes]) -> list[tuple[int, int]]:
    asked = urlsplit(url)
    host, port = str(asked.hostname), int(asked.port or 80)
    lines = ["POST /v1/subscriptions HTTP/1.1", f"Host: {host}:{port}", "Content-Type: application/json"]
    lines += [] if prefer == "-" else [f"Prefer: {prefer}"]
    head = "".join(f"{line}\r\n" for line in lines).encode()
    loop, rest = asyncio.get_running_loop(), iter(bodies)
    answers: list[tuple[int, int]] = []
    ended: list[asyncio.Future[None]] = [loop.create_future() for _ in range(clients)]
    for done in ended:
        await loop.create_connection(partial(_Client, head, rest, answers, done), host, port)
    await asyncio.gather(*ended)
    return answers


if __name__ == "__main__":
    given = [line.rstrip(b"\n") for line in sys.stdin.buffer]
    for answer in asyncio.run(_run(sys.argv[1], int(sys.argv[2]), sys.argv[3], given)):
        print(json.dumps(answer))
