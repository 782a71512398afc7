"""Stage, commit, publish: a batch's output appears once, whole, however often the batch runs or crashes.

::

    _staging/<batch>-<uuid>/attempts/…                 workers write here, each attempt under names of its own
    _staging/<batch>-<uuid>/publish/<sink>/batch=<n>/  the files that were reported, moved by the driver
    _commits/<batch>.json                              its appearance is the commit
    <sink>/batch=<n>/                                  renamed here afterwards, by whoever comes first
    accounting.jsonl                                   a line a commit, made from the commits

Up to the commit a crash leaves only staged files, which the next start removes. From the commit on the batch
is done: what is not yet published is published at the next start or batch, and the batch is skipped when it
comes again. Batches of the stream are numbered from 0 up, backfills (see `backfill`) from -1 down.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from selectroute.selector.errors import SelectRouteError
from selectroute.spark import durable
from selectroute.spark.sinks import SINKS

_STAGED = re.compile(r"(-?\d+)-[0-9a-f]{32}")
_BACKFILL = re.compile(r"-[1-9]\d*")
_ACCOUNTED = ("messages", "routed", "unrouted", "dead_lettered", "deliveries", "refused")


class CommitError(SelectRouteError):
    """A batch that must not be committed, or whose commit and output do not belong together."""


class Commits:
    """The commits of one output folder, and its staged and published files."""

    def __init__(self, output: Path) -> None:
        self.output = output
        self._commits = output / "_commits"
        self._staging = output / "_staging"
        self._accounting = output / "accounting.jsonl"

    def prepare(self) -> None:
        """Make the folders, finish what was committed, remove what was not, and rebuild the accounting."""
        for folder in (self._commits, self._staging, *(self.output / sink for sink in SINKS)):
            durable.make_folder(folder)
        for staged in sorted(self._staging.iterdir()):
            named = _STAGED.fullmatch(staged.name)
            if named is None:
                continue
            commit = self.read(int(named[1]))
            if commit is not None and commit["staging"] == staged.name:
                self.publish(commit)
            else:
                shutil.rmtree(staged)
        self._rebuild_accounting()

    def batches(self) -> list[int]:
        """Return the numbers of the committed batches of the stream, ascending."""
        return sorted(int(path.stem) for path in self._commits.glob("*.json") if path.stem.isdigit())

    def backfills(self) -> list[int]:
        """Return the numbers of the committed backfills, in the order in which they were made: -1, -2, …"""
        found = (path.stem for path in self._commits.glob("-*.json"))
        return sorted((int(stem) for stem in found if _BACKFILL.fullmatch(stem)), reverse=True)

    def read(self, batch: int) -> dict[str, Any] | None:
        """Return a batch's commit, or None if it was not committed."""
        return durable.read_json(self._commits / f"{batch}.json")

    def stage(self, batch: int) -> Path:
        """Make a staging folder for a run of this batch and return it; workers write in its ``attempts``."""
        staging = self._staging / f"{batch}-{uuid.uuid4().hex}"
        durable.make_folder(staging / "attempts")
        return staging

    def collect(self, batch: int, staging: Path, files: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Move the reported files to where they will be renamed from as a whole; return them as the commit
        has them.

        What a failed attempt left beside them stays behind and is removed with the staging folder.
        """
        collected: list[dict[str, Any]] = []
        numbers = dict.fromkeys(SINKS, 0)
        for file in files:
            sink = file["sink"]
            folder = staging / "publish" / sink / f"batch={batch}"
            durable.make_folder(folder)
            name = f"part-{numbers[sink]:05d}-{staging.name[-8:]}.parquet"
            numbers[sink] += 1
            work = staging / "attempts" / file["path"]
            if work.stat().st_size != file["size"]:
                raise CommitError(
                    f"{work} has {work.stat().st_size} bytes, and its task reported {file['size']}"
                )
            durable.move(work, folder / name)
            path = f"{sink}/batch={batch}/{name}"
            collected.append(
                {"path": path, "rows": file["rows"], "size": file["size"], "sha256": file["sha256"]}
            )
        for sink, number in numbers.items():
            if number:
                durable.sync_folder(staging / "publish" / sink / f"batch={batch}")
        return collected

    def commit(self, commit: Mapping[str, Any]) -> None:
        """Write the commit: this is the instant at which the batch is done.

        Raises:
            CommitError: some message is unaccounted for; nothing is committed.
        """
        counts = commit["counts"]
        accounted = counts["routed"] + counts["unrouted"] + counts["dead_lettered"]
        if counts["messages"] != accounted:
            raise CommitError(
                f"batch {commit['batch']} took in {counts['messages']} messages but accounts for {accounted} "
                f"({counts['routed']} routed, {counts['unrouted']} unrouted, "
                f"{counts['dead_lettered']} dead letters): "
                "nothing of it was published"
            )
        durable.write_json(self._commits / f"{commit['batch']}.json", commit)

    def publish(self, commit: Mapping[str, Any]) -> None:
        """Rename the committed folders to where readers look. Doing it again, or doing the rest, is
        harmless."""
        batch = commit["batch"]
        staging = self._staging / commit["staging"]
        for sink in SINKS:
            staged = staging / "publish" / sink / f"batch={batch}"
            target = self.output / sink / f"batch={batch}"
            if staged.is_dir():
                if target.exists():
                    raise CommitError(f"{target} is there, but this job did not put it there: move it away")
                durable.rename(staged, target)
        shutil.rmtree(staging, ignore_errors=True)

    def account(self, commit: Mapping[str, Any]) -> None:
        """Append the commit's line to ``accounting.jsonl``."""
        durable.append_line(self._accounting, _line(commit))

    def _rebuild_accounting(self) -> None:
        commits = [self.read(batch) or {} for batch in (*self.batches(), *self.backfills())]
        lines = "".join(_line(commit) + "\n" for commit in sorted(commits, key=_turn))
        # Bytes, because a damaged file may be no text any more.
        if not self._accounting.exists() or self._accounting.read_bytes() != lines.encode():
            durable.write_text(self._accounting, lines)


def inputs_digest(sources: Iterable[str]) -> str:
    """Return the SHA-256 of the names of a batch's files: a batch that comes again must bring the same
    ones."""
    return hashlib.sha256("\0".join(sorted(sources)).encode("utf-8", "surrogateescape")).hexdigest()


def _turn(commit: Mapping[str, Any]) -> tuple[int, int]:
    """When a batch was committed, among the others: a backfill knows after which batch of the stream."""
    batch: int = commit["batch"]
    return (batch, 0) if batch >= 0 else (commit["backfill"]["after"], -batch)


def _line(commit: Mapping[str, Any]) -> str:
    counts = commit["counts"]
    line = {"batch": commit["batch"], "revision": commit["revision"], "digest": commit["digest"]}
    if commit["batch"] < 0:
        line["backfill"] = True
    # Commits of earlier releases know of no refused deliveries: there were none.
    accounted = {name: counts.get(name, 0) for name in _ACCOUNTED}
    return json.dumps(line | accounted | {"committed": commit["committed"]})
