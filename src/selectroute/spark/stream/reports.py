"""Reports of a stream, for people to look at: to a registry, and as metrics for Prometheus.

A registry gets a summary of each batch, signs of life, and a sample of its messages. Metrics are made of its
batches, and of Spark's progress reports. No label has content of a message: topics are those of the source
(Kafka's), reasons are a fixed list.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Literal

import pyarrow as pa

from selectroute.registry.model import MAX_SAMPLED, sampled_form, sampled_text, time_text
from selectroute.selector.errors import SelectRouteError
from selectroute.selector.message import Message
from selectroute.spark.batch.commits import Commits
from selectroute.spark.batch.router import BatchReport
from selectroute.spark.job import Job
from selectroute.spark.sources.source import Source
from selectroute.spark.tables.schemas import NUMBERS

if TYPE_CHECKING:
    from selectroute.client import StreamReports

if TYPE_CHECKING:
    from selectroute.client import StreamReports

LIFE_SECONDS: Final = 10.0
"""Interval of the signs of life of a stream without batches."""

_PAUSE_SECONDS: Final = 1.0
"""Shortest time between two reports: a stream may make many batches a second."""

_KEPT: Final = 1_000
"""Batches that wait for a registry that does not answer; older ones are left out."""

_AT_ONCE: Final = 40
"""Batches of one report: a service takes a body of 1 MiB, and a batch has 20 KB if it names a hundred
subscriptions with the longest ids.
"""

END_SECONDS: Final = 10.0
"""Longest time for the reports at the end of a job, beyond a request that is already on its way."""

_REASONS: Final = 50


Ending = Literal["ended", "stopped", "failed"]
"""How a stream ends: it has read all input, was stopped, or failed."""


class BatchReporter:
    """Reporter of one job. `note` may be called in any thread, `send` in one.

    Unlike the commits, which are the truth, reports may be lost with the process.

    Args:
        state: returns the state of the stream: the number of destinations that make it ``waiting``, by kind,
            and how many messages it is ``behind``, None if unknown.
        clock: returns seconds.
    """

    def __init__(
        self, state: Callable[[], Mapping[str, Any]], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._state = state
        self._clock = clock
        self._waiting: deque[dict[str, Any]] = deque(maxlen=_KEPT)
        self._sent: float | None = None

    def note(self, report: BatchReport) -> None:
        """Keep a batch for the next report. One that was committed before is left out."""
        if not report.skipped:
            self._waiting.append(summary_of(report))

    def send(self, streams: StreamReports, query: str, at_once: bool = False) -> None:
        """Report the noted batches, if a second has passed, or ``at_once``; otherwise now and then a sign of
        life. Raises the registry's errors; the batches are kept.
        """
        passed = None if self._sent is None else self._clock() - self._sent
        due = _PAUSE_SECONDS if self._waiting else LIFE_SECONDS
        if not (at_once or passed is None or passed >= due):
            return
        # A copy, because another thread may add to the queue, which must not change while it is iterated.
        batches = list(islice(self._waiting.copy(), _AT_ONCE))
        streams.note_reports(query, batches, self._state())
        self._sent = self._clock()
        for summary in batches:
            # A full queue may have dropped some of them meanwhile, for newer ones.
            if self._waiting and self._waiting[0] is summary:
                self._waiting.popleft()

    def finish(self, streams: StreamReports, query: str, ending: Ending) -> None:
        """Report all that was noted, for at most `END_SECONDS`, and then how the stream ends. Raises the
        registry's errors.
        """
        deadline = self._clock() + END_SECONDS
        while self._waiting and self._clock() < deadline:
            self.send(streams, query, at_once=True)
        streams.note_reports(query, [], {**self._state(), "ended": ending})


class Sampler:
    """Sampler of one job. `note` may be called in any thread, `send` in one.

    Messages of the newest batch are read once more, so that workers have nothing to do with it. Bodies stay
    behind, and so do messages that are too long for the registry.

    Args:
        source: the source of the job.
        each: the most messages of a sample; 0 for no samples.
        clock: returns seconds.
    """

    def __init__(self, source: Source, each: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._source = source
        self._each = each
        self._clock = clock
        self._inputs: Sequence[Any] | None = None
        self._sent: float | None = None

    def note(self, inputs: Sequence[Any]) -> None:
        """Remember the inputs of a batch, in the place of those of an earlier one."""
        if self._each:
            self._inputs = inputs

    def send(self, streams: StreamReports, query: str, at_once: bool = False) -> None:
        """Send a sample of the newest batch, if a second has passed since the last one, or ``at_once``.
        Raises the registry's errors. Inputs that can't be read are left out.
        """
        inputs = self._inputs
        now = self._clock()
        if inputs is None or not (at_once or self._sent is None or now >= self._sent + _PAUSE_SECONDS):
            return
        self._inputs, self._sent = None, now
        read = map(sampled_form, self._read(inputs))
        messages = [message for message in read if len(sampled_text(message)) <= MAX_SAMPLED]
        if messages:
            streams.note_messages(query, messages)

    def _read(self, inputs: Sequence[Any]) -> list[Message]:
        try:
            return self._source.sample(inputs, self._each)
        except (SelectRouteError, OSError, pa.ArrowException):
            return []


def summary_of(report: BatchReport) -> dict[str, Any]:
    """Return a report as plain data: what ``POST /v1/queries/{query}/reports`` takes."""
    counts = asdict(report.counts)
    return {
        "batch": report.batch,
        "revision": report.revision,
        "kind": report.kind,
        "ended": time_text(datetime.now(UTC)),
        **{name: counts[name] for name in NUMBERS},
        "reasons": dict(sorted(report.counts.reasons.items())[:_REASONS]),
        "busiest": report.busiest,
        "seconds": {step: round(seconds, 6) for step, seconds in report.seconds.items()},
    }


def offsets_behind(progress: Mapping[str, Any]) -> Iterator[tuple[str, list[int]]]:
    """Yield for each Kafka source its topics, and for each partition the number of messages not yet read.

    Args:
        progress: Spark's ``StreamingQueryProgress``, parsed from its JSON.
    """
    for source in progress.get("sources") or ():
        ends, latest = source.get("endOffset"), source.get("latestOffset")
        if isinstance(ends, dict) and isinstance(latest, dict):
            waiting = [
                max(offset - ends.get(topic, {}).get(number, 0), 0)
                for topic, of_topic in latest.items()
                for number, offset in of_topic.items()
            ]
            yield ",".join(sorted(latest)), waiting


class EffectiveFromReporter:
    """Reporter to a registry: the first batch of a query that was pinned to a revision or a later one.

    The registry shows it as a change's ``effective_from``. Every first batch is reported, even if the
    registry was not reachable when it was routed: the commits have the batches to report, and
    ``_reported.json`` the position of the last report. Reports are idempotent.
    """

    def __init__(self, job: Job, commits: Commits, source: Source) -> None:
        self._job = job
        self._source = source
        self._commits = commits
        self._record = job.output / "_reported.json"
        self._introduced = False
        reported = self._record.read_json() or {"batch": -1, "revision": -1}
        self._batch: int = reported["batch"]
        self._revision: int = reported["revision"]

    def report(self, streams: StreamReports, query: str) -> None:
        """Report the new first batches. Raises the registry's errors; the next call continues there."""
        if not self._introduced:
            can_replay, reason = self._replayable()
            streams.note_query(query, source=self._job.source, can_replay=can_replay, reason=reason)
            self._introduced = True
        reported = self._revision
        try:
            while (commit := self._commits.read(self._batch + 1)) is not None:
                if commit["revision"] > self._revision:
                    streams.note_batch(query, commit["batch"], commit["revision"])
                    self._revision = commit["revision"]
                self._batch = commit["batch"]
        finally:
            if self._revision > reported:
                self._record.put_json({"batch": self._batch, "revision": self._revision})

    def _replayable(self) -> tuple[bool, str | None]:
        """Return whether the inputs of the newest batch can be read again; if not, the reason."""
        batches = self._commits.batches()
        commit = self._commits.read(batches[-1]) if batches else None
        if commit is None:
            return True, None
        (replayable,) = self._source.reread([commit])
        lacks = replayable.gone or replayable.unknown
        return (False, replayable.sentence) if lacks else (True, None)
