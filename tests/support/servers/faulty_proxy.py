"""A proxy before the server of an object store, which fails as networks and stores do.

``python -m tests.support.servers.faulty_proxy TARGET --rate 0.1 --seed 1`` prints its port, then a line for
each request: its number, the verb, the path, the status or the fault, and the seconds of its beginning and
end. The faults:

- ``slow down``: 503, and the request is not passed on;
- ``refused``: the connection is closed, and the request is not passed on;
- ``lost``: the request is carried out, and the connection closed without an answer;
- ``cut``: the answer ends in its middle;
- ``late``: a listing is answered seconds later.

With ``--delay`` each answer takes so many seconds more.

A file named by ``--switch`` holds the proxy back as long as its first word is ``deny`` (400, as with
credentials that have expired at Amazon's), ``forbid`` (403, as at others), ``skew`` (403, as to a client
whose clock is wrong) or ``down`` (no connection is answered); ``deny PART`` and the like begin with the first
request whose path has that part. With ``no-writes`` only writes are forbidden; ``ok`` passes everything on,
``slow 1.0`` with so many seconds more. With ``before N`` or ``after N`` the N-th write from now on is held
before or after the server has carried it out: it is never answered, and the file ``SWITCH.met`` appears.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

Request = tuple[int, str, str, object, float, float]

FAULTS = ("slow down", "refused", "lost", "cut", "late")


def _refusal(status: int, code: str, message: str) -> tuple[int, bytes]:
    return status, f"{_XML}<Error><Code>{code}</Code><Message>{message}</Message></Error>".encode()


_XML = '<?xml version="1.0" encoding="UTF-8"?>'
_WRITES = ("PUT", "POST", "DELETE")
_BEHIND = ("_lease.json", "/_delta_log/", "/snapshots/", "/_checkpoint/", "/accounting.jsonl")
_HELD_SECONDS = 600.0
_REFUSALS = {
    "slow down": _refusal(503, "SlowDown", "Please reduce your request rate."),
    "denied": _refusal(400, "ExpiredToken", "The provided token has expired."),
    "forbidden": _refusal(403, "AuthenticationFailed", "The request is not authorized."),
    "skewed": _refusal(403, "RequestTimeTooSkewed", "The clocks differ too much."),
    "not writable": _refusal(403, "AccessDenied", "Access Denied"),
}
_HELD = {"deny": "denied", "forbid": "forbidden", "skew": "skewed", "down": "refused"}


class Proxy(ThreadingHTTPServer):
    """The proxy; see the module."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, target: str, rate: float, seed: int, switch: Path | None, delay: float) -> None:
        super().__init__(("127.0.0.1", 0), Passing)
        self.target = urlsplit(target).netloc
        self.rate = rate
        self.delay = delay
        self.chance = random.Random(seed)
        self.switch = switch
        self.guard = threading.Lock()
        self.number = 0
        self.counting = ""
        self.writes = 0

    def fault(self, is_listing: bool) -> str | None:
        with self.guard:
            if self.chance.random() >= self.rate:
                return None
            fault = self.chance.choice(FAULTS)
            return fault if fault != "late" or is_listing else None

    def say(self, verb: str, path: str, what: object, began: float) -> None:
        with self.guard:
            self.number += 1
            times = round(began, 4), round(time.monotonic(), 4)
            print(json.dumps([self.number, verb, path, what, *times]), flush=True)

    def held(self) -> str:
        if self.switch is None:
            return "ok"
        with suppress(OSError):
            return self.switch.read_text().strip() or "ok"
        return "ok"

    def begins(self, held: str, path: str) -> str:
        """Return what holds for a request, and for all after it if it is the one that was waited for."""
        word, _, part = held.partition(" ")
        if word not in _HELD or not part:
            return held
        if part not in path:
            return "ok"
        assert self.switch is not None
        self.switch.write_text(word)
        return word

    def holds(self, held: str, verb: str) -> str:
        """Return "before" or "after" if this is the write that is never answered."""
        moment, _, nth = held.partition(" ")
        if moment not in ("before", "after") or verb not in _WRITES:
            return ""
        with self.guard:
            if self.counting != held:
                self.counting, self.writes = held, 0
            self.writes += 1
            return moment if self.writes == int(nth) else ""

    def hold(self) -> None:
        """Say that the write is met, and give its client the time to be killed."""
        assert self.switch is not None
        self.switch.with_suffix(".met").touch()
        time.sleep(_HELD_SECONDS)


class Passing(BaseHTTPRequestHandler):
    """Passes one request on, or fails."""

    protocol_version = "HTTP/1.1"
    server: Proxy

    def handle_one_request(self) -> None:
        with suppress(ConnectionError):
            super().handle_one_request()

    def _pass(self) -> None:
        began = time.monotonic()
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        is_listing = self.command == "GET" and ("list-type" in self.path or "comp=list" in self.path)
        held = self.server.begins(self.server.held(), self.path)
        fault = _HELD.get(held) or self.server.fault(is_listing)
        if held == "no-writes" and self.command in _WRITES:
            fault = "not writable"
        if fault is not None:
            self.server.say(self.command, self.path, fault, began)
        if fault == "refused":
            self._hang_up()
            return
        if fault in _REFUSALS:
            status, text = _REFUSALS[fault]
            self._answer(status, {}, text)
            return
        delay = float(held.removeprefix("slow ")) if held.startswith("slow ") else self.server.delay
        time.sleep(delay + (2 if fault == "late" else 0))
        moment = self.server.holds(held, self.command)
        if moment == "before":
            self.server.hold()
            return
        upstream = http.client.HTTPConnection(self.server.target, timeout=60)
        upstream.request(self.command, self.path, body, {name: value for name, value in self.headers.items()})
        answer = upstream.getresponse()
        data = answer.read()
        own = ("transfer-encoding", "connection", "content-length", "server", "date")
        headers = {name: value for name, value in answer.getheaders() if name.lower() not in own}
        upstream.close()
        if moment == "after":
            self.server.hold()
            return
        if fault == "lost":
            self._hang_up()
            return
        length = answer.getheader("Content-Length")
        self._answer(answer.status, headers, data, cut=fault == "cut", length=length)
        if fault is None:
            self.server.say(self.command, self.path, answer.status, began)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _pass

    def _answer(
        self, status: int, headers: dict[str, str], data: bytes, cut: bool = False, length: str | None = None
    ) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", length if self.command == "HEAD" and length else str(len(data)))
        self.end_headers()
        if cut:
            self.wfile.write(data[: len(data) // 2])
            self.wfile.flush()
            self._hang_up()
        elif self.command != "HEAD":
            self.wfile.write(data)

    def _hang_up(self) -> None:
        self.close_connection = True
        self.connection.close()

    def log_message(self, *_: object) -> None:
        """Write nothing: each request has a line of its own."""


@contextmanager
def faulty_proxy(target: str, log: Path, **options: object) -> Iterator[str]:
    """The URL of a proxy in a process of its own, with these options; its lines go to ``log``."""
    command = [sys.executable, "-m", "tests.support.servers.faulty_proxy", target]
    command += [f"--{name}={value}" for name, value in options.items() if value is not None]
    with log.open("wb") as lines:
        proxy = subprocess.Popen(command, stdout=lines, cwd=Path(__file__).parents[3], env=os.environ)
    try:
        until = time.monotonic() + 60
        while not (text := log.read_text()).endswith("\n") or not text.split("\n", 1)[0].isdigit():
            if proxy.poll() is not None or time.monotonic() > until:
                raise RuntimeError("the proxy did not start")
            time.sleep(0.05)
        yield f"http://127.0.0.1:{text.split(chr(10), 1)[0]}"
    finally:
        proxy.kill()
        proxy.wait()


def requests_in(log: Path) -> list[Request]:
    """The requests that a proxy has logged so far."""
    return [tuple(json.loads(line)) for line in log.read_text().splitlines()[1:]]


SLOW_SECONDS = 1.5
"""So long takes an answer of a slow store: much longer than all else that a batch does."""


def slow_after_first(switch: Path, last: int) -> Callable[[Any], None]:
    """What notes the reports of a job, and makes the store slow from the first batch, which also opens the
    snapshot, to the last one.
    """

    def note(report: Any) -> None:
        switch.write_text("ok" if report.batch == last else f"slow {SLOW_SECONDS}")

    return note


def between_commits(requests: Sequence[Request], batches: Sequence[int]) -> list[list[Request]]:
    """The requests of a job from one commit to the next, the end of which they include."""
    return [
        [one for one in requests if before[5] <= one[4] and one[5] <= after[5]]
        for before, after in pairwise(_commit(requests, batch) for batch in batches)
    ]


def answers_between_commits(requests: Sequence[Request], batches: Sequence[int]) -> list[int]:
    """How many answers of a slow store fit into the time from one commit of a job to the next."""
    ends = [_commit(requests, batch)[5] for batch in batches]
    return [int((after - before) / SLOW_SECONDS) for before, after in pairwise(ends)]


def _commit(requests: Sequence[Request], batch: int) -> Request:
    return next(one for one in requests if one[1] == "PUT" and one[2].endswith(f"/_commits/{batch}.json"))


def waited_for(requests: Sequence[Request]) -> int:
    """The length of the longest chain of these requests of a job, of those that a batch waits for."""
    count, end = 0, 0.0
    for _, verb, path, _, began, ended in sorted(requests, key=lambda one: one[5]):
        if not _is_behind(verb, path) and began >= end:
            count, end = count + 1, ended
    return count


def _is_behind(verb: str, path: str) -> bool:
    """Whether a request is of what a batch does not wait for: the planner and the watch of revisions list,
    the lease is renewed, what a batch no longer needs is deleted, the batch before is shown in the tables,
    the accounting is written now and then, and Spark's checkpoint is kept while the batch is matched.
    """
    is_look = "list-type" in path or path.endswith("?delete") or (verb == "HEAD" and ".parquet" in path)
    return is_look or any(part in path for part in _BEHIND)


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("target")
    options.add_argument("--rate", type=float, default=0.0)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--switch", type=Path)
    options.add_argument("--delay", type=float, default=0.0)
    given = options.parse_args()
    server = Proxy(given.target, given.rate, given.seed, given.switch, given.delay)
    print(server.server_port, flush=True)
    server.serve_forever()
