"""Commits of batches: a batch's output appears once and complete, however often the batch runs or crashes.

::

    _staging/<batch>-<uuid>/  files of a batch until it is published
    _commits/<batch>.json     its appearance is the commit
    <sink>/                   a table of outcomes, see ``tables``; published after the commit
    accounting.jsonl          one line per commit, made from the commits

Up to the commit a crash leaves only staged files, which the next start removes. After the commit the batch is
done: it is published behind the stream, while the next one is matched, or by the next start; a repeat of the
batch is skipped. Batches of the stream are numbered from 0 up, side batches from -1 down: backfills (see
``backfill``) and replays (see ``replay``).
"""

from __future__ import annotations

import json
import re
import threading
import uuid
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from selectroute.selector.sentences import counted
from selectroute.spark.job import CommitError
from selectroute.spark.tables.open_tables import open_tables
from selectroute.spark.tables.schemas import NUMBERS
from selectroute.spark.tables.tables import OutcomeTables
from selectroute.storage import Location
from selectroute.storage.location import Where

_STAGED = re.compile(r"(-?\d+)-[0-9a-f]{32}")
_THREADS = 16
_SIDE_BATCH = re.compile(r"-[1-9]\d*")
STREAM = "stream"
BACKFILL, REPLAY = SIDE_BATCHES = ("backfill", "replay")
"""Kinds of side batches, the keys of their records in a commit."""


class Commits:
    """Commits of one output folder, and its staged and published files.

    ``tables`` are the outcomes; those of the folder, to be read, unless given.
    """

    def __init__(self, output: Where, tables: OutcomeTables | None = None) -> None:
        self.output = folder = Location.of(output)
        self.tables = open_tables(folder) if tables is None else tables
        self._commits = folder / "_commits"
        self._staging = folder / "_staging"
        self._accounting = folder / "accounting.jsonl"
        self._lowest: int | None = None
        self._publishing = ThreadPoolExecutor(1, "selectroute-publish")
        self._published: Future[None] | None = None
        self._pending: set[str] = set()
        # Of the accounting, as long as lines are not appended to the file.
        self._lines: list[str] | None = None
        self._accounting_guard = threading.Lock()

    def prepare(self) -> list[str]:
        """Create the folders, finish committed batches, remove others, and rebuild the accounting. Return a
        sentence for each repair of the tables.

        Raises:
            JobError: a table is another's, or damaged.
        """
        for folder in (self._commits, self._staging):
            folder.make_folder()
        repaired = self.tables.prepare()
        left: dict[int, dict[str, Any]] = {}
        for staged in self._staging.folders():
            named = _STAGED.fullmatch(staged.name)
            if named is None:
                continue
            commit = self.read(int(named[1]))
            if commit is not None and commit["staging"] == staged.name:
                left[commit["batch"]] = commit
            else:
                # A worker that outlives its driver may still write there; the next start removes the rest.
                staged.delete_folder()
        for batch in self.tables.unpublished(self.batches(), self.side_batches()):
            commit = self.read(batch)
            if commit is not None:
                left[batch] = commit
        # In order, which tables and consumers of queues and topics rely on.
        for commit in sorted(left.values(), key=_order):
            self._show(commit)
        self._complete_accounting()
        self.tables.remove_strays()
        return repaired

    def batches(self) -> list[int]:
        """Return the numbers of the committed batches of the stream, ascending."""
        return sorted(int(stem) for stem in self._stems() if stem.isdigit())

    def side_batches(self) -> list[int]:
        """Return the numbers of the committed backfills and replays in order: -1, -2, …"""
        return sorted((int(stem) for stem in self._stems() if _SIDE_BATCH.fullmatch(stem)), reverse=True)

    def _stems(self) -> list[str]:
        names = self._commits.names()
        return [name.removesuffix(".json") for name in names if name.endswith(".json")]

    def next_side_batch(self) -> int:
        """Return the number of the next backfill or replay. Assumes that no one else commits here."""
        if self._lowest is None:
            self._lowest = min(self.side_batches(), default=0)
        return self._lowest - 1

    def look_again(self) -> None:
        """Forget the number of the next side batch: the job, another process, may have committed."""
        self._lowest = None

    def read(self, batch: int) -> dict[str, Any] | None:
        """Return a batch's commit; None if it is not committed."""
        return (self._commits / f"{batch}.json").read_json()

    def all(self, since: int | None = None) -> Iterator[dict[str, Any]]:
        """Yield the commits of the stream, ascending, then those of backfills and replays in order; with
        ``since`` only those of the stream from this batch on.
        """
        for batch in (*self.batches(), *self.side_batches()):
            if (since is None or batch >= since) and (commit := self.read(batch)) is not None:
                yield commit

    def is_committed(self, batch: int | None) -> bool:
        """Return whether a batch is committed."""
        return (self._commits / f"{batch}.json").exists()

    def stage(self, batch: int) -> Location:
        """Create a staging folder for a run of this batch; workers write to its ``attempts``."""
        staging = self._staging / f"{batch}-{uuid.uuid4().hex}"
        (staging / "attempts").make_folder()
        return staging

    def commit(self, commit: Mapping[str, Any]) -> None:
        """Write the commit, with which the batch is done.

        Raises:
            CommitError: a message is unaccounted for; nothing is committed.
            FileExistsError: another process has committed the batch.
        """
        counts = commit["counts"]
        accounted = counts["routed"] + counts["unrouted"] + counts["dead_lettered"]
        if counts["messages"] != accounted:
            raise CommitError(
                f"batch {commit['batch']} read {counted(counts['messages'], 'message')} but accounts for "
                f"{accounted} ({counts['routed']} routed, {counts['unrouted']} unrouted, "
                f"{counted(counts['dead_lettered'], 'dead letter')}): it was not published"
            )
        # Another process may have taken the job over: of two commits of a batch, the first stands.
        self._pending.add(commit["staging"])
        (self._commits / f"{commit['batch']}.json").put_new_json(commit)
        if self._lowest is not None:
            self._lowest = min(self._lowest, commit["batch"])

    def publish(self, commit: Mapping[str, Any]) -> None:
        """Begin to show the batch in the tables, and to append its line to ``accounting.jsonl``, after those
        of the batch before, for which this waits. A batch that is published is skipped.

        Raises the errors of `OutcomeTables.publish` for the batch before; the next start continues.
        """
        self.finish()
        if commit["staging"] in self._pending:
            self._published = self._publishing.submit(self._publish, commit)

    def finish(self) -> None:
        """Wait until the last batch is published. Raises as `publish`."""
        published, self._published = self._published, None
        if published is not None:
            published.result()

    def _publish(self, commit: Mapping[str, Any]) -> None:
        self._show(commit)
        line = self.line(commit)
        with self._accounting_guard:
            if self._accounting.append_line(line):
                self._lines = None
            elif self._lines is not None:
                self._lines.append(line)
        self._pending.discard(commit["staging"])

    def _show(self, commit: Mapping[str, Any]) -> None:
        staging = self.staging(commit)
        self.tables.publish(commit, staging)
        staging.delete_folder()

    def is_pending(self, batch: int) -> bool:
        """Return whether the job, another process, may not have published a committed batch yet: it is one of
        the two newest, and not accounted for.
        """
        later = batch + 2 if batch >= 0 else batch - 2
        return not self.is_committed(later) and batch not in _accounted(self._written())[1]

    def staging(self, commit: Mapping[str, Any]) -> Location:
        """Return the staging folder of a commit, which exists until the batch is published."""
        return self._staging / str(commit["staging"])

    def write_accounting(self) -> None:
        """Write the accounting, where lines can't be appended to a file."""
        with self._accounting_guard:
            if self._lines is not None:
                data = _text(self._lines)
                entry = self._accounting.entry()
                if entry is None or entry.size != len(data):
                    self._accounting.put(data)

    def _complete_accounting(self) -> None:
        """Add the lines of batches that are committed and not accounted for. In remote storage, where each is
        a request, no other commits are read; on a disk all are, so that a changed line is made anew.
        """
        written = self._written()
        lines, known = ([], set[int]()) if self.output.is_local else _accounted(written)
        missing = [batch for batch in (*self.batches(), *self.side_batches()) if batch not in known]
        with ThreadPoolExecutor(_THREADS) as threads:
            commits = [commit for commit in threads.map(self.read, missing) if commit is not None]
        self._lines = lines + [self.line(commit) for commit in sorted(commits, key=_order)]
        data = _text(self._lines)
        if data != written:
            self._accounting.put(data)

    def _written(self) -> bytes | None:
        """Return the content of the accounting, which may be damaged; None if there is none."""
        try:
            return self._accounting.read()
        except FileNotFoundError:
            return None

    def line(self, commit: Mapping[str, Any]) -> str:
        """Return a commit's line in ``accounting.jsonl``."""
        line = {"batch": commit["batch"], "revision": commit["revision"], "digest": commit["digest"]}
        if commit["batch"] < 0:
            line[kind_of(commit)] = True
        accounted = {name: commit["counts"][name] for name in NUMBERS}
        return json.dumps(line | accounted | {"committed": commit["committed"]})


def _text(lines: Iterable[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def _accounted(written: bytes | None) -> tuple[list[str], set[int]]:
    """Return the lines of an accounting, and their batches; none if it is damaged or missing."""
    try:
        lines = (written or b"").decode().splitlines()
        return lines, {int(json.loads(line)["batch"]) for line in lines}
    except (ValueError, KeyError, TypeError):
        return [], set()


def kind_of(commit: Mapping[str, Any]) -> str:
    """Return the kind of a commit: ``stream``, or ``backfill`` or ``replay``, of which it has a record."""
    return next((kind for kind in SIDE_BATCHES if kind in commit), STREAM)


def _order(commit: Mapping[str, Any]) -> tuple[int, int]:
    """Return a key that sorts commits by time: a side batch names the batch ``after`` which it came."""
    batch: int = commit["batch"]
    return (batch, 0) if batch >= 0 else (commit[kind_of(commit)]["after"], -batch)
