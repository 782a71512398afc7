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

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from tests.crash.programs.command import ROOT, wait_until
from tests.crash.programs.long_run import long_run, options

import selectroute as sr
from selectroute.spark.audit.audit import audit
from selectroute.spark.tables.delta_table import table_options
from selectroute.storage import Location
from tests.support.remote_world import numba_cache
from tests.support.servers.azure import azure_server
from tests.support.servers.faulty_proxy import faulty_proxy, requests_in
from tests.support.servers.gcs import gcs_server
from tests.support.servers.object_stores import ObjectStore
from tests.support.servers.s3 import s3_store

STORES = {"s3": s3_store, "azure": azure_server, "gcs": gcs_server}
COLORS = ("red", "blue", "green", "grey")
_WAIT_SECONDS = 600.0
_MOST_CHANGES = 20
"""Changes of selectors in a round: a slow machine must not have hundreds of revisions before its first batch.
"""


@dataclass
class StoreJob:
    """One job in a bucket, with what it should deliver."""

    folder: Path
    store: ObjectStore
    """Where the job's requests go; those of this process go to the server itself."""
    chance: Random
    messages: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    revisions: dict[int, dict[str, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.base = Location.of(f"{self.store.root}/{self.folder.name}")
        self.publisher = sr.Publisher(self.base / "snapshots")
        self.state: dict[str, str] = {}
        for _ in range(8):
            self.change()

    # ---- what flows

    def change(self) -> None:
        """Change one subscription, and publish that."""
        id = f"s{self.chance.randrange(12)}"
        color, weight = self.chance.choice(COLORS), self.chance.randrange(100)
        selector = self.chance.choice(
            [
                f"color = '{color}'",
                f"color = '{color}' AND weight > {weight}",
                f"weight BETWEEN {weight} AND 99",
            ]
        )
        if id in self.state and self.chance.random() < 0.3:
            changes: list[Any] = [sr.Remove(id)]
            del self.state[id]
        else:
            changes = [(sr.Replace if id in self.state else sr.Add)(id, selector)]
            self.state[id] = selector
        self.revisions[self.publisher.apply(changes)] = dict(self.state)

    def drop(self) -> None:
        """Put one file of messages into the input."""
        name = f"{'abc'[len(self.messages) % 3]}/{len(self.messages):05}.jsonl"
        rows = [
            {"color": self.chance.choice(COLORS), "weight": self.chance.randrange(100)}
            for _ in range(self.chance.randrange(1, 40))
        ]
        lines = [
            json.dumps(
                {
                    "properties": {
                        "color": {"type": "string", "value": row["color"]},
                        "weight": {"type": "int", "value": row["weight"]},
                    }
                }
            )
            for row in rows
        ]
        (self.base / "in" / name).put("".join(f"{line}\n" for line in lines).encode())
        self.messages[name] = rows

    # ---- who runs

    def command(self, *options: str) -> list[str]:
        """The command of the job."""
        folders = [f"--{name}={self.base / place}" for name, place in self.places().items()]
        limits = ["--max-files-per-trigger=2", "--cores=2"]
        return [sys.executable, "-m", "selectroute", "stream", "run", *folders, *limits, *options]

    def places(self) -> dict[str, str]:
        """The folders of the job below the base, by the option that names them."""
        return {"input": "in", "snapshots": "snapshots", "output": "out"}

    def start(self, *options: str) -> subprocess.Popen[bytes]:
        """Start the job in a session of its own."""
        modules = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
        with (self.folder / "job.log").open("ab") as log:
            return subprocess.Popen(
                self.command(*options),
                stderr=log,
                stdout=log,
                env={
                    **os.environ,
                    **self.store.environment,
                    "PYTHONPATH": modules,
                    "XDG_CACHE_HOME": str(self.folder / "cache"),
                    "NUMBA_CACHE_DIR": numba_cache(),
                },
                start_new_session=True,
            )

    def finish(self) -> None:
        """Let the job route what is left."""
        job = self.start("--available-now")
        assert job.wait(_WAIT_SECONDS) == 0, self.said()

    def said(self) -> str:
        """The end of what the job has said."""
        return (self.folder / "job.log").read_text(errors="replace")[-3_000:]

    def committed(self) -> int:
        """The number of committed batches."""
        return sum(1 for one in (self.base / "out" / "_commits").files() if one.stem.isdigit())

    # ---- what must be

    def check(self) -> str:
        """Hold every delivery against the reference. Raises AssertionError."""
        from deltalake import DeltaTable

        out = self.base / "out"
        commits = [one.read_json() or {} for one in (out / "_commits").files() if one.stem.isdigit()]
        commits.sort(key=lambda one: int(one["batch"]))
        assert [one["batch"] for one in commits] == list(range(len(commits)))
        taken = Counter(name for one in commits for name in one["inputs"]["sizes"])
        given = Counter(list(self.messages))
        assert taken == given, f"files in no batch {given - taken}, in several {taken - given}"
        expected: Counter[tuple[int, str, int, str]] = Counter()
        for commit in commits:
            chosen = {id: sr.Selector(text) for id, text in self.revisions[commit["revision"]].items()}
            for name in commit["inputs"]["sizes"]:
                for offset, row in enumerate(self.messages[name]):
                    message = sr.Message(properties=row)
                    expected.update(
                        (commit["batch"], name, offset, id)
                        for id, one in chosen.items()
                        if one.matches(message)
                    )
        table = DeltaTable(str(out / "deliveries"), storage_options=table_options(out)).to_pyarrow_table()
        columns = [table[name].to_pylist() for name in ("batch", "source", "offset", "subscription")]
        found = Counter(zip(*columns, strict=True))
        lost, more = expected - found, found - expected
        assert not lost and not more, f"{len(lost)} lost, {len(more)} too many: {[*lost, *more][:3]}"
        report = audit(out, recount=True)
        assert not report.findings, report.findings
        used = {commit["revision"] for commit in commits}
        made = f"{sum(found.values()):,} deliveries: 0 lost, 0 twice"
        return f"{len(commits)} batches under {len(used)} revisions, {made}"


def kill(job: subprocess.Popen[bytes]) -> None:
    """Kill the job with its JVM and its workers."""
    os.killpg(job.pid, signal.SIGKILL)
    job.wait()


def run(folder: Path, kills: int, seed: int, rate: float, kind: str = "s3") -> str:
    """Kill a job so often, and return what was seen. Raises AssertionError."""
    chance = Random(seed)
    with ExitStack() as held:
        server = held.enter_context(STORES[kind]())
        log = folder / "proxy.log"
        proxy = held.enter_context(faulty_proxy(server.endpoint, log, rate=rate, seed=seed))
        held.enter_context(server.client())
        store = StoreJob(folder, server.behind(proxy), chance)
        for _ in range(3):
            store.drop()
        for number in range(kills):
            job = store.start("--trigger-seconds=0")
            # In some rounds from within the start, in most after a few batches.
            wanted = store.committed() + chance.randrange(1, 5)
            until = time.monotonic() + (chance.uniform(2, 30) if chance.random() < 0.3 else _WAIT_SECONDS)
            changes = 0
            while store.committed() < wanted and time.monotonic() < until:
                if len(store.messages) < 2 * store.committed() + 8:
                    store.drop()
                if changes < _MOST_CHANGES and chance.random() < 0.5:
                    store.change()
                    changes += 1
                time.sleep(chance.random() * 0.5)
                assert job.poll() is None, store.said()
            time.sleep(chance.random() * 0.3)
            kill(job)
            print(f"kill {number + 1}: {store.committed()} batches", flush=True)
        store.finish()
        faults = Counter(what for _, _, _, what, _, _ in requests_in(log) if isinstance(what, str))
        return f"{kills} kills; {store.check()}; {dict(faults)}"


def run_each_write(folder: Path, seed: int, step: int, kind: str = "s3") -> str:
    """Kill a job before and after each ``step``-th write of a run, and return what was seen.

    Raises AssertionError.
    """
    chance = Random(seed)
    switch = folder / "switch"
    met = switch.with_suffix(".met")
    killed = 0
    with ExitStack() as held:
        server = held.enter_context(STORES[kind]())
        proxy = held.enter_context(faulty_proxy(server.endpoint, folder / "proxy.log", switch=switch))
        held.enter_context(server.client())
        store = StoreJob(folder, server.behind(proxy), chance)
        for moment in ("before", "after"):
            nth = 1
            while True:
                for _ in range(3):  # a batch and a half
                    store.drop()
                store.change()
                met.unlink(missing_ok=True)
                switch.write_text(f"{moment} {nth}")
                job = store.start("--available-now")
                wait_until(lambda job=job: met.exists() or job.poll() is not None, _WAIT_SECONDS, "a write")
                if job.poll() is not None:  # it has fewer writes than that
                    assert job.returncode == 0, store.said()
                    break
                kill(job)
                killed += 1
                print(f"{moment} write {nth}: {store.committed()} batches", flush=True)
                nth += step
        switch.write_text("ok")
        store.finish()
        return f"{killed} kills at a write; {store.check()}"


def run_two(folder: Path, seed: int, kind: str = "s3") -> str:
    """Let a second driver start while the first stands still in a batch, and wake the first again.

    Returns what was seen. Raises AssertionError.
    """
    chance = Random(seed)
    with ExitStack() as held:
        server = held.enter_context(STORES[kind]())
        slow = held.enter_context(faulty_proxy(server.endpoint, folder / "proxy.log", delay=0.1))
        held.enter_context(server.client())
        store = StoreJob(folder, server.behind(slow), chance)
        for _ in range(4):
            store.drop()
        first = store.start("--trigger-seconds=0")
        wait_until(lambda: store.committed() >= 1 or first.poll() is not None, _WAIT_SECONDS, "a batch")
        for _ in range(6):
            store.drop()
        wait_until(
            lambda: _in_batch(store) or first.poll() is not None, _WAIT_SECONDS, "a batch that is begun"
        )
        assert first.poll() is None, store.said()
        os.killpg(first.pid, signal.SIGSTOP)
        store.change()
        second = store.start("--available-now")
        try:
            assert second.wait(_WAIT_SECONDS) == 0, store.said()
            before = (folder / "job.log").stat().st_size  # the rest is of the first
        finally:
            os.killpg(first.pid, signal.SIGCONT)
        code = first.wait(_WAIT_SECONDS)
        assert code == 4, f"the first ended with {code}: {store.said()}"
        said = (folder / "job.log").read_bytes()[before:].decode()
        # A request that was cut off while it stood still may have been warned of before.
        sentence = said.splitlines()[-1]
        assert sentence.startswith("selectroute: another process has taken over the output folder"), said
        assert "Traceback" not in said, said
        return store.check()


def _in_batch(store: StoreJob) -> bool:
    """Whether a batch is pinned, and not committed."""
    pins = sum(1 for one in (store.base / "out" / "pins").files() if one.stem.isdigit())
    return pins > store.committed()


def main() -> int:
    """Run the command."""
    parser = options("a job in a store that fails", kills=20)
    parser.add_argument("--rate", type=float, default=0.05, help="the share of requests that fail")
    parser.add_argument("--two", action="store_true", help="two drivers, one of which stands still, instead")
    parser.add_argument("--each-write", type=int, metavar="N", help="kill at each N-th write, instead")
    parser.add_argument("--store", choices=[*STORES], default="s3")
    given = parser.parse_args()
    with long_run() as frame:
        if given.two:
            seen = run_two(frame.folder, given.seed, given.store)
        elif given.each_write:
            seen = run_each_write(frame.folder, given.seed, given.each_write, given.store)
        else:
            seen = run(frame.folder, given.kills, given.seed, given.rate, given.store)
        frame.held(str(seen))
    return 0


if __name__ == "__main__":
    sys.exit(main())
