"""What Ctrl-C and SIGTERM do: they interrupt a command, and ask a service to end after the work in hand."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Final, NoReturn

INTERRUPTED: Final = 128 + signal.SIGINT
"""The exit code of a command that Ctrl-C interrupted, as a shell has it."""

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)

_ONE_REQUEST_SECONDS: Final = 1.0
"""A terminal signals the whole process group, and wrappers (`uv run`, `npm`, …) hand the signal on once more:
signals within this time are one request."""


class Interrupted(SystemExit):
    """The end of a command by Ctrl-C. No KeyboardInterrupt: click makes an exit code of its own of that."""


def interruptible() -> None:
    """Let Ctrl-C end this process with one line and exit code 130, from now on. For the main thread."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, _interrupt)


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # what is left undone by then is cleaned up undisturbed
    raise Interrupted(INTERRUPTED)


class Stop:
    """A request to end. `asked` says whether there was one, which also sets `event`; a second one ends the
    process at once.

    Ending at once loses nothing: a batch that was not committed is routed at the next start.
    """

    def __init__(self, on_first: Callable[[], None]) -> None:
        self._on_first = on_first
        self.at_once: Callable[[], None] = lambda: None
        """Called before the process ends at once."""
        self.event = threading.Event()
        self._first = 0.0

    def asked(self) -> bool:
        """Return whether the process was asked to end."""
        return self.event.is_set()

    def handle(self, number: int, _frame: FrameType | None) -> None:
        """Take a signal."""
        if not self.event.is_set():
            self._first = time.monotonic()
            self.event.set()
            self._on_first()
        elif time.monotonic() - self._first > _ONE_REQUEST_SECONDS:
            with suppress(Exception):  # nothing may keep it
                self.at_once()
            os._exit(128 + number)  # threads that wait for Spark would hold up any other end


@contextmanager
def stopping(line: str) -> Iterator[Stop]:
    """Take SIGINT and SIGTERM as requests to end, and write this line on standard error at the first one."""

    def say() -> None:
        with suppress(OSError, ValueError):  # nobody is there to read it
            # A handler may run within a write to `sys.stderr`, which can't be entered twice.
            os.write(sys.stderr.fileno(), f"{line}\n".encode())

    stop = Stop(say)
    before = {number: signal.signal(number, stop.handle) for number in _SIGNALS}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
