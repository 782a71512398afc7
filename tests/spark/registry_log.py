"""A registry as a fan-out sees it, in memory: a log of changes, published as snapshots of a folder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

from selectroute.selector.errors import SelectRouteError
from selectroute.spark.batch.router import BatchReport
from selectroute.spark.replay.backfill import Backfills
from selectroute.spark.stream.reports import EffectiveFromReporter
from selectroute.storage import Location


@dataclass(frozen=True)
class Change:
    revision: int
    op: str
    id: str
    resume_from: str | None = None
    paused_at: int | None = None


@dataclass
class Log:
    """Subscriptions and their changes; every change is published at once, unless told otherwise."""

    world: Any
    revision: int = 0
    published: bool = True
    reachable: bool = True
    log: list[Change] = field(default_factory=list)
    selectors: dict[str, str] = field(default_factory=dict)
    paused: dict[str, int] = field(default_factory=dict)
    notes: list[tuple[Any, ...]] = field(default_factory=list)
    reports: list[tuple[str, list[int]]] = field(default_factory=list)

    def add(self, id: str, selector: str) -> int:
        self.selectors[id] = selector
        return self._commit("add", id)

    def replace(self, id: str, selector: str) -> int:
        self.selectors[id] = selector
        return self._commit("replace", id)

    def remove(self, id: str) -> int:
        del self.selectors[id]
        self.paused.pop(id, None)
        return self._commit("remove", id)

    def pause(self, *ids: str) -> int:
        self.paused |= dict.fromkeys(ids, self.revision + 1)
        return self._commit("pause", *ids)

    def resume(self, *ids: str, from_: str = "last-processed") -> int:
        since = {id: self.paused.pop(id) for id in ids}
        return self._commit("resume", *ids, resume_from=from_, since=since)

    def publish(self) -> int:
        live = {id: text for id, text in self.selectors.items() if id not in self.paused}
        return self.world.publish(self.revision, **live)

    def _commit(self, op: str, *ids: str, resume_from: str | None = None, since: Any = None) -> int:
        self.revision += 1
        for id in ids:
            paused_at = None if since is None else since[id]
            self.log.append(Change(self.revision, op, id, resume_from, paused_at))
        if self.published:
            self.publish()
        return self.revision

    # ---- what a fan-out asks

    def follow_changes(self, after: int, *, ops: Sequence[str]) -> Generator[Change]:
        if not self.reachable:
            raise SelectRouteError("nobody answers")
        yield from [change for change in self.log if change.revision > after and change.op in ops]

    @property
    def streams(self) -> Log:
        return self

    def queries(self) -> list[Any]:
        if not self.reachable:
            raise SelectRouteError("nobody answers")
        return []

    def note_query(self, query: str, *, source: str, can_replay: bool, reason: str | None) -> None:
        if not self.reachable:
            raise SelectRouteError("nobody answers")
        self.notes.append((query, source, can_replay, reason))

    def note_batch(self, query: str, batch: int, revision: int) -> None:
        if not self.reachable:
            raise SelectRouteError("nobody answers")
        self.notes.append((query, batch, revision))

    def note_reports(self, query: str, batches: Sequence[Any], state: Any) -> None:
        if not self.reachable:
            raise SelectRouteError("nobody answers")
        self.reports.append((query, [one["batch"] for one in batches], state))


class Run:
    """A start of the job in this process: its router, its backfills and what it tells the registry."""

    def __init__(self, world: Any, log: Log, **options: Any) -> None:
        self.world = world
        self.log = log
        self.router = world.router(**options)
        self.backfills = Backfills(self.router)
        self.effective_from = EffectiveFromReporter(self.router.job, self.router.commits, self.router.source)

    def route(self, batch: int, *messages: Any) -> BatchReport:
        """Route a file of these messages, named after the batch; return the report of it."""
        path = self.world.input / f"{batch}.jsonl"
        if not Location.of(path).exists():
            path = self.world.drop_json(path.name, *messages)
        return self.router.route(batch, [path], "q")

    def backfill(self) -> list[Any]:
        """Make all backfills that are due now, and return their reports."""
        self.backfills.follow(self.log)
        return list(iter(lambda: self.backfills.next("q"), None))


def delivered(world: Any) -> Counter[tuple[int, str, int, str, int]]:
    """(batch, source, row, subscription, revision) of each delivery, with how often it was published."""
    return Counter(
        (row["batch"], row["source"], row["offset"], row["subscription"], row["revision"])
        for row in world.rows("deliveries")
    )


def side_leases(world: Any) -> list[str]:
    """The names of the leases of side batches."""
    leases = Location.of(world.snapshots / "leases").files()
    return [one.name for one in leases if one.name.endswith("-backfill.json")]


def committed(world: Any, batch: int) -> dict[str, Any]:
    found = Location.of(world.output / "_commits" / f"{batch}.json").read_json()
    assert found is not None, batch
    return found
