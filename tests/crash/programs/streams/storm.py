"""A storm of selector changes while messages flow: ``python -m tests.crash.programs.streams.storm``.

A registry, a publisher in a process of its own, several clients that change subscriptions, and
``selectroute stream run`` as a user runs it, all at once; the publisher and the stream are killed (SIGKILL)
now and then and started again. Changes are spread over the messages. Afterwards every delivery is held
against the reference evaluator under the revision that its batch was pinned to, see `storm_check`.

Everything that clients and messages do is made from the seed; which revision meets which batch is not.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import selectroute as sr
from selectroute.index.specification import SubscriptionSpec
from selectroute.registry.changes import Operation
from selectroute.registry.publisher import RegistryPublisher
from tests.crash.programs.command import ROOT
from tests.crash.programs.long_run import long_run, options
from tests.crash.programs.streams.storm_check import KINDS, Tally, check_storm, kinds

BEGINNING = 60
"""Subscriptions before the first message."""

CLIENTS = 4
WAIT_SECONDS = 600.0
"""After so long without a batch the storm has failed."""


@dataclass
class Storm:
    """One run in a folder of its own."""

    folder: Path
    seed: int
    changes: int
    messages: int
    files: int
    kills: int
    table_format: str = "parquet"
    restarts: int = 0
    errors: list[BaseException] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.url = f"sqlite:///{self.folder}/registry.db"
        self.input, self.output = self.folder / "in", self.folder / "out"
        self.registry = sr.Registry.open(self.url)
        self.ending = threading.Event()

    # ---- what flows

    def write_messages(self) -> None:
        """Write all message files; the stream takes one a batch."""
        self.input.mkdir()
        table = kinds(self.seed)
        draw = np.random.default_rng(self.seed)
        share = self.messages // self.files
        for number in range(self.files):
            rows = share if number else self.messages - share * (self.files - 1)
            chosen = table.take(pa.array(draw.integers(0, KINDS, rows)))
            hidden = self.input / f".{number:05}.parquet"
            pq.write_table(chosen, hidden)
            hidden.rename(self.input / f"{number:05}.parquet")

    def progress(self) -> float:
        """Which share of the files is committed."""
        folder = self.output / "_commits"
        done = sum(path.stem.isdigit() for path in folder.glob("*.json")) if folder.is_dir() else 0
        return done / self.files

    # ---- who changes

    def run_client(self, client: Client, number: int) -> None:
        """Make this client's share of the changes, spread over the stream."""
        try:
            for turn in range(number, self.changes, CLIENTS):
                while self.progress() < turn / self.changes and not self.ending.is_set():
                    time.sleep(0.02)
                client.change()
        except BaseException as error:
            self.errors.append(error)

    # ---- who runs

    def run(self) -> Tally:
        """Let it blow over, then check everything."""
        chance = Random(self.seed)
        several = [Client(self.registry, Random(self.seed * 1_000 + number)) for number in range(CLIENTS)]
        for turn in range(BEGINNING):
            several[turn % CLIENTS].add()
        self.write_messages()
        publisher = self._publisher()
        clients = [threading.Thread(target=self.run_client, args=(one, n)) for n, one in enumerate(several)]
        for client in clients:
            client.start()
        kills = sorted(chance.uniform(0.1, 0.9) for _ in range(2 * self.kills))
        stream = self._stream("--max-files-per-trigger", "1", "--trigger-seconds", "0")
        last, since = -1.0, time.monotonic()
        try:
            while (done := self.progress()) < 1.0 or any(client.is_alive() for client in clients):
                if done > last:
                    last, since = done, time.monotonic()
                assert time.monotonic() - since < WAIT_SECONDS, f"nothing since {done:.0%}"
                if kills and done >= kills[0]:
                    kills.pop(0)
                    self.restarts += 1
                    if len(kills) % 2:
                        _kill(stream)
                        stream = self._stream("--max-files-per-trigger", "1", "--trigger-seconds", "0")
                    else:
                        assert publisher.pid is not None
                        os.kill(publisher.pid, signal.SIGKILL)
                        publisher.join()
                        publisher = self._publisher()
                assert stream.poll() is None, f"the stream ended: {self._said()}"
                time.sleep(0.05)
        finally:
            self.ending.set()
            stream.send_signal(signal.SIGTERM)
            stream.wait(WAIT_SECONDS)
            for client in clients:
                client.join()
        if self.errors:
            raise self.errors[0]
        self._calm_down(publisher)
        return check_storm(self.registry, self.input, self.output, kinds(self.seed))

    def _calm_down(self, publisher: Any) -> None:
        """Resume all who are paused, and let the stream give them what they missed."""
        while paused := self.registry.list(status="paused", limit=1_000).items:
            for one in paused:
                self.registry.resume(one.id, from_="last-processed")
        publisher.terminate()
        publisher.join()
        with RegistryPublisher(self.registry) as last:
            last.catch_up()
        self._drop_last()
        stream = self._stream("--available-now")
        assert stream.wait(WAIT_SECONDS) == 0, self._said()

    def _drop_last(self) -> None:
        """One more file, so that the last revision has a batch, too."""
        pq.write_table(kinds(self.seed), self.input / ".last.parquet")
        (self.input / ".last.parquet").rename(self.input / "last.parquet")

    def _publisher(self) -> Any:
        process = multiprocessing.get_context("spawn").Process(target=follow, args=(self.url,), daemon=True)
        process.start()
        deadline = time.monotonic() + 300
        while not any(self.registry.snapshots_folder.path.glob("manifest-*.json")):
            assert process.is_alive() and time.monotonic() < deadline
            time.sleep(0.05)
        return process

    def _stream(self, *options: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "selectroute", "stream", "run", "--cores", "2", *options]
        command += ["--table-format", self.table_format, "--compact-every", "3"]
        folders = ["--input", str(self.input), "--output", str(self.output), "--registry", self.url]
        paths = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
        with (self.folder / "stream.log").open("ab") as log:
            return subprocess.Popen(
                [*command, *folders],
                stderr=log,
                env={**os.environ, "PYTHONPATH": paths},
                start_new_session=True,
            )

    def _said(self) -> str:
        return (self.folder / "stream.log").read_text()[-2_000:]


class Client:
    """Changes subscriptions of its own, each time for real: none of the others' calls meet it."""

    def __init__(self, registry: sr.Registry, chance: Random) -> None:
        self.registry = registry
        self.chance = chance
        self.active: list[str] = []
        self.paused: list[str] = []

    def add(self) -> None:
        """Register one more."""
        self.active.append(self.registry.register(drawn(self.chance)).id)

    def change(self) -> None:
        """Make one change, or several as one revision."""
        kinds = ["add", "replace", "pause", "remove", "several"] if len(self.active) > 3 else ["add"]
        kind = self.chance.choice([*kinds, "resume", "resume"] if self.paused else kinds)
        if kind == "add":
            self.add()
        elif kind == "replace":
            self.registry.replace(self.chance.choice(self.active + self.paused), drawn(self.chance))
        elif kind == "pause":
            self.paused.append(self._drawn(self.active))
            self.registry.pause(self.paused[-1])
        elif kind == "remove":
            self.registry.remove(self._drawn(self.chance.choice([self.active, self.paused or self.active])))
        elif kind == "resume":
            self.active.append(self._drawn(self.paused))
            since = "latest" if self.chance.random() < 0.2 else "last-processed"
            self.registry.resume(self.active[-1], from_=since)
        else:
            self._several()

    def _several(self) -> None:
        gone, stopped = self._drawn(self.active), self._drawn(self.active)
        operations = [
            Operation("remove", gone),
            Operation("add", spec=drawn(self.chance)),
            Operation("pause", stopped),
        ]
        done = self.registry.apply(operations)
        self.active.append(done.subscriptions[1].id)
        self.paused.append(stopped)

    def _drawn(self, ids: list[str]) -> str:
        return ids.pop(self.chance.randrange(len(ids)))


def drawn(chance: Random) -> SubscriptionSpec:
    """Draw a narrow selector of one of a few shapes over what the messages have."""
    type_, color = f"t{chance.randrange(20)}", f"c{chance.randrange(5)}"
    weight, shape = chance.randrange(1_000), chance.randrange(5)
    text = (
        f"JMSType = '{type_}' AND weight > {weight}",
        f"JMSType = '{type_}' AND color = '{color}'",
        f"color = '{color}' AND weight BETWEEN {weight} AND {weight + 40}",
        f"JMSType IN ('{type_}', 't0') AND note LIKE '%{weight % 10}{weight // 100}%'",
        f"JMSType = '{type_}' AND (price IS NULL OR NOT price < {weight / 10})",
    )[shape]
    topic = chance.choice([None, None, "cars/#", "cars/+/eu", f"+/{color}/eu"])
    return SubscriptionSpec(text, topic)


def follow(url: str) -> None:
    """Publish a registry's revisions until the process is ended."""
    deadline = time.monotonic() + 60
    with sr.Registry.open(url, verify=False) as registry:
        while True:
            try:
                publisher = RegistryPublisher(registry)
                break
            except sr.SelectRouteError:  # the one before is being ended
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
        publisher.follow(threading.Event())


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a stream with its JVM and its workers: they are a session of their own."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def main() -> int:
    """Run the command."""
    numbers = {"changes": 1_000, "messages": 1_000_000, "files": 200, "kills": 3}
    given = options("a storm of changes", formats=True, **numbers).parse_args()
    with long_run() as frame:
        storm = Storm(frame.folder, **vars(given))
        tally = storm.run()
        frame.held(f"{tally}; {storm.restarts} kills")
    return 0


if __name__ == "__main__":
    sys.exit(main())
