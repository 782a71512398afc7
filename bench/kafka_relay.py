"""Relay from Kafka to Kafka, written in Java for the shape of one workload: what a user would write instead.

A process of `peers/`: Kafka's own consumer and producer, a hash map of the rules by the values that a message
must have, two threads with two partitions each. A delivery is a record of the same headers as those of
`start_fanout`. There are no revisions, no accounts and no dead letters. A relay promises each delivery at
least once, or exactly once to consumers that read what is committed: it then commits the offsets that it has
read in the transaction of the deliveries.

A JDK compiles it, against the client among the broker's jars; without one it is skipped with the reason.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final
from uuid import uuid4

import numpy as np

from bench.catalogue import WORKLOADS
from bench.definition import Size
from bench.engine import SkippedError
from bench.jvm import compiled, jdk
from bench.kafka_engines import BATCH, KafkaEngine, Query
from bench.replies import correlation_ids
from bench.streamed import Streamed

RELAYED: Final = "relayed"
"""The topic to which relays write."""

_SOURCES: Final = ("Relay.java", "RelayWorker.java", "RelayCommits.java", "RelayRules.java")
_JARS: Final = ("kafka-clients-*.jar", "slf4j-api-*.jar")
_OLDEST_JAVA: Final = 17
_OPTIONS: Final = ("-Xmx2g",)
_CHUNK: Final = 100_000


class RelayEngine(KafkaEngine):
    """Relay that delivers at least once. Its process lives until `close`."""

    name = "relay"
    to = RELAYED
    triggered = False

    def __init__(self, streamed: Streamed, count: int) -> None:
        """Raises `SkippedError`."""
        java = jdk(_OLDEST_JAVA)
        super().__init__(streamed, count)
        folder = streamed.job_folder()
        jars = [jar for pattern in _JARS for jar in sorted(streamed.broker.jars.glob(pattern))]
        classes = compiled("relay", _SOURCES, jars, java)
        rules = folder / "rules"
        rules.write_text("".join(f"{line}\n" for line in _lines(streamed.size)), encoding="utf-8")
        self._log = folder / "relay.log"
        command = [str(java / "bin" / "java"), *_OPTIONS, "-cp", classes, "Relay", streamed.broker.address]
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [*command, streamed.size.workload, str(rules)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        try:
            self.answer()
        except RelayError as error:
            raise SkippedError(str(error)) from error

    def start(self, topic: str, count: int, trigger_seconds: float | None) -> Query:
        """See `KafkaEngine`. One that runs until it is stopped commits after each poll."""
        mode = "transactional" if self.transactional else "at-least-once"
        interval, until = (BATCH, "available") if trigger_seconds is None else (1, "all")
        self.tell(f"relay {topic} {self.to} {uuid4()} {mode} {interval} {until}")
        return RelayQuery(self)

    def close(self) -> None:
        """End the process."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def tell(self, line: str) -> None:
        """Send the process a line. One that has ended is noticed by `answer`."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{line}\n")
            self._process.stdin.flush()
        except OSError:
            return

    def answer(self) -> dict[str, Any]:
        """Return the next line of the process.

        Raises `RelayError` if it has ended.
        """
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self.close()
            lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
            said = next((one for one in lines if not one.startswith("SLF4J:")), "no message")
            raise RelayError(f"the relay ended with code {self._process.returncode}: {said}")
        found: dict[str, Any] = json.loads(line)
        return found


class TransactionalRelayEngine(RelayEngine):
    """Relay whose deliveries and offsets are committed in one transaction."""

    name = "relay-transactional"
    transactional = True


class RelayQuery(Query):
    """A job of a relay."""

    seconds = 0.0

    def __init__(self, engine: RelayEngine) -> None:
        self._engine = engine

    def wait(self) -> None:
        """See `Query`."""
        self.seconds = self._engine.answer()["seconds"]

    def stop(self) -> None:
        """See `Query`."""
        self._engine.tell("stop")
        self.wait()


class RelayError(Exception):
    """End of a relay's process before that of its job."""


def makers(streamed: Streamed) -> Mapping[str, Callable[[int], KafkaEngine]]:
    """Return how to make each relay for a number of messages. Making one may raise `SkippedError`."""
    return {
        one.name: lambda count, one=one: one(streamed, count)  # type: ignore[misc]
        for one in (RelayEngine, TransactionalRelayEngine)
    }


def _lines(size: Size) -> Iterator[str]:
    """Yield what decides in each rule: a correlation id, or type, color and weight."""
    triples = WORKLOADS[size.workload].triples
    if triples is None:
        for start in range(0, size.rules, _CHUNK):
            yield from correlation_ids(np.arange(start, min(start + _CHUNK, size.rules)))
        return
    rules = triples(size.rules)
    for one in zip(rules.type.tolist(), rules.color.tolist(), rules.weight.tolist(), strict=True):
        yield "t{}\tc{}\t{}".format(*one)
