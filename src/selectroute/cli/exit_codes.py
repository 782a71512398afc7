"""Exit codes of the commands; 0 is success."""

from __future__ import annotations

import sys
from typing import Final

from selectroute.selector.errors import InvalidSelectorError, SelectRouteError

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
