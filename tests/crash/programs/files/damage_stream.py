"""The part of `damage` that is the stream's: pins, commits, leases, and what a job is.

A job stands in the middle of its work, as a crash leaves it: two batches are done, a backfill is pinned, a
batch is committed and not yet published, another one is pinned. Each file is damaged in turn and the job goes
on: a named error, or exactly the deliveries, cut-offs and accounts that come without the damage.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

from selectroute.index.retention import collect
from selectroute.spark.batch.commits import Commits
from selectroute.spark.folder import OutputFolder
from selectroute.spark.sources.files import source as file_intake
from selectroute.storage import Location
from tests.crash.programs.files.damage import each_damage, put_back
from tests.spark.registry_log import Log, Run, delivered
from tests.support.world import World

QUERY = "q"
RED, BLUE = {"properties": {"color": "red"}}, {"properties": {"color": "blue"}}
MESSAGES = {0: (RED, BLUE), 1: (RED, RED), 2: (BLUE, RED, RED), 3: (RED,)}


class _KilledError(BaseException):
    """The process ended here."""


def _until(place: Any, name: str, step: Any, *arguments: Any) -> None:
    """Run a step up to where it calls this."""
    with patch.object(place, name, side_effect=_KilledError), suppress(_KilledError):
        step(*arguments)
        raise AssertionError(f"it does not come to {name}")


class Halted:
    """A job that was killed."""

    def __init__(self, root: Path, table_format: str = "parquet") -> None:
        self.world = World(root, table_format=table_format)
        self.world.input.mkdir(parents=True)
        self.log = Log(self.world)
        self.log.add("red", "color = 'red'")
        self.log.add("all", "")
        job = self.world.job()
        folder = OutputFolder(job)
        folder.claim()
        job.checkpoint.path.mkdir(exist_ok=True)
        (job.checkpoint.path / "metadata").write_text(f'{{"id":"{QUERY}"}}')
        folder.bind()
        folder.release()
        run = Run(self.world, self.log)
        run.route(0, *MESSAGES[0])
        run.effective_from.report(self.log, QUERY)
        self.log.pause("red")
        run.route(1, *MESSAGES[1])
        self.log.resume("red")
        _until(run.router, "write", run.backfill)
        _until(Commits, "publish", run.route, 2, *MESSAGES[2])
        self.log.replace("all", "color = 'blue'")
        _until(file_intake, "plan_in", run.route, 3, *MESSAGES[3])
        self.log.add("late", "")

    def go_on(self) -> Any:
        """Start the job again and let it do everything; what comes of it."""
        world, log = self.world, self.log
        log.notes.clear()
        collect(world.snapshots, keep=1, grace_seconds=0)
        folder = OutputFolder(world.job())
        folder.claim()
        try:
            run = Run(world, log)
            query = folder.bind()
            for batch in (2, 3):
                run.route(batch, *MESSAGES[batch])
            run.effective_from.report(log, query)
            run.backfill()
        finally:
            folder.release()
        return delivered(world), sorted(map(str, world.rows("unrouted"))), world.accounting(), set(log.notes)

    def check(self, wanted: Any) -> bool:
        """Let the job go on: it is as without damage, or a named error."""
        deliveries, unrouted, accounts, notes = self.go_on()
        others = deliveries - wanted[0], wanted[0] - deliveries
        assert deliveries == wanted[0], f"other deliveries: {others}"
        assert unrouted == wanted[1], "other messages are unrouted"
        assert [_counts(line) for line in accounts] == [_counts(line) for line in wanted[2]], "other accounts"
        # What was told already may be told again: that is harmless.
        assert wanted[3] <= notes, "a cut-off is not told"
        return False


def _counts(line: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in line.items() if name != "committed"}


def files(halted: Halted) -> dict[str, list[Path]]:
    """What is damaged, by kind."""
    output, leases = halted.world.output, halted.world.snapshots / "leases"
    found = {
        "pins": sorted((output / "pins").glob("*.json")),
        "_commits": sorted((output / "_commits").glob("*.json")),
        "leases": sorted(leases.glob("*.json")),
        **{name: [output / name] for name in ("_job.json", "_reported.json", "_backfill.json")},
        "accounting.jsonl": [output / "accounting.jsonl"],
    }
    names = {path.stem for path in found["pins"]}
    assert names == {"0", "1", "2", "3", "-1"} and len(found["_commits"]) == 3, names
    assert len(found["leases"]) == 2 and all(Location.of(path).read_json() for path in found["pins"])
    return found


def run_stream(
    root: Path, flips: int, chance: Random, table_format: str = "parquet"
) -> dict[str, Counter[str]]:
    """Damage each of the job's files; returns kind → what was counted. Raises AssertionError."""
    halted = Halted(root, table_format)
    counts: dict[str, Counter[str]] = {}
    several = files(halted)
    with put_back(root):
        wanted = halted.go_on()
    assert sum(wanted[0].values()) >= 8, wanted[0]
    for kind, paths in several.items():
        counts[kind] = Counter()
        for path in paths:
            share = max(1, flips // len(paths))
            counts[kind] += each_damage(root, path, share, chance, lambda: halted.check(wanted))
        # A lease is for who collects, the accounts are made again.
        if kind not in ("leases", "accounting.jsonl"):
            assert counts[kind]["named"], f"{kind} can be damaged unnoticed"
    return counts
