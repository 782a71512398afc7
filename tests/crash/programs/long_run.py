"""The frame of each of these programs: a folder that goes when the run ends, and what it says at its end."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from selectroute.selector.errors import SelectRouteError


@dataclass(frozen=True)
class LongRun:
    """A run and its folder."""

    folder: Path
    _started: float = field(default_factory=time.monotonic)

    def held(self, counts: Mapping[str, int] | str) -> None:
        """Say what was counted, and that all of it held."""
        said = counts if isinstance(counts, str) else counted(counts)
        print(f"{said} in {time.monotonic() - self._started:,.0f} s: all held", flush=True)


def counted(counts: Mapping[str, int]) -> str:
    """Return counts as a text."""
    return ", ".join(f"{count:,} {name}" for name, count in counts.items())


def options(about: str, *, formats: bool = False, **numbers: int) -> argparse.ArgumentParser:
    """Return a command line: numbers by their names, with what they are by themselves, and a seed; with
    ``formats`` also the format of the tables.
    """
    parser = argparse.ArgumentParser(description=about)
    for name, value in {**numbers, "seed": 1}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    if formats:
        parser.add_argument("--table-format", default="parquet", choices=["parquet", "delta"])
    return parser


@contextmanager
def long_run() -> Iterator[LongRun]:
    """Give a run an empty folder. A check that fails ends the program with one line and exit code 1.

    However it ends, by SIGTERM too, nothing that it has started is left running.
    """
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    with tempfile.TemporaryDirectory(prefix="selectroute-crash-", ignore_cleanup_errors=True) as folder:
        try:
            yield LongRun(Path(folder))
        except (AssertionError, SelectRouteError) as error:
            sys.exit(f"FAILED: {error}")
        finally:
            _kill_children()


def _kill_children() -> None:
    """Kill the processes that this one has started, each with its group if that is one of its own."""
    for path in Path("/proc/self/task").glob("*/children"):  # Linux
        for pid in map(int, path.read_text(encoding="ascii").split()):
            with suppress(ProcessLookupError):
                if os.getpgid(pid) == pid:
                    os.killpg(pid, signal.SIGKILL)
                else:
                    os.kill(pid, signal.SIGKILL)


class Journal:
    """Lines of JSON that survive the process, each written at once."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def write(self, **line: Any) -> None:
        """Write a line."""
        os.write(self._file, json.dumps(line).encode() + b"\n")
