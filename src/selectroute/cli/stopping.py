"""Ctrl-C and SIGTERM: interrupt a command, or ask it to end after the current work."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Final

from selectroute.service.stopping import Stop, handled

INTERRUPTED: Final = 128 + signal.SIGINT
"""Exit code of a command interrupted by Ctrl-C, as in a shell."""


class Interrupted(SystemExit):
    """End of a command by Ctrl-C. Not a KeyboardInterrupt, for which click has another exit code."""


_AGAIN_SECONDS: Final = 0.1


def interruptible() -> None:
    """Make Ctrl-C end this process with one line and exit code 130. Only in the main thread."""
    if threading.current_thread() is threading.main_thread():
        sys.unraisablehook = _unraisable
        signal.signal(signal.SIGALRM, _interrupt)
        signal.signal(signal.SIGINT, _interrupt)


@contextmanager
def interruption_kept() -> Iterator[None]:
    """Raise `Interrupted` where a library has made another error of it; interrupt no more after the block."""
    try:
        yield
    except Exception as error:
        if signal.getitimer(signal.ITIMER_REAL) != (0.0, 0.0):
            raise Interrupted(INTERRUPTED) from error
        raise
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    """Interrupt what runs now, and again a little later unless cleanup has begun by then.

    An exception can be lost: Python discards it in finalisers and callbacks, and extension modules while they
    are imported.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # so that cleanup is not interrupted
    signal.setitimer(signal.ITIMER_REAL, _AGAIN_SECONDS)
    handled_now = sys.exception()
    while handled_now is not None:
        if isinstance(handled_now, Interrupted):
            return
        handled_now = handled_now.__context__
    raise Interrupted(INTERRUPTED)


def _unraisable(what: sys.UnraisableHookArgs) -> None:
    """Report an exception that Python discards, unless it is an interruption, which comes again."""
    if not isinstance(what.exc_value, Interrupted):
        sys.__unraisablehook__(what)


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
