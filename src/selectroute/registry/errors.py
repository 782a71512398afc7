"""Errors of the registry; those of its database are in ``selectroute.store.errors``."""

from __future__ import annotations

from collections.abc import Iterable

from selectroute.index.errors import MAX_REPORTED, LineProblem
from selectroute.selector.errors import SelectRouteError
from selectroute.store.errors import BusyError, DamagedError, ReadOnlyError, StoreError, UnavailableError

__all__ = [
    "AuthError",
    "BusyError",
    "DamagedError",
    "ForbiddenError",
    "IdTakenError",
    "IdempotencyConflictError",
    "ImportLineError",
    "InvalidSpecError",
    "NameTakenError",
    "NotFoundError",
    "OperationError",
    "PublishError",
    "ReadOnlyError",
    "RegistryError",
    "StaleRevisionError",
    "StoreError",
    "TooCostlyError",
    "TooLargeError",
    "UnavailableError",
]


class RegistryError(SelectRouteError):
    """Base of what the registry refuses. Nothing was stored."""


class NotFoundError(RegistryError):
    """There is no such subscription, query or token."""


class NameTakenError(RegistryError):
    """Another subscription has this name."""


class IdTakenError(RegistryError):
    """Another subscription has this id."""


class StaleRevisionError(RegistryError):
    """Subscription was changed since it was read: a change expected one revision and found another."""

    def __init__(self, id: str, expected: int, found: int) -> None:
        super().__init__(f"subscription {id!r} is at revision {found}, not {expected}: read it again")
        self.id = id
        self.expected = expected
        self.found = found


class IdempotencyConflictError(RegistryError):
    """Key of a request that was made before, with another request."""


class InvalidSpecError(RegistryError):
    """A field that cannot be: `pointer` is its place (RFC 6901), `sentence` says what is expected there."""

    def __init__(self, pointer: str, sentence: str) -> None:
        super().__init__(f"{pointer}: {sentence}" if pointer else sentence)
        self.pointer = pointer
        self.sentence = sentence


class TooLargeError(RegistryError):
    """More than is taken at once: lines of an import, characters of a line."""


class TooCostlyError(RegistryError):
    """Selectors that multiply out to more than one import or batch may have; see `Budget`."""


class AuthError(RegistryError):
    """A secret that is no token's."""


class ForbiddenError(RegistryError):
    """A topic filter or destination that the caller may not use: `pointer` is its place (RFC 6901),
    `sentence` says what is permitted.
    """

    def __init__(self, pointer: str, sentence: str) -> None:
        super().__init__(sentence)
        self.pointer = pointer
        self.sentence = sentence


class PublishError(RegistryError):
    """A snapshot folder that is not this registry's, or that somebody else publishes to."""


class ImportLineError(RegistryError):
    """Lines of an import that cannot be taken; `line` counts from 1, and `cause` says what is wrong there.

    ``problems`` has the first `MAX_REPORTED` of these lines, with `line` as its first; there may be more.
    """

    def __init__(self, line: int, cause: SelectRouteError, others: Iterable[LineProblem] = ()) -> None:
        self.line = line
        self.cause = cause
        self.problems = (LineProblem(line, cause), *others)[:MAX_REPORTED]
        super().__init__("\n".join(f"line {one.line:,}: {one.cause}" for one in self.problems))

    @classmethod
    def of(cls, problems: Iterable[LineProblem]) -> ImportLineError:
        """Return the error of one problem or more, in whatever order."""
        first, *others = sorted(problems, key=lambda one: one.line)
        return cls(first.line, first.cause, others)


class OperationError(RegistryError):
    """Error of one of several operations; `index` counts from 0, and `cause` says what is wrong."""

    def __init__(self, index: int, cause: SelectRouteError) -> None:
        super().__init__(f"operation {index}: {cause}")
        self.index = index
        self.cause = cause
