"""A stream on a cluster whose parts die or hang: ``python -m tests.crash.programs.streams.executors``.

Spark's own cluster with two hosts on loopback, speculation on, and the job of `kafka`: Kafka's records to
files, a queue and topics. While it routes, again and again a Python worker or an executor is killed
(SIGKILL), or a Python worker is stopped for some seconds (SIGSTOP), so that another host gets a speculative
copy of its task while the first one goes on later. Spark runs the tasks again; the job itself never ends.
Afterwards all that came out is held against the reference evaluator, as there. Spark's own log of events says
how many tasks really were lost, and how many copies really ran.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from itertools import chain
from pathlib import Path

from selectroute.testing.broker import Broker
from selectroute.testing.broker import running as running_broker
from tests.crash.programs.harness import FORMATS, kill, program
from tests.crash.programs.streams.kafka import BATCH, Killed
from tests.crash.programs.streams.kafka_flow import Flow
from tests.support.servers.cluster import PROPERTIES, environment, running, submit_command

WORKER, EXECUTOR, SLOW = FAULTS = ("a Python worker killed", "an executor killed", "a Python worker stopped")
HOSTS = ("127.0.0.1", "127.0.0.2")
"""Spark runs a speculative copy on another host than the task itself."""

HARMS = {"tasks lost": WORKER, "speculative copies": SLOW}
"""What must come of the faults, and of which one."""
MOST = 30
"""The most times that a fault is done for it."""

_STOPPED_SECONDS = 4.0
_EXECUTOR, _WORKER = "CoarseGrainedExecutorBackend", "pyspark.daemon"
_SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.executor.memory": "1g",
    "spark.cores.max": len(HOSTS),
    "spark.ui.enabled": "false",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.2",
    "spark.speculation.quantile": "0.3",
    "spark.speculation.minTaskRuntime": "300ms",
    "spark.eventLog.enabled": "true",
    "spark.eventLog.compress": "false",
}


class Hurt(Killed):
    """See `Killed`; it is not the job that is killed."""

    master = ""

    def hurt(self, faults: list[str]) -> Counter[str]:
        """Do this to it, one after another, and check. Raises AssertionError."""
        counts: Counter[str] = Counter()
        with self._consuming():
            self.produce()
            job = self.start()
            for fault in faults:
                self._once(fault, job, counts)
            # Who waits for its next task is hurt without harm.
            for harm, fault in HARMS.items():
                while not self._events()[harm]:
                    assert counts[fault] < MOST, f"{counts[fault]} times {fault}, and no {harm}"
                    self._once(fault, job, counts)
            kill(job)
            self._route_rest()
        return counts + self._events() + self.flow.check(self.output)

    def _once(self, fault: str, job: subprocess.Popen[bytes], counts: Counter[str]) -> None:
        self._do(fault, job)
        counts[fault] += 1
        done = len(self._committed()) + self.chance.choice([0, 1])
        self._change_meanwhile(job, 0.5)
        self._until(lambda: len(self._committed()) >= done, job)
        print(f"{fault}: {len(self._committed())} batches", flush=True)

    def start(self, *failpoint: str, options: Sequence[str] = ()) -> subprocess.Popen[bytes]:
        events = self.home / "events"
        events.mkdir(exist_ok=True)
        settings = [("--conf", f"{name}={value}") for name, value in _SETTINGS.items()]
        settings += [("--conf", f"spark.eventLog.dir={events.as_uri()}"), ("--master", self.master)]
        settings += [("--properties-file", f"{self.home.parent}/cluster/{PROPERTIES}")]
        command = submit_command(*chain(*settings))
        cut = ["--min-partitions", 2 * len(HOSTS)]  # Spark makes no copy of the only task
        return self._launch(*command, *self._settings(), *cut, *options, **environment())

    def _do(self, fault: str, job: subprocess.Popen[bytes]) -> None:
        """Do it to one of the processes while a batch is routed."""
        pids: list[int] = []
        while not pids:
            self._until(lambda: bool(self._staged() - self._committed()), job)
            pids = sorted(_executors(self.master))
            if fault != EXECUTOR:
                pids = workers_of(set(pids))
        self._pass(job, self.chance.uniform(0, 0.3))
        chosen = self.chance.choice(pids)
        with suppress(ProcessLookupError):  # it ended meanwhile
            os.kill(chosen, signal.SIGSTOP if fault == SLOW else signal.SIGKILL)
            if fault == SLOW:
                self._pass(job, _STOPPED_SECONDS)
                os.kill(chosen, signal.SIGCONT)

    def _events(self) -> Counter[str]:
        """What Spark says has happened."""
        counts: Counter[str] = Counter()
        for path in (self.home / "events").rglob("*"):
            for line in _whole_lines(path):
                if '"SparkListenerTaskStart"' in line:
                    counts["speculative copies"] += json.loads(line)["Task Info"]["Speculative"]
                elif '"SparkListenerTaskEnd"' in line:
                    reason = json.loads(line)["Task End Reason"]["Reason"]
                    counts["tasks lost"] += reason in ("ExceptionFailure", "ExecutorLostFailure")
                    counts["tasks of which a copy was first"] += reason == "TaskKilled"
        return counts


def _whole_lines(path: Path) -> list[str]:
    """What is written of a file to its last end of a line: it may be still being written."""
    return path.read_text().split("\n")[:-1] if path.is_file() else []


def workers_of(jvms: set[int]) -> list[int]:
    """Return the Python workers that run tasks for these JVMs."""
    parents, names = _table()
    daemons = {pid for pid, said in names.items() if _WORKER in said and parents[pid] in jvms}
    return sorted(pid for pid, parent in parents.items() if parent in daemons and _WORKER in names[pid])


def _executors(master: str) -> set[int]:
    """The executors of a master: what started each has its URL on its command line."""
    parents, names = _table()
    return {pid for pid, said in names.items() if _EXECUTOR in said and master in names.get(parents[pid], "")}


def _table() -> tuple[dict[int, int], dict[int, str]]:
    parents: dict[int, int] = {}
    names: dict[int, str] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):  # it ended meanwhile
                said = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                parents[int(entry.name)] = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
                names[int(entry.name)] = said
    return parents, names


def run(
    root: Path, seed: int, times: int, table_format: str = "parquet", broker: Broker | None = None
) -> Counter[str]:
    """Each fault so often, in any order. Raises AssertionError."""
    (root / "cluster").mkdir()
    started = nullcontext(broker) if broker else running_broker(root / "broker")
    with started as broker, running(root / "cluster", HOSTS, cores=1) as master:
        hurt = Hurt(Flow(broker, root / "stream", seed), root / "stream", table_format)
        hurt.master = master
        faults = list(FAULTS) * times
        hurt.chance.shuffle(faults)
        counts = hurt.hurt(faults)
    assert counts["records"] > BATCH * times
    return counts


if __name__ == "__main__":
    program("kill parts of a cluster under a stream", run, times=10, table_format=FORMATS)
