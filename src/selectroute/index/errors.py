"""Errors of the index and its snapshots."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from selectroute.selector.errors import SelectRouteError, shown


class DuplicateSubscriptionError(SelectRouteError):
    """Id of a subscription that is registered already."""

    def __init__(self, subscription: str) -> None:
        super().__init__(f"subscription {subscription!r} exists already; use replace to change it")


class UnknownSubscriptionError(SelectRouteError):
    """Id without a registered subscription."""

    def __init__(self, subscription: str) -> None:
        super().__init__(f"there is no subscription {subscription!r}")


class InvalidIdError(SelectRouteError):
    """Id that is not 1 to 128 of the characters ``A-Z a-z 0-9 . _ -``."""

    def __init__(self, subscription: str) -> None:
        shown = subscription if len(subscription) <= 40 else f"{subscription[:40]}…"
        super().__init__(f"{shown!r} is not a valid subscription id: use 1 to 128 of A-Z a-z 0-9 . _ -")


class DestinationError(SelectRouteError):
    """Invalid destination."""


MAX_REPORTED: Final = 20
"""Maximum errors of one input that are described; the others are only counted."""


class BuildError(SelectRouteError):
    """Invalid subscriptions in a bulk build. ``row``, from 0, is the first of them, ``cause`` its error.

    ``causes`` has the errors of the first `MAX_REPORTED` by row, ascending; ``count`` is the number of all.
    ``id`` is the id of the first, None if it has none.
    """

    def __init__(
        self,
        row: int,
        cause: SelectRouteError,
        causes: dict[int, SelectRouteError] | None = None,
        count: int = 1,
        id: str | None = None,
    ) -> None:
        self.row = row
        self.cause = cause
        self.causes = causes or {row: cause}
        self.count = count
        self.id = id
        # An error about the id shows the id itself.
        named = id is not None and not isinstance(cause, InvalidIdError | DuplicateSubscriptionError)
        super().__init__(f"subscription {f'{id!r} (row {row:,})' if named else f'in row {row:,}'}: {cause}")

    def moved(self, rows: int) -> BuildError:
        """Return the error of a part of a table that begins so many rows after its first one."""
        causes = {row + rows: cause for row, cause in self.causes.items()}
        return BuildError(self.row + rows, self.cause, causes, self.count, self.id)


class SnapshotError(SelectRouteError):
    """Snapshot that is missing, damaged, of another format, or in the way. The message says what to do."""


class SnapshotNotFoundError(SnapshotError):
    """Missing snapshot."""


class RevisionExistsError(SnapshotError):
    """Revision that is published already: published revisions never change."""


class RegistrationError(SelectRouteError):
    """Invalid line of subscriptions; the message names the line."""


class RegistryError(SelectRouteError):
    """Base of the errors of a registry and its subscriptions. Nothing was stored."""


class InvalidSpecError(RegistryError):
    """Invalid field: `pointer` is its JSON pointer (RFC 6901), `sentence` says what is expected."""

    def __init__(self, pointer: str, sentence: str) -> None:
        super().__init__(f"{shown(pointer)}: {sentence}" if pointer else sentence)
        self.pointer = pointer
        self.sentence = sentence


class LineProblem(NamedTuple):
    """Invalid line, from 1: its error, and the id of the subscription if it is known."""

    line: int
    cause: SelectRouteError
    subscription: str | None = None

    @property
    def sentence(self) -> str:
        """Text of the error; one about a selector also names the subscription."""
        return (
            str(self.cause)
            if self.subscription is None
            else f"subscription {self.subscription!r}: {self.cause}"
        )


class InvalidLinesError(RegistrationError):
    """Invalid lines: the first `MAX_REPORTED` in ``problems``, ``count`` in all."""

    def __init__(self, problems: Sequence[LineProblem], count: int) -> None:
        self.problems = tuple(problems)
        self.count = count
        super().__init__("\n".join(f"line {problem.line:,}: {problem.sentence}" for problem in self.problems))


class InvariantError(SnapshotError):
    """Broken invariant: damage that a checksum did not show, or a bug of this package."""


def require(holds: object, sentence: str) -> None:
    """Raise `InvariantError` with the sentence unless it holds."""
    if not holds:
        raise InvariantError(f"invariant broken: {sentence}")
