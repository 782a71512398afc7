"""What must hold when a killed stream of Kafka's records is done; written against what others can read.

- Each record of the input is in one batch, and judged by the revision that this batch was pinned to.
- Its deliveries in the output folder are those of the reference evaluator under this revision, once each.
- What consumers got from the queue, and what one with ``read_committed`` reads of each topic, are the
  deliveries whose subscription had that destination at that revision, once each.
- Records with more headers than a message has properties are dead letters, once each, with their bytes.
  Of those whose weight is no number, deliveries are lost to nobody who does not read the weight.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, NamedTuple, Protocol

import pyarrow.parquet as pq

import selectroute as sr
from selectroute.selector.message import MAX_PROPERTIES
from selectroute.spark.audit.audit import audit
from selectroute.testing.broker import Broker, Header
from tests.support.outcomes import published_files

KINDS = 300
"""Different records: each selector is judged by the reference on each of them once."""

_EACH = 40
"""One kind of so many is a dead letter, and one has a weight that is no number."""

QUEUE = "A"
"""The name of the queue, where there is one."""

Ids = Counter[str]
"""Delivery ids, each with how often it came."""


class Subscription(NamedTuple):
    """A selector, and the kind and the name of its destination."""

    selector: str
    destination: tuple[str, str] | None

    def registered(self, id: str) -> dict[str, Any]:
        """Return it as `build_from_lines` reads it."""
        to = None if self.destination is None else dict(zip(("kind", "name"), self.destination, strict=True))
        return {"id": id, "selector": self.selector, "destination": to}


class Kinds:
    """The different records, made from a seed."""

    def __init__(self, seed: int) -> None:
        chance = Random(seed)
        self._weights = [chance.randrange(1_000) for _ in range(KINDS)]
        self._colors = [f"c{chance.randrange(5)}" for _ in range(KINDS)]
        self.matches = cache(self._matches)

    def draw(self, chance: Random) -> int:
        """Draw a kind."""
        return chance.randrange(KINDS)

    def is_bad(self, kind: int) -> bool:
        """Whether it is a dead letter."""
        return kind % _EACH == 0

    def is_unlike(self, kind: int) -> bool:
        """Whether its weight is no number."""
        return kind % _EACH == 1

    def record(self, kind: int) -> tuple[bytes | None, bytes, list[Header]]:
        """Return key, value and headers: of some the key is NULL, of some a header stands twice."""
        weight = b"heavy" if self.is_unlike(kind) else str(self._weights[kind]).encode()
        headers: list[Header] = [("kind", str(kind).encode()), ("weight", weight)]
        if kind % 7 == 0:
            headers.append(("color", b"none"))
        headers.append(("color", self._colors[kind].encode()))
        if self.is_bad(kind):
            headers += [(f"h{nth}", None) for nth in range(MAX_PROPERTIES)]
        return None if kind % 3 else f"k{kind % 11}".encode(), f"body {kind}".encode(), headers

    def selector(self, chance: Random) -> str:
        """Draw a selector."""
        weight, color = chance.randrange(1_000), f"c{chance.randrange(5)}"
        return chance.choice(
            [
                f"color = '{color}' AND weight > {weight}",
                f"weight BETWEEN {weight} AND {weight + 90}",
                f"color IN ('{color}', 'c0') AND NOT weight < {weight}",
                f"kind LIKE '%{weight % 10}' AND color <> '{color}'",
            ]
        )

    def _matches(self, kind: int, selector: str) -> bool:
        properties = {"kind": str(kind), "color": self._colors[kind]}
        if self.is_unlike(kind):
            message = sr.Message({}, properties, unlike=["weight"])
        else:
            message = sr.Message({}, properties | {"weight": sr.Int(self._weights[kind])})
        return not self.is_bad(kind) and sr.Selector(selector).matches(message)


class Run(Protocol):
    """What went in: see `kafka_flow`."""

    broker: Broker
    journal: Path
    has_queue: bool
    topic: str
    topics: list[str]
    produced: int
    kinds: Kinds
    states: dict[int, dict[str, Subscription]]


def check(run: Run, output: Path) -> Counter[str]:
    """Check everything and return what was counted. Raises AssertionError."""
    findings = audit(output).findings
    assert not findings, findings[:5]
    assert not list((output / "_staging").iterdir())
    commits = _commits(output)
    records = {
        (record.partition(), record.offset()): int(dict(record.headers())["kind"])
        for record in run.broker.records(run.topic)
    }
    assert len(records) == run.produced
    delivered, to, dead = _expected(run, commits, records)

    deliveries = Counter(
        (_id(run.topic, row), row["revision"]) for row in _rows(output / "deliveries", "subscription")
    )
    _same("deliveries", deliveries, Counter(delivered))
    letters = _rows(output / "dead-letters", "raw")
    _same("dead letters", Counter((row["partition"], row["offset"], row["raw"]) for row in letters), dead)

    taken = run.journal.read_bytes().splitlines() if run.has_queue else []
    got = Counter(json.loads(line)["delivery_id"] for line in taken)
    _same("queue", got, to[QUEUE])
    counts = Counter(
        {"revisions": len({commit["revision"] for commit in commits.values()}), "batches": len(commits)}
    )
    counts["records"] = len(records)
    counts["deliveries"] = deliveries.total()
    counts["got from the queue"] = got.total()
    for topic in run.topics:
        sent = run.broker.records(topic)
        _same(f"topic {topic}", _ids(sent), to[topic])
        counts["read of topics"] += len(sent)
        counts["of aborted transactions"] += len(run.broker.records(topic, "read_uncommitted")) - len(sent)
    return counts


def _expected(
    run: Run, commits: Mapping[int, Mapping[str, Any]], records: Mapping[tuple[int, int], int]
) -> tuple[dict[tuple[str, int], int], dict[str, Ids], Counter[Any]]:
    """What the reference has: deliveries with their revision, those of each destination, and dead letters."""
    delivered: dict[tuple[str, int], int] = {}
    to: dict[str, Ids] = {name: Counter() for name in (QUEUE, *run.topics)}
    dead: Counter[Any] = Counter()
    taken: Counter[tuple[int, int]] = Counter()
    for commit in commits.values():
        state = run.states[commit["revision"]]
        starts, ends = (commit["inputs"][name].get(run.topic, {}) for name in ("start", "end"))
        for partition, start in starts.items():
            for offset in range(start, ends[partition]):
                place = int(partition), offset
                taken[place] += 1
                kind = records[place]
                if run.kinds.is_bad(kind):
                    dead[*place, run.kinds.record(kind)[1]] += 1
                for id, one in state.items():
                    if run.kinds.matches(kind, one.selector):
                        whole = f"{run.topic}/{partition}/{offset}/{id}"
                        delivered[whole, commit["revision"]] = 1
                        if one.destination is not None:
                            to[one.destination[1]][whole] += 1
    _same("batches", taken, Counter(dict.fromkeys(records, 1)))
    return delivered, to, dead


def _commits(output: Path) -> dict[int, dict[str, Any]]:
    found = {int(path.stem): json.loads(path.read_text()) for path in (output / "_commits").glob("*.json")}
    for batch, commit in found.items():
        pin = json.loads((output / "pins" / f"{batch}.json").read_text())
        assert (pin["revision"], pin["digest"]) == (commit["revision"], commit["digest"]), batch
    revisions = [found[batch]["revision"] for batch in sorted(found)]
    assert revisions == sorted(revisions), "revisions go up from batch to batch"
    return found


def _rows(folder: Path, column: str) -> list[dict[str, Any]]:
    columns = ["partition", "offset", "revision", column]
    found: list[dict[str, Any]] = []
    for path in published_files(folder):
        found += pq.ParquetFile(path).read(columns).to_pylist()
    return found


def _id(topic: str, row: Mapping[str, Any]) -> str:
    return f"{topic}/{row['partition']}/{row['offset']}/{row['subscription']}"


def _ids(records: Iterable[Any]) -> Ids:
    return Counter(dict(record.headers())["selectroute-delivery-id"].decode() for record in records)


def _same(what: str, found: Counter[Any], expected: Counter[Any]) -> None:
    lost, more = expected - found, found - expected
    twice = [one for one in more if one in expected]
    assert not lost, f"{what}: {lost.total()} lost: {list(lost)[:3]}"
    assert not twice, f"{what}: {len(twice)} twice: {twice[:3]}"
    assert not more, f"{what}: {more.total()} that should not be: {list(more)[:3]}"
