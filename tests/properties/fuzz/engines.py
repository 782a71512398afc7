"""Random registries against the reference evaluator, pair by pair.

``python -m tests.properties.fuzz.engines``

A round is a registry of selectors of all dialects and shapes, some of them with topic filters, and messages
with what they speak of. Every third registry repeats a few selectors, so that its subscriptions share
entries. Every engine must give for each message the subscriptions that the reference evaluator selects: a
snapshot built by shapes, the same after some changes as deltas, the same merged, each with all messages at
once and one by one, the first two in partitions, and the mutable index after the same changes. A round is
made from the seed and its number alone.
"""

from __future__ import annotations

import itertools
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

import selectroute as sr
from selectroute.index.compile import build, hot_keys
from selectroute.index.invariants import verify_snapshot
from selectroute.match.match import match
from selectroute.match.single import match_one
from selectroute.selector import InvalidSelectorError, Message, MessageError, Selector
from selectroute.spark.partitions.publish import publish_partitions
from selectroute.spark.partitions.route import MappedPartitions
from selectroute.topics import TopicFilter
from tests.crash.programs.harness import program
from tests.properties.fuzz.mutations import generated
from tests.properties.fuzz.selectors import VALUES
from tests.support.index_invariants import verify_index
from tests.support.merging import merge
from tests.support.strategies import DOTTED, INVALID, PROPERTIES, STRINGS, SYNONYMS, TableRow, table_of

SUBSCRIPTIONS: Final = 300
MESSAGES: Final = 40
CHANGES: Final = 60
DISTINCT: Final = 30
"""Selectors of a registry that repeats them."""

PARTITIONS: Final = 3
IN_PARTITIONS: Final = ("built", "changed")

TOPICS: Final = ("a", "a/b", "+", "#", "a/#", "+/b", "cars/+/de", "cars/eu/de", "#/eu/#", "a/#/b/#")
SENT_ON: Final = (None, "a", "a/b", "cars/eu/de", "x/eu")

SHAPES: Final = (
    "color = '{s}' AND weight > {i}",
    "color = '{s}' AND a BETWEEN {i} AND {j}",
    "JMSType = '{s}' AND color IN ('{s}', '{t}') AND weight <= {f}",
    "a = {i} OR b = '{s}'",
    "color LIKE '{p}%'",
    "weight >= {i} AND weight < {j}",
    "NOT (weight > {i}) AND color = '{s}'",
    "JMSCorrelationID = '{s}'",
    "a = -{i} AND color <> '{t}'",
    "b IS NULL AND color = '{s}' AND a > {f}",
    "a LIKE '%{p}%' OR weight = {f}",
    "JMSType = '{s}' AND color = '{t}' AND b = '{s}' AND a > {i}",
    "color = '{s}' AND b IN ('{s}', '{t}') AND a = {j} AND weight < {i}",
    "color = '{s}' AND weight = {i} AND c = '{t}' AND b LIKE '%{p}'",
)
"""Of these a registry has many, so that they are built by their shapes and share keys."""


@dataclass(frozen=True, slots=True)
class Round:
    """One registry, changes to it, and messages."""

    subscriptions: dict[str, tuple[Selector, str | None]]
    changes: list[sr.Add | sr.Replace | sr.Remove]
    messages: list[Message]


def make(seed: int, number: int) -> Round:
    """The round of a number."""
    chance = Random(f"{seed} {number}")
    repeated = [_subscription(chance) for _ in range(DISTINCT)] if number % 3 == 2 else []

    def subscription() -> tuple[Selector, str | None]:
        if repeated and chance.random() < 0.95:
            return chance.choice(repeated)
        return _subscription(chance)

    subscriptions = {f"s{i}": subscription() for i in range(SUBSCRIPTIONS)}
    changes: list[sr.Add | sr.Replace | sr.Remove] = []
    alive = list(subscriptions)
    for i in range(CHANGES):
        kind = chance.randrange(3)
        selector, topic = subscription()
        if kind == 0:
            changes.append(sr.Add(f"n{i}", selector, topic, selector.dialect))
            alive.append(f"n{i}")
        elif kind == 1:
            changes.append(sr.Replace(chance.choice(alive), selector, topic, selector.dialect))
        else:
            gone = alive.pop(chance.randrange(len(alive)))
            changes.append(sr.Remove(gone))
    messages = [_message(chance) for _ in range(MESSAGES)]
    if chance.random() < 0.5:  # columns of types that no property has: a whole one, and single values
        whole = chance.choice((*PROPERTIES, "JMSType", "JMSPriority", "JMSCorrelationID", "JMSMessageID"))
        messages = [_as_row(chance, message, whole) for message in messages]
    return Round(subscriptions, changes, messages)


def check(one: Round) -> tuple[int, bool]:
    """Compare all engines on a round; return the pairs that were compared, and whether subscriptions shared
    entries, in a base or in a delta. AssertionError names the first difference.
    """
    registry = dict(one.subscriptions)
    built = sr.build_snapshot(_table((name, selector, topic) for name, (selector, topic) in registry.items()))
    index = sr.Index()
    for name, (selector, topic) in registry.items():
        index.add(name, selector.text, topic, dialect=selector.dialect)
    pairs = _compare(registry, one.messages, {"built": built}, index)
    changed = built
    for part in (one.changes[: CHANGES // 2], one.changes[CHANGES // 2 :]):
        changed = changed.changed(part)
        for change in part:
            _apply(change, registry, index)
    verify_index(index)
    engines = {"changed": changed, "merged": merge(changed), "frozen": index.freeze()}
    for snapshot in engines.values():
        verify_snapshot(snapshot)
    pairs += _compare(registry, one.messages, engines, index)
    made = (built, *engines.values())
    return pairs, any(len(one.tables.ordinal_first) > 0 for snapshot in made for one in snapshot.segments)


def _apply(
    change: sr.Add | sr.Replace | sr.Remove, registry: dict[str, tuple[Selector, str | None]], index: sr.Index
) -> None:
    if isinstance(change, sr.Remove):
        del registry[change.id]
        index.remove(change.id)
        return
    assert isinstance(change.selector, Selector)
    topic = change.topic if isinstance(change.topic, str) else None
    registry[change.id] = (change.selector, topic)
    if isinstance(change, sr.Add):
        index.add(change.id, change.selector, topic)
    else:
        index.replace(change.id, change.selector, topic)


def _compare(
    registry: dict[str, tuple[Selector, str | None]],
    messages: Sequence[Message],
    snapshots: dict[str, sr.Snapshot],
    index: sr.Index,
) -> int:
    filters = {topic: TopicFilter.parse(topic) for topic in TOPICS}
    wanted = [
        {
            name
            for name, (selector, topic) in registry.items()
            if (topic is None or filters[topic].matches(message.topic)) and selector.matches(message)
        }
        for message in messages
    ]
    for engine, snapshot in snapshots.items():
        found = match(snapshot, table_of(messages, snapshot.reads))
        for row, message in enumerate(messages):
            got = snapshot.ids.take(found[row]).to_pylist()
            _same(engine, registry, message, wanted[row], got)
            one = match_one(snapshot, message).ids()
            _same(f"{engine}, one message", registry, message, wanted[row], one)
        if engine in IN_PARTITIONS:
            for row, got in enumerate(_in_partitions(snapshot, messages)):
                _same(f"{engine}, in partitions", registry, messages[row], wanted[row], got)
    for row, message in enumerate(messages):
        _same("index", registry, message, wanted[row], index.match(message))
    return len(registry) * len(messages)


def _in_partitions(snapshot: sr.Snapshot, messages: Sequence[Message]) -> list[list[str]]:
    with tempfile.TemporaryDirectory(prefix="selectroute-fuzz-") as folder:
        parts = publish_partitions(snapshot, folder, PARTITIONS)
        offsets, ordinals = MappedPartitions(parts).match(table_of(messages, parts.reads))
        ids = parts.ids.take(ordinals).to_pylist()
    return [ids[start:end] for start, end in itertools.pairwise(offsets.tolist())]


def _same(
    engine: str,
    registry: dict[str, tuple[Selector, str | None]],
    message: Message,
    wanted: set[str],
    got: Sequence[str],
) -> None:
    assert len(got) == len(set(got)), f"{engine} gives a subscription twice: {sorted(got)}, {message}"
    for name in sorted(wanted ^ set(got)):
        word = "misses" if name in wanted else "wrongly gives"
        raise AssertionError(f"{engine} {word} {name} {registry[name]} for {message}")


def _table(rows: Iterator[tuple[str, Selector, str | None]]) -> object:
    import pyarrow as pa

    given = list(rows)
    return pa.table(
        {
            "id": [name for name, _, _ in given],
            "selector": [selector.text for _, selector, _ in given],
            "topic": pa.array([topic for _, _, topic in given], pa.string()),
            "dialect": [selector.dialect for _, selector, _ in given],
        }
    )


def _subscription(chance: Random) -> tuple[Selector, str | None]:
    topic = chance.choice(TOPICS) if chance.random() < 0.2 else None
    if chance.random() < 0.6:
        text = chance.choice(SHAPES).format(
            s=chance.choice("abcxyz"), t=chance.choice("abcxyz"), p=chance.choice(("", "a", "b", "ab")),
            i=chance.randrange(20), j=chance.randrange(20), f=chance.randrange(40) / 2,
        )  # fmt: skip
        return Selector(text, chance.choice(("jms", "ibm-jms", "ibm-mq"))), topic
    while True:
        name = chance.choice(("jms", "ibm-jms", "ibm-mq", "mqe"))
        try:
            return Selector(generated(chance, name, chance.randrange(4)), name), topic
        except InvalidSelectorError:
            pass


def _message(chance: Random) -> Message:
    common = ("a", "b", "c", "x", "ab", "bab", *range(20), 7.5, 12.0)
    while True:
        properties = {
            name: chance.choice(common if chance.random() < 0.6 else VALUES)
            for name in PROPERTIES
            if chance.random() < 0.8
        }
        if chance.random() < 0.2:
            properties[chance.choice((*DOTTED, *SYNONYMS))] = chance.choice(VALUES)
        if chance.random() < 0.05:
            properties[chance.choice(INVALID)] = 1
        headers = {
            "JMSType": chance.choice((None, "a", "x", "car")),
            "JMSPriority": chance.choice((None, 4, 5)),
            "JMSCorrelationID": chance.choice((None, "a", "b", *STRINGS)),
            "JMSMessageID": chance.choice((None, *STRINGS)),
        }
        try:
            return Message(headers, properties, chance.choice(SENT_ON))
        except MessageError:
            pass


def _as_row(chance: Random, message: Message, whole: str) -> Message:
    unsupported = [whole] if message.value(whole) is not None else []
    if chance.random() < 0.2:
        unsupported.append(chance.choice((*PROPERTIES, "JMSType", "JMSPriority", "JMSCorrelationID")))
    return TableRow(message, unsupported)


def run(root: Path, seed: int, pairs: int, first: int) -> str:
    """Compare so many pairs, from a round on. Raises AssertionError for the first difference."""
    build.FEW, hot_keys.WORTH = 2, 0.2  # so that registries this small have templates and divided leaves
    told, done, number, sharing = time.monotonic(), 0, first, 0
    while done < pairs:
        try:
            compared, shares = check(make(seed, number))
        except Exception as error:
            raise AssertionError(f"round {number}: {type(error).__name__}: {error}") from error
        done, number, sharing = done + compared, number + 1, sharing + shares
        if time.monotonic() > told + 10:
            told = time.monotonic()
            print(f"{done:,} of {pairs:,} pairs", file=sys.stderr)
    return f"{done:,} pairs in {number - first:,} rounds, {sharing:,} of them with shared entries"


if __name__ == "__main__":
    program("compare all engines on random registries", run, pairs=1_000_000, first=0)
