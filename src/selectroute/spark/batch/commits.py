"""Stage, commit, publish: a batch's output appears once, whole, however often the batch runs or crashes.

::

    _staging/<batch>-<uuid>/attempts/…                 workers write here, each attempt under names of its own
    _staging/<batch>-<uuid>/publish/<sink>/batch=<n>/  the files that were reported, moved by the driver
    _staging/<batch>-<uuid>/outgoing-<kind>/           the same of what goes elsewhere, see ``staging``
    _commits/<batch>.json                              its appearance is the commit
    _commits/<batch>.late.json                         what could not be handed on afterwards, if anything
    <sink>/batch=<n>/                                  renamed here afterwards, by whoever comes first
    accounting.jsonl                                   a line a commit, made from the commits

Up to the commit a crash leaves only staged files, which the next start removes. From the commit on the batch
is done: what is not yet sent and published is so at the next start, and the batch is skipped when it comes
again. Batches of the stream are numbered from 0 up, what comes beside it from -1 down: backfills (see
``backfill``) and replays (see ``replay``).
"""

from __future__ import annotations

import json
import re
import shutil
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from selectroute.durable import disk
from selectroute.index.destination import KAFKA, QUEUE
from selectroute.selector.explain.sentences import counted
from selectroute.spark.destinations.staging import PREFIX
from selectroute.spark.job.job import CommitError
from selectroute.spark.senders.sender import Sender
from selectroute.spark.sinks.schemas import SINKS

_STAGED = re.compile(r"(-?\d+)-[0-9a-f]{32}")
_DONE = ".done"
_SIDE_BATCH = re.compile(r"-[1-9]\d*")
STREAM = "stream"
BACKFILL, REPLAY = SIDE_BATCHES = ("backfill", "replay")
"""The kinds of batches."""

_ACCOUNTED = ("messages", "routed", "unrouted", "dead_lettered", "deliveries", "refused", "queued", "sent")


class Commits:
    """Commits of one output folder, and its staged and published files.

    ``senders`` hand on what committed batches have staged for destinations outside the folder, by their kind.
    """

    def __init__(self, output: Path, senders: Mapping[str, Sender] | None = None) -> None:
        self.output = output
        self._senders = senders or {}
        self._commits = output / "_commits"
        self._staging = output / "_staging"
        self._accounting = output / "accounting.jsonl"
        self._lowest: int | None = None

    def prepare(self) -> None:
        """Make the folders, finish what was committed, remove what was not, and rebuild the accounting."""
        for folder in (self._commits, self._staging, *(self.output / sink for sink in SINKS)):
            disk.make_folder(folder)
        left: list[dict[str, Any]] = []
        for staged in self._staging.iterdir():
            named = _STAGED.fullmatch(staged.name.removesuffix(_DONE))
            if named is None:
                continue
            commit = None if staged.name.endswith(_DONE) else self.read(int(named[1]))
            if commit is not None and commit["staging"] == staged.name:
                left.append(commit)
            else:
                # A worker that outlives its driver for a moment may still write there: the next start
                # removes that.
                shutil.rmtree(staged, ignore_errors=True)
        # Who reads deliveries elsewhere counts on their order.
        for commit in sorted(left, key=_turn):
            self.publish(commit)
        self._rebuild_accounting()

    def batches(self) -> list[int]:
        """Return the numbers of the committed batches of the stream, ascending."""
        return sorted(int(path.stem) for path in self._commits.glob("*.json") if path.stem.isdigit())

    def side_batches(self) -> list[int]:
        """Return the numbers of the committed backfills and replays, in the order in which they were made:
        -1, -2, …
        """
        found = (path.stem for path in self._commits.glob("-*.json"))
        return sorted((int(stem) for stem in found if _SIDE_BATCH.fullmatch(stem)), reverse=True)

    def next_side_batch(self) -> int:
        """Return the number of the next backfill or replay. For whoever alone makes commits here."""
        if self._lowest is None:
            self._lowest = min(self.side_batches(), default=0)
        return self._lowest - 1

    def read(self, batch: int) -> dict[str, Any] | None:
        """Return a batch's commit, or None if it was not committed."""
        return disk.read_json(self._commits / f"{batch}.json")

    def is_committed(self, batch: int | None) -> bool:
        """Return whether a batch was committed."""
        return (self._commits / f"{batch}.json").exists()

    def stage(self, batch: int) -> Path:
        """Make a staging folder for a run of this batch and return it; workers write in its ``attempts``."""
        staging = self._staging / f"{batch}-{uuid.uuid4().hex}"
        disk.make_folder(staging / "attempts")
        return staging

    def collect(
        self, batch: int, staging: Path, files: Sequence[Mapping[str, Any]]
    ) -> tuple[list[dict[str, Any]], dict[str, list[dict[str, Any]]]]:
        """Move the reported files to where they will be renamed from as a whole, or handed on; return them as
        the commit has them: those that are published, and the others by the kind of their destination.

        What a failed attempt left beside them stays behind and is removed with the staging folder.
        """
        collected: list[dict[str, Any]] = []
        outgoing: dict[str, list[dict[str, Any]]] = {}
        numbers: Counter[str] = Counter()
        folders: dict[str, Path] = {}
        for file in files:
            sink = file["sink"]
            goes_out = sink.startswith(PREFIX)
            folder = staging / sink if goes_out else staging / "publish" / sink / f"batch={batch}"
            folders[sink] = folder
            disk.make_folder(folder)
            name = f"part-{numbers[sink]:05d}-{staging.name[-8:]}.parquet"
            numbers[sink] += 1
            work = staging / "attempts" / file["path"]
            if work.stat().st_size != file["size"]:
                raise CommitError(
                    f"{work} has {work.stat().st_size} bytes, and its task reported {file['size']}"
                )
            disk.move(work, folder / name)
            path = f"{sink}/{name}" if goes_out else f"{sink}/batch={batch}/{name}"
            found = {"path": path, "rows": file["rows"], "size": file["size"], "sha256": file["sha256"]}
            if goes_out:
                outgoing.setdefault(sink.removeprefix(PREFIX), []).append(found)
            else:
                collected.append(found)
        for folder in folders.values():
            disk.sync_folder(folder)
        return collected, outgoing

    def commit(self, commit: Mapping[str, Any]) -> None:
        """Write the commit: this is the instant at which the batch is done.

        Raises:
            CommitError: some message is unaccounted for; nothing is committed.
        """
        counts = commit["counts"]
        accounted = counts["routed"] + counts["unrouted"] + counts["dead_lettered"]
        if counts["messages"] != accounted:
            raise CommitError(
                f"batch {commit['batch']} took in {counted(counts['messages'], 'message')} but accounts for "
                f"{accounted} ({counts['routed']} routed, {counts['unrouted']} unrouted, "
                f"{counted(counts['dead_lettered'], 'dead letter')}): "
                "nothing of it was published"
            )
        disk.write_json(self._commits / f"{commit['batch']}.json", commit)
        if self._lowest is not None:
            self._lowest = min(self._lowest, commit["batch"])

    def publish(self, commit: Mapping[str, Any]) -> None:
        """Hand on what goes elsewhere, rename the committed folders to where readers look, and append a line
        to ``accounting.jsonl``. Idempotent: finished steps are skipped.

        Raises what the senders raise; the next start goes on.
        """
        batch = commit["batch"]
        staging = self.staging(commit)
        if not staging.is_dir():
            return
        self._send(commit, staging)
        for sink in SINKS:
            staged = staging / "publish" / sink / f"batch={batch}"
            target = self.output / sink / f"batch={batch}"
            if staged.is_dir():
                if target.exists():
                    raise CommitError(f"{target} is there, but this job did not put it there: move it away")
                disk.rename(staged, target)
        self._account(commit)
        # One that is half removed must not be taken for one to go on with.
        done = staging.rename(f"{staging}{_DONE}")
        shutil.rmtree(done, ignore_errors=True)

    def staging(self, commit: Mapping[str, Any]) -> Path:
        """Return the staging folder of a commit, which is there until all of the batch is published and
        accounted for.
        """
        path: Path = self._staging / commit["staging"]
        return path

    def _account(self, commit: Mapping[str, Any]) -> None:
        disk.append_line(self._accounting, self.line(commit))

    def _send(self, commit: Mapping[str, Any], staging: Path) -> None:
        """Hand on what goes elsewhere, and write down how much of it could not be."""
        late = self._late(commit["batch"])
        if disk.read_json(late) is not None:
            return
        files: list[dict[str, Any]] = []
        of_kinds: dict[str, int] = {}
        for kind, outgoing in commit.get("outgoing", {}).items():
            sender = self._senders.get(kind)
            if sender is None:
                raise CommitError(
                    f"batch {commit['batch']} was committed, and what it has for destinations of the kind "
                    f"{kind} is not all handed on: start the job with these once more (--{kind}s)"
                )
            found = sender.send(commit["batch"], commit["revision"], outgoing, staging)
            of_kinds[kind] = sum(file["rows"] for file in found)
            files += found
        if files:
            refused = {"refused": sum(of_kinds.values()), "kinds": of_kinds}
            disk.write_json(late, {"batch": commit["batch"], **refused, "files": files})

    def _late(self, batch: int) -> Path:
        return self._commits / f"{batch}.late.json"

    def _rebuild_accounting(self) -> None:
        commits = [self.read(batch) or {} for batch in (*self.batches(), *self.side_batches())]
        lines = "".join(self.line(commit) + "\n" for commit in sorted(commits, key=_turn))
        # Bytes, because a damaged file may be no text any more.
        if not self._accounting.exists() or self._accounting.read_bytes() != lines.encode():
            disk.replace_text(self._accounting, lines)

    def line(self, commit: Mapping[str, Any]) -> str:
        """Return a commit's line in ``accounting.jsonl``."""
        counts = self.counts(commit)
        line = {"batch": commit["batch"], "revision": commit["revision"], "digest": commit["digest"]}
        if commit["batch"] < 0:
            line[kind_of(commit)] = True
        accounted = {name: counts[name] for name in _ACCOUNTED}
        return json.dumps(line | accounted | {"committed": commit["committed"]})

    def counts(self, commit: Mapping[str, Any]) -> dict[str, Any]:
        """Return what became of a batch's messages: as it was committed, but for what came too late."""
        # Commits of earlier releases know of no refused deliveries, nor of queues: there were none.
        counts: dict[str, Any] = {"refused": 0, "queued": 0, "sent": 0} | commit["counts"]
        late = disk.read_json(self._late(commit["batch"]))
        if late is not None:
            # Of earlier releases all were for queues.
            kinds = late.get("kinds", {QUEUE: late["refused"]})
            counts |= {
                "refused": counts["refused"] + late["refused"],
                "queued": counts["queued"] - kinds.get(QUEUE, 0),
                "sent": counts["sent"] - kinds.get(KAFKA, 0),
            }
        return counts

    def files(self, commit: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the published files of a batch: those of its commit, and dead letters that came later."""
        late = disk.read_json(self._late(commit["batch"])) or {}
        return [*commit["files"], *late.get("files", ())]


def kind_of(commit: Mapping[str, Any]) -> str:
    """Return what a commit is of: ``stream``, ``backfill`` or ``replay``; one of the latter two has a record
    of this name.
    """
    return next((kind for kind in SIDE_BATCHES if kind in commit), STREAM)


def _turn(commit: Mapping[str, Any]) -> tuple[int, int]:
    """Return a key that sorts commits by time: a side batch knows after which batch of the stream it came."""
    batch: int = commit["batch"]
    return (batch, 0) if batch >= 0 else (commit[kind_of(commit)]["after"], -batch)
