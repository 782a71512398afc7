"""Writer of a snapshot folder: applies changes at once, and merges behind.

::

    apply ──→ changed ──→ merge of small deltas ──→ publish ──→ revision n
                │ due and large: a process of its own rewrites them as one          readers: any revision,
                └────────→ merged part ──→ rolled in beside what came since ──→ n+m  always all of it
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
from pathlib import Path
from types import TracebackType

from selectroute.arrays.state import SnapshotState
from selectroute.index.change.delta import Change, changed
from selectroute.index.change.merge import Part, merge_due, merge_size, merged, merged_part, rolled_in
from selectroute.index.errors import SnapshotError
from selectroute.index.folder.format import latest_revision, published, read_segment
from selectroute.index.folder.manifest import revisions
from selectroute.index.index import Index
from selectroute.index.snapshot import Snapshot
from selectroute.selector.arguments import check_argument, check_path
from selectroute.selector.limits import DEFAULT_LIMITS, Limits

AT_ONCE = 512
"""Subscriptions that a change may rewrite besides its own before it is published: some 40 ms."""

IN_THREAD = 8_192
"""Subscriptions that are merged in this process; more than that would keep its other threads waiting."""


@dataclass(frozen=True, slots=True)
class _Merge:
    """A merge under way: the segments of `of` from `first` on become `part`."""

    of: Snapshot
    first: int
    part: Future[Part]
    finished: threading.Event
    """It is rolled in, too, where revisions are numbered here."""


class Publisher:
    """Holds the newest revision of a snapshot folder and makes those that follow. Safe for use by threads.

    Args:
        folder: a snapshot folder, or one that shall become one; an empty snapshot is then published first.
            There is one publisher at a time: another one's revision is an error when it is noticed.
        own_revisions: revisions are numbered here, and a merge is published when it is done. Otherwise each
            change brings its revision, and a merge becomes part of the next change, or of `roll_in`.
        limits: the largest selector that a change may bring as a text.

    Raises:
        SnapshotError: the folder cannot be read or written.
    """

    def __init__(
        self, folder: str | Path, *, own_revisions: bool = True, limits: Limits = DEFAULT_LIMITS
    ) -> None:
        check_argument(limits, Limits, "limits", "the Limits of a selector, or leave it out")
        check_path(folder, "folder", "the path of a snapshot folder, or of one that shall become one")
        self.folder = Path(folder)
        self._own_revisions = own_revisions
        self._limits = limits
        self._lock = threading.RLock()
        self._merge: _Merge | None = None
        self._failed = False
        if not revisions(self.folder):
            published(Index().freeze(None if own_revisions else 0), self.folder)
        self._snapshot = Snapshot.open(self.folder)
        # Whoever changes a subscription looks it up: better now than in the first change.
        self._snapshot.ids.find([""])

    @property
    def snapshot(self) -> Snapshot:
        """Newest revision."""
        return self._snapshot

    def apply(self, changes: Iterable[Change], revision: int | None = None) -> int:
        """Publish the next revision: this one with these changes, all of them or none. Returns it.

        O(size of the changed selectors), and a share of the merges to come; readers see it when this
        returns. Raises what ``Snapshot.changed`` raises, and `SnapshotError`.
        """
        with self._lock:
            done = self._rolled_in()
            after = changed(done or self._snapshot, changes, limits=self._limits)
            due = merge_due(after, self._sealed(done))
            if due is not None and merge_size(after, due) <= AT_ONCE:
                after = merged(after, due, merged_part(after, due))
                due = None
            self._publish(after, revision, done)
            if due is not None:
                self._start(due)
            return self._revision()

    def merge(self, first: int = 0, timeout: float | None = None) -> int:
        """Merge now, and wait for it: all segments, or those from ``first`` on. Returns the newest revision.

        Changes go on meanwhile. With revisions that are given, the merge is published by the next change or
        by `roll_in`. Raises TimeoutError, or what went wrong.
        """
        self.wait(timeout)
        with self._lock:
            self._failed = False
            if self._merge is None and (first or len(self._snapshot.segments) > 1):
                self._start(first)
            merge = self._merge  # this one, also if it has failed by the time that it is waited for
        self._await(merge, timeout)
        return self._revision()

    def wait(self, timeout: float | None = None) -> None:
        """Wait until no merge is under way. Raises TimeoutError after so many seconds, or what went wrong."""
        self._await(self._merge, timeout)

    def roll_in(self, revision: int | None = None) -> int | None:
        """Publish a merge that is done, under this revision; None if there is none. Its subscriptions are
        those of the newest revision.
        """
        with self._lock:
            after = self._rolled_in()
            if after is None:
                return None
            self._publish(after, revision, after)
            return self._revision()

    def close(self) -> None:
        """Wait for a merge that is under way. What is published stays as it is."""
        merge = self._merge
        if merge is not None:
            merge.finished.wait()

    def __enter__(self) -> Publisher:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
        newest = latest_revision(self.folder)
        if newest != self._revision():
            raise SnapshotError(
                f"somebody else published revision {newest} in {self.folder}, after {self._revision()}: "
                "a folder has one publisher at a time; open another one to go on from there"
            )
        if self._own_revisions:
            if revision is not None:
                raise ValueError("this publisher numbers its revisions itself (own_revisions)")
            return newest + 1
        if revision is None or revision <= newest:
            raise ValueError(f"a revision above {newest} is needed, not {revision}")
        return revision

    def _publish(self, snapshot: SnapshotState, revision: int | None, done: SnapshotState | None) -> None:
        """Publish a revision; with ``done`` the merge under way is part of it."""
        state = published(replace(snapshot, revision=self._next(revision)), self.folder)
        self._snapshot = Snapshot.of(state)
        if done is not None:
            self._merge = None

    def _sealed(self, done: SnapshotState | None) -> int:
        """Return the segments that a merge under way is about to replace, and those before them."""
        return len(self._merge.of.segments) if self._merge is not None and done is None else 0

    def _rolled_in(self) -> SnapshotState | None:
        """Return the newest revision's subscriptions with the merge that is done; None without one."""
        merge = self._merge
        if merge is None or not merge.part.done():
            return None
        return rolled_in(merge.of, merge.first, merge.part.result(), self._snapshot)

    def _start(self, first: int) -> None:
        """Begin to merge the newest revision's segments from ``first`` on, unless one is under way."""
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
            Snapshot((part[0],), part[1]).ids.find([""])  # made here, not in the change that comes next
            merge.part.set_result(part)
            if self._own_revisions:
                self.roll_in()
        except Exception as error:
            # Without the merge everything is right, only slower; changes go on.
            warnings.warn(f"a merge of {self.folder} failed: {error}", RuntimeWarning, stacklevel=1)
            if not merge.part.done():
                with self._lock:
                    self._merge, self._failed = None, True
                merge.part.set_exception(error)
        finally:
            merge.finished.set()

    def _merged_elsewhere(self, snapshot: Snapshot, first: int) -> Part:
        # -P: `-m` would put the working directory first on the path, and run a numpy.py that lies there.
        command = [sys.executable, "-P", "-m", "selectroute.index.change.merge"]
        ended = subprocess.run(
            [*command, str(self.folder), str(snapshot.revision), str(first)], capture_output=True, check=False
        )
        if ended.returncode:
            lines = ended.stderr.decode(errors="replace").strip().splitlines()
            raise SnapshotError(f"merging {self.folder} failed: {lines[-1] if lines else ended.returncode}")
        return read_segment(self.folder, json.loads(ended.stdout))
