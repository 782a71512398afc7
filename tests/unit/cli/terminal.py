"""A command run with each of its three streams a terminal or not, each stream read apart.

Commands run in processes forked from one that has imported them, so that hundreds of runs take seconds.
"""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import pty
import struct
import sys
import tempfile
import termios
import threading
import tty
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import Any, NamedTuple

TIMEOUT_SECONDS = 120

PRELOADED = [
    "selectroute.cli",
    "selectroute.cli.settings",
    "selectroute.registry.registry",
    "selectroute.client.registry",
    __name__,
]


class Ran(NamedTuple):
    """What a command did: its exit code, and what it wrote to standard output and standard error."""

    code: int | None
    out: str
    err: str


def run(
    arguments: list[str],
    *,
    folder: Path,
    environment: dict[str, str] | None = None,
    terminals: str = "",
    stdin: bytes = b"",
    columns: int = 80,
) -> Ran:
    """Run a command in a folder; `terminals` names the streams that are terminals, of "in", "out" and "err".

    A terminal as standard input holds `stdin` and then its end (Ctrl-D).
    """
    context: Any = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    named = terminals.split()
    ends = [_End(name in named, columns) for name in ("in", "out", "err")]
    ends[0].feed(stdin)
    fds = [DupFd(one.theirs) for one in ends]
    process = context.Process(target=_child, args=(fds, arguments, str(folder), environment or {}))
    try:
        process.start()
        for one in ends:
            one.started()
        process.join(TIMEOUT_SECONDS)
        assert process.exitcode is not None, f"{arguments} goes on after {TIMEOUT_SECONDS} s"
    finally:
        if process.is_alive():
            process.kill()
            process.join()
        written = [one.finish() for one in ends]
    return Ran(process.exitcode, written[1], written[2])


class _End:
    """One stream of a command: a terminal with somebody at its other side, or a file."""

    def __init__(self, terminal: bool, columns: int) -> None:
        self._terminal = terminal
        self._read = bytearray()
        self._thread: threading.Thread | None = None
        if terminal:
            self._ours, self.theirs = pty.openpty()
            tty.setraw(self.theirs)  # lines end in \n, nothing is echoed
            mode = termios.tcgetattr(self.theirs)
            mode[3] |= termios.ICANON  # Ctrl-D is the end of what was typed
            termios.tcsetattr(self.theirs, termios.TCSANOW, mode)
            fcntl.ioctl(self.theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
            self._thread = threading.Thread(target=self._listen)
            self._thread.start()
        else:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115  # closed by finish()
            self.theirs = self._file.fileno()

    def feed(self, data: bytes) -> None:
        if self._terminal:
            ends = b"\x04" if not data or data.endswith(b"\n") else b"\x04\x04"  # the first ends the line
            os.write(self._ours, data + ends)
        else:
            self._file.write(data)
            self._file.seek(0)

    def started(self) -> None:
        """The command has the stream: ours is closed, so that its end is seen."""
        if self._terminal:
            os.close(self.theirs)

    def finish(self) -> str:
        if self._thread is not None:
            self._thread.join(10)
            os.close(self._ours)
            return self._read.decode()
        with self._file:
            self._file.seek(0)
            return self._file.read().decode()

    def _listen(self) -> None:
        while True:
            try:
                data = os.read(self._ours, 65536)
            except OSError:  # the other side is closed
                return
            if not data:
                return
            self._read += data


def _child(fds: list[Any], arguments: list[str], folder: str, environment: dict[str, str]) -> None:
    for number, fd in enumerate(fds):
        os.dup2(fd.detach(), number)
    for name in [name for name in os.environ if name.startswith("SELECTROUTE_")]:
        del os.environ[name]
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")  # compiled kernels
    own = {"HOME": folder, "XDG_CACHE_HOME": cache, "XDG_CONFIG_HOME": folder, "TERM": "xterm"}
    os.environ.update(own | environment)
    os.environ.pop("COLUMNS", None)
    os.chdir(folder)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115  # as the interpreter makes them
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False, buffering=1 if os.isatty(1) else -1)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", closefd=False, buffering=1)  # noqa: SIM115
    sys.argv = ["selectroute", *arguments]
    from selectroute.cli import main

    main()
