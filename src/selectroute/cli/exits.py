"""Ends of commands: exit codes, and what Ctrl-C and SIGTERM do."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Final

from selectroute.selector.errors import InvalidSelectorError, SelectRouteError
from selectroute.service.stopping import Stop, handled

FAILURE: Final = 1
"""No match, or any failure without another code."""

USAGE: Final = 2
"""Invalid command line."""

NOT_FOUND: Final = 3
"""Missing file, subscription, queue or snapshot."""

CONFLICT: Final = 4
"""Conflict: a name that is taken, a stale revision, another job."""

INVALID_SELECTOR: Final = 5
"""Invalid selector."""

EPILOG: Final = (
    "A registry is named by --registry, SELECTROUTE_REGISTRY, or `registry` in "
    "~/.config/selectroute/config.toml: a database, sqlite:///PATH or postgresql+psycopg://USER@HOST/DB, or "
    "a service, http://HOST:PORT, whose token is in SELECTROUTE_TOKEN.\n\n"
    "Exit codes: 0 success; 1 no match, or a failure; 2 wrong usage; 3 not found; 4 conflict (a name that "
    "is taken, a stale revision, another job); 5 invalid selector; 130 interrupted."
)
"""End of the help of `selectroute`."""

_OF_REASONS: Final = {
    2085: NOT_FOUND,  # no such queue
    2100: CONFLICT,  # it exists
    2055: CONFLICT,  # it has messages
    2053: CONFLICT,  # it is full
    2459: INVALID_SELECTOR,
    2519: INVALID_SELECTOR,
    2551: INVALID_SELECTOR,
}
"""Exit codes of reason codes; any other reason, such as 2033 for no message, is a failure."""


def exit_code(error: SelectRouteError) -> int:
    """Return the exit code of a command that ends by this error."""
    # Imported here because it loads Arrow, which most commands do not need.
    from selectroute.index.errors import RevisionExistsError, SnapshotNotFoundError, UnknownSubscriptionError
    from selectroute.queues.errors import CountChangedError, MQError
    from selectroute.queues.rest.lookup import RestError
    from selectroute.registry import errors as registry_errors
    from selectroute.storage.protocol import NoBucketError
    from selectroute.store.errors import NoDatabaseError

    while isinstance(cause := getattr(error, "cause", None), SelectRouteError):
        error = cause  # of a line or an operation
    if isinstance(error, MQError):
        return _OF_REASONS.get(error.reason, FAILURE)
    codes: dict[tuple[type[SelectRouteError], ...], int] = {
        (InvalidSelectorError,): INVALID_SELECTOR,
        (RestError,): USAGE,
        (SnapshotNotFoundError, UnknownSubscriptionError): NOT_FOUND,
        (registry_errors.NotFoundError, NoDatabaseError, NoBucketError): NOT_FOUND,
        (RevisionExistsError, registry_errors.NameTakenError, registry_errors.IdTakenError): CONFLICT,
        (CountChangedError,): CONFLICT,
        (registry_errors.StaleRevisionError, registry_errors.IdempotencyConflictError): CONFLICT,
    }
    if "selectroute.spark.job" in sys.modules:  # otherwise it is not an error of a job
        from selectroute.spark import DestinationNotFoundError, OtherJobError, SourceNotFoundError
        from selectroute.spark.job import JobNotFoundError, MessageNotFoundError

        codes[JobNotFoundError, MessageNotFoundError] = NOT_FOUND
        codes[SourceNotFoundError, DestinationNotFoundError] = NOT_FOUND
        codes[OtherJobError,] = CONFLICT
    return next((code for kinds, code in codes.items() if isinstance(error, kinds)), FAILURE)


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
