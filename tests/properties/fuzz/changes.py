"""Random changes of subscriptions, against a dict: ``python -m tests.properties.fuzz.changes``.

Subscriptions come, change and go, in waves, until none is left. Three hold them: the mutable index; a
snapshot that gets each batch of changes as a delta and merges its segments when that is due; and a dict of
selectors, which is the truth. Changes that must be refused are tried, too. Every now and then the three are
compared: the live ids, every invariant, and on some messages which subscriptions match, by the reference
evaluator. In the end the index must be as empty as a new one.

Everything is made from the seed, so that a run can be made again.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

import selectroute as sr
from selectroute.index.changes import Add, Change, Remove, Replace, merge_due, merged, merged_part
from selectroute.index.errors import DuplicateSubscriptionError, UnknownSubscriptionError
from selectroute.index.invariants import verify_snapshot
from selectroute.index.specification import KEEP
from selectroute.match.columns.from_messages import from_messages
from selectroute.selector import DIALECTS
from selectroute.topics import TopicFilter
from tests.crash.programs.harness import program
from tests.properties.fuzz.mutations import generated, seeds
from tests.properties.fuzz.selectors import VALUES
from tests.support.index_invariants import verify_index
from tests.support.strategies import NAMES
from tests.unit.index.changing import TOPICS, random_messages, selector

WAVE: Final = 20_000
"""Changes in which the subscriptions become many and few again."""

MOST: Final = 1_200
POOL: Final = 1_500
CHECKED: Final = 12
"""Messages that are judged at each comparison."""


@dataclass(slots=True)
class Tally:
    """What was done."""

    changes: int = 0
    refused: int = 0
    merges: int = 0
    comparisons: int = 0
    pairs: int = 0
    matches: int = 0
    most: int = 0
    seconds: float = 0.0

    def __str__(self) -> str:
        return (
            f"{self.changes:,} changes in {self.seconds:,.0f} s, {self.refused:,} more refused; at most "
            f"{self.most:,} subscriptions at once, {self.merges:,} merges; {self.comparisons:,} comparisons "
            f"on {self.pairs:,} pairs of selector and message, of which {self.matches:,} match"
        )


Live = dict[str, tuple[sr.Selector, str | None]]


class Changer:
    """The index, the snapshot and the dict of one run."""

    def __init__(self, seed: int, every: int) -> None:
        self.chance = Random(seed)
        self.every = every
        self.index = sr.Index()
        self.snapshot = self.index.freeze()
        self.live: Live = {}
        self.tally = Tally()
        self._ids: list[str] = []  # of `live`, to draw one
        self._pool = self._selectors()
        self._waiting: list[Change] = []
        self._batch = 1

    def run(self, count: int, said: Callable[[Tally], None] = lambda _: None) -> Tally:
        """Make so many changes, and as many removals as it takes to end with nothing."""
        started = time.monotonic()
        while self.tally.changes < count:
            self._step(adding=self.tally.changes % WAVE < WAVE * 0.55)
            if self.tally.changes % self.every == 0:
                self.compare()
                self.tally.seconds = time.monotonic() - started
                said(self.tally)
        self.compare()
        while self._ids:
            self._apply(Remove(self.chance.choice(self._ids)))
        self.compare()
        self._check_empty()
        self.tally.seconds = time.monotonic() - started
        return self.tally

    def _selectors(self) -> list[sr.Selector]:
        """Selectors of every dialect: of few shapes that collide, of the corpus, and generated ones."""
        found: list[sr.Selector] = [sr.Selector(selector(self.chance)) for _ in range(POOL)]
        for name in DIALECTS:
            texts = [generated(self.chance, name) for _ in range(POOL // 4)]
            texts += self.chance.sample(seeds(name), POOL // 8)
            for text in texts:
                try:
                    found.append(sr.Selector(text, name))
                except sr.InvalidSelectorError:
                    continue
        return found

    def _step(self, adding: bool) -> None:
        chance = self.chance
        if chance.random() < 0.01:
            self._refuse()
        if not self._ids or (len(self._ids) < MOST and chance.random() < (0.6 if adding else 0.2)):
            id = f"s{chance.randrange(10 * MOST)}"
            if id not in self.live:
                self._apply(Add(id, chance.choice(self._pool), chance.choice(TOPICS)))
            return
        id = chance.choice(self._ids)
        if chance.random() < 0.5:
            topic = chance.choice([KEEP, KEEP, *TOPICS])
            self._apply(Replace(id, chance.choice(self._pool), topic))
        else:
            self._apply(Remove(id))

    def _apply(self, change: Change) -> None:
        if isinstance(change, Add):
            self.index.add(change.id, change.selector, change.topic)
            self.live[change.id] = (change.selector, change.topic)
            self._ids.append(change.id)
        elif isinstance(change, Replace):
            self.index.replace(change.id, change.selector, change.topic)
            topic = self.live[change.id][1] if change.topic is KEEP else change.topic
            self.live[change.id] = (change.selector, topic)
        else:
            self.index.remove(change.id)
            del self.live[change.id]
            self._ids.remove(change.id)
        self.tally.changes += 1
        self.tally.most = max(self.tally.most, len(self.live))
        self._waiting.append(change)
        if len(self._waiting) >= self._batch:
            self._publish()

    def _publish(self) -> None:
        self.snapshot = self.snapshot.changed(self._waiting)
        self._waiting = []
        self._batch = self.chance.choice((1, 7, 60, 400))
        due = merge_due(self.snapshot)
        if due is not None:
            part = merged_part(self.snapshot, due)
            self.snapshot = sr.Snapshot.of(merged(self.snapshot, due, part))
            self.tally.merges += 1

    def _refuse(self) -> None:
        """A change that nobody may accept, and that changes nothing."""
        unknown = f"u{self.chance.randrange(100)}"
        wrong: list[tuple[Change, type[Exception]]] = [
            (Remove(unknown), UnknownSubscriptionError),
            (Replace(unknown, "a = 1"), UnknownSubscriptionError),
            (Add(unknown, "a ="), sr.InvalidSelectorError),
        ]
        if self._ids:
            id = self.chance.choice(self._ids)
            wrong += [(Add(id), DuplicateSubscriptionError), (Replace(id, "a ="), sr.InvalidSelectorError)]
        change, error = self.chance.choice(wrong)
        for holder in ("index", "snapshot"):
            try:
                if holder == "snapshot":
                    self.snapshot.changed([*self._waiting, change])
                elif isinstance(change, Add):
                    self.index.add(change.id, change.selector)
                elif isinstance(change, Replace):
                    self.index.replace(change.id, change.selector)
                else:
                    self.index.remove(change.id)
            except error:
                self.tally.refused += 1
            else:
                raise AssertionError(f"the {holder} accepts {change}")

    def compare(self) -> None:
        """Raise AssertionError if the three differ."""
        if self._waiting:
            self._publish()
        verify_index(self.index)
        verify_snapshot(self.snapshot)
        snapshot, live = self.snapshot, self.live
        ids = snapshot.ids.to_pylist()
        dead = snapshot.dead
        kept = [id for number, id in enumerate(ids) if dead is None or not dead[number]]
        assert len(kept) == len(snapshot) == len(self.index) == len(live)
        assert set(kept) == {one.id for one in self.index} == live.keys(), "the live ids"
        messages = [*random_messages(self.chance, CHECKED // 2), *map(self._message, range(CHECKED // 2))]
        matches = snapshot.match(from_messages(messages, snapshot.reads))
        for message, row in zip(messages, matches, strict=True):
            wanted = sorted(
                id
                for id, (one, topic) in live.items()
                if (topic is None or TopicFilter.parse(topic).matches(message.topic)) and one.matches(message)
            )
            assert sorted(self.index.match(message)) == wanted, f"the index on {message!r}"
            assert sorted(ids[ordinal] for ordinal in row) == wanted, f"the snapshot on {message!r}"
            self.tally.matches += len(wanted)
        self.tally.comparisons += 1
        self.tally.pairs += len(live) * len(messages)

    def _message(self, _: int) -> sr.Message:
        names = self.chance.sample(["a", "b", "c", "color", "weight", "é", *NAMES["ibm-mq"][-3:]], 5)
        return sr.Message(
            headers={"JMSType": self.chance.choice((None, "car", "x"))},
            properties={name: self.chance.choice(VALUES) for name in names},
            topic=self.chance.choice((None, "a", "a/b")),
        )

    def _check_empty(self) -> None:
        """What the index holds when it holds nothing is what a new one holds."""
        index = self.index
        assert len(index) == 0 and len(self.snapshot) == 0
        held = {name: getattr(index, f"_{name}") for name in ("buckets", "filed", "extended")}
        held |= {name: getattr(index.statistics, name) for name in ("counts", "_totals", "_squares")}
        sizes = {name: len(several) for name, several in {**held, "pairs": index._plan.pairs}.items()}
        assert not any(sizes.values()), f"an empty index still has {sizes}"


def run(root: Path, seed: int, count: int, every: int) -> str:
    """Make so many changes. Raises AssertionError for a fault."""

    def say(tally: Tally) -> None:
        if tally.changes % (every * 20) == 0:
            print(tally, file=sys.stderr, flush=True)

    return str(Changer(seed, every).run(count, say))


if __name__ == "__main__":
    every = {"type": int, "default": 2_000, "help": "changes between comparisons"}
    program("change subscriptions at random", run, count=20_000, every=every)
