"""What is raised where an invariant does not hold."""

from __future__ import annotations

from selectroute.index.errors import SnapshotError


class InvariantError(SnapshotError):
    """An invariant that does not hold: damage that a checksum did not show, or an error of this package."""


def require(holds: object, sentence: str) -> None:
    """Raise `InvariantError` with the sentence unless it holds."""
    if not holds:
        raise InvariantError(f"invariant broken: {sentence}")
