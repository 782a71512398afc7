"""Replays: dead letters judged again on request, after a repair.

A replay is a side batch (see ``backfill``)::

    unfinished one? ─yes→ by its pin ───────────────────────────────────────────────────────┐
                    └no→ request: the next batches with letters that no replay took ─→ pin ─┴→
    their letters ─→ their inputs, read from the source again ─→ only these messages, or deliveries:
    match, commit, publish

Each dead letter is replayed once: the commit of a replay names its batches and its filter, and later replays
skip these letters. A message that fails again is a dead letter of the replay, and can be replayed. With
replays included, each message is judged for each subscription once::

    letter of                subscriptions that may get the message
    a batch of the stream    those in the replay's snapshot, except those that got the batch by a backfill
    a backfill               the backfill's subscriptions
    a replay                 those of the replayed letter

A refused delivery is judged for its subscription only. An input that is gone is named in the commit, and the
others are replayed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from selectroute.index.snapshot_files import latest_revision, locked, revisions
from selectroute.selector.errors import SelectRouteError
from selectroute.selector.sentences import counted
from selectroute.spark.batch.commits import REPLAY
from selectroute.spark.batch.pins import Pin, reference
from selectroute.spark.batch.router import BatchReport, BatchSettings, Clock, Router
from selectroute.spark.columns.snapshot_ref import SnapshotRef
from selectroute.spark.job import DROP, JobError, Unrouted
from selectroute.spark.replay.backfill import SideBatches
from selectroute.spark.replay.letters import batches_with_letters, letters_left, messages_in
from selectroute.spark.replay.request import ReplayFilterSpec, Request, finish_request, read_request, waiting
from selectroute.spark.sources.source import ReplayableInput
from selectroute.spark.tables.schemas import as_written
from selectroute.spark.task.replay_filter import LETTERS, Scope, write_replay_list
from selectroute.storage import Location

MOST_LETTERS: Final = 1_000_000
"""Maximum of letters of one replay, unless one batch has more: they are held in memory."""

MOST_BATCHES: Final = 200
"""Maximum of batches of one replay: its commit names each."""

_LIST: Final = "recalled.arrow"


class Replays(SideBatches):
    """Replays of one job. All but `look` must come between two batches of the stream."""

    kind = REPLAY

    def __init__(self, router: Router, warn: Callable[[str], None] = lambda _: None) -> None:
        super().__init__(router)
        self._warn = warn
        self._with_letters: defaultdict[str, set[int]] = defaultdict(set)
        self._without_letters: defaultdict[str, set[int]] = defaultdict(set)
        self._refused: set[Location] = set()
        self._is_asked = True

    def look(self) -> None:
        """Look for requests, and search the dead letters of all their batches, so that `next` need not do it
        while the stream waits. A request that comes later is found by the next look.
        """
        requests = waiting(self._job.output)
        self._is_asked = bool(requests)
        for path in requests:
            request = self._read(path)
            if request is not None:
                self._history.read()
                for batch in self._candidates(request):
                    if batch not in self._with_letters[request.id]:
                        self._left(batch, request)

    def unfinished(self, query: str) -> BatchReport | None:
        """Finish a replay that was interrupted by a crash, if there is one.

        Raises:
            PinError, SnapshotError, CommitError: as `Router.route`.
        """
        pinned = self._interrupted()
        return None if pinned is None else self._make(pinned, query)

    def next(self, query: str, revision: int | None = None) -> BatchReport | None:
        """Make the next requested replay; None if there is none. No backfill may be unfinished.

        Args:
            query: id of the query, whose lease keeps the revision.
            revision: the revision to match with, the newest unless given.
        """
        self._release(query)
        if not self._is_asked:
            return None
        for path in waiting(self._job.output):
            request = self._read(path)
            if request is None:
                continue
            self._history.read()
            batches = self._due(request)
            if not batches:
                finish_request(self._job.output, request, self._history.replays[request.id])
                continue
            pinned = self._pinned(request, batches, query, revision)
            if pinned is not None:
                return self._make(pinned, query)
        return None

    # ---- planning

    def _read(self, path: Location) -> Request | None:
        try:
            return read_request(path)
        except SelectRouteError as error:
            if path not in self._refused:
                self._refused.add(path)
                self._warn(f"a request for a replay is ignored: {error}")
            return None

    def _due(self, request: Request) -> list[int]:
        """Return the next batches of a request with letters left, up to the limits of one replay."""
        chosen: list[int] = []
        tables: list[pa.Table] = []
        for batch in self._candidates(request):
            left = self._left(batch, request)
            if not len(left):
                continue
            if chosen and (
                self._history.only(batch) is not None
                or self._history.only(chosen[0]) is not None
                or len(chosen) == MOST_BATCHES
                or self._too_many(pa.concat_tables([*tables, left]))
            ):
                break
            chosen.append(batch)
            tables.append(left)
        return chosen

    def _left(self, batch: int, request: Request) -> pa.Table:
        """Return the letters of a batch that are left for a request, and remember whether there are any."""
        try:
            left = letters_left(self._job.output, batch, request.wanted, self._history.taken[batch])
        except JobError as error:
            self._warn(f"dead letters are not replayed: {error}")
            left = LETTERS.empty_table()
        if len(left):
            self._with_letters[request.id].add(batch)
        else:
            self._without_letters[request.id].add(batch)
        return left

    def _candidates(self, request: Request) -> list[int]:
        self._commits.finish()  # the letters of the newest batch may not be in the table yet
        done = self._history.handled[request.id] | self._without_letters[request.id]
        open_ = batches_with_letters(self._job.output) - done
        candidates = (batch for batch in open_ if request.means(batch) and self._commits.is_committed(batch))
        return sorted(candidates, key=lambda batch: (batch < 0, abs(batch)))

    def _too_many(self, letters: pa.Table) -> bool:
        limit = self._router.source.limit
        return len(letters) > MOST_LETTERS or (
            limit is not None and self._router.source.weight(letters) > limit
        )

    def _pinned(
        self, request: Request, batches: Sequence[int], query: str, revision: int | None
    ) -> Pin | None:
        snapshots = self._job.snapshots
        with locked(snapshots):  # so that the revision is not removed before it is leased
            chosen = latest_revision(snapshots) if revision is None else revision
            if chosen not in revisions(snapshots):
                return None
            wanted = request.wanted.to_json()
            return self._pin(chosen, query, batches=tuple(batches), request=request.id, wanted=wanted)

    # ---- execution

    def _make(self, pinned: Pin, query: str) -> BatchReport:
        clock = Clock()
        history, source = self._history, self._router.source
        history.read()
        wanted = ReplayFilterSpec.from_json(pinned.wanted)
        of_each = [
            letters_left(self._job.output, batch, wanted, history.taken[batch]) for batch in pinned.batches
        ]
        letters = pa.concat_tables([LETTERS.empty_table(), *of_each])
        only = history.only(pinned.batches[0])
        codes = np.full(len(letters), -1, np.int32)
        scopes: dict[Scope, int] = {}
        inputs: list[Any] = []
        lost: list[ReplayableInput] = []
        origins = sorted(frozenset().union(*map(history.origins, pinned.batches)))
        commits = [self._commits.read(origin) or {} for origin in origins]
        for replayable in source.reread(commits):
            narrowed, is_there = source.narrow(replayable.inputs, letters)
            inputs += narrowed
            codes[is_there] = scopes.setdefault(history.scope(replayable.batch, only), len(scopes))
            if replayable.gone or replayable.unknown:
                lost.append(replayable)
        replayed = letters.filter(pa.array(codes >= 0))
        missing = _missing(lost, letters.filter(pa.array(codes < 0)))
        record = {
            "request": pinned.request,
            "wanted": dict(pinned.wanted),
            "batches": list(pinned.batches),
            "only": None if only is None else list(only),
            "letters": len(replayed),
            "after": max(self._commits.batches(), default=-1),
            "missing": missing,
        }

        def prepare(staging: Location) -> SnapshotRef:
            write_replay_list(staging / _LIST, replayed, list(scopes), codes[codes >= 0])
            return reference(pinned, self._job.snapshots)

        unrouted = self._job.policy.never_failing() if only is None else Unrouted(DROP)
        settings = BatchSettings(prepare, unrouted, record, _LIST)
        report = self._router.write(pinned, source.batch_input(inputs, again=True), clock, query, settings)
        self._is_leased = True
        self._release(query)
        sentences = [gap["why"] for gap in missing]
        messages = messages_in(replayed)
        if messages is not None and messages != report.counts.messages:
            sentences.append(
                f"of {counted(messages, 'message')}, {report.counts.messages:,} found again in the source"
            )
        return replace(report, missing=tuple(sentences))


def _missing(lost: Sequence[ReplayableInput], letters: pa.Table) -> list[dict[str, Any]]:
    """Return a commit's record of the batches whose inputs are gone, if these letters are among them."""
    if not len(letters):
        return []
    sources = letters["source"].unique().to_pylist()
    gaps = []
    for replayable in lost:
        names = tuple(map(as_written, replayable.gone))
        of_each = zip(names, replayable.sources or names, strict=True)
        gone = tuple(name for name, source in of_each if source in sources)
        files = sources if replayable.unknown else list(gone)
        if files:
            gaps.append(
                {"batch": replayable.batch, "files": files, "why": replace(replayable, gone=gone).sentence}
            )
    return gaps
