"""Errors of the index and its snapshots."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from selectroute.selector.errors import SelectRouteError


class DuplicateSubscriptionError(SelectRouteError):
    """A subscription of this id is registered already."""

    def __init__(self, subscription: str) -> None:
        super().__init__(f"subscription {subscription!r} exists already; use replace to change it")


class UnknownSubscriptionError(SelectRouteError):
    """No subscription of this id is registered."""

    def __init__(self, subscription: str) -> None:
        super().__init__(f"there is no subscription {subscription!r}")


class InvalidIdError(SelectRouteError):
    """An id that is not 1 to 128 of the characters ``A-Z a-z 0-9 . _ -``."""

    def __init__(self, subscription: str) -> None:
        shown = subscription if len(subscription) <= 40 else f"{subscription[:40]}…"
        super().__init__(f"{shown!r} is no subscription id: 1 to 128 of A-Z a-z 0-9 . _ - are")


class DestinationError(SelectRouteError):
    """A destination to which nothing can be delivered."""


MAX_REPORTED: Final = 20
"""Errors of one input that are described; the others are counted."""


class BuildError(SelectRouteError):
    """Subscriptions that cannot be built. ``row``, from 0, is the first of them, ``cause`` its error.

    ``causes`` has the errors of the first `MAX_REPORTED` of them by their rows, in ascending order; ``count``
    is how many there are in all. ``id`` is the id of the first, None if it has none.
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
        # An error that is about the id shows it itself.
        named = id is not None and not isinstance(cause, InvalidIdError | DuplicateSubscriptionError)
        super().__init__(f"subscription {f'{id!r} (row {row:,})' if named else f'in row {row:,}'}: {cause}")


class SnapshotError(SelectRouteError):
    """A snapshot that is missing, damaged, of another format, or in the way. The message says what to do."""


class SnapshotNotFoundError(SnapshotError):
    """There is no such snapshot."""


class RevisionExistsError(SnapshotError):
    """Revision is published already, and a published one is never changed."""


class RegistrationError(SelectRouteError):
    """A line of subscriptions that cannot be read; the message names the line."""


class LineProblem(NamedTuple):
    """A line, from 1, that is no subscription: its error, and the subscription's id if that much is known."""

    line: int
    cause: SelectRouteError
    subscription: str | None = None

    @property
    def sentence(self) -> str:
        """Error; one about a selector also names the subscription."""
        return (
            str(self.cause)
            if self.subscription is None
            else f"subscription {self.subscription!r}: {self.cause}"
        )


class InvalidLinesError(RegistrationError):
    """Lines that are no subscriptions: the first `MAX_REPORTED` of them in ``problems``, ``count`` in all."""

    def __init__(self, problems: Sequence[LineProblem], count: int) -> None:
        self.problems = tuple(problems)
        self.count = count
        super().__init__("\n".join(f"line {one.line:,}: {one.sentence}" for one in self.problems))


class InvariantError(SnapshotError):
    """An invariant that does not hold: damage that a checksum did not show, or an error of this package."""


def require(holds: object, sentence: str) -> None:
    """Raise `InvariantError` with the sentence unless it holds."""
    if not holds:
        raise InvariantError(f"invariant broken: {sentence}")
