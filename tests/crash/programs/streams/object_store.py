"""A job with all of its folders in an object store that fails, killed again and again.

``python -m tests.crash.programs.streams.object_store --kills 200``: a server that speaks S3, behind a proxy
that answers 503, loses answers after the write, cuts connections and delays listings; ``selectroute stream
run`` as a user runs it, its whole session killed (SIGKILL) at random instants, while selectors change and
files arrive. Afterwards every delivery in the Delta table is held against the reference evaluator under the
revision of its batch: nothing is lost, nothing is there twice. ``--store azure`` and ``--store gcs`` do the
same with servers that speak the protocols of Azure and Google. ``--each-write 1`` kills the job right before
and right after each write of a run, from its first to its last, in turn.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import selectroute as sr
from selectroute.spark.audit.audit import audit
from selectroute.spark.tables.delta_table import table_options
from selectroute.storage import Location
from tests.crash.programs.harness import STREAM_RUN, end_of, kill, launch, program, same
from tests.support.remote_world import numba_cache
from tests.support.servers.azure import azure_server
from tests.support.servers.faulty_proxy import faulty_proxy, requests_in
from tests.support.servers.gcs import gcs_server
from tests.support.servers.object_stores import ObjectStore
from tests.support.servers.s3 import s3_store
from tests.support.waiting import wait_until

STORES = {"s3": s3_store, "azure": azure_server, "gcs": gcs_server}
COLORS = ("red", "blue", "green", "grey")
_WAIT_SECONDS = 600.0
_MOST_CHANGES = 20
"""Changes of selectors in a round: a slow machine must not have hundreds of revisions before its first batch.
"""


class StoreJob:
    """One job in a bucket, with what it should deliver. Its requests go to ``store``; those of this process
    go to the server itself.
    """

    def __init__(self, folder: Path, store: ObjectStore, chance: Random) -> None:
        self.store, self.chance, self.log = store, chance, folder / "job.log"
        self.base = Location.of(f"{store.root}/{folder.name}")
        self.environment = {
            **store.environment,
            "XDG_CACHE_HOME": str(folder / "cache"),
            "NUMBA_CACHE_DIR": numba_cache(),
        }
        self.publisher = sr.Publisher(self.base / "snapshots")
        self.messages: dict[str, list[dict[str, Any]]] = {}
        self.revisions: dict[int, dict[str, str]] = {}
        self.state: dict[str, str] = {}
        for _ in range(8):
            self.change()

    def change(self) -> None:
        id = f"s{self.chance.randrange(12)}"
        color, weight = self.chance.choice(COLORS), self.chance.randrange(100)
        colored = f"color = '{color}'"
        narrow = f"{colored} AND weight > {weight}"
        selector = self.chance.choice([colored, narrow, f"weight BETWEEN {weight} AND 99"])
        if id in self.state and self.chance.random() < 0.3:
            change: Any = sr.Remove(id)
            del self.state[id]
        else:
            change = (sr.Replace if id in self.state else sr.Add)(id, selector)
            self.state[id] = selector
        self.revisions[self.publisher.apply([change])] = dict(self.state)

    def drop(self, files: int = 1) -> None:
        for number in range(len(self.messages), len(self.messages) + files):
            rows = [
                {"color": self.chance.choice(COLORS), "weight": self.chance.randrange(100)}
                for _ in range(self.chance.randrange(1, 40))
            ]
            types = {"color": "string", "weight": "int"}
            typed = [{name: {"type": types[name], "value": row[name]} for name in row} for row in rows]
            lines = "".join(json.dumps({"properties": row}) + "\n" for row in typed)
            name = f"{'abc'[number % 3]}/{number:05}.jsonl"
            (self.base / "in" / name).put(lines.encode())
            self.messages[name] = rows

    def start(self, *options: str) -> subprocess.Popen[bytes]:
        places = {"input": "in", "snapshots": "snapshots", "output": "out"}
        folders = [f"--{name}={self.base / place}" for name, place in places.items()]
        command = [*STREAM_RUN, *folders, "--max-files-per-trigger=2", "--cores=2", *options]
        return launch(self.log, *command, **self.environment)

    def finish(self) -> None:
        job = self.start("--available-now")
        assert job.wait(_WAIT_SECONDS) == 0, self.said()

    def said(self) -> str:
        return end_of(self.log)

    def noted(self, folder: str) -> list[Any]:
        """The batches that have a file in a folder of the output: ``pins`` or ``_commits``."""
        return [file for file in (self.base / "out" / folder).files() if file.stem.isdigit()]

    def committed(self) -> int:
        return len(self.noted("_commits"))

    def check(self) -> str:
        """Hold every delivery against the reference. Raises AssertionError."""
        from deltalake import DeltaTable

        out = self.base / "out"
        commits = [file.read_json() or {} for file in self.noted("_commits")]
        commits.sort(key=lambda commit: int(commit["batch"]))
        assert [commit["batch"] for commit in commits] == list(range(len(commits)))
        taken = Counter(name for commit in commits for name in commit["inputs"]["sizes"])
        same("files in batches", taken, Counter(list(self.messages)))
        expected: Counter[tuple[int, str, int, str]] = Counter()
        for commit in commits:
            chosen = {id: sr.Selector(text) for id, text in self.revisions[commit["revision"]].items()}
            for name in commit["inputs"]["sizes"]:
                for offset, row in enumerate(self.messages[name]):
                    message = sr.Message(properties=row)
                    ids = [id for id, selector in chosen.items() if selector.matches(message)]
                    expected.update((commit["batch"], name, offset, id) for id in ids)
        table = DeltaTable(str(out / "deliveries"), storage_options=table_options(out)).to_pyarrow_table()
        columns = [table[name].to_pylist() for name in ("batch", "source", "offset", "subscription")]
        found = Counter(zip(*columns, strict=True))
        same("deliveries", found, expected)
        report = audit(out, recount=True)
        assert not report.findings, report.findings
        used = {commit["revision"] for commit in commits}
        made = f"{sum(found.values()):,} deliveries: 0 lost, 0 twice"
        return f"{len(commits)} batches under {len(used)} revisions, {made}"


@contextmanager
def store_job(folder: Path, seed: int, store: str, **faults: Any) -> Iterator[StoreJob]:
    """A job in a store behind a proxy with these faults."""
    log = folder / "proxy.log"
    with (
        STORES[store]() as server,
        faulty_proxy(server.endpoint, log, seed=seed, **faults) as proxy,
        server.client(),
    ):
        yield StoreJob(folder, server.behind(proxy), Random(seed))


def run_kills(folder: Path, kills: int, seed: int, rate: float, store: str = "s3") -> str:
    """Kill a job so often, and return what was seen. Raises AssertionError."""
    with store_job(folder, seed, store, rate=rate) as jobs:
        chance = jobs.chance
        jobs.drop(3)
        for number in range(kills):
            job = jobs.start("--trigger-seconds=0")
            # In some rounds from within the start, in most after a few batches.
            wanted = jobs.committed() + chance.randrange(1, 5)
            until = time.monotonic() + (chance.uniform(2, 30) if chance.random() < 0.3 else _WAIT_SECONDS)
            changes = 0
            while jobs.committed() < wanted and time.monotonic() < until:
                if len(jobs.messages) < 2 * jobs.committed() + 8:
                    jobs.drop()
                if changes < _MOST_CHANGES and chance.random() < 0.5:
                    jobs.change()
                    changes += 1
                time.sleep(chance.random() * 0.5)
                assert job.poll() is None, jobs.said()
            time.sleep(chance.random() * 0.3)
            kill(job)
            print(f"kill {number + 1}: {jobs.committed()} batches", flush=True)
        jobs.finish()
        requests = requests_in(folder / "proxy.log")
        faults = Counter(what for _, _, _, what, _, _ in requests if isinstance(what, str))
        return f"{kills} kills; {jobs.check()}; {dict(faults)}"


def run_each_write(folder: Path, seed: int, step: int, store: str) -> str:
    """Kill a job before and after each ``step``-th write of a run, and return what was seen.

    Raises AssertionError.
    """
    switch = folder / "switch"
    met, killed = switch.with_suffix(".met"), 0
    with store_job(folder, seed, store, switch=switch) as jobs:
        for moment in ("before", "after"):
            for nth in itertools.count(1, step):
                jobs.drop(3)  # a batch and a half
                jobs.change()
                met.unlink(missing_ok=True)
                switch.write_text(f"{moment} {nth}")
                job = jobs.start("--available-now")
                wait_until(lambda job=job: met.exists() or job.poll() is not None, _WAIT_SECONDS, "a write")
                if job.poll() is not None:  # it has fewer writes than that
                    assert job.returncode == 0, jobs.said()
                    break
                kill(job)
                killed += 1
                print(f"{moment} write {nth}: {jobs.committed()} batches", flush=True)
        switch.write_text("ok")
        jobs.finish()
        return f"{killed} kills at a write; {jobs.check()}"


def run_two(folder: Path, seed: int, store: str = "s3") -> str:
    """Let a second driver start while the first stands still in a batch, and wake the first again.

    Returns what was seen. Raises AssertionError.
    """
    with store_job(folder, seed, store, delay=0.1) as jobs:
        jobs.drop(4)
        first = jobs.start("--trigger-seconds=0")
        wait_until(lambda: jobs.committed() or first.poll() is not None, _WAIT_SECONDS, "a batch")
        jobs.drop(6)
        wait_until(
            lambda: len(jobs.noted("pins")) > jobs.committed() or first.poll() is not None,
            _WAIT_SECONDS,
            "a batch that is begun",
        )
        assert first.poll() is None, jobs.said()
        os.killpg(first.pid, signal.SIGSTOP)
        jobs.change()
        second = jobs.start("--available-now")
        try:
            assert second.wait(_WAIT_SECONDS) == 0, jobs.said()
            before = jobs.log.stat().st_size  # the rest is of the first
        finally:
            os.killpg(first.pid, signal.SIGCONT)
        code = first.wait(_WAIT_SECONDS)
        assert code == 4, f"the first ended with {code}: {jobs.said()}"
        said = jobs.log.read_bytes()[before:].decode()
        # A request that was cut off while it stood still may have been warned of before.
        sentence = said.splitlines()[-1]
        assert sentence.startswith("selectroute: another process has taken over the output folder"), said
        assert "Traceback" not in said, said
        return jobs.check()


def run(root: Path, seed: int, kills: int, rate: float, two: bool, each_write: int | None, store: str) -> str:
    if two:
        return run_two(root, seed, store)
    if each_write:
        return run_each_write(root, seed, each_write, store)
    return run_kills(root, kills, seed, rate, store)


if __name__ == "__main__":
    program(
        "a job in a store that fails",
        run,
        kills=20,
        rate={"type": float, "default": 0.05, "help": "the share of requests that fail"},
        two={"action": "store_true", "help": "two drivers, one of which stands still, instead"},
        each_write={"type": int, "metavar": "N", "help": "kill at each N-th write, instead"},
        store={"choices": [*STORES], "default": "s3"},
    )
