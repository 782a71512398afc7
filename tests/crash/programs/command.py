"""`selectroute serve` as a process of its own, and a plain client that hides nothing of what it is told."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

ROOT = Path(__file__).parents[3]
SUBSCRIPTIONS = "/v1/subscriptions"
LOST = (http.client.HTTPException, OSError)
"""What a request raises whose server went away: whether it was done, nobody knows."""

_ANSWER_SECONDS = 120.0
_IDLE_SECONDS = 2.0  # the service closes a connection that is idle for five
_PROBLEM = "application/problem+json"
_WORK_SECONDS = 120.0  # what is done between two kills takes far less
_INSTANT_SECONDS = 0.02


@dataclass(frozen=True)
class Answer:
    """What came back; `data` is its JSON, None without a body."""

    status: int
    headers: Mapping[str, str]
    data: Any

    @property
    def revision(self) -> int:
        """The revision that its ETag names."""
        return int(self.headers["etag"].strip('"'))

    def problem(self, status: int, kind: str) -> Any:
        """Check that this is that problem document; returns it. Raises AssertionError."""
        assert self.status == status, f"{self.status} instead of {status}: {self.data}"
        assert self.headers["content-type"] == _PROBLEM, self.headers
        assert self.data["status"] == status and self.data["title"] and self.data["detail"], self.data
        assert self.data["type"] == f"urn:selectroute:problem:{kind}", self.data
        return self.data


class Connection:
    """One connection to a service, opened when it is needed. For one thread."""

    def __init__(self, url: str) -> None:
        host, _, port = url.removeprefix("http://").partition(":")
        self._client = http.client.HTTPConnection(host, int(port), timeout=_ANSWER_SECONDS)
        self._used = 0.0

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        """Send one request, once. ``if_match`` is the header If-Match; a body of bytes is sent as it is.

        Raises one of `LOST`.
        """
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        if body is not None and not isinstance(body, bytes):
            patch = method == "PATCH"
            given["content-type"] = "application/merge-patch+json" if patch else "application/json"
            body = json.dumps(body).encode()
        if time.monotonic() - self._used > _IDLE_SECONDS:
            self.close()
        try:
            if self._client.sock is None:
                self._client.connect()
                # A head and a body are two writes: the second one must not wait for an acknowledgement.
                self._client.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._client.request(method, path, body, given)
            answer = self._client.getresponse()
            content = answer.read()
        except BaseException:
            self.close()
            raise
        self._used = time.monotonic()
        found = {name.lower(): value for name, value in answer.getheaders()}
        return Answer(answer.status, found, json.loads(content) if content else None)

    def close(self) -> None:
        """Close it; the next request opens it again."""
        self._client.close()


@dataclass(frozen=True)
class Service:
    """A service that runs: where it answers, and its process."""

    url: str
    pid: int


@contextmanager
def command(
    registry: str, folder: Path, *options: str, environment: Mapping[str, str] | None = None
) -> Iterator[Service]:
    """`selectroute serve` on a port that is free, as a user starts it, until the block ends.

    What it logs goes to ``folder/serve.log``. Raises AssertionError if it does not answer, or fails.
    """
    log = folder / "serve.log"
    given = [sys.executable, "-m", "selectroute", "serve", "--registry", registry, "--port", "0", *options]
    with log.open("ab") as said:
        start = said.tell()
        process = subprocess.Popen(given, stderr=said, env=_environment(folder, environment or {}))
    try:
        yield Service(_announced(process, log, start), process.pid)
    finally:
        process.terminate()
        code = process.wait()
    assert code == 0, f"the service ended with {code}: see {log}"


def _announced(process: subprocess.Popen[bytes], log: Path, start: int) -> str:
    """The URL that the process says it answers at."""
    while True:
        lines = log.read_bytes()[start:].splitlines()
        for line in lines:
            if line.startswith(b"selectroute: http://"):
                return line.split()[1].decode()
        assert process.poll() is None, f"no service: {b' '.join(lines[-3:]).decode(errors='replace')}"
        time.sleep(0.02)


def _environment(folder: Path, more: Mapping[str, str]) -> dict[str, str]:
    """Without what somebody told the commands on this machine, and with the modules of this checkout."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SELECTROUTE_")}
    modules = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    return {**kept, "PYTHONPATH": modules, "XDG_CONFIG_HOME": str(folder), **more}


def wait_until(holds: Any, seconds: float, what: str) -> None:
    """Wait for something that must come. Raises AssertionError if it does not."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(0.01)


def let_work(done: Callable[[], int], most: int, runs: Callable[[], bool], chance: Random) -> None:
    """Wait for a random instant before so much more is done, or until it does not run any more.

    What is waited for is work and not time: a slow machine does as much between two kills as a fast one.
    """
    wanted = done() + chance.randrange(most)
    wait_until(lambda: done() >= wanted or not runs(), _WORK_SECONDS, f"{wanted} done")
    time.sleep(chance.random() * _INSTANT_SECONDS)  # in the middle of something, too


class Threads:
    """Threads that all run to their end; the first error of any of them is raised when they are joined."""

    def __init__(self) -> None:
        self._threads: list[threading.Thread] = []
        self._errors: list[BaseException] = []

    def start(self, target: Any, *given: Any) -> None:
        """Run a function in a thread of its own."""

        def run() -> None:
            try:
                target(*given)
            except BaseException as error:
                self._errors.append(error)

        # Whoever joins them waits for them; when something else failed first, nobody does.
        self._threads.append(threading.Thread(target=run, daemon=True))
        self._threads[-1].start()

    @property
    def failed(self) -> bool:
        """Whether one of them raised."""
        return bool(self._errors)

    def join(self) -> None:
        """Wait for all. Raises what one of them raised."""
        for one in self._threads:
            one.join()
        if self._errors:
            raise self._errors[0]
