"""What a replay lets through, held against the same said of one message at a time."""

import random
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

import selectroute as sr
from selectroute.spark.messages import DeadLetterBatch, MessageBatch, SourcePartition
from selectroute.spark.task.replay_filter import (
    LETTERS,
    ReplayFilter,
    Scope,
    write_replay_list,
)
from selectroute.spark.task.task import InputPart, write
from selectroute.storage import Location

NAMES = [f"s{n}" for n in range(6)]
SCOPES = [Scope(), Scope(None, ("s1", "s2", "unknown")), Scope(("s0", "s3", "unknown"))]
PLACES = [SourcePartition("a"), SourcePartition("b", 1), SourcePartition("b", 2), SourcePartition("whole")]
ROWS = 40


class Caught:
    """What the sinks of a task were given."""

    def __init__(self, snapshot):
        self.ids = snapshot.ids.take(pa.array(range(len(snapshot.ids)))).to_pylist()
        self.delivered = Counter()
        self.judged = Counter()
        self.listed = Counter()
        self.buried = Counter()
        self.denied = Counter()

    def deliver(self, place, messages, matches, *, listed):
        for row, ordinals in zip(messages.rows.tolist(), matches, strict=True):
            self.judged[place, row] += 1
            self.listed[place, row] += listed
            self.delivered.update((place, row, self.ids[ordinal]) for ordinal in ordinals.tolist())

    def bury(self, place, dead, records=None):
        rows = [None] if dead.rows is None else dead.rows.tolist()
        self.buried.update((place, row) for row in rows)

    def deny(self, place, dead, of_each, ordinals):
        self.judged.update((place, row) for row in dead.rows.tolist())
        for row, ordinal in zip(of_each.rows.tolist(), ordinals.tolist(), strict=True):
            self.denied[place, row, self.ids[ordinal]] += 1


def snapshot():
    index = sr.Index()
    for number, name in enumerate(NAMES):
        index.add(name, f"n <> {number}")
    return index.freeze(1)


def letters(chosen, rng):
    """Letters of messages, or of deliveries, never both of one message; what is left is none."""
    scoped, single = {}, {}
    rows = []
    for place in PLACES[:-1]:
        for row in range(ROWS):
            kind = rng.choice(("none", "message", "deliveries"))
            if kind == "message":
                code = rng.randrange(len(SCOPES))
                scoped[place, row] = SCOPES[code]
                rows.append((*place, row, None, code))
            elif kind == "deliveries":
                names = rng.sample([*chosen, "unknown"], rng.randrange(1, 4))
                single[place, row] = set(names)
                rows += [(*place, row, name, 0) for name in names]
    rows.append((*PLACES[-1], None, None, 1))
    rng.shuffle(rows)
    columns = dict(
        zip(("source", "partition", "offset", "subscription", "scope"), zip(*rows, strict=True), strict=True)
    )
    codes = columns.pop("scope")
    columns |= {"stage": ["judge"] * len(rows), "reason": ["x"] * len(rows)}
    table = pa.table({name: pa.array(columns[name], LETTERS.field(name).type) for name in LETTERS.names})
    return table, codes, scoped, single


def allowed(scope, name):
    return (scope.only is None or name in scope.only) and name not in scope.without


@pytest.mark.parametrize("seed", range(8))
def test_only_dead_letters_are_judged_and_only_for_whom_they_are(tmp_path, seed):
    rng = random.Random(seed)
    made = snapshot()
    table, codes, scoped, single = letters(NAMES, rng)
    path = tmp_path / "list"
    write_replay_list(Location.of(path), table, SCOPES, codes)
    recall = ReplayFilter(Location.of(path), made)
    caught, wanted, judged, denied, buried = Caught(made), Counter(), Counter(), Counter(), Counter()
    for place in (*PLACES, SourcePartition("other")):
        for start in range(0, ROWS, 10):
            rows = np.arange(start, start + 10)
            numbers = [rng.randrange(8) for _ in rows]
            if dead := rng.random() < 0.3:
                part = DeadLetterBatch("judge", "y", "", rows)
            else:
                part = MessageBatch(
                    pa.RecordBatch.from_pydict({"n": pa.array(numbers, pa.int32())}), rows, None
                )
            for nth in recall.passes:
                for chosen, limit in recall.of(nth, place, part):
                    found = chosen if dead else (chosen, made.match(chosen.columns))
                    write(caught, InputPart(0, place, part), found, limit)
            for row, number in zip(rows.tolist(), numbers, strict=True):
                scope = SCOPES[1] if place == PLACES[-1] else scoped.get((place, row))
                names = single.get((place, row), set())
                if dead and scope is not None:
                    buried[place, row] += 1
                elif scope is not None or names:
                    judged[place, row] += 1
                    for name in NAMES:
                        to = name in names if scope is None else allowed(scope, name)
                        if to and dead:
                            denied[place, row, name] += 1
                        elif to and number != int(name[1:]):
                            wanted[place, row, name] += 1
    assert (caught.delivered, caught.judged) == (wanted, judged)
    assert (caught.denied, caught.buried) == (denied, buried)
    assert {key for key, times in caught.listed.items() if times}.isdisjoint(single)
    assert len(wanted) > 50 and (denied or buried)


def test_a_file_that_cannot_be_read_once_more_is_a_dead_letter_for_each_message_that_was_one(tmp_path):
    made = snapshot()
    rows = [("a", 0, 3, None), ("a", 0, 5, None), ("a", 0, 7, "s1"), ("b", 0, None, None)]
    columns = dict(
        zip(("source", "partition", "offset", "subscription"), zip(*rows, strict=True), strict=True)
    )
    columns |= {"stage": ["read"] * 4, "reason": ["x"] * 4}
    table = pa.table({name: pa.array(columns[name], LETTERS.field(name).type) for name in LETTERS.names})
    write_replay_list(Location.of(tmp_path / "list"), table, [Scope()], [0, 0, 0, 0])
    caught = Caught(made)
    gone = DeadLetterBatch("read", "unreadable-file", "gone", None)
    for place in (SourcePartition("a"), SourcePartition("b"), SourcePartition("c")):
        recall = ReplayFilter(Location.of(tmp_path / "list"), made)
        for nth in recall.passes:
            for part, limit in recall.of(nth, place, gone):
                write(caught, InputPart(0, place, part), part, limit)
    assert caught.buried == Counter(
        [(SourcePartition("a"), 3), (SourcePartition("a"), 5), (SourcePartition("b"), None)]
    )
    assert caught.denied == Counter([(SourcePartition("a"), 7, "s1")])
