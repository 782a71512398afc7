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
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final
from uuid import uuid4

from bench.engine import SkippedError
from bench.jvm import compiled, jdk
from bench.kafka.engines import BATCH, KafkaEngine, Query
from bench.kafka.streamed import Streamed

RELAYED: Final = "relayed"
"""The topic to which relays write."""

_SOURCES: Final = tuple(
    f"topics/{name}.java" for name in ("Relay", "RelayWorker", "RelayCommits", "RelayRules")
)
_JARS: Final = ("kafka-clients-*.jar", "slf4j-api-*.jar")
_OLDEST_JAVA: Final = 17
_ALWAYS: Final = ("SLF4J:", "WARNING:")
"""What a process says on its standard error though nothing is wrong."""


class JavaEngine(KafkaEngine):
    """Job of a process in Java, which takes lines and answers with lines. It lives until `close`."""

    triggered = False
    main: ClassVar[str]
    """The class in `peers/` that is run."""
    sources: ClassVar[tuple[str, ...]]
    options: ClassVar[tuple[str, ...]] = ("-Xmx2g",)

    def __init__(self, streamed: Streamed, count: int) -> None:
        """Raises `SkippedError`."""
        java = jdk(_OLDEST_JAVA)
        jars = self.jars(streamed, java)
        super().__init__(streamed, count)
        classes = compiled(self.main, self.sources, jars, java)
        folder = streamed.job_folder()
        self._log = folder / "java.log"
        command = [str(java / "bin" / "java"), *self.options, "-cp", classes, self.main]
        command += [streamed.broker.address, streamed.size.workload, *self.arguments(folder)]
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        try:
            self.answer()
        except EndedError as error:
            raise SkippedError(str(error)) from error

    @abstractmethod
    def jars(self, streamed: Streamed, java: Path) -> Sequence[Path]:
        """Return what it is compiled against and runs with. Raises `SkippedError`."""

    @abstractmethod
    def arguments(self, folder: Path) -> Sequence[str]:
        """Return its arguments after the broker's address and the workload; its files go into the folder."""

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

        Raises `EndedError` if it has ended.
        """
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self.close()
            lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
            said = next((one for one in lines if not one.startswith(_ALWAYS)), "no message")
            raise EndedError(f"{self.name} ended with code {self._process.returncode}: {said}")
        found: dict[str, Any] = json.loads(line)
        return found


class RelayEngine(JavaEngine):
    """Relay that delivers at least once."""

    name = "relay"
    to = RELAYED
    main = "Relay"
    sources = _SOURCES

    def jars(self, streamed: Streamed, java: Path) -> Sequence[Path]:
        """See `JavaEngine`."""
        return [jar for pattern in _JARS for jar in sorted(streamed.broker.jars.glob(pattern))]

    def arguments(self, folder: Path) -> Sequence[str]:
        """See `JavaEngine`."""
        rules = folder / "rules"
        rules.write_text("".join(f"{line}\n" for line in self.streamed.decisive()), encoding="utf-8")
        return [str(rules)]

    def start(self, topic: str, count: int, trigger_seconds: float | None) -> Query:
        """See `KafkaEngine`. One that runs until it is stopped commits after each poll."""
        mode = "transactional" if self.transactional else "at-least-once"
        interval, until = (BATCH, "available") if trigger_seconds is None else (1, "all")
        self.tell(f"relay {topic} {self.to} {uuid4()} {mode} {interval} {until}")
        return JavaQuery(self)


class TransactionalRelayEngine(RelayEngine):
    """Relay whose deliveries and offsets are committed in one transaction."""

    name = "relay-transactional"
    transactional = True


class JavaQuery(Query):
    """A job of such a process."""

    seconds = 0.0

    def __init__(self, engine: JavaEngine) -> None:
        self._engine = engine

    def wait(self) -> None:
        """See `Query`."""
        self.seconds = self._engine.answer()["seconds"]

    def stop(self) -> None:
        """See `Query`."""
        self._engine.tell("stop")
        self.wait()


class EndedError(Exception):
    """End of a process before that of its job."""


def makers(streamed: Streamed) -> Mapping[str, Callable[[int], KafkaEngine]]:
    """Return how to make each relay for a number of messages. Making one may raise `SkippedError`."""
    return {
        one.name: lambda count, one=one: one(streamed, count)  # type: ignore[misc]
        for one in (RelayEngine, TransactionalRelayEngine)
    }
