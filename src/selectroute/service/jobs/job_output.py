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
        self, wanted: Wanted, skip: int, limit: int, left_only: bool = False
    ) -> Sequence[Mapping[str, Any]]:
        """Return the letters that a filter finds, those of the newest batch first: ``batch``, ``stage``,
        ``reason``, ``message``, ``source``, ``partition``, ``offset``, ``revision``, ``subscription``, and
        ``raw``, the bytes or None, of a Kafka record also its ``headers``. With ``left_only`` those that
        no replay took.
        """

    def left(self, wanted: Wanted) -> Sequence[LettersLeft]:
        """Return the numbers of those that no replay took, by batch, the newest first."""

    def waiting(self) -> Sequence[str]:
        """Return the ids of the requests for a replay that wait for the job."""

    def replay(self, wanted: Wanted, expected: int) -> tuple[str | None, int]:
        """File a request to replay those that a filter finds, if they are as many as expected; return its id,
        or None, and their number.
        """

    def replayed(self, id: str) -> Sequence[Mapping[str, Any]] | None:
        """Return the batches that came of a request, with their counts; None if it waits. Raises KeyError for
        an unknown request.
        """

    def audit(self) -> Mapping[str, Any]:
        """Return the totals of an audit, and its ``findings``, each with ``batch`` and ``sentence``."""
