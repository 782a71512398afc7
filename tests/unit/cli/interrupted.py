"""A command at a terminal of its own, at which somebody types Ctrl-C.

The terminal is the controlling one of a session of its own, so that Ctrl-C reaches every process of the
command, Spark's Java too, as it does in a shell.
"""

from __future__ import annotations

import errno
import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
SECONDS = 300.0
TOOL = (sys.executable, "-m", "selectroute")


class AtTerminal:
    """A command that runs, and all that its terminal shows."""

    def __init__(self, folder: Path, *arguments: Any, command: Sequence[str] = TOOL, **environment: str):
        source = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH")]))
        kept = {name: value for name, value in os.environ.items() if not name.startswith("SELECTROUTE_")}
        cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")  # compiled kernels
        own = {"HOME": str(folder), "XDG_CACHE_HOME": cache, "TERM": "xterm"}
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.process = subprocess.Popen(
            [*command, *map(str, arguments)],
            cwd=folder,
            env={**kept, "PYTHONPATH": source, **own, **environment},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # no threads are started
        )
        os.close(theirs)
        self._ours = ours
        self._shown = bytearray()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    @property
    def shown(self) -> str:
        """All that the terminal shows so far."""
        return self._shown.decode(errors="replace").replace("\r\n", "\n")

    def until(self, what: str | Callable[[], bool]) -> None:
        """Wait until a text is shown, or something else holds."""
        holds = what if callable(what) else lambda: what in self.shown
        deadline = time.monotonic() + SECONDS
        while not holds():
            assert self.process.poll() is None, self.shown
            assert time.monotonic() < deadline, self.shown
            time.sleep(0.01)

    def type_ctrl_c(self) -> None:
        """Type Ctrl-C: SIGINT to each process at this terminal."""
        os.write(self._ours, b"\x03")

    def terminate(self) -> None:
        """Send SIGTERM to the command alone, as `kill` and service managers do."""
        self.process.send_signal(signal.SIGTERM)

    def ended(self) -> int:
        """Wait for the end; return the exit code. Nothing that was shown may be a traceback."""
        code = self.process.wait(SECONDS)
        self._listener.join(SECONDS)
        for words in ("Traceback", "py4j", "Exception in thread", "KeyboardInterrupt"):
            assert words not in self.shown, self.shown
        return code

    def close(self) -> None:
        """End it if it is still there, with what it started."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._listener.join(SECONDS)
        os.close(self._ours)

    def _listen(self) -> None:
        while True:
            try:
                data = os.read(self._ours, 65_536)
            except OSError as error:  # the last process at the terminal is gone
                assert error.errno in (errno.EIO, errno.EBADF), error
                return
            if not data:
                return
            self._shown += data
