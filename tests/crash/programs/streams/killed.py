"""A streaming job that is killed again and again: at random instants, and before and after each step of a
batch (see `failpoint`).
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

from tests.crash.programs.failpoint import MOMENTS, STEPS
from tests.crash.programs.harness import end_of, kill, launch
from tests.support.outcomes import commits_of

Cycle = tuple[str, str] | None
"""The step and the moment of a kill, None for any."""

KILLS = ("kills at random instants", "kills at steps")
WAIT_SECONDS = 400.0


def messages_in(output: Path) -> int:
    return sum(commit["counts"]["messages"] for commit in commits_of(output).values())


class KilledStream:
    """One stream in a folder of its own; `start`, `produce` and `change` are for those who inherit."""

    steps = STEPS

    def __init__(self, home: Path, chance: Random, table_format: str) -> None:
        self.home, self.output, self.chance, self.table_format = home, home / "out", chance, table_format
        self.kills: Counter[str] = Counter()
        self._jobs: list[subprocess.Popen[bytes]] = []

    def start(self, *failpoint: str) -> subprocess.Popen[bytes]:
        """Start the job, which ends at a step if one is named."""
        raise NotImplementedError

    def produce(self) -> None:
        """Have something there that is to be routed."""

    def change(self) -> None:
        """Change what it is routed by."""

    def cycles(self, kills: int, failpoints: int) -> list[Cycle]:
        """Kills at random instants, and so often at each step, in any order."""
        points = [(step, moment) for step in self.steps for moment in MOMENTS] * failpoints
        cycles: list[Cycle] = [*points, *([None] * kills)]
        self.chance.shuffle(cycles)
        return cycles

    def kill_in(self, cycle: Cycle) -> None:
        """Kill it in this way, and say how long it took."""
        started = time.monotonic()
        self.produce()
        if cycle is None:
            self._kill_somewhen()
        else:
            self._kill_at(*cycle)
        self.kills[KILLS[cycle is not None]] += 1
        name = f"{cycle[1]} {cycle[0]}" if cycle else "somewhen"
        print(f"killed {name} in {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)

    def _kill_somewhen(self) -> None:
        before, job = self._traces(), self.start()
        if self.chance.random() < 0.15:
            self._pass(job, self.chance.uniform(0, 8))
        else:
            done = len(self._committed()) + self.chance.choice([0, 0, 1, 2])
            self._until(lambda: self._traces() != before and len(self._committed()) >= done, job)
            self._change_meanwhile(job, self.chance.uniform(0, 3))
        kill(job)

    def _kill_at(self, step: str, moment: str) -> None:
        """Let it be killed at a step of one of the next batches."""
        job = self.start(step, moment, str(self.chance.randrange(1, 7 if step == "publish" else 3)))
        started = time.monotonic()
        while job.poll() is None:
            assert time.monotonic() - started < WAIT_SECONDS, f"{moment} {step} never came: {self._said()}"
            self.produce()  # a step that was missed once is met again
            self._change_meanwhile(job, 1.0)
        assert job.returncode == -signal.SIGKILL, self._said()

    def _until(self, condition: Callable[[], bool], job: subprocess.Popen[bytes]) -> None:
        """Wait until something holds, while there is always something to route."""
        deadline = time.monotonic() + WAIT_SECONDS
        while not condition():
            assert time.monotonic() < deadline, f"it does nothing: {self._said()}"
            self.produce()
            self._pass(job, 0.02)

    def _change_meanwhile(self, job: subprocess.Popen[bytes], seconds: float) -> None:
        self._pass(job, seconds * self.chance.random())
        if self.chance.random() < 0.5:
            self.change()
        self._pass(job, seconds / 2)

    def _pass(self, job: subprocess.Popen[bytes], seconds: float) -> None:
        """Wait, and make sure that the stream does not end but by being killed."""
        deadline = time.monotonic() + seconds
        while job.poll() is None and time.monotonic() < deadline:
            time.sleep(0.005)
        assert job.poll() in (None, -signal.SIGKILL), f"it ended by itself: {self._said()}"

    @contextmanager
    def _ended(self) -> Iterator[None]:
        try:
            yield
        finally:
            for job in self._jobs:
                if job.poll() is None:
                    kill(job)
            self._jobs.clear()

    def _launch(self, *command: object, **environment: str) -> subprocess.Popen[bytes]:
        self._jobs.append(launch(self.home / "stream.log", *command, **environment))
        return self._jobs[-1]

    def _committed(self) -> set[str]:
        return {path.stem for path in (self.output / "_commits").glob("*.json")}

    def _staged(self) -> set[str]:
        """The batches of which something is staged, if only a rest that is being removed."""
        return {path.name.split("-", 1)[0] for path in (self.output / "_staging").glob("*-*")}

    def _traces(self) -> frozenset[str]:
        """What a stream that routes leaves behind."""
        folders = [self.output / name for name in ("pins", "_staging", "_checkpoint/offsets")]
        return frozenset(str(path) for folder in folders if folder.is_dir() for path in folder.iterdir())

    def _said(self) -> str:
        return end_of(self.home / "stream.log")
