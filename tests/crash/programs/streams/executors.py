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
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.crash.programs.long_run import long_run, options

from selectroute.testing.broker import Broker
from selectroute.testing.broker import running as running_broker
from tests.crash.programs.streams.kafka import BATCH, WAIT_SECONDS, Killed
from tests.crash.programs.streams.kafka_check import check
from tests.crash.programs.streams.kafka_flow import Flow
from tests.support.servers.cluster import environment, running, submit_command

WORKER, EXECUTOR, SLOW = FAULTS = ("a Python worker killed", "an executor killed", "a Python worker stopped")
HOSTS = ("127.0.0.1", "127.0.0.2")
"""Spark runs a speculative copy on another host than the task itself."""

HARMS = {"tasks lost": WORKER, "speculative copies": SLOW}
"""What must come of the faults, and of which one."""
MOST = 30
"""The most times that a fault is done for it."""

_STOPPED_SECONDS = 4.0
_EXECUTOR, _WORKER = "CoarseGrainedExecutorBackend", "pyspark.daemon"


@dataclass
class Hurt(Killed):
    """See `Killed`; it is not the job that is killed."""

    master: str = ""

    def hurt(self, faults: list[str]) -> Counter[str]:
        """Do this to it, one after another, and check. Raises AssertionError."""
        counts: Counter[str] = Counter()
        with self._consuming():
            self.produce()
            job = self._start()
            for fault in faults:
                self._once(fault, job, counts)
            # Who waits for its next task is hurt without harm.
            for harm, fault in HARMS.items():
                while not self._events()[harm]:
                    assert counts[fault] < MOST, f"{counts[fault]} times {fault}, and no {harm}"
                    self._once(fault, job, counts)
            os.killpg(job.pid, signal.SIGKILL)
            job.wait()
            self._route_rest()
        return counts + self._events() + check(self.flow, self.output)

    def _once(self, fault: str, job: subprocess.Popen[bytes], counts: Counter[str]) -> None:
        self._do(fault, job)
        counts[fault] += 1
        done = len(self._committed()) + self.chance.choice([0, 1])
        self._change_meanwhile(job, 0.5)
        self._until(lambda: len(self._committed()) >= done, job)
        print(f"{fault}: {len(self._committed())} batches", file=sys.stderr, flush=True)

    def _start(self, *failpoint: str, options: list[str] | None = None) -> subprocess.Popen[bytes]:
        events = self.home / "events"
        events.mkdir(exist_ok=True)
        settings = {
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
            "spark.eventLog.dir": events.as_uri(),
        }
        given = ["--master", self.master]
        for name, value in settings.items():
            given += ["--conf", f"{name}={value}"]
        cut = ["--min-partitions", str(2 * len(HOSTS))]  # Spark makes no copy of the only task
        return self._run(submit_command(*given), [*cut, *(options or [])], environment())

    def _do(self, fault: str, job: subprocess.Popen[bytes]) -> None:
        """Do it to one of the processes while a batch is routed."""
        found: list[int] = []
        while not found:
            self._until(self._is_routing, job)
            found = sorted(_executors(self.master))
            if fault != EXECUTOR:
                found = workers_of(set(found))
        self._pass(job, self.chance.uniform(0, 0.3))
        chosen = self.chance.choice(found)
        with suppress(ProcessLookupError):  # it ended meanwhile
            if fault == SLOW:
                os.kill(chosen, signal.SIGSTOP)
                self._pass(job, _STOPPED_SECONDS)
                os.kill(chosen, signal.SIGCONT)
            else:
                os.kill(chosen, signal.SIGKILL)

    def _until(self, condition: Callable[[], bool], job: subprocess.Popen[bytes]) -> None:
        """Wait until something holds, while there is always something to route."""
        deadline = time.monotonic() + WAIT_SECONDS
        while not condition():
            assert time.monotonic() < deadline, f"it does nothing: {self._said()}"
            self.produce()
            self._pass(job, 0.02)

    def _is_routing(self) -> bool:
        """Whether a batch is routed that is not committed."""
        return bool(self._staged() - self._committed())

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
    """The parent and the command line of each process."""
    parents: dict[int, int] = {}
    names: dict[int, str] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):  # it ended meanwhile
                said = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                parents[int(entry.name)] = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
                names[int(entry.name)] = said
    return parents, names


def run(root: Path, broker: Broker, seed: int, times: int, table_format: str = "parquet") -> Counter[str]:
    """Each fault so often, in any order. Raises AssertionError."""
    for name in ("cluster", "stream"):
        (root / name).mkdir()
    with running(root / "cluster", HOSTS, cores=1) as master:
        flow = Flow(broker, root / "stream", seed)
        hurt = Hurt(flow, root / "stream", master=master, table_format=table_format)
        faults = list(FAULTS) * times
        hurt.chance.shuffle(faults)
        counts = hurt.hurt(faults)
    assert counts["records"] > BATCH * times
    return counts


def main() -> None:
    given = options("kill parts of a cluster under a stream", formats=True, times=10).parse_args()
    with long_run() as frame, running_broker(frame.folder / "broker") as broker:
        frame.held(run(frame.folder, broker, given.seed, given.times, given.table_format))


if __name__ == "__main__":
    main()
