"""`selectroute serve` as a process that is killed, and clients that hide nothing of what they are told."""

from __future__ import annotations

import http.client
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from selectroute.testing.broker import free_ports
from tests.crash.programs.harness import kill, start
from tests.support.waiting import wait_until

SUBSCRIPTIONS = "/v1/subscriptions"
LOST = (http.client.HTTPException, OSError)
"""What a request raises whose server went away: whether it was done, nobody knows."""

PRELOADED = ["selectroute.cli.commands.serve", "selectroute.service.server"]
"""What the process that services are forked off imports."""

_SECONDS = 120.0  # an answer, and a start, take far less
_IDLE_SECONDS = 2.0  # the service closes a connection that is idle for five


@dataclass(frozen=True)
class Answer:
    """What came back; `data` is its JSON, None without a body."""

    status: int
    headers: Mapping[str, str]
    data: Any

    @property
    def revision(self) -> int:
        return int(self.headers["etag"].strip('"'))

    def problem(self, status: int, kind: str) -> Any:
        """Check that this is that problem document; returns it. Raises AssertionError."""
        assert self.status == status, f"{self.status} instead of {status}: {self.data}"
        data = self.data["error"][0]["problem"] if "error" in self.data else self.data
        assert data["status"] == status and data["title"] and data["detail"], data
        assert data["type"] == f"urn:selectroute:problem:{kind}", data
        return data


class Connection:
    """One connection to a service, opened when it is needed. For one thread."""

    def __init__(self, url: str) -> None:
        self._client = http.client.HTTPConnection(url.removeprefix("http://"), timeout=_SECONDS)
        self._used = 0.0

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        """Send one request, once. ``if_match`` is the header If-Match; a body of bytes is sent as it is.

        Raises one of `LOST`.
        """
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        if body is not None and not isinstance(body, bytes):
            patch = method == "PATCH"
            headers["content-type"] = "application/merge-patch+json" if patch else "application/json"
            body = json.dumps(body).encode()
        if time.monotonic() - self._used > _IDLE_SECONDS:
            self.close()
        try:
            if self._client.sock is None:
                self._client.connect()
                # A head and a body are two writes: the second one must not wait for an acknowledgement.
                self._client.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._client.request(method, path, body, headers)
            answer = self._client.getresponse()
            content = answer.read()
        except BaseException:
            self.close()
            raise
        self._used = time.monotonic()
        got = {name.lower(): value for name, value in answer.getheaders()}
        return Answer(answer.status, got, json.loads(content) if content else None)

    def close(self) -> None:
        self._client.close()


class Threads:
    """Threads that all run to their end; who joins them gets the first error of any of them."""

    def __init__(self) -> None:
        self._threads: list[threading.Thread] = []
        self._errors: list[BaseException] = []

    def start(self, target: Callable[..., object], *arguments: Any) -> None:

        def run() -> None:
            try:
                target(*arguments)
            except BaseException as error:
                self._errors.append(error)

        # Nobody waits for them when something else has failed.
        self._threads.append(threading.Thread(target=run, daemon=True))
        self._threads[-1].start()

    @property
    def failed(self) -> bool:
        return bool(self._errors)

    def go_on(self) -> bool:
        """Whether one of them has not ended yet."""
        return any(thread.is_alive() for thread in self._threads)

    def join(self) -> None:
        """Wait for all, or for the first error, which is raised."""
        for thread in self._threads:
            while thread.is_alive() and not self._errors:
                thread.join(0.1)
        if self._errors:
            raise self._errors[0]


class Service:
    """A service on a database, which is started and killed again and again, and its clients.

    What it logs goes to ``serve.log`` in its folder, behind a name. `lines` is what its clients note.
    """

    def __init__(self, database: str, folder: Path, *options: str, name: str = "") -> None:
        self.log = folder / f"{name}serve.log"
        self.lines: list[dict[str, Any]] = []
        self._options = ["--registry", database, "--log-level", "warning", *options]
        self._ending = threading.Event()
        self._clients = Threads()

    def note(self, **line: Any) -> None:
        self.lines.append(line)

    def begin(self) -> None:
        port = free_ports(1)[0]
        self.url = f"http://127.0.0.1:{port}"
        self._process = start(_serve, [*self._options, "--port", str(port)], self.log)
        self.pid = self._process.pid
        self._ending, self._clients = threading.Event(), Threads()

    def start(self) -> None:
        self.begin()
        wait_until(lambda: self._answers() or not self._process.is_alive(), _SECONDS, f"start: {self.log}")
        assert self._process.is_alive(), f"the service ended by itself: see {self.log}"

    def start_client(self, target: Callable[..., object], *arguments: Any) -> None:
        """Run a client in a thread, until the service is killed."""

        def run() -> None:
            try:
                target(*arguments)
            except LOST:
                assert self._ending.is_set(), "the service broke a connection off that nobody killed"

        self._clients.start(run)

    def works(self) -> bool:
        """Whether the service goes on. Raises what a client raised."""
        if self._clients.failed:
            self._clients.join()
        return self._process.is_alive()

    def kill(self) -> None:
        """Kill the service. Raises AssertionError for an answer that should not be."""
        if self.works():
            self._ending.set()
            kill(self._process)
        self._clients.join()
        assert self._ending.is_set(), f"a service that nobody killed: see {self.log}"

    def stop(self) -> None:
        """End the service as its user does."""
        self._process.terminate()
        self._process.join(_SECONDS)
        code = self._process.exitcode
        if code is None:
            kill(self._process)
        assert code == 0, f"the service ended with {code}, or did not end: see {self.log}"

    def _answers(self) -> bool:
        connection = Connection(self.url)
        try:
            return connection.ask("GET", "/healthz").status == 200
        except LOST:
            return False
        finally:
            connection.close()


def _serve(options: Sequence[str], log: Path) -> None:
    """The command itself, in a process that need not import everything first, without what somebody told the
    commands on this machine.
    """
    for stream in (sys.stdout, sys.stderr):  # one that is left behind keeps no pipe open
        os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644), stream.fileno())
    for name in [name for name in os.environ if name.startswith("SELECTROUTE_")]:
        del os.environ[name]
    os.environ["XDG_CONFIG_HOME"] = str(log.parent)
    from selectroute.cli import main

    sys.argv = ["selectroute", "serve", *options]
    main()
