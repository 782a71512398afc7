"""Protocol for the output folder of a job: what a service asks of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

Wanted = Mapping[str, Sequence[Any]]
"""Filter: for ``batches``, ``stages``, ``reasons``, ``subscriptions``, ``sources``, ``partitions`` and
``offsets`` the values that are wanted; none for any.
"""


class LettersLeft(Protocol):
    """Number of dead letters of a batch, stage and reason that no replay took."""

    @property
    def asked(self) -> int:
        """Number of those of them that requests ask for which wait."""

    @property
    def batch(self) -> int:
        """Batch of the letters, below 0 for a backfill or replay."""

    @property
    def stage(self) -> str:
        """Stage at which they failed."""

    @property
    def reason(self) -> str:
        """Reason for which they failed."""

    @property
    def letters(self) -> int:
        """Number of letters."""


class JobOutput(Protocol):
    """Output folder of one job: its dead letters, and an audit.

    Each call may take as long as reading all of them. It raises SelectRouteError or OSError for a folder that
    can't be read.
    """

    def has_run(self) -> bool:
        """Return whether the job has been started."""

    def is_held(self) -> bool:
        """Return whether a driver runs the job now, which may take seconds; one may start meanwhile."""

    def letters(
        self,
        wanted: Wanted,
        limit: int,
        *,
        left_only: bool = False,
        unasked_only: bool = False,
        after: str | None = None,
    ) -> Sequence[Mapping[str, Any]]:
        """Return the letters that a filter finds, those of the newest commit first: ``batch``, ``stage``,
        ``reason``, ``message``, ``source``, ``partition``, ``offset``, ``revision``, ``subscription``,
        ``replay``, the batch of the replay that took it, or None, and ``raw``, the bytes or None, of a Kafka
        record also its ``key`` and ``headers``; and its ``place``, after which a later call begins. With
        ``left_only`` those that no replay took, with ``unasked_only`` those that no waiting request asks for.
        Raises ValueError for an ``after`` that is not a place.
        """

    def left(self, wanted: Wanted) -> Sequence[LettersLeft]:
        """Return the numbers of those that no replay took, by batch, that of the newest commit first."""

    def all_left(self) -> Sequence[LettersLeft]:
        """Return the numbers of all of them, as `left` but without what requests ask for, which may be
        remembered.
        """

    def binding(self) -> Mapping[str, Any] | None:
        """Return the binding of Kafka records as data, with ``schemas``: whether bodies have schemas; None if
        it is not known.
        """

    def waiting(self) -> Sequence[str]:
        """Return the ids of the requests for a replay that wait for the job."""

    def replay(self, wanted: Wanted, expected: int) -> tuple[str | None, int]:
        """File a request to replay those that a filter finds and no waiting request asks for, if they are as
        many as expected; return its id, or None, and their number.
        """

    def replayed(self, id: str) -> Mapping[str, Any]:
        """Return how far a request is: ``state``, which is waiting, running or done; ``letters`` that it asks
        for, or None; ``taken`` of them so far; ``batch``, the one that is being made, or None; and
        ``batches``, those that came of it, with their counts. Raises KeyError for an unknown request.
        """

    def audit(self) -> Mapping[str, Any]:
        """Return the totals of an audit, and its ``findings``, each with ``batch`` and ``sentence``."""
