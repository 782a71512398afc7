"""What flows into a stream of Kafka's records that is killed, what changes meanwhile, and what must hold when
it is done; written against what others can read.

Records of `KINDS` different kinds; some two dozen subscriptions of which some change from revision to
revision, delivered to the output folder alone, to topics, and to a queue from which a consumer takes.

- Each record of the input is in one batch, and judged by the revision that this batch was pinned to.
- Its deliveries in the output folder are those of the reference evaluator under this revision, once each.
- What consumers got from the queue, and what one with ``read_committed`` reads of each topic, are the
  deliveries whose subscription had that destination at that revision, once each.
- Records with more headers than a message has properties are dead letters, once each, with their bytes.
  Of those whose weight is no number, deliveries are lost to nobody who does not read the weight.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

import selectroute as sr
from selectroute.index.jsonl import build_from_lines
from selectroute.queues.sql.queue import SqlQueue
from selectroute.selector.message import MAX_PROPERTIES
from selectroute.spark.audit.audit import audit
from selectroute.testing.broker import Broker, Header
from tests.crash.programs.harness import CLEAN, lines_of, same, start
from tests.crash.programs.streams.delivering import consume
from tests.support.outcomes import check_pins, commits_of, published_files

KINDS = 300
"""Different records: each selector is judged by the reference on each of them once."""

_EACH = 40
"""One kind of so many is a dead letter, and one has a weight that is no number."""

QUEUE = "A"
"""The name of the queue, where there is one."""

SUBSCRIPTIONS = 24
PARTITIONS = 3


class Subscription(NamedTuple):
    """A selector, and the kind and the name of its destination."""

    selector: str
    destination: tuple[str, str] | None

    def registered(self, id: str) -> dict[str, Any]:
        to = None if self.destination is None else dict(zip(("kind", "name"), self.destination, strict=True))
        return {"id": id, "selector": self.selector, "destination": to}


class Kinds:
    """The different records, made from a seed."""

    def __init__(self, seed: int) -> None:
        chance = Random(seed)
        self._weights = [chance.randrange(1_000) for _ in range(KINDS)]
        self._colors = [f"c{chance.randrange(5)}" for _ in range(KINDS)]
        self.matches = cache(self._matches)

    def is_bad(self, kind: int) -> bool:
        return kind % _EACH == 0

    def is_unlike(self, kind: int) -> bool:
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


class Flow:
    """Topics, subscriptions and records of one stream, all drawn from a seed.

    Args:
        broker: where the topics are made.
        home: a folder for snapshots, the database of queues and the journal of what was taken from it.
        seed: of all that is drawn.
        has_queue: whether some subscriptions are delivered to a queue.
    """

    def __init__(self, broker: Broker, home: Path, seed: int, has_queue: bool = True) -> None:
        self.broker = broker
        self.has_queue = has_queue
        self.chance = Random(seed)
        self.kinds = Kinds(seed)
        self.snapshots = home / "snapshots"
        self.url = f"sqlite:///{home}/queues.db"
        self.journal = home / "queue.journal"
        self.states: dict[int, dict[str, Subscription]] = {}
        self.produced = 0
        home.mkdir(exist_ok=True)
        name = f"killed-{os.getpid()}-{seed}-{home.name}"
        self.topic = broker.create(f"{name}-in", PARTITIONS)
        self.topics = [broker.create(f"{name}-four", 4), broker.create(f"{name}-one", 1)]
        self._destinations: list[tuple[str, str] | None] = [None, *(("kafka", one) for one in self.topics)]
        # There is always one of each kind of destination, so that each step is taken in each batch, and one
        # that reads the weight, so that a weight that is no number is met.
        self._constant = {"weight": Subscription("weight > 900", None)}
        self._constant["topic"] = Subscription("weight < 200", ("kafka", self.topics[0]))
        if has_queue:
            SqlQueue.create(self.url, QUEUE).close()
            self._destinations.append(("queue", QUEUE))
            self._constant["queue"] = Subscription("weight < 100", ("queue", QUEUE))
        self._publish({f"s{number}": self._drawn() for number in range(SUBSCRIPTIONS)})
        # The kernel is compiled, or read, before the first job is started and not in each.
        sr.Snapshot.open(self.snapshots).match(pa.record_batch({"weight": [1]}))

    def change(self) -> None:
        """Publish a new revision: some subscriptions are others, one comes, one goes."""
        state = dict(self.states[max(self.states)])
        for id in self.chance.sample(sorted(state), 3):
            state[id] = self._drawn()
        del state[self.chance.choice(sorted(state))]
        state[f"s{SUBSCRIPTIONS + len(self.states)}"] = self._drawn()
        self._publish(state)

    def produce(self, count: int) -> None:
        drawn = ((self.chance.randrange(PARTITIONS), self.chance.randrange(KINDS)) for _ in range(count))
        self.broker.produce(self.topic, [(partition, *self.kinds.record(kind)) for partition, kind in drawn])
        self.produced += count

    @contextmanager
    def consuming(self) -> Iterator[None]:
        """Have a consumer take from the queue meanwhile, and in the end all that is left."""
        if not self.has_queue:
            yield
            return
        ending = CLEAN.Event()
        consumer = start(consume, self.url, QUEUE, self.journal, ending)
        try:
            yield
        finally:
            ending.set()
            consumer.join()
        assert consumer.exitcode == 0, "the consumer failed: see above"

    def _drawn(self) -> Subscription:
        return Subscription(self.kinds.selector(self.chance), self.chance.choice(self._destinations))

    def _publish(self, state: dict[str, Subscription]) -> None:
        state |= self._constant
        revision = max(self.states, default=0) + self.chance.randrange(1, 4)
        lines = [json.dumps(one.registered(id)) for id, one in state.items()]
        self.states[revision] = state
        sr.publish(build_from_lines(lines, revision), self.snapshots)

    def check(self, output: Path) -> Counter[str]:
        """Check everything and return what was counted. Raises AssertionError."""
        findings = audit(output).findings
        assert not findings, findings[:5]
        assert not list((output / "_staging").iterdir())
        commits = commits_of(output)
        check_pins(output, commits)
        records = {
            (record.partition(), record.offset()): int(dict(record.headers())["kind"])
            for record in self.broker.records(self.topic)
        }
        assert len(records) == self.produced
        delivered, to, dead = self._expected(commits, records)
        rows = _rows(output / "deliveries", "subscription")
        ids = (self._id(row["partition"], row["offset"], row["subscription"]) for row in rows)
        same("deliveries", Counter(zip(ids, (row["revision"] for row in rows), strict=True)), delivered)
        letters = _rows(output / "dead-letters", "raw")
        same("dead letters", Counter((row["partition"], row["offset"], row["raw"]) for row in letters), dead)
        got = Counter(line["delivery_id"] for line in lines_of(self.journal))
        same("queue", got, to[QUEUE])
        revisions = len({commit["revision"] for commit in commits.values()})
        counts = Counter({"revisions": revisions, "batches": len(commits), "records": len(records)})
        counts |= Counter({"deliveries": len(rows), "got from the queue": got.total()})
        for topic in self.topics:
            sent = self.broker.records(topic)
            ids = (dict(record.headers())["selectroute-delivery-id"].decode() for record in sent)
            same(f"topic {topic}", Counter(ids), to[topic])
            counts["read of topics"] += len(sent)
            aborted = len(self.broker.records(topic, "read_uncommitted")) - len(sent)
            counts["of aborted transactions"] += aborted
        return counts

    def _expected(
        self, commits: Mapping[int, Mapping[str, Any]], records: Mapping[tuple[int, int], int]
    ) -> tuple[Counter[Any], dict[str, Counter[str]], Counter[Any]]:
        """What the reference has: deliveries with their revision, those of each destination, dead letters."""
        delivered: Counter[Any] = Counter()
        to: dict[str, Counter[str]] = {name: Counter() for name in (QUEUE, *self.topics)}
        dead: Counter[Any] = Counter()
        taken: Counter[tuple[int, int]] = Counter()
        for commit in commits.values():
            state = self.states[commit["revision"]]
            starts, ends = (commit["inputs"][name].get(self.topic, {}) for name in ("start", "end"))
            ranges = ((int(place), range(start, ends[place])) for place, start in starts.items())
            places = [(partition, offset) for partition, offsets in ranges for offset in offsets]
            taken.update(places)
            for place in places:
                kind = records[place]
                if self.kinds.is_bad(kind):
                    dead[*place, self.kinds.record(kind)[1]] += 1
                for id, subscription in state.items():
                    if self.kinds.matches(kind, subscription.selector):
                        delivered[self._id(*place, id), commit["revision"]] = 1
                        if subscription.destination is not None:
                            to[subscription.destination[1]][self._id(*place, id)] += 1
        same("batches", taken, Counter(dict.fromkeys(records, 1)))
        return delivered, to, dead

    def _id(self, partition: int, offset: int, subscription: str) -> str:
        return f"{self.topic}/{partition}/{offset}/{subscription}"


def _rows(folder: Path, column: str) -> list[dict[str, Any]]:
    columns = ["partition", "offset", "revision", column]
    tables = [pq.ParquetFile(path).read(columns) for path in published_files(folder)]
    return [row for table in tables for row in table.to_pylist()]
