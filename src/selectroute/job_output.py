"""Output folder of a streaming job as a service sees it: its dead letters, their replays, and an audit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

Wanted = Mapping[str, Sequence[Any]]
"""Filter: for ``batches``, ``stages``, ``reasons``, ``subscriptions``, ``sources``, ``partitions`` and
``offsets`` the values that are wanted; none for any.
"""


@dataclass(frozen=True, slots=True)
class LettersLeft:
    """Number of dead letters of a batch, stage and reason that no replay took; a pending request covers
    ``asked`` of them.
    """

    batch: int
    stage: str
    reason: str
    letters: int
    asked: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterFacts:
    """Batch of a dead letter, below 0 for a side batch; why it failed, and where it comes from.

    ``offset`` is None for a whole file; ``subscription`` is that of a refused delivery only: other deliveries
    of the message are not affected. ``replay`` is the batch of the replay that took it; None if none did.
    """

    batch: int
    stage: str
    reason: str
    message: str
    source: str
    partition: int
    offset: int | None
    revision: int
    subscription: str | None
    replay: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter(LetterFacts):
    """Input or delivery that could not be read, judged or delivered.

    ``raw`` are the original bytes, possibly truncated; None if they are still in the source. Of a Kafka
    record they are the value; ``key`` and ``headers`` are the record's, too.
    """

    raw: bytes | None
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedBatch:
    """Batch of a replay; `missing` says which of its inputs were gone, and not replayed."""

    batch: int
    revision: int
    letters: int
    messages: int
    routed: int
    unrouted: int
    dead_lettered: int
    deliveries: int
    refused: int
    missing: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayProgress:
    """Request for a replay, and its batches so far.

    It is `running` while the job makes a batch of it, `batch`, or will finish one that was interrupted at its
    next start. `letters` is the number that was asked for; `taken` is the number of those that its batches
    took.
    """

    request: str
    done: bool
    state: Literal["waiting", "running", "done"]
    letters: int
    taken: int
    batch: int | None
    batches: list[ReplayedBatch]


@dataclass(frozen=True, slots=True)
class Finding:
    """Inconsistency found by an audit; the batch is null if it concerns no particular one."""

    batch: int | None
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditTotals:
    """Outcome of an audit: totals of the batches of the stream, batches to come, and findings; with `more`
    there are further ones.
    """

    batches: int
    backfills: int
    replays: int
    messages: int
    routed: int
    unrouted: int
    dead_lettered: int
    deliveries: int
    files: int
    bytes: int
    pending: list[int]
    findings: list[Finding]
    more: bool = False


class JobOutput(Protocol):
    """Output folder of one job: its dead letters, and an audit.

    A call may read all dead letters. It raises SelectRouteError or OSError for a folder that can't be read.
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
    ) -> Sequence[tuple[str, DeadLetter]]:
        """Return the dead letters that match a filter, newest commit first, each with its place.

        ``left_only`` excludes replayed letters, ``unasked_only`` letters that a pending request covers;
        ``after`` is the place to start after. Raises ValueError for an ``after`` that is not a place.
        """

    def left(self, wanted: Wanted) -> Sequence[LettersLeft]:
        """Return the numbers of letters that no replay took, by batch, newest commit first."""

    def all_left(self) -> Sequence[LettersLeft]:
        """Return the numbers of all letters that no replay took, as `left` but without ``asked``; the result
        may be cached.
        """

    def binding(self) -> Mapping[str, Any] | None:
        """Return the binding of Kafka records as data, with ``schemas``: whether bodies have schemas; None if
        it is not known.
        """

    def waiting(self) -> Sequence[str]:
        """Return the ids of the requests for a replay that wait for the job."""

    def replay(self, wanted: Wanted, expected: int) -> tuple[str | None, int]:
        """File a request to replay the letters that match a filter and that no pending request covers, if
        their number is the expected one; return the request's id or None, and the number.
        """

    def replayed(self, id: str) -> ReplayProgress:
        """Return the progress of a request. Raises KeyError for an unknown request."""

    def audit(self) -> AuditTotals:
        """Return the totals and all findings of an audit."""
