"""Cost as cores are added: the same work under one master of Spark after another, each in a fresh process.

``python -m bench.spark.cores MASTER FOLDER WORKLOAD RULES MESSAGES REPETITIONS`` is that process: it prints a
line of JSON for each timed run. What counts is *processor time*, of the driver, of executors and of Python
workers together, because wall time on two cores says more about what else runs; it stands beside it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from pyspark.sql import SparkSession

from bench import ROOT
from bench.definition import Size, sizes
from bench.matching.engines import Built
from bench.measure import Sample, WrongCountError, process_status
from bench.spark.engines import Source, engines, start, write_checked, write_files
from bench.workloads.catalogue import WORKLOADS
from selectroute import Snapshot

MASTERS: Final = ("local[1]", "local[2]", "local-cluster[2,1,1024]")
_ENGINES: Final = ("route", "files", "files-auto", "partitions-2")
_TICKS: Final = os.sysconf("SC_CLK_TCK")


def measured(size: Size, folder: Path, messages: int, repetitions: int) -> list[Sample]:
    """Return a sample for each master, engine and repetition; the engine is named ``engine master``.

    ``folder`` has the published snapshot. Raises `WrongCountError`, or CalledProcessError where a master does
    not start.
    """
    taken = []
    for master in MASTERS:
        given = [master, str(folder), size.workload, str(size.rules), str(messages), str(repetitions)]
        done = subprocess.run(
            [sys.executable, "-m", "bench.spark.cores", *given],
            stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT,
        )  # fmt: skip
        for line in done.stdout.splitlines():
            row: dict[str, Any] = json.loads(line)
            name = f"{row.pop('engine')} {master}"
            taken.append(Sample("cores", name, size.workload, size.rules, **row))
    return taken


def processor_seconds() -> float:
    """Return the processor time that this process and all that it started have taken, the ended ones too."""
    found = _processes()
    own = _descendants(os.getpid(), found)
    for process in own:
        if (parent := found[process].parent) in own and _ignores_children(parent):
            _uncounted[process, found[process].started] = found[process].ticks
    counted = sum(
        found[process].ticks for process in own if (process, found[process].started) not in _uncounted
    )
    return (counted + sum(_uncounted.values())) / _TICKS


_uncounted: dict[tuple[int, int], int] = {}
"""Ticks of processes, by number and start, as last read. When they end, the system counts them nowhere: their
parent ignores that its children end, as that of Spark's Python workers does.
"""


def descendants(process: int) -> set[int]:
    """Return a process and all that it started, and these, and so on."""
    return _descendants(process, _processes())


class _Process(NamedTuple):
    """Process of the machine: its parent, its ticks with those of ended children, and when it started."""

    parent: int
    ticks: int
    started: int


def _descendants(process: int, found: Mapping[int, _Process]) -> set[int]:
    own = {process}
    while more := {number for number, one in found.items() if one.parent in own} - own:
        own |= more
    return own


def _processes() -> dict[int, _Process]:
    found = {}
    for process in (int(name) for name in os.listdir("/proc") if name.isdigit()):
        try:
            text = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
        except OSError:  # it has ended meanwhile
            continue
        # The name, in parentheses, may hold anything; the fields after it are numbered from 3 in proc(5).
        fields = text.rpartition(")")[2].split()
        # Its own, user and system; those of ended children.
        found[process] = _Process(int(fields[1]), sum(map(int, fields[11:15])), int(fields[19]))
    return found


def _ignores_children(process: int) -> bool:
    """Return whether a process ignores SIGCHLD."""
    try:
        ignored = process_status(process, "SigIgn")
    except OSError:  # it has ended meanwhile
        return False
    return bool(int(ignored, 16) >> (signal.SIGCHLD - 1) & 1)


def _session(master: str) -> SparkSession:
    if master.startswith("local["):
        return start(int(master[6:-1]))
    # An executor is a process of its own: it has to find what this one does, and all of them must be there.
    path = os.pathsep.join(filter(None, (str(ROOT), *sys.path)))
    conf = {
        "spark.master": master,
        "spark.executorEnv.PYTHONPATH": path,
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "300s",
    }
    return start(None, **conf)


def _run(master: str, folder: Path, size: Size, messages: int, repetitions: int) -> None:
    built = Built(Snapshot.open(folder), {}, partial(WORKLOADS[size.workload].texts, size.rules))
    paths = write_files(folder / "cores", partial(WORKLOADS[size.workload].messages, size.rules), messages)
    checked = write_checked(folder, size)
    source = Source(_session(master), checked, paths, built.snapshot.reads)
    made = engines(source, size, built)
    chosen = [made[name](messages) for name in _ENGINES]
    for engine in chosen:
        if (found := engine.judge()) != size.check:
            raise WrongCountError(f"{engine.name} on {master} found {found}, expected {size.check}")
        engine.run()
    for repetition in range(repetitions):
        for engine in chosen:
            before, started = processor_seconds(), time.perf_counter()
            engine.run()
            row = {
                "engine": engine.name,
                "messages": engine.messages,
                "repetition": repetition,
                "seconds": time.perf_counter() - started,
                "processor_seconds": processor_seconds() - before,
            }
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    _master, _folder, _workload, *_numbers = sys.argv[1:]
    _rules, _messages, _repetitions = map(int, _numbers)
    [_size] = [one for one in sizes() if (one.workload, one.rules) == (_workload, _rules)]
    _run(_master, Path(_folder), _size, _messages, _repetitions)
