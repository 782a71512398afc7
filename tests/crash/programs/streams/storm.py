"""A storm of selector changes while messages flow: ``python -m tests.crash.programs.streams.storm``.

A registry, a publisher in a process of its own, several clients that change subscriptions, and
``selectroute stream run`` as a user runs it, all at once; the publisher and the stream are killed (SIGKILL)
now and then and started again. Changes are spread over the messages. Afterwards every delivery is held
against the reference evaluator under the revision that its batch was pinned to, see `storm_check`.

Everything that clients and messages do is made from the seed; which revision meets which batch is not.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import selectroute as sr
from selectroute.registry.changes import Operation
from selectroute.registry.model import SubscriptionSpec
from selectroute.registry.publisher import RegistryPublisher
from tests.crash.programs.harness import FORMATS, end_of, kill, launch, program, sqlite_in, start, wait_until
from tests.crash.programs.serving import Threads
from tests.crash.programs.streams.storm_check import KINDS, Tally, check_storm, kinds

BEGINNING = 60
"""Subscriptions before the first message."""

CLIENTS = 4
WAIT_SECONDS = 600.0
"""After so long without a batch the storm has failed."""

_ONE_A_BATCH = ("--max-files-per-trigger", "1", "--trigger-seconds", "0")


class Storm:
    """One run in a folder of its own."""

    def __init__(
        self,
        root: Path,
        seed: int,
        changes: int,
        messages: int,
        files: int,
        kills: int,
        table_format: str = "parquet",
    ) -> None:
        self.folder, self.seed, self.table_format = root, seed, table_format
        self.changes, self.messages, self.files, self.kills = changes, messages, files, kills
        self.restarts = 0
        self.url = sqlite_in(root)
        self.input, self.output = root / "in", root / "out"
        self.registry = sr.Registry.open(self.url)
        self.ending = threading.Event()

    def write_messages(self) -> None:
        """Write all message files; the stream takes one a batch."""
        self.input.mkdir()
        table = kinds(self.seed)
        draw = np.random.default_rng(self.seed)
        share = self.messages // self.files
        for number in range(self.files):
            rows = share if number else self.messages - share * (self.files - 1)
            self._write(f"{number:05}", table.take(pa.array(draw.integers(0, KINDS, rows))))

    def _write(self, name: str, table: pa.Table) -> None:
        pq.write_table(table, self.input / f".{name}.parquet")
        (self.input / f".{name}.parquet").rename(self.input / f"{name}.parquet")

    def progress(self) -> float:
        """Which share of the files is committed."""
        return sum(path.stem.isdigit() for path in (self.output / "_commits").glob("*.json")) / self.files

    def run_client(self, client: Client, number: int) -> None:
        """Make this client's share of the changes, spread over the stream."""
        for turn in range(number, self.changes, CLIENTS):
            while self.progress() < turn / self.changes and not self.ending.is_set():
                time.sleep(0.02)
            client.change()

    def run(self) -> Tally:
        """Let it blow over, then check everything."""
        chance = Random(self.seed)
        several = [Client(self.registry, Random(self.seed * 1_000 + number)) for number in range(CLIENTS)]
        for turn in range(BEGINNING):
            several[turn % CLIENTS].add()
        self.write_messages()
        publisher, clients = self._publisher(), Threads()
        for number, client in enumerate(several):
            clients.start(self.run_client, client, number)
        kills = sorted(chance.uniform(0.1, 0.9) for _ in range(2 * self.kills))
        stream = self._stream(*_ONE_A_BATCH)
        last, since = -1.0, time.monotonic()
        try:
            while (done := self.progress()) < 1.0 or clients.go_on():
                if done > last:
                    last, since = done, time.monotonic()
                assert time.monotonic() - since < WAIT_SECONDS, f"nothing since {done:.0%}"
                if kills and done >= kills[0]:
                    kills.pop(0)
                    self.restarts += 1
                    if len(kills) % 2:
                        kill(stream)
                        stream = self._stream(*_ONE_A_BATCH)
                    else:
                        kill(publisher)
                        publisher = self._publisher()
                assert stream.poll() is None, f"the stream ended: {self._said()}"
                time.sleep(0.05)
        finally:
            self.ending.set()
            stream.terminate()
            stream.wait(WAIT_SECONDS)
        clients.join()
        self._calm_down(publisher)
        return check_storm(self.registry, self.input, self.output, kinds(self.seed))

    def _calm_down(self, publisher: Any) -> None:
        """Resume all who are paused, and let the stream give them what they missed."""
        while paused := self.registry.list(status="paused", limit=1_000).items:
            for subscription in paused:
                self.registry.resume(subscription.id, from_="last-processed")
        publisher.terminate()
        publisher.join()
        with RegistryPublisher(self.registry) as last:
            last.catch_up()
        self._write("last", kinds(self.seed))  # so that the last revision has a batch, too
        assert self._stream("--available-now").wait(WAIT_SECONDS) == 0, self._said()

    def _publisher(self) -> Any:
        process = start(follow, self.url)
        folder = self.registry.snapshots_folder.path
        wait_until(lambda: any(folder.glob("manifest-*.json")) or not process.is_alive(), 300, "a snapshot")
        assert process.is_alive()
        return process

    def _stream(self, *options: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "selectroute", "stream", "run", "--cores", "2", *options]
        command += ["--table-format", self.table_format, "--compact-every", "3"]
        folders = ["--input", self.input, "--output", self.output, "--registry", self.url]
        return launch(self.folder / "stream.log", *command, *folders)

    def _said(self) -> str:
        return end_of(self.folder / "stream.log")


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
        added = Operation("add", spec=drawn(self.chance))
        done = self.registry.apply([Operation("remove", gone), added, Operation("pause", stopped)])
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


def run(root: Path, **options: Any) -> str:
    storm = Storm(root, **options)
    return f"{storm.run()}; {storm.restarts} kills"


if __name__ == "__main__":
    numbers = {"changes": 1_000, "messages": 1_000_000, "files": 200, "kills": 3}
    program("a storm of changes", run, **numbers, table_format=FORMATS)
