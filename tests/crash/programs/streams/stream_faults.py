"""Every write of a stream fails in turn: ``python -m tests.crash.programs.streams.stream_faults``.

Batches of files are routed to folders or Delta tables, a queue and a topic, batch by batch as in Spark, but
without it. The n-th write to any file of theirs fails, n = 1, 2, 3 …, until all is routed without having met
a failure: the disk is full, or a write, a sync or a rename gives EIO, once or for good (see `failing`). Each
time

- the job ends with an error that is one sentence, also when it is started while the disk still fails;
- started again when the disk works, it goes on: what was delivered is what the reference evaluator says, to
  the folders, the queue and the topic once, and a task that runs again has the same records.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import selectroute as sr
from selectroute.index.destination import KAFKA
from selectroute.selector.errors import SelectRouteError
from selectroute.spark.batch.router import Router
from selectroute.spark.cluster import KafkaCluster
from selectroute.spark.destinations.destination import Block, Refusal, Topic, Waiting
from selectroute.spark.destinations.kafka.writer import KafkaTarget
from selectroute.spark.stream.fan_out import sentence
from selectroute.spark.task import task
from tests.crash.programs.failing import Shim, armed, compiled, in_turn, required, run_again, shims
from tests.crash.programs.harness import FORMATS, counted, program
from tests.spark.queue_world import A, Queues, numbered
from tests.support.world import Files, World

BATCHES, FILES, MESSAGES = 5, 2, 20
TOPIC = "out"
SUBSCRIPTIONS: dict[str, tuple[str, dict[str, str] | None]] = {
    "folder": ("n >= 5", None),
    "queue": ("n < 12 AND n <> 7", A),
    "topic": ("n BETWEEN 6 AND 15", {"kind": KAFKA, "name": TOPIC}),
    "gone": ("n = 3", {"kind": KAFKA, "name": "no-such-topic"}),
}
_BAD = "no JSON"

Id = tuple[str, int, str]
"""Source, row and subscription."""


class Topics:
    """Topics of Kafka as a job sees them, and what a broker keeps of them: a task's records and its commit
    token are there together, or neither is.
    """

    def __init__(self) -> None:
        self.records: list[tuple[Id, tuple[str, int]]] = []
        self.sent: dict[tuple[int, int, str], list[tuple[Id, tuple[str, int]]]] = {}
        self.waiting = Waiting("the topic", 0.0)

    def known(self, names: frozenset[str], refresh: bool = True) -> dict[str, Topic]:
        return {name: Topic(1 << 20, 3) for name in names & {TOPIC}}

    topics = known

    def has_tokens(self, batch: int) -> bool:
        return any(sent == batch for sent, *_ in self.sent)

    def read_to(self, offsets: Any) -> None:
        """Do nothing: all tokens are at hand."""

    def forget(self, topics: Any) -> None:
        """Do nothing: no topic refuses."""

    def target(self, job: str, batch: int, topics: Any, plan: str) -> KafkaTarget:
        return KafkaTarget(KafkaCluster("none:1"), topics, job, batch, "producer", None, plan)

    def writer(self, target: KafkaTarget, _wire: Any, task: int, _names: Any, ids: Any, *_: Any) -> Writer:
        return Writer(self, target, task, ids)


class Writer:
    """Writer of a task's records, in the place of `KafkaWriter`."""

    def __init__(self, topics: Topics, target: KafkaTarget, task: int, ids: Any) -> None:
        self._topics = topics
        self._key = target.batch, task, target.plan_sha256
        self._ids = ids
        self._records: list[tuple[Id, tuple[str, int]]] = []

    def write(self, block: Block) -> list[Refusal]:
        for row, ordinal in zip(block.rows.tolist(), block.ordinals.tolist(), strict=True):
            one = block.place.source, int(block.offsets[row]), self._ids[ordinal].as_py()
            self._records.append((one, (f"{self._key}", len(self._records))))
        return []

    def close(self) -> None:
        sent = self._topics.sent
        assert all(key[2] == self._key[2] for key in sent if key[0] == self._key[0]), "by another plan"
        if self._key in sent:
            assert sent[self._key] == self._records, "a task that runs again has other records"
        elif self._records:
            sent[self._key] = self._records
            self._topics.records += self._records

    def report(self) -> dict[str, Any]:
        return {"sent": [TOPIC]}


class Stream:
    """A job in a folder of its own."""

    def __init__(self, home: Path, table_format: str) -> None:
        home.mkdir()
        self.world = World(home, table_format=table_format)
        self.world.input.mkdir()
        self.queues = Queues(self.world, f"sqlite:///{home}/queues.db")
        self.queues.create("A")
        self.queues.publish(1, **SUBSCRIPTIONS)
        self.topics = Topics()
        for number in range(BATCHES * FILES):
            self.world.drop_json(f"{number}.jsonl", *numbered(MESSAGES), _BAD)

    def route(self) -> None:
        job = self.world.job(compact_every=2)
        self.world.claim(job)
        kafka: Any = self.topics
        task.KafkaWriter = kafka.writer  # type: ignore[misc]
        task.connected = lambda *_, **__: None  # type: ignore[assignment, return-value]
        router = Router(job, Files(job, 2), self.queues.sender(), kafka)
        try:
            router.commits.prepare()
            for batch in range(BATCHES):
                router.commits.tables.maintain(lambda: False)
                names = range(batch * FILES, (batch + 1) * FILES)
                router.route(batch, [self.world.input / f"{name}.jsonl" for name in names], "q")
        finally:
            router.close()

    def check(self) -> None:
        """Hold what came out against the reference. Raises AssertionError."""
        expected = {name: self._expected(name) for name in SUBSCRIPTIONS}
        recorded = Counter((source, row, id) for source, row, id, _ in self.world.deliveries().elements())
        assert recorded == Counter(expected["folder"] | expected["queue"] | expected["topic"])
        ids = Counter("{}/0/{}/{}".format(*one) for one in expected["queue"])
        assert self.queues.ids("A") == ids
        assert Counter(id for id, _ in self.topics.records) == Counter(expected["topic"])
        letters = self.world.rows("dead-letters")
        dead = Counter((row["source"], row["offset"], row["subscription"]) for row in letters)
        bad = {(f"{number}.jsonl", MESSAGES, None) for number in range(BATCHES * FILES)}
        assert dead == Counter(expected["gone"] | bad)
        assert not list((self.world.output / "_staging").iterdir())
        lines = self.world.accounting()
        assert [line["batch"] for line in lines] == list(range(BATCHES))
        assert {line["messages"] for line in lines} == {FILES * (MESSAGES + 1)}

    def _expected(self, id: str) -> set[Id]:
        selector = sr.Selector(SUBSCRIPTIONS[id][0])
        wanted = [n for n in range(MESSAGES) if selector.matches(sr.Message({}, {"n": n}))]
        return {(f"{number}.jsonl", n, id) for number in range(BATCHES * FILES) for n in wanted}


def route_one(fault: Shim, root: Path, table_format: str, at: int) -> tuple[bool, bool]:
    """Let a write fail, and go on. Raises AssertionError."""
    home = root / f"{at}"
    stream = Stream(home, table_format)
    with armed(fault, at, home):
        ended = _ended(stream)
        fired = fault.fired
        is_complete = ended and fault.stays and not _ended(stream)
    if not is_complete:  # else nothing was left to write: what failed was the flush of the accounting
        stream.route()
    stream.check()
    assert fired or not ended
    return not ended, fired


def _ended(stream: Stream) -> str:
    """Route; return the sentence with which it ended, if it did."""
    try:
        stream.route()
    except (SelectRouteError, OSError) as error:
        said = str(sentence(error))
        assert said and "\n" not in said and "Traceback" not in said, said
        return said
    return ""


def run(root: Path, seed: int, step: int, table_format: str) -> Counter[str]:
    run_again(required(compiled(root)))
    total: Counter[str] = Counter()
    for number, fault in enumerate(shims()):
        (root / str(number)).mkdir()
        counts = in_turn(partial(route_one, fault, root / str(number), table_format), step, "ended")
        assert counts.total() * step > 200, f"{fault.name}: only {counts.total()} writes"
        print(f"{fault.name}: {counted(counts)}", flush=True)
        total += counts
    return total


if __name__ == "__main__":
    every = {"type": int, "default": 1, "help": "1 for every write, n for each n-th"}
    program("let every write of a stream fail in turn", run, step=every, table_format=FORMATS)
