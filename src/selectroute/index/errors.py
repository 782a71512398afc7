"""What the index and its snapshots raise."""

from __future__ import annotations

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


class BuildError(SelectRouteError):
    """A subscription that cannot be built; ``row`` counts from 0, and ``cause`` says what is wrong."""

    def __init__(self, row: int, cause: SelectRouteError) -> None:
        self.row = row
        self.cause = cause
        super().__init__(f"subscription {row:,}: {cause}")


class SnapshotError(SelectRouteError):
    """A snapshot that is missing, damaged, of another format, or in the way. The message says what to do."""


class SnapshotNotFoundError(SnapshotError):
    """There is no such snapshot."""


class RevisionExistsError(SnapshotError):
    """The revision is published already, and a published one is never changed."""


class RegistrationError(SelectRouteError):
    """A line of subscriptions that cannot be read; the message names the line."""
