"""What the crash programs share: their command line, processes that are killed, and how these are waited for.

A program is a function ``run(root, seed, …)`` that sets something up, lets it work, kills it and checks it;
it raises AssertionError, or returns what it counted. `program` makes the command of it.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from random import Random
from typing import Any, Protocol

from selectroute.selector.errors import SelectRouteError
from selectroute.spark.session import SHORT_LIVED
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[3]
MODULES = os.pathsep.join([str(ROOT / "src"), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
"""PYTHONPATH of a process with the modules of this checkout."""

CLEAN = multiprocessing.get_context("forkserver")  # forked off a process that has the modules and no threads
FORMATS = {"choices": ["parquet", "delta"], "default": "parquet"}
"""Option ``table_format`` of `program`."""

POSTGRESQL = {"action": "store_true", "help": "instead of SQLite"}
"""Option ``postgresql`` of `program`: its function gets a ``database_in`` of a server of PostgreSQL."""

STREAM_RUN = (sys.executable, "-m", "selectroute", "stream", "run")
FAST_JVM = {"JAVA_TOOL_OPTIONS": " ".join(SHORT_LIVED)}
"""Most of a kill is a JVM that starts: this one compiles less, and does all the same."""

_WORK_SECONDS = 120.0  # what is done between two kills takes far less
_INSTANT_SECONDS = 0.02


def program(about: str, run: Callable[..., Mapping[str, int] | str], **options: Any) -> None:
    """Run a program in an empty folder, and say what was counted, and that all of it held.

    ``options`` are numbers, or what argparse is told of an option; each has a seed. A check that fails ends
    the process with one line, which names the seed, and exit code 1. However it ends, by SIGTERM too, nothing
    is left running.
    """
    parser = argparse.ArgumentParser(description=about)
    for name, option in {**options, "seed": 1}.items():
        settings = option if isinstance(option, dict) else {"type": int, "default": option}
        parser.add_argument(f"--{name.replace('_', '-')}", **settings)
    given = vars(parser.parse_args())
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    started, seed = time.monotonic(), given["seed"]
    scratch = tempfile.TemporaryDirectory(prefix="selectroute-crash-", ignore_cleanup_errors=True)
    with scratch as folder, ExitStack() as opened:
        opened.callback(_kill_children)
        if given.pop("postgresql", False):
            from tests.support.servers import postgresql

            given["database_in"] = opened.enter_context(postgresql.server())
        try:
            counts = run(Path(folder), **given)
        except Exception as error:
            print(f"FAILED with --seed {seed}: {error}", file=sys.stderr, flush=True)
            if isinstance(error, (AssertionError, SelectRouteError)) and str(error):
                sys.exit(1)
            raise
        said = counts if isinstance(counts, str) else counted(counts)
        print(f"{said} in {time.monotonic() - started:,.0f} s with --seed {seed}: all held", flush=True)


def counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in counts.items())


def _kill_children() -> None:
    """Kill the processes that this one has started, each with its group if that is one of its own."""
    for path in Path("/proc/self/task").glob("*/children"):  # Linux
        for pid in map(int, path.read_text(encoding="ascii").split()):
            with suppress(ProcessLookupError):
                (os.killpg if os.getpgid(pid) == pid else os.kill)(pid, signal.SIGKILL)


# ---- what is killed


class Life(Protocol):
    """Something in a folder of its own that is killed again and again; made by its folder, which is empty."""

    counts: Counter[str]
    """What was counted so far: ``kills``, and more."""

    def live(self, chance: Random, name: str) -> None:
        """Let it work, and kill it; ``name`` is of this time only."""

    def check(self) -> None:
        """Check what the kill has left. Raises AssertionError."""


def kill_all(
    lives: Callable[[Path], Life], root: Path, seed: int, kills: int, a_life: int = 1
) -> Counter[str]:
    """Kill at least so often, each of the `lives` so many times; return what was counted."""
    chance, total, number = Random(seed), Counter(), 0
    while total["kills"] < kills:
        if number % a_life == 0:
            home, before = root / f"life-{number}", total
            home.mkdir()
            life = lives(home)
        life.live(chance, f"{seed}-{number}")
        life.check()
        total, number = before + life.counts, number + 1
    return total


def start(target: Callable[..., object], *arguments: Any) -> Any:
    """Start a function in a process of its own, which ends with this one, even if that is killed."""
    process = CLEAN.Process(target=_with_parent, args=(target, *arguments), daemon=True)
    process.start()
    return process


def _with_parent(target: Callable[..., object], *arguments: Any) -> None:
    def end() -> None:
        parent = multiprocessing.parent_process()
        assert parent is not None
        parent.join()
        os._exit(1)

    threading.Thread(target=end, daemon=True).start()
    target(*arguments)


def kill(process: Any) -> None:
    """Kill a process, one with a session of its own with all of that, and wait for its end."""
    if isinstance(process, subprocess.Popen):
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    else:
        os.kill(process.pid, signal.SIGKILL)
        process.join()


def launch(log: Path, *command: object, **environment: str) -> subprocess.Popen[bytes]:
    """Start a command in a session of its own, with the modules of this checkout; what it says is appended to
    a file.
    """
    found = {**os.environ, "PYTHONPATH": MODULES, **FAST_JVM, **environment}
    with log.open("ab") as said:
        return subprocess.Popen(
            list(map(str, command)), stdout=said, stderr=said, cwd=ROOT, env=found, start_new_session=True
        )


def end_of(log: Path) -> str:
    return log.read_text(errors="replace")[-3_000:]


# ---- what is waited for


def let_work(done: Callable[[], int], most: int, runs: Callable[[], bool], chance: Random) -> None:
    """Wait for a random instant before so much more is done; all the while it `runs`.

    What is waited for is work and not time: a slow machine does as much between two kills as a fast one.
    """
    wanted = done() + chance.randrange(most)
    wait_until(lambda: done() >= wanted or not runs(), _WORK_SECONDS, f"{wanted} done")
    time.sleep(chance.random() * _INSTANT_SECONDS)  # in the middle of something, too
    assert runs(), "it ended by itself: see above"


class Journal:
    """Lines of JSON that survive the process, each written at once."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def write(self, **line: Any) -> None:
        os.write(self._file, json.dumps(line).encode() + b"\n")


def lines_of(journal: Path) -> list[dict[str, Any]]:
    """The lines of a journal; none where nobody wrote."""
    return [json.loads(line) for line in journal.read_bytes().splitlines()] if journal.exists() else []


def same(what: str, found: Counter[Any], expected: Counter[Any]) -> None:
    """Check that each thing is there as often as expected. Raises AssertionError."""
    lost, more = expected - found, found - expected
    twice = [one for one in more if one in expected]
    assert not lost, f"{what}: {lost.total()} lost: {list(lost)[:3]}"
    assert not twice, f"{what}: {len(twice)} twice: {twice[:3]}"
    assert not more, f"{what}: {more.total()} that should not be: {list(more)[:3]}"


def sqlite_in(home: Path) -> str:
    return f"sqlite:///{home}/database.db"
