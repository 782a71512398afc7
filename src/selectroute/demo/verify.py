"""Check of the demo: random messages, evaluated against every subscription and compared with the outputs.

The check uses no code of the routing: messages come from the files, subscriptions and their revisions from
``subscriptions.jsonl``, verdicts from the reference evaluator, and deliveries from the job's outputs.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

import selectroute as sr
from selectroute.demo.subscriptions import DemoSubscription, read_jsonl
from selectroute.selector.explain.sentences import counted
from selectroute.topics import TopicFilter

Place = tuple[str, int]
"""Position of a message: the file's name and the row."""

_TYPES: Final[Mapping[pa.DataType, type]] = {
    pa.int8(): sr.Byte,
    pa.int16(): sr.Short,
    pa.int32(): sr.Int,
    pa.int64(): sr.Long,
    pa.float32(): sr.Float,
    pa.float64(): sr.Double,
}


@dataclass(frozen=True, slots=True)
class Worked:
    """Message and a subscription that got it: an example to explain."""

    message: sr.Message
    subscription: DemoSubscription


@dataclass(slots=True)
class Check:
    """Result of a check: passed if ``differences`` is empty. Each difference is a sentence."""

    messages: int = 0
    judged: int = 0
    matches: int = 0
    differences: list[str] = field(default_factory=list)
    worked: Worked | None = None

    def summary(self) -> dict[str, Any]:
        """Return the result as data, for ``summary.json``."""
        return {
            "messages": self.messages,
            "judged": self.judged,
            "matches": self.matches,
            "differences": self.differences,
        }


@dataclass(frozen=True, slots=True)
class _Delivered:
    """Rows of one message in the outputs."""

    batches: set[tuple[int, int]]  # (batch, revision): exactly one, unless the check fails
    subscriptions: Counter[str]


class Judge:
    """Evaluator of the messages of one demo folder, by the reference semantics."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._selector = cache(sr.Selector)
        self._filter = cache(TopicFilter.parse)
        self._valid = list(read_jsonl(folder / "subscriptions.jsonl"))

    def check(self, count: int, seed: int) -> Check:
        """Evaluate ``count`` random messages against each subscription valid at their batch's revision."""
        check = Check()
        places = self._draw(max(count, 1), seed)
        outputs = _outputs(self._folder / "output", places)
        worked: list[Worked] = []
        for number, place in enumerate(places):
            message = self._message(place)
            delivered = outputs[place]
            if number < count:
                self._judge(place, message, delivered, check)
            worked += self._worked(message, delivered)
        check.worked = max(worked, key=_weight, default=None)
        return check

    def _judge(self, place: Place, message: sr.Message, delivered: _Delivered, check: Check) -> None:
        name = f"{place[0]} row {place[1]}"
        check.messages += 1
        if len(delivered.batches) != 1:
            batches = counted(len(delivered.batches), "batch", "batches")
            check.differences.append(f"{name} is in {batches} of the outputs, expected 1")
            return
        [(batch, revision)] = delivered.batches
        pin = json.loads((self._folder / "output" / "pins" / f"{batch}.json").read_text(encoding="utf-8"))
        if pin["revision"] != revision:
            check.differences.append(
                f"{name} was routed at revision {revision}, its batch is pinned to {pin['revision']}"
            )
        expected = {one.id for one in self._matching(message, revision, check)}
        check.matches += len(expected)
        for id in sorted(expected - delivered.subscriptions.keys()):
            check.differences.append(
                f"{name} matches {id} at revision {revision} and was not delivered to it"
            )
        for id, times in sorted(delivered.subscriptions.items()):
            if id not in expected:
                check.differences.append(
                    f"{name} was delivered to {id} and does not match it at revision {revision}"
                )
            if times > 1:
                check.differences.append(f"{name} was delivered to {id} {times} times")

    def _matching(self, message: sr.Message, revision: int, check: Check) -> Iterator[DemoSubscription]:
        # Many subscriptions share a selector, which is evaluated once per message.
        known: dict[str, bool] = {}
        for subscription, start, end in self._valid:
            if revision < start or (end is not None and revision >= end):
                continue
            check.judged += 1
            if subscription.topic is not None and not self._filter(subscription.topic).matches(message.topic):
                continue
            text = subscription.selector
            if text not in known:
                known[text] = self._selector(text).matches(message)
            if known[text]:
                yield subscription

    def _worked(self, message: sr.Message, delivered: _Delivered) -> Iterator[Worked]:
        revisions = {revision for _, revision in delivered.batches}
        for subscription, start, end in self._valid:
            valid = any(start <= revision and (end is None or revision < end) for revision in revisions)
            if valid and subscription.id in delivered.subscriptions and subscription.selector:
                yield Worked(message, subscription)

    def _draw(self, count: int, seed: int) -> list[Place]:
        files = sorted((self._folder / "messages").glob("*.parquet"))
        rows = [pq.read_metadata(path).num_rows for path in files]
        drawn = Random(f"verify {seed}").sample(range(sum(rows)), min(count, sum(rows)))
        places = []
        for row in drawn:
            for path, in_file in zip(files, rows, strict=True):
                if row < in_file:
                    places.append((path.name, row))
                    break
                row -= in_file
        return places

    def _message(self, place: Place) -> sr.Message:
        table = pq.read_table(self._folder / "messages" / place[0]).slice(place[1], 1)
        headers: dict[str, object] = {}
        properties: dict[str, object] = {}
        for column in table.schema:
            value = table[column.name][0].as_py()
            if value is not None and not column.name.startswith("@"):
                typed = _TYPES[column.type](value) if column.type in _TYPES else value
                (headers if column.name.startswith("JMS") else properties)[column.name] = typed
        return sr.Message(headers, properties, topic=table["@topic"][0].as_py())


def busiest(output: Path, count: int) -> list[tuple[str, int]]:
    """Return the subscriptions with the most deliveries, and the number of each."""
    totals: Counter[str] = Counter()
    for path in (output / "deliveries").rglob("*.parquet"):
        column = pq.read_table(path, columns=["subscription"], partitioning=None)["subscription"]
        for entry in pc.value_counts(column).to_pylist():
            totals[entry["values"]] += entry["counts"]
    return totals.most_common(count)


def _outputs(output: Path, places: list[Place]) -> dict[Place, _Delivered]:
    """Return the rows of these messages in deliveries, unrouted and dead letters."""
    found = {place: _Delivered(set(), Counter()) for place in places}
    rows = pa.array(sorted({row for _, row in places}), pa.int64())
    for sink in ("deliveries", "unrouted", "dead-letters"):
        files = ds.dataset(output / sink, format="parquet", partitioning="hive")
        if not files.files:
            continue
        columns = ["batch", "revision", "source", "offset"]
        columns += ["subscription"] if sink == "deliveries" else []
        for entry in files.to_table(columns=columns, filter=ds.field("offset").isin(rows)).to_pylist():
            delivered = found.get((entry["source"], entry["offset"]))
            if delivered is not None:
                delivered.batches.add((entry["batch"], entry["revision"]))
                if sink == "deliveries":
                    delivered.subscriptions[entry["subscription"]] += 1
    return found


def _weight(worked: Worked) -> tuple[int, int]:
    """Return how telling an example is: the more properties its selector reads, the more."""
    selector = sr.Selector(worked.subscription.selector)
    return len(selector.identifiers), len(selector.text)
