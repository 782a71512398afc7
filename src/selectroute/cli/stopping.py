"""Ctrl-C and SIGTERM: they interrupt a command, or ask it to end after the work in hand."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Final, NoReturn

from selectroute.service.stopping import Stop

INTERRUPTED: Final = 128 + signal.SIGINT
"""The exit code of a command that Ctrl-C interrupted, as a shell has it."""

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class Interrupted(SystemExit):
    """End of a command by Ctrl-C. No KeyboardInterrupt: click makes an exit code of its own of that."""


def interruptible() -> None:
    """Let Ctrl-C end this process with one line and exit code 130, from now on. For the main thread."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, _interrupt)


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # what is left undone by then is cleaned up undisturbed
    raise Interrupted(INTERRUPTED)


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
