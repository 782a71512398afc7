"""Check of the demo: random messages, evaluated against every subscription and compared with the outputs.

The check uses no code of the routing: messages come from the files, verdicts from the reference evaluator,
and deliveries from the job's outputs.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from random import Random
from typing import Final

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

import selectroute as sr
from selectroute.demo.data import DemoSubscription
from selectroute.selector.sentences import counted
from selectroute.topics import TopicFilter

Place = tuple[str, int]
"""Position of a message: the file's name and the row."""

_TYPES: Final[Mapping[pa.DataType, type]] = {
    pa.int8(): sr.Byte,
    pa.int16(): sr.Short,
    pa.int32(): sr.Int,
    pa.int64(): sr.Long,
}

_INT64, _STRING = pa.int64(), pa.string()
_BATCH: Final = pa.schema({"batch": _INT64})
_ROW: Final = pa.schema({"revision": _INT64, "source": _STRING, "offset": _INT64, "subscription": _STRING})


@dataclass(slots=True)
class Check:
    """Result of a check: passed if ``differences`` is empty. Each difference is a sentence."""

    messages: int = 0
    judged: int = 0
    matches: int = 0
    differences: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Delivered:
    """Rows of one message in the outputs."""

    batches: set[tuple[int, int]]  # (batch, revision): exactly one, unless the check fails
    subscriptions: Counter[str]


def check(folder: Path, subscriptions: Sequence[DemoSubscription], count: int) -> Check:
    """Check the deliveries of ``count`` random messages of a demo's folder."""
    result = Check()
    places = _draw(folder, count)
    for place, delivered in _outputs(folder / "output", places).items():
        _judge(folder, place, delivered, subscriptions, result)
    return result


def read_output(output: Path, sink: str, condition: ds.Expression | None = None) -> pa.Table:
    """Return the rows of ``deliveries``, ``unrouted`` or ``dead-letters`` for which the condition is true.

    The columns are batch, revision, source (a file's name), offset (its row) and subscription, NULL if there
    is none.
    """
    partitions = ds.partitioning(_BATCH, flavor="hive")
    schema = pa.unify_schemas([_BATCH, _ROW])
    files = ds.dataset(output / sink, schema=schema, format="parquet", partitioning=partitions)
    return files.to_table(filter=condition)


def _draw(folder: Path, count: int) -> list[Place]:
    files = sorted((folder / "messages").glob("*.parquet"))
    places = [(path.name, row) for path in files for row in range(pq.read_metadata(path).num_rows)]
    return Random("verify").sample(places, min(count, len(places)))


def _outputs(output: Path, places: list[Place]) -> dict[Place, _Delivered]:
    """Return the rows of these messages in deliveries, unrouted and dead letters."""
    delivered = {place: _Delivered(set(), Counter()) for place in places}
    rows = pa.array({row for _, row in places}, pa.int64())
    for sink in ("deliveries", "unrouted", "dead-letters"):
        for entry in read_output(output, sink, ds.field("offset").isin(rows)).to_pylist():
            place = entry["source"], entry["offset"]
            if place in delivered:
                delivered[place].batches.add((entry["batch"], entry["revision"]))
                if entry["subscription"] is not None:
                    delivered[place].subscriptions[entry["subscription"]] += 1
    return delivered


def _judge(
    folder: Path,
    place: Place,
    delivered: _Delivered,
    subscriptions: Sequence[DemoSubscription],
    result: Check,
) -> None:
    """Add what was delivered of one message, and what should not or should have been, to a result."""
    name = f"{place[0]} row {place[1]}"
    result.messages += 1
    if len(delivered.batches) != 1:
        batches = counted(len(delivered.batches), "batch", "batches")
        result.differences.append(f"{name} is in {batches} of the outputs, expected 1")
        return
    [(batch, revision)] = delivered.batches
    pin = json.loads((folder / "output" / "pins" / f"{batch}.json").read_text(encoding="utf-8"))
    if pin["revision"] != revision:
        result.differences.append(
            f"{name} was routed at revision {revision}, its batch is pinned to {pin['revision']}"
        )
    valid = [each for each in subscriptions if each.is_valid_at(revision)]
    expected = _matching(_message(folder, place), valid)
    result.judged += len(valid)
    result.matches += len(expected)
    for id in sorted(expected - delivered.subscriptions.keys()):
        result.differences.append(f"{name} matches {id} at revision {revision} and was not delivered to it")
    for id, times in sorted(delivered.subscriptions.items()):
        if id not in expected:
            result.differences.append(
                f"{name} was delivered to {id} and does not match it at revision {revision}"
            )
        if times > 1:
            result.differences.append(f"{name} was delivered to {id} {times} times")


def _matching(message: sr.Message, subscriptions: Sequence[DemoSubscription]) -> set[str]:
    # Many subscriptions share a selector, which is evaluated once per message.
    is_true = cache(lambda selector: _selector(selector).matches(message))
    in_topic = cache(lambda topic: topic is None or TopicFilter.parse(topic).matches(message.topic))
    return {each.id for each in subscriptions if in_topic(each.topic) and is_true(each.selector)}


_selector = cache(sr.Selector)


def _message(folder: Path, place: Place) -> sr.Message:
    table = pq.read_table(folder / "messages" / place[0]).slice(place[1], 1)
    headers: dict[str, object] = {}
    properties: dict[str, object] = {}
    for column in table.schema:
        value = table[column.name][0].as_py()
        if value is not None and not column.name.startswith("@"):
            typed = _TYPES[column.type](value) if column.type in _TYPES else value
            (headers if column.name.startswith("JMS") else properties)[column.name] = typed
    return sr.Message(headers, properties, topic=table["@topic"][0].as_py())
