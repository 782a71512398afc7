"""Times and counts. Engines of one benchmark take turns: a slow minute of the machine is everybody's."""

from __future__ import annotations

import csv
import gc
import hashlib
import os
import platform
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import numpy as np

import selectroute as sr
from bench.engine import Engine, Timed
from bench.jvm import jdk_version
from bench.workloads.oracle import Expected

PARTS: Final = ("numba", "numpy", "pyarrow", "pyspark", "lark", "sqlalchemy", "starlette", "uvicorn")
"""The packages whose versions decide a figure."""
ENDINGS: Final = ("py", "toml", "lark", "c", "java")
_DIGITS: Final = {"seconds": 6, "bytes_a_rule": 1, "p50_us": 2, "p99_us": 2, "processor_seconds": 2}


class WrongCountError(Exception):
    """An engine did not find what it must. Its speed is of no interest."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One timed run, a row of the raw record; what an engine does not know is 0. Of `build` the engine is a
    step.
    """

    benchmark: str
    engine: str
    workload: str
    rules: int
    messages: int
    repetition: int
    seconds: float
    bytes_a_rule: float = 0.0
    p50_us: float = 0.0
    """The time of one message, half of them take less."""
    p99_us: float = 0.0
    processor_seconds: float = 0.0
    """Of all processes together."""

    @property
    def rate(self) -> float:
        """Messages, or whatever the benchmark counts, a second."""
        return self.messages / self.seconds


def measure(
    benchmark: str, workload: str, rules: int, engines: Sequence[Engine], check: Expected, repetitions: int
) -> list[Sample]:
    """Check every engine, warm it up, then time all of them in turns.

    Raises `WrongCountError`. An engine that returns its matches must return the same number in every run, and
    the one that it must find if it knows that.
    """
    for engine in engines:
        found = engine.judge()
        if found != check:
            raise WrongCountError(
                f"{benchmark} {workload} {rules}: {engine.name} found {found}, expected {check}"
            )
    warm = [_found(engine.run()) for engine in engines]
    for engine, known in zip(engines, warm, strict=True):
        if engine.must_find is not None and known != engine.must_find:
            raise WrongCountError(
                f"{benchmark} {workload} {rules}: a run of {engine.name} found {known}, and not "
                f"{engine.must_find}"
            )
    with _kept():
        return [
            _run(engine, known, Sample(benchmark, engine.name, workload, rules, engine.messages, number, 0.0))
            for number in range(repetitions)
            for engine, known in zip(engines, warm, strict=True)
        ]


@contextmanager
def _kept() -> Iterator[None]:
    """Let garbage collections leave out the objects that are there now: those of a million rules take seconds
    each time.
    """
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _run(engine: Engine, known: int | None, row: Sample) -> Sample:
    """Run an engine, and return the row with its times. Raises `WrongCountError` if it finds something else
    than before.
    """
    gc.collect()
    started = time.perf_counter()
    outcome = engine.run()
    seconds = time.perf_counter() - started
    if _found(outcome) != known:
        raise WrongCountError(f"{engine.name} found {_found(outcome)} matches, before it were {known}")
    p50 = p99 = used = 0.0
    if isinstance(outcome, Timed):
        seconds, used = outcome.seconds, outcome.processor_seconds
        if outcome.each_ns is not None:
            p50, p99 = (np.percentile(outcome.each_ns, (50, 99)) / 1_000).tolist()
    row = replace(row, seconds=seconds, bytes_a_rule=engine.bytes_a_rule)
    return replace(row, p50_us=p50, p99_us=p99, processor_seconds=used)


def _found(outcome: int | Timed | None) -> int | None:
    return outcome.matches if isinstance(outcome, Timed) else outcome


def write_csv(path: Path, samples: Iterable[Sample]) -> None:
    """Write the raw record."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Sample)], lineterminator="\n")
        writer.writeheader()
        for sample in samples:
            digits = {name: f"{getattr(sample, name):.{count}f}" for name, count in _DIGITS.items()}
            writer.writerow({**asdict(sample), **digits})


def read_csv(path: Path) -> list[Sample]:
    """Read what `write_csv` wrote."""
    with path.open(newline="", encoding="utf-8") as file:
        return [
            Sample(
                row["benchmark"],
                row["engine"],
                row["workload"],
                int(row["rules"]),
                int(row["messages"]),
                int(row["repetition"]),
                float(row["seconds"]),
                float(row["bytes_a_rule"]),
                float(row["p50_us"]),
                float(row["p99_us"]),
                float(row["processor_seconds"]),
            )
            for row in csv.DictReader(file)
        ]


def machine(cores: int) -> dict[str, Any]:
    """What the figures were measured on."""
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "cores_used_by_spark": cores,
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "load_average_at_start": round(os.getloadavg()[0], 2),
        "source": source_digest(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        **{name: version(name) for name in PARTS},
        "sqlite": sqlite3.sqlite_version,
        "java": jdk_version(),
    }


def source_digest() -> str:
    """SHA-256 over the sources of the package and of the benchmarks: what a record was measured of.

    Spark's workers load the code anew: were it changed during a run, two versions would be compared.
    """
    digest = hashlib.sha256()
    for folder in (Path(sr.__file__).parent, Path(__file__).parent):
        for path in sorted(path for ending in ENDINGS for path in folder.rglob(f"*.{ending}")):
            digest.update(f"{path.relative_to(folder)}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def process_status(process: int | str, name: str) -> str:
    """Return the value of a line of Linux's ``/proc/<process>/status``, without its unit; ``self`` is this
    process. Raises OSError if the process has ended.
    """
    text = Path(f"/proc/{process}/status").read_text(encoding="utf-8", errors="replace")
    return next(line.split()[1] for line in text.splitlines() if line.startswith(f"{name}:"))


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or "unknown"
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")
