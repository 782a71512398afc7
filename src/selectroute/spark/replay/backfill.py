"""Backfills: deliveries that subscriptions missed while paused, from the inputs that still exist.

Backfills and replays are *side batches*, numbered -1, -2, …, each with its own commit, folders and line of
the accounting, which the totals of the stream do not count. The pin of a side batch includes its plan, and it
has its own lease: the next batch of the stream may use a newer revision before an interrupted side batch is
finished.

What is owed is computed from the registry's change log::

    revision    …  p ──────────── r ……… R
    log            pause          resume from last-processed
    batches     ─b3───b4───b5───b6─────b7─     b4 and b5 were pinned from p to before r: they are owed

A paused subscription is in no snapshot, so the batches pinned to p ≤ revision < r did not match it, and all
others did. Once the newest published revision R is r or later, no batch is pinned below r any more, so the
set of owed batches is final.

- Resumed from ``latest``: the batches missed since that pause are not owed.
- Removed: nothing is owed any more, even if another subscription takes the id later.
- Paused again: owed batches stay owed, and are delivered after the next resume of either kind. So the result
  does not depend on how fast the job was before the second pause.
- Replaced: owed batches are matched with the selector at the time of the backfill.

A backfill takes owed batches, reads their inputs again, and
matches them with these subscriptions only, at the revision of its pin::

    unfinished one? ─yes→ by its pin ─────────────────────────────────────────────────┐
                    └no→ due at revision R ─→ pin: R, subscriptions, batches ─────────┴→ a small snapshot,
                                                                staged ─→ as a batch: match, commit, publish

Each message is judged for each subscription once: by its batch if the subscription was in the batch's
snapshot, otherwise by the backfill whose commit names both. The commits are the record of finished
backfills; ``_backfill.json`` only saves reading the log from the start, and is rebuilt if lost.

An input that is gone or was changed is named in the commit, and the others are delivered.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import takewhile
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from selectroute.index.compile.build import rebuilt
from selectroute.index.snapshot_files import locked, published, published_digest, revisions
from selectroute.registry.model import Change, Op
from selectroute.selector.errors import SelectRouteError
from selectroute.spark.batch.commits import BACKFILL
from selectroute.spark.batch.pins import Pin, check_pinned, read_pin, reference
from selectroute.spark.batch.router import BatchReport, BatchSettings, Clock, Router
from selectroute.spark.columns.snapshot_ref import SnapshotRef, lease, open_once
from selectroute.spark.job import DROP, Unrouted
from selectroute.spark.replay.letters import History
from selectroute.storage import Location

if TYPE_CHECKING:
    from selectroute.client import SubscriptionRegistry


class SideBatches:
    """Side batches of one kind of one job. All must come between two batches of the stream.

    ``kind`` is the kind of their commits.
    """

    kind: ClassVar[str]

    def __init__(self, router: Router) -> None:
        self._router = router
        self._job = router.job
        self._commits = router.commits
        self._pins = router.job.output / "pins"
        self._history = History(router.commits)
        self._is_leased = True  # or may be: a crash may have come between commit and release

    def _interrupted(self) -> Pin | None:
        """Return the pin of a side batch that was interrupted by a crash; None if there is none.

        Raises:
            PinError: the pinned revision is gone or was replaced.
        """
        pinned = read_pin(self._commits.next_side_batch(), self._pins)
        if pinned is None or pinned.kind != self.kind:
            return None
        check_pinned(pinned, self._job.snapshots)
        return pinned

    def _pin(self, revision: int, query: str, **plan: Any) -> Pin:
        """Pin the next side batch durably, after its lease. Hold the lock of the snapshot folder."""
        snapshots, number = self._job.snapshots, self._commits.next_side_batch()
        pinned = Pin(number, revision, published_digest(snapshots, revision), self.kind, **plan)
        lease(snapshots, _lease_of(query), revision)
        self._pins.make_folder()
        (self._pins / f"{number}.json").put_json(pinned.to_json())
        return pinned

    def _release(self, query: str) -> None:
        """Release the lease of a committed side batch, if there may be one."""
        if self._is_leased:
            (self._job.snapshots / "leases" / f"{_lease_of(query)}.json").delete()
            self._is_leased = False


def _lease_of(query: str) -> str:
    """Return the lease's name, the same for backfills and replays: only one of them is made at a time."""
    return f"{query}-backfill"


OWED_OPS: tuple[Op, ...] = ("remove", "resume")
"""Kinds of changes that affect owed batches; no others are read."""


@dataclass(frozen=True, slots=True)
class MissedRange:
    """Subscriptions that all missed the batches pinned from revision `paused` to before `resumed`."""

    paused: int
    resumed: int
    subscriptions: frozenset[str]


class Owed:
    """Missed ranges that are owed at a revision of the log. Folding a part of the log again is harmless: the
    commits record finished backfills.
    """

    def __init__(self, revision: int) -> None:
        self.revision = revision
        self._owed: dict[str, set[tuple[int, int]]] = {}

    def __bool__(self) -> bool:
        return bool(self._owed)

    def fold(self, changes: Iterable[Change], revision: int) -> bool:
        """Apply the changes up to a revision; return whether the owed ranges changed."""
        changed = False
        for change in changes:
            if change.op == "remove":
                changed |= self._owed.pop(change.id, None) is not None
            elif change.op == "resume" and change.resume_from == "last-processed":
                assert change.paused_at is not None, "a resume names the pause that it ends"
                self._owed.setdefault(change.id, set()).add((change.paused_at, change.revision))
                changed = True
        self.revision = revision
        return changed

    def missed(self) -> list[MissedRange]:
        """Return the owed ranges by revisions, with the subscriptions of each."""
        together: defaultdict[tuple[int, int], set[str]] = defaultdict(set)
        for id, owed in self._owed.items():
            for span in owed:
                together[span].add(id)
        return [MissedRange(*span, frozenset(ids)) for span, ids in sorted(together.items())]

    def mark_delivered(self, missed: MissedRange) -> None:
        """Remove a range of these subscriptions: it was delivered."""
        for id in missed.subscriptions:
            owed = self._owed.get(id, set())
            owed.discard((missed.paused, missed.resumed))
            if not owed:
                self._owed.pop(id, None)

    def to_json(self) -> dict[str, Any]:
        """Return the state as JSON. The inverse of `from_json`."""
        return {
            "revision": self.revision,
            "missed": [
                {
                    "paused": missed.paused,
                    "resumed": missed.resumed,
                    "subscriptions": sorted(missed.subscriptions),
                }
                for missed in self.missed()
            ],
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Owed:
        """Read the state that `to_json` returned."""
        owed = cls(content["revision"])
        for missed in content["missed"]:
            for id in missed["subscriptions"]:
                owed._owed.setdefault(id, set()).add((missed["paused"], missed["resumed"]))
        return owed


MOST_SUBSCRIPTIONS = 50_000
"""Maximum of subscriptions of one backfill, whose commit names each. More need another backfill."""

_RECORD_EVERY = 1_000
"""Revisions of the log after which the position in it is written, even without changes."""


class BackfillError(SelectRouteError):
    """Published snapshots of another registry."""


class Backfills(SideBatches):
    """Backfills of one job. All but `follow` must come between two batches of the stream."""

    kind = BACKFILL

    def __init__(self, router: Router) -> None:
        super().__init__(router)
        self._record = router.job.output / "_backfill.json"
        self._owed: Owed | None = None
        self._recorded = -1
        self._live: tuple[int, frozenset[str]] | None = None
        self._revision = cache(lambda batch: int(self._commit(batch)["revision"]))
        self._nothing_at = -1

    def follow(self, log: SubscriptionRegistry) -> None:
        """Read the log up to the newest published revision. Writes only the record.

        Raises the errors of the log; the next call continues at the same position.
        """
        # As the stream has it: nothing is owed of what a batch that is pinned later could still miss.
        revision = self._router.newest_revision()
        if self._owed is None:
            self._owed = self._known(revision)
        owed = self._owed
        if owed.revision >= revision:
            return
        if log.revision < revision:
            raise BackfillError(
                f"the snapshots in {self._job.snapshots} are at revision {revision}, but the registry is at "
                f"{log.revision}: name the registry that publishes these snapshots"
            )
        with closing(log.follow_changes(owed.revision, ops=OWED_OPS)) as flow:
            changed = owed.fold(takewhile(lambda change: change.revision <= revision, flow), revision)
        if changed or owed.revision - self._recorded >= _RECORD_EVERY:
            self._write_record(owed)

    def next(self, query: str) -> BatchReport | None:
        """Make the next backfill, or finish one interrupted by a crash; None if there is nothing to do.

        A backfill takes the inputs of at least one batch, and otherwise at most as many as a batch may have.

        Raises:
            PinError, SnapshotError, CommitError: as `Router.route`.
        """
        pinned = self._interrupted()
        if pinned is None:
            self._release(query)
            pinned = self._pinned(query)
        return None if pinned is None else self._make(pinned, query)

    @property
    def nothing_owed_at(self) -> int | None:
        """Revision at which nothing is owed to any subscription in its snapshot, according to `follow` and
        `next`; None if unknown.
        """
        owed = self._owed
        return owed.revision if owed is not None and (not owed or owed.revision == self._nothing_at) else None

    def close(self) -> None:
        """Write the position in the log."""
        if self._owed is not None and self._owed.revision != self._recorded:
            self._write_record(self._owed)

    def _known(self, newest: int) -> Owed:
        """Return the written state. Without one the log is read from this job's first batch on: the job owes
        nothing for earlier resumes.
        """
        content = self._record.read_json()
        if content is not None:
            self._recorded = content["revision"]
            return Owed.from_json(content)
        first = read_pin(next(iter(self._commits.batches()), 0), self._pins)
        return Owed(newest if first is None else first.revision)

    def _write_record(self, owed: Owed) -> None:
        self._record.put_json(owed.to_json())
        self._recorded = owed.revision

    # ---- planning

    def _pinned(self, query: str) -> Pin | None:
        """Pin the next backfill; None if none is due."""
        owed = self._owed
        if not owed or owed.revision == self._nothing_at:
            return None
        batches = self._commits.batches()
        # A pinned, uncommitted batch comes first: it may be owed.
        if not batches or read_pin(batches[-1] + 1, self._pins) is not None:
            return None
        with locked(self._job.snapshots):  # so that the revision is not removed before it is leased
            if owed.revision not in revisions(self._job.snapshots):
                return None
            due = self._work(owed, batches)
            if due is None:
                self._nothing_at = owed.revision
                self._write_record(owed)
                return None
            ids, chosen = due
            return self._pin(owed.revision, query, batches=tuple(chosen), subscriptions=tuple(ids))

    def _work(self, owed: Owed, batches: list[int]) -> tuple[list[str], list[int]] | None:
        """Return the first subscriptions and batches due: each of the batches was missed by all of them."""
        self._history.read()
        backfilled = self._history.backfilled
        missing: defaultdict[int, list[frozenset[str]]] = defaultdict(list)
        live = self._in_snapshot(owed)
        for span in owed.missed():
            if span.resumed > owed.revision:
                continue  # from a part of the log that was not read completely
            start, end = (bisect_left(batches, at, key=self._revision) for at in (span.paused, span.resumed))
            active = span.subscriptions & live
            left = [batch for batch in batches[start:end] if active - backfilled[batch]]
            for batch in left:
                missing[batch].append(active)
            if not left:
                # Subscriptions not in the snapshot were paused again, and wait if they missed anything.
                owed.mark_delivered(replace(span, subscriptions=active) if start < end else span)
        if not missing:
            return None
        # The first batch, and those after it while they were missed by the same subscriptions.
        first, *more = sorted(missing)
        wanted = frozenset().union(*missing[first]) - backfilled[first]
        chosen, files = [first], self._commit(first)["inputs"]["count"]
        for batch in more:
            files += self._commit(batch)["inputs"]["count"]
            if self._router.source.limit is not None and files > self._router.source.limit:
                break
            if wanted != frozenset().union(*missing[batch]) - backfilled[batch]:
                break
            chosen.append(batch)
        return sorted(wanted)[:MOST_SUBSCRIPTIONS], chosen

    def _in_snapshot(self, owed: Owed) -> frozenset[str]:
        """Return the subscriptions with owed batches that are in the snapshot of the revision."""
        if self._live is None or self._live[0] != owed.revision:
            digest = published_digest(self._job.snapshots, owed.revision)
            snapshot = open_once(SnapshotRef(str(self._job.snapshots), owed.revision, digest))
            ids = sorted(frozenset().union(*(missed.subscriptions for missed in owed.missed())))
            ordinals = snapshot.find(ids).tolist()
            live = frozenset(id for id, ordinal in zip(ids, ordinals, strict=True) if ordinal >= 0)
            self._live = owed.revision, live
        return self._live[1]

    def _commit(self, batch: int) -> dict[str, Any]:
        return self._commits.read(batch) or {}

    # ---- execution

    def _make(self, pinned: Pin, query: str) -> BatchReport:
        clock = Clock()
        source = self._router.source
        replayable = source.reread(map(self._commit, pinned.batches))
        missing = [inputs for inputs in replayable if inputs.gone or inputs.unknown]
        record = {
            "revision": pinned.revision,
            "subscriptions": list(pinned.subscriptions),
            "batches": list(pinned.batches),
            "after": self._commits.batches()[-1],
            "missing": [
                {"batch": inputs.batch, "files": list(inputs.gone), "why": inputs.sentence}
                for inputs in missing
            ],
        }
        settings = BatchSettings(partial(self._snapshot, pinned), Unrouted(DROP), record)
        inputs = [each for of_batch in replayable for each in of_batch.inputs]
        report = self._router.write(pinned, source.batch_input(inputs, again=True), clock, query, settings)
        self._is_leased = True
        return replace(report, missing=tuple(inputs.sentence for inputs in missing))

    def _snapshot(self, pinned: Pin, staging: Location) -> SnapshotRef:
        """Publish a snapshot of only the backfill's subscriptions in its staging folder."""
        whole = open_once(reference(pinned, self._job.snapshots))
        rows = whole.subscriptions.take(pa.array(whole.find(pinned.subscriptions)))
        folder = staging / "snapshot"
        small = published(rebuilt(rows.combine_chunks(), pinned.revision), folder)
        return SnapshotRef(str(folder), pinned.revision, small.digest)
