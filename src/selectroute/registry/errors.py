"""Errors of the registry; those of its database are in ``selectroute.store.errors``."""

from __future__ import annotations

from collections.abc import Iterable

from selectroute.index.errors import MAX_REPORTED, LineProblem
from selectroute.index.errors import RegistryError as RegistryError
from selectroute.selector.errors import SelectRouteError
from selectroute.store.errors import BusyError as BusyError
from selectroute.store.errors import DamagedError as DamagedError
from selectroute.store.errors import ReadOnlyError as ReadOnlyError
from selectroute.store.errors import StoreError as StoreError
from selectroute.store.errors import UnavailableError as UnavailableError


class NotFoundError(RegistryError):
    """Missing subscription, query or token."""


class NameTakenError(RegistryError):
    """Name that another subscription has."""


class IdTakenError(RegistryError):
    """Id that another subscription has."""


class StaleRevisionError(RegistryError):
    """Subscription that changed since it was read: a change expected one revision and found another."""

    def __init__(self, id: str, expected: int, actual: int) -> None:
        super().__init__(f"subscription {id!r} is at revision {actual}, not {expected}: read it again")
        self.id = id
        self.expected = expected
        self.actual = actual


class IdempotencyConflictError(RegistryError):
    """Idempotency key that was used before with a different request."""


class TooLargeError(RegistryError):
    """Input over a size limit: lines of an import, characters of a line."""


class TooCostlyError(RegistryError):
    """Selectors whose expansion exceeds the limit of one import or batch; see `Budget`."""


class AuthError(RegistryError):
    """Secret that does not belong to a token."""


class ForbiddenError(RegistryError):
    """Topic filter or destination that the caller may not use.

    `pointer` is its JSON pointer (RFC 6901), `sentence` says what is permitted.
    """

    def __init__(self, pointer: str, sentence: str) -> None:
        super().__init__(sentence)
        self.pointer = pointer
        self.sentence = sentence


class PublishError(RegistryError):
    """Snapshot folder of another registry, or with another active publisher."""


class OtherPublisherError(PublishError):
    """Another process publishes to the folder."""


class ImportLineError(RegistryError):
    """Invalid lines of an import; `line` is the first, counted from 1, and `cause` is its error.

    ``problems`` has the first `MAX_REPORTED` of these lines, beginning with `line`; there may be more.
    """

    def __init__(self, line: int, cause: SelectRouteError, others: Iterable[LineProblem] = ()) -> None:
        self.line = line
        self.cause = cause
        self.problems = (LineProblem(line, cause), *others)[:MAX_REPORTED]
        super().__init__("\n".join(f"line {problem.line:,}: {problem.cause}" for problem in self.problems))

    @classmethod
    def of(cls, problems: Iterable[LineProblem]) -> ImportLineError:
        """Return the error of one or more problems, in any order."""
        first, *others = sorted(problems, key=lambda problem: problem.line)
        return cls(first.line, first.cause, others)


class OperationError(RegistryError):
    """Error of one of several operations; `index` counts from 0, and `cause` is its error."""

    def __init__(self, index: int, cause: SelectRouteError) -> None:
        super().__init__(f"operation {index}: {cause}")
        self.index = index
        self.cause = cause
