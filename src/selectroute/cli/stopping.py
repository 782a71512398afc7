"""Ctrl-C and SIGTERM: interrupt a command, or ask it to end after the current work."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Final, NoReturn

from selectroute.service.stopping import Stop, handled

INTERRUPTED: Final = 128 + signal.SIGINT
"""Exit code of a command interrupted by Ctrl-C, as in a shell."""


class Interrupted(SystemExit):
    """End of a command by Ctrl-C. Not a KeyboardInterrupt, for which click has another exit code."""


def interruptible() -> None:
    """Make Ctrl-C end this process with one line and exit code 130. Only in the main thread."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, _interrupt)


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # so that cleanup is not interrupted
    raise Interrupted(INTERRUPTED)


@contextmanager
def stopping(line: str) -> Iterator[Stop]:
    """Handle SIGINT and SIGTERM as requests to end; write this line to standard error at the first one."""

    def say() -> None:
        with suppress(OSError, ValueError):  # standard error is closed
            # A handler may run within a write to `sys.stderr`, which can't be entered twice.
            os.write(sys.stderr.fileno(), f"{line}\n".encode())

    stop = Stop(say)
    with handled(stop.handle):
        yield stop
