"""What must hold after a storm of changes; written against the registry's log and the files alone.

- Every message file is in exactly one batch of the stream, and every message in its accounts.
- The deliveries of a batch are those of the reference evaluator under the subscriptions that were active at
  the revision in the batch's pin, and carry that revision: each message is judged by exactly one.
- Revisions never go back from batch to batch, and the registry's ``effective_from`` of each revision is the
  first batch that was pinned to it or a later one.
- A backfill gives subscriptions what they missed of batches: by the reference under its own revision, at
  which they are active. Nobody gets a message twice, and whoever was resumed from last-processed and is still
  there gets everything from between pause and resume.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import selectroute as sr
from selectroute.index.specification import Status
from selectroute.registry.changes import Change
from selectroute.registry.model import Subscription
from selectroute.topics import TopicFilter
from tests.support.outcomes import published_files

KINDS = 2_000
"""Different messages: each selector is judged by the reference on each of them once."""

Pairs = npt.NDArray[np.int64]
"""Deliveries, sorted: offset of the message × `_WIDE` + number of the subscription."""

_WIDE = 1 << 20


@dataclass(slots=True)
class Tally:
    """What was checked."""

    changes: int = 0
    revisions: int = 0
    batches: int = 0
    messages: int = 0
    deliveries: int = 0
    backfills: int = 0
    backfilled: int = 0
    cutoffs: int = 0
    owed: int = 0

    def __str__(self) -> str:
        return (
            f"{self.changes:,} changes; {self.messages:,} messages in {self.batches:,} batches under "
            f"{self.revisions:,} revisions: {self.deliveries:,} deliveries as the reference has them; "
            f"{self.backfills:,} backfills with {self.backfilled:,} more, {self.owed:,} pairs of "
            f"subscription and batch owed and given once; {self.cutoffs:,} cut-offs hold"
        )


def kinds(seed: int) -> pa.Table:
    """The different messages, in the columns of a message file; ``kind`` is read by no selector."""
    draw = np.random.default_rng(seed)
    numbers = np.arange(KINDS)
    return pa.table(
        {
            "kind": pa.array(numbers, pa.int32()),
            "JMSType": [f"t{one}" for one in draw.integers(0, 20, KINDS)],
            "color": [f"c{one}" for one in draw.integers(0, 5, KINDS)],
            "weight": pa.array(draw.integers(0, 1_040, KINDS), pa.int32()),
            "price": pa.array(draw.random(KINDS) * 100, mask=draw.random(KINDS) < 0.2),
            "note": [f"{one:x}" for one in draw.integers(0, 1 << 40, KINDS)],
            "@topic": [
                f"{('cars', 'vans')[a]}/c{b}/{('eu', 'us')[c]}"
                for a, b, c in draw.integers(0, (2, 5, 2), (KINDS, 3))
            ],
        }
    )


def check_storm(registry: sr.Registry, input: Path, output: Path, messages: pa.Table) -> Tally:
    """Check everything; AssertionError where something does not hold. ``messages`` are the `kinds`."""
    return _Check(registry, input, output, messages).run()


class _Check:
    def __init__(self, registry: sr.Registry, input: Path, output: Path, messages: pa.Table) -> None:
        self.registry = registry
        self.input = input
        self.output = output
        self.tally = Tally()
        self.log = _log(registry)
        paths = (output / "_commits").glob("*.json")
        self.commits = {int(path.stem): json.loads(path.read_text()) for path in paths}
        self.live = sorted(number for number in self.commits if number >= 0)
        self.filled = sorted((number for number in self.commits if number < 0), reverse=True)
        self.kind = {path.name: _column(path, "kind") for path in input.glob("*.parquet")}
        self.number: dict[str, int] = {}
        self.table: pa.Table | None = None
        self.judge = _Judge(messages)

    def run(self) -> Tally:
        self.tally.changes = len(self.log)
        self._check_files()
        self._check_batches()
        self._check_cutoffs()
        self._check_backfills()
        return self.tally

    def _check_files(self) -> None:
        seen = Counter(name for batch in self.live for name in self.commits[batch]["inputs"]["sizes"])
        assert seen == Counter(list(self.kind)), "each file in one batch"
        assert self.live == list(range(len(self.live)))
        counts = [self.commits[batch]["counts"] for batch in self.live]
        assert sum(one["messages"] for one in counts) == sum(map(len, self.kind.values()))
        assert not any(one["dead_lettered"] or one["refused"] for one in counts)
        self.tally.messages = sum(one["messages"] for one in counts)

    def _check_batches(self) -> None:
        states = self._states({self.commits[batch]["revision"] for batch in self.live})
        before = -1
        for batch in self.live:
            commit = self.commits[batch]
            revision = commit["revision"]
            assert revision >= before, f"batch {batch} went back to revision {revision}"
            before = revision
            pin = json.loads((self.output / "pins" / f"{batch}.json").read_text())
            assert (pin["revision"], pin["digest"]) == (revision, commit["digest"])
            sources = list(commit["inputs"]["sizes"])
            self.tally.deliveries += self._check_deliveries(batch, sources, states[revision])
        self.tally.batches = len(self.live)
        self.tally.revisions = len(states)

    def _check_cutoffs(self) -> None:
        pinned = [(self.commits[batch]["revision"], batch) for batch in self.live]
        for revision in {change.revision for change in self.log}:
            expected = next((batch for at, batch in pinned if at >= revision), None)
            told = [one.batch for one in self.registry.effective_from(revision)]
            assert told == ([] if expected is None else [expected]), (revision, told, expected)
            self.tally.cutoffs += 1

    def _check_backfills(self) -> None:
        given: Counter[tuple[str, int]] = Counter()
        states = self._states({self.commits[number]["revision"] for number in self.filled})
        for number in self.filled:
            commit = self.commits[number]
            active = states[commit["revision"]]
            record = commit["backfill"]
            assert not record["missing"] and set(record["subscriptions"]) <= set(active), number
            chosen = {id: active[id] for id in record["subscriptions"]}
            sources = [name for batch in record["batches"] for name in self.commits[batch]["inputs"]["sizes"]]
            self.tally.backfilled += self._check_deliveries(number, sources, chosen)
            for id in chosen:
                given.update((id, batch) for batch in record["batches"])
        owed, may_be = self._owed()
        assert set(given.values()) <= {1}, "nobody gets a batch's messages twice"
        assert owed <= set(given) <= owed | may_be, (owed - set(given), set(given) - owed - may_be)
        self.tally.backfills = len(self.filled)
        self.tally.owed = len(given)

    def _owed(self) -> tuple[set[tuple[str, int]], set[tuple[str, int]]]:
        """(subscription, batch) that must have been made good, and those of who was removed since: may be."""
        owed: set[tuple[str, int]] = set()
        may_be: set[tuple[str, int]] = set()
        paused: dict[str, int] = {}
        for change in self.log:
            if change.op == "pause":
                paused[change.id] = change.revision
            elif change.op == "resume":
                since = paused.pop(change.id)
                if change.resume_from == "last-processed":
                    at = ((self.commits[batch]["revision"], batch) for batch in self.live)
                    owed |= {(change.id, batch) for pin, batch in at if since <= pin < change.revision}
            elif change.op == "remove":
                paused.pop(change.id, None)
                gone = {pair for pair in owed if pair[0] == change.id}
                owed -= gone
                may_be |= gone
        return owed, may_be

    def _states(self, revisions: set[int]) -> dict[int, dict[str, Subscription]]:
        """The active subscriptions at each of these revisions."""
        states: dict[int, dict[str, Subscription]] = {}
        state: dict[str, Subscription] = {}
        place = 0
        for revision in sorted(revisions):
            while place < len(self.log) and self.log[place].revision <= revision:
                change = self.log[place]
                state.pop(change.id, None)
                if change.subscription is not None and change.subscription.status is Status.ACTIVE:
                    state[change.id] = change.subscription
                place += 1
            states[revision] = dict(state)
        return states

    def _check_deliveries(self, batch: int, sources: list[str], active: dict[str, Subscription]) -> int:
        """Hold the published deliveries of a batch against the reference; return how many there are."""
        table = self._deliveries(batch)
        if table is not None:
            assert pc.unique(table["revision"]).to_pylist() == [self.commits[batch]["revision"]], batch
            assert set(pc.unique(table["source"]).to_pylist()) <= set(sources), batch
        total = 0
        for source in sources:
            expected = self._expected(source, active)
            found = np.zeros(0, np.int64) if table is None else self._found(table, source)
            assert np.array_equal(np.sort(found), expected), (batch, source, self._first(found, expected))
            total += len(found)
        assert total == (0 if table is None else len(table)), batch
        assert total == self.commits[batch]["counts"]["deliveries"], batch
        return total

    def _deliveries(self, batch: int) -> pa.Table | None:
        """The published deliveries of a batch; None if there are none."""
        folder = self.output / "deliveries"
        if (folder / "_delta_log").is_dir():
            if self.table is None:
                parts = [pq.ParquetFile(path).read() for path in published_files(folder)]
                self.table = pa.concat_tables(parts).unify_dictionaries()
            found = self.table.filter(pc.equal(self.table["batch"], batch))
            return found if len(found) else None
        paths = list((folder / f"batch={batch}").glob("*.parquet"))
        return pa.concat_tables([pq.ParquetFile(path).read() for path in paths]) if paths else None

    def _found(self, table: pa.Table, source: str) -> Pairs:
        mine = table.filter(pc.equal(table["source"].cast(pa.string()), source))
        encoded = mine["subscription"].combine_chunks().cast(pa.string()).dictionary_encode()
        numbers = np.array([self._numbered(id) for id in encoded.dictionary.to_pylist()], np.int64)
        offsets: Pairs = mine["offset"].to_numpy() * _WIDE
        return offsets + numbers[encoded.indices.to_numpy()] if len(mine) else offsets

    def _expected(self, source: str, active: dict[str, Subscription]) -> Pairs:
        kind = self.kind[source]
        found = [np.zeros(0, np.int64)]
        for id, one in active.items():
            rows = np.flatnonzero(self.judge.verdicts(one)[kind])
            found.append(rows * _WIDE + self._numbered(id))
        return np.sort(np.concatenate(found))

    def _numbered(self, id: str) -> int:
        return self.number.setdefault(id, len(self.number))

    def _first(self, found: Pairs, expected: Pairs) -> dict[str, Any]:
        names = {number: id for id, number in self.number.items()}
        both = {"too many": np.setdiff1d(found, expected), "missing": np.setdiff1d(expected, found)}
        return {
            why: [(int(pair // _WIDE), names[int(pair % _WIDE)]) for pair in pairs[:3]]
            for why, pairs in both.items()
        }


class _Judge:
    """The reference evaluator's verdicts on all kinds of message, each pair judged once."""

    def __init__(self, messages: pa.Table) -> None:
        self._known: dict[tuple[str, str | None], npt.NDArray[np.bool_]] = {}
        self._messages = [_message(row) for row in messages.to_pylist()]

    def verdicts(self, one: Subscription) -> npt.NDArray[np.bool_]:
        """Whether each kind goes to a subscription, bool[kinds]."""
        key = one.selector, one.topic
        if key not in self._known:
            selector = sr.Selector(one.selector, one.dialect)
            on_topic = TopicFilter.parse(one.topic).matches if one.topic is not None else lambda _: True
            verdicts = [on_topic(m.topic) and selector.matches(m) for m in self._messages]
            self._known[key] = np.array(verdicts)
        return self._known[key]


def _message(row: dict[str, Any]) -> sr.Message:
    """A message as typed values, whatever the stream makes of its columns."""
    properties = {"color": row["color"], "weight": sr.Int(row["weight"]), "note": row["note"]}
    if row["price"] is not None:
        properties["price"] = sr.Double(row["price"])
    return sr.Message({"JMSType": row["JMSType"]}, properties, topic=row["@topic"])


def _log(registry: sr.Registry) -> list[Change]:
    found: list[Change] = []
    while page := registry.changes(found[-1].revision if found else 0):
        found += page
    return found


def _column(path: Path, name: str) -> Pairs:
    return pq.read_table(path, columns=[name])[name].to_numpy()
