"""Processes of servers on this machine, which end with the process that started them, and ports for them."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

# The shell ends with the server, or ends it: its input ends with the process that started it.
_GUARDED = """
exec 3<&0
"$@" >>"$SERVER_LOG" 2>&1 3<&- & server=$!
echo $server
{ read -r _ <&3; kill $server; } & reader=$!
wait $server; code=$?
kill $reader 2>/dev/null
exit $code
"""


class ServerError(Exception):
    """Failed start of a server. The text is the last line of its log."""


class Server:
    """Process of a server, whose output is appended to a file.

    Attributes:
        log: the file.
        pid: process id of the newest start, which may have ended; 0 before the first.
    """

    def __init__(
        self, log: Path, command: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> None:
        self.log = log
        self.pid = 0
        self._command = command
        self._environment = environment
        self._guard: subprocess.Popen[str] | None = None

    def start(self, serves: Callable[[], bool], seconds: float = 300.0) -> None:
        """Start the process, and wait until it serves.

        Raises:
            ServerError: it ended, or does not serve within these seconds; it is stopped.
        """
        self._launch()
        self.wait(serves, seconds)

    def wait(self, serves: Callable[[], bool], seconds: float = 300.0) -> None:
        """Wait until it serves.

        Raises:
            ServerError: it ended, or does not serve within these seconds; it is stopped.
        """
        deadline = time.monotonic() + seconds
        while self.is_alive() and time.monotonic() < deadline:
            if serves():
                return
            time.sleep(0.1)
        self.stop()
        lines = self.log.read_text(errors="replace").strip().splitlines() or [f"the log {self.log} is empty"]
        raise ServerError(lines[-1])

    def _launch(self) -> None:
        self.log.touch()
        self._guard = subprocess.Popen(
            ["sh", "-c", _GUARDED, "sh", *self._command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # shells report signals there
            text=True,
            env={**(self._environment or os.environ), "SERVER_LOG": str(self.log)},
            start_new_session=True,
        )
        assert self._guard.stdout is not None
        self.pid = int(self._guard.stdout.readline())

    def is_alive(self) -> bool:
        """Return whether the process runs."""
        return self._guard is not None and self._guard.poll() is None

    def stop(self, seconds: float = 300.0) -> None:
        """End the process with SIGTERM, and wait for its end. Idempotent."""
        if self._guard is not None and self._guard.stdin is not None:
            self._guard.stdin.close()
            self._guard.wait(seconds)
        self._guard = None

    def kill(self) -> None:
        """Kill the process with SIGKILL."""
        if self.is_alive():
            os.kill(self.pid, signal.SIGKILL)
        self.stop()


def free_ports(count: int) -> list[int]:
    """Return free ports below the ephemeral range, so that a stopped server does not lose its own."""
    ports: list[int] = []
    while len(ports) < count:
        port = random.randrange(20_000, 32_000)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            if port not in ports:
                ports.append(port)
    return ports
