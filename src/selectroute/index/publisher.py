"""Publisher of a snapshot folder: applies changes at once, and merges in the background.

::

    apply ──→ changed ──→ merge of small deltas ──→ publish ──→ revision n
                │ due and large: another process rewrites them as one              readers: any revision,
                └────────→ merged part ──→ rolled in with later changes ──────→ n+m  always complete
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import dataclass, replace

import pyarrow as pa

from selectroute.arrays.state import SnapshotState
from selectroute.index.changes import (
    Change,
    Delta,
    Part,
    merge_due,
    merge_size,
    merged,
    merged_part,
    merged_with,
    rolled_in,
    with_delta,
)
from selectroute.index.compile.build import Row, build, check_unknown, together
from selectroute.index.errors import SnapshotError
from selectroute.index.index import Index
from selectroute.index.snapshot import Snapshot
from selectroute.index.snapshot_files import (
    Source,
    latest_revision,
    published,
    read_segment,
    revisions,
    write_segment,
)
from selectroute.selector.arguments import check_argument, check_path
from selectroute.selector.limits import DEFAULT_LIMITS, UNLIMITED, Limits
from selectroute.storage import Location
from selectroute.storage.location import Where

AT_ONCE = 512
"""Maximum other subscriptions that a change rewrites before it is published: some 10 ms."""

_MERGE = "import os, sys; os.nice(10); from selectroute.index.changes import main; main(*sys.argv[1:])"
"""Program of a process that merges. Matching has priority, also over its imports, half a second."""

IN_THREAD = 8_192
"""Maximum subscriptions merged in this process; more would delay its other threads."""


@dataclass(frozen=True, slots=True)
class _Merge:
    """Merge in progress: the segments of `of` from `first` on become `part`."""

    of: Snapshot
    first: int
    part: Future[Part]
    finished: threading.Event
    """Set when the merge has ended, and with own revisions is rolled in."""


class Publisher:
    """Publisher of the revisions of a snapshot folder; holds the newest one. Thread-safe.

    Args:
        folder: the path or URL of a snapshot folder, or of a new one, in which an empty snapshot is published
            first. Only one publisher is allowed at a time: the revision of another one is an error when it is
            noticed.
        own_revisions: the publisher numbers revisions, and publishes a merge when it is done. Otherwise each
            change has a given revision, and a merge becomes part of the next change, or of `roll_in`.
        limits: the largest selector that a change may have as text.
        alone: the caller keeps other publishers away, so that none is looked for at each change: that takes
            ten milliseconds among ten thousand revisions.

    Raises:
        SnapshotError: the folder cannot be read or written.
    """

    def __init__(
        self,
        folder: Where,
        *,
        own_revisions: bool = True,
        limits: Limits = DEFAULT_LIMITS,
        alone: bool = False,
    ) -> None:
        check_argument(limits, Limits, "limits", "the Limits of a selector, or leave it out")
        check_path(folder, "folder", "the path or URL of a snapshot folder, which may be new")
        self.folder = Location.of(folder)
        self._own_revisions = own_revisions
        self._limits = limits
        self._alone = alone
        self._lock = threading.RLock()
        self._merge: _Merge | None = None
        self._failed = False
        if not revisions(self.folder):
            published(Index().freeze(None if own_revisions else 0), self.folder)
        self._snapshot = Snapshot.open(self.folder)
        # Changes look up subscriptions: hash the ids now and not in the first change.
        self._snapshot.ids.find([""])

    @property
    def snapshot(self) -> Snapshot:
        """Newest revision."""
        return self._snapshot

    def apply(
        self, changes: Iterable[Change], revision: int | None = None, source: Source | None = None
    ) -> int:
        """Publish and return the next revision, with all of these changes or none. A ``source`` is recorded
        in its manifest.

        Amortized O(size of the changed selectors × log subscriptions); readers see the revision on return.
        Raises the errors of ``Snapshot.changed``, and `SnapshotError`.
        """
        with self._lock:
            done = self._rolled_in()
            delta = Delta(done or self._snapshot, changes, self._limits)
            # A merge in progress replaces or keeps these segments.
            sealed = 0 if self._merge is None or done is not None else len(self._merge.of.segments)
            after, due = _applied(delta, sealed)
            self._publish(after, revision, done, source)
            if due is not None:
                self._start(due)
            return self._revision()

    def load(self, parts: Iterable[pa.Table | Iterable[Row]], revision: int | None = None) -> int:
        """Publish new subscriptions, all of them in one revision, and return it.

        For more subscriptions than fit memory: each part, as `build_snapshot` takes it, is built and written
        before the next one is asked for. Parts of about ten million are sensible: each becomes a segment, in
        which every message is looked up, and smaller ones are merged behind, which takes longer than the
        load.

        Raises:
            BuildError: an invalid subscription, by its row in its part, or one whose id exists.
            SnapshotError: the folder cannot be read or written.
        """
        with self._lock:
            done = self._rolled_in()
            before: SnapshotState = done or self._snapshot
            if not before.firsts[-1]:
                before = together(())
            after = before
            number = self._next(revision)
            for part in parts:
                state = build(part, limits=self._limits)
                check_unknown(state, after)
                for segment, first in zip(state.segments, state.firsts[:-1], strict=True):
                    rows = state.subscriptions.slice(first, segment.rows)
                    entry = write_segment(segment, rows, self.folder, number, "delta")
                    after = with_delta(after, *read_segment(self.folder, entry), ())
            if after is before:
                return self._revision()
            self._publish(after, revision, done)
            due = merge_due(after)
            if due is not None:
                self._start(due)
            return self._revision()

    def merge(self, first: int = 0, timeout: float | None = None) -> int:
        """Merge all segments, or those from ``first`` on, and wait. Returns the newest revision.

        Changes are still possible. Without own revisions, the merge is published by the next change or by
        `roll_in`. Raises TimeoutError, or the error of the merge.
        """
        self.wait(timeout)
        with self._lock:
            self._failed = False
            if self._merge is None and (first or len(self._snapshot.segments) > 1):
                self._start(first)
            merge = self._merge  # wait for this one, even if it has failed by then
        self._await(merge, timeout)
        return self._revision()

    def wait(self, timeout: float | None = None) -> None:
        """Wait until no merge is in progress. Raises TimeoutError after `timeout` s, or the merge's error."""
        self._await(self._merge, timeout)

    def roll_in(self, revision: int | None = None) -> int | None:
        """Publish a finished merge under this revision, with the subscriptions of the newest revision; return
        None without a merge.
        """
        with self._lock:
            after = self._rolled_in()
            if after is None:
                return None
            self._publish(after, revision, after)
            return self._revision()

    def close(self) -> None:
        """Wait for a merge in progress. Published revisions stay."""
        merge = self._merge
        if merge is not None:
            merge.finished.wait()

    def __enter__(self) -> Publisher:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _await(self, merge: _Merge | None, timeout: float | None) -> None:
        if merge is not None:
            merge.part.result(timeout)
            if self._own_revisions:
                self.roll_in()  # unless its thread was faster

    def _revision(self) -> int:
        assert self._snapshot.revision is not None
        return self._snapshot.revision

    def _next(self, revision: int | None) -> int:
        newest = self._revision() if self._alone else latest_revision(self.folder)
        if newest != self._revision():
            raise SnapshotError(
                f"another publisher published revision {newest} in {self.folder}, after {self._revision()}: "
                "use one publisher at a time, and open a new one to continue from there"
            )
        if self._own_revisions:
            if revision is not None:
                raise ValueError("this publisher numbers revisions itself (own_revisions): give no revision")
            return newest + 1
        if revision is None or revision <= newest:
            raise ValueError(f"a revision above {newest} is needed, not {revision}")
        return revision

    def _publish(
        self,
        snapshot: SnapshotState,
        revision: int | None,
        done: SnapshotState | None,
        source: Source | None = None,
    ) -> None:
        """Publish a revision; with ``done`` it includes the merge in progress."""
        state = published(replace(snapshot, revision=self._next(revision)), self.folder, source)
        self._snapshot = Snapshot.of(state)
        if done is not None:
            self._merge = None

    def _rolled_in(self) -> SnapshotState | None:
        """Return the newest revision with a finished merge; None without one."""
        merge = self._merge
        if merge is None or not merge.part.done():
            return None
        return rolled_in(merge.of, merge.first, merge.part.result(), self._snapshot)

    def _start(self, first: int) -> None:
        """Start a merge of the newest revision's segments from ``first`` on, unless one is in progress."""
        if self._merge is not None or self._failed:
            return
        self._merge = _Merge(self._snapshot, first, Future(), threading.Event())
        threading.Thread(target=self._run, args=(self._merge,), name="selectroute-merge", daemon=True).start()

    def _run(self, merge: _Merge) -> None:
        try:
            if merge_size(merge.of, merge.first) <= IN_THREAD:
                part = merged_part(merge.of, merge.first)
            else:
                part = self._merged_elsewhere(merge.of, merge.first)
            for segment, rows in part:  # hash the ids here, not in the next change
                Snapshot((segment,), rows).ids.find([""])
            merge.part.set_result(part)
            if self._own_revisions:
                self.roll_in()
        except Exception as error:
            # Without the merge everything is still correct, only slower; changes continue.
            warnings.warn(f"a merge of {self.folder} failed: {error}", RuntimeWarning, stacklevel=1)
            if not merge.part.done():
                with self._lock:
                    self._merge, self._failed = None, True
                merge.part.set_exception(error)
        finally:
            merge.finished.set()

    def _merged_elsewhere(self, snapshot: Snapshot, first: int) -> Part:
        # -P: `-c` would put the working directory first on the path, and import a numpy.py from there.
        command = [sys.executable, "-P", "-c", _MERGE]
        ended = subprocess.run(
            [*command, str(self.folder), str(snapshot.revision), str(first)], capture_output=True, check=False
        )
        if ended.returncode:
            lines = ended.stderr.decode(errors="replace").strip().splitlines()
            raise SnapshotError(f"merging {self.folder} failed: {lines[-1] if lines else ended.returncode}")
        return tuple(read_segment(self.folder, entry) for entry in json.loads(ended.stdout))


def _applied(delta: Delta, sealed: int) -> tuple[SnapshotState, int | None]:
    """Return the snapshot after changes, with a small merge that is due; and the first segment of a large
    merge that is, else None.
    """
    if delta.is_plain and delta.limits == UNLIMITED:
        due = merge_due(delta.snapshot, sealed, delta)
        if due is not None and merge_size(delta.snapshot, due, delta) <= AT_ONCE:
            return merged_with(delta, due), None
        return delta.applied(), due
    after = delta.applied()
    due = merge_due(after, sealed)
    if due is not None and merge_size(after, due) <= AT_ONCE:
        return merged(after, due, merged_part(after, due)), None
    return after, due
