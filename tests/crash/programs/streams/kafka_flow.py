"""What flows into a stream of Kafka's records that is killed, and what changes meanwhile.

Records of `KINDS` different kinds; some two dozen subscriptions of which some change from revision to
revision, delivered to the output folder alone, to topics, and to a queue from which a consumer takes.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any, Final

import pyarrow as pa

import selectroute as sr
from selectroute.index.jsonl import build_from_lines
from selectroute.queues.sql.queue import SqlQueue
from selectroute.testing.broker import Broker
from tests.crash.programs.streams.delivering import consume
from tests.crash.programs.streams.kafka_check import QUEUE, Kinds, Subscription

SUBSCRIPTIONS: Final = 24
PARTITIONS: Final = 3
_spawn = multiprocessing.get_context("spawn")  # a client of Kafka has threads


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
        """Write so many records."""
        drawn = ((self.chance.randrange(PARTITIONS), self.kinds.draw(self.chance)) for _ in range(count))
        self.broker.produce(self.topic, [(partition, *self.kinds.record(kind)) for partition, kind in drawn])
        self.produced += count

    @contextmanager
    def consuming(self) -> Iterator[None]:
        """Have a consumer take from the queue meanwhile, and in the end all that is left."""
        if not self.has_queue:
            yield
            return
        ending = _spawn.Event()
        consumer = _spawn.Process(target=_consume, args=(self.url, self.journal, ending))
        consumer.start()
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


def _consume(url: str, journal: Path, ending: Any) -> None:
    """Take from the queue, for as long as whoever started this is there."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    consume(url, QUEUE, journal, ending)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
