"""Cached state of the jobs of a service: dead letters that are left, and whether a driver runs the job.

Counting reads the files of a job, and checking a lease takes seconds. So each job is read in a thread of its
own, on demand, if its state is some seconds old. A caller waits for a moment, then gets the last known state.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from selectroute.job_output import JobOutput
from selectroute.selector.errors import SelectRouteError
from selectroute.service.logs import log

FRESH_SECONDS: Final = 10.0
"""Time for which a state is fresh."""

_SHARE: Final = 10
"""A state that took long to read is fresh for this multiple of the time."""


class JobState(NamedTuple):
    """Last known state of a job: the dead letters that no replay took, and whether a driver holds its folder,
    both None if unknown. ``problem`` is the reason why its folder can't be read.
    """

    left: int | None = None
    is_held: bool | None = None
    problem: str | None = None


class JobWatch:
    """States of the jobs of one service. Thread-safe."""

    def __init__(self, jobs: Mapping[str, JobOutput], clock: Callable[[], float] = time.monotonic) -> None:
        self._looks = {name: _Look(job, clock) for name, job in jobs.items()}

    def states(self, wait_seconds: float = 1.0) -> dict[str, JobState]:
        """Return the last known state of each job, after a wait for threads that are reading."""
        threads = [look.begin() for look in self._looks.values()]
        deadline = time.monotonic() + wait_seconds
        for thread in threads:
            if thread is not None:
                thread.join(max(deadline - time.monotonic(), 0.0))
        return {name: look.state for name, look in self._looks.items()}


class _Look:
    """State of one job, read by one thread at a time."""

    def __init__(self, job: JobOutput, clock: Callable[[], float]) -> None:
        self._job = job
        self._clock = clock
        self._guard = threading.Lock()
        self._thread: threading.Thread | None = None
        self._due = float("-inf")
        self.state = JobState()

    def begin(self) -> threading.Thread | None:
        """Return the thread that reads the state, started if needed; None if the state is fresh."""
        with self._guard:
            if self._thread is None and self._clock() >= self._due:
                self._thread = threading.Thread(target=self._run, name="selectroute-job", daemon=True)
                self._thread.start()
            return self._thread

    def _run(self) -> None:
        began = self._clock()
        try:
            self._look()
        except Exception as error:  # the next look tries again
            log().error("a job cannot be looked at", exc_info=error)
            self.state = JobState(problem="the service's log says why")
        ended = self._clock()
        with self._guard:
            self._due = ended + max(FRESH_SECONDS, _SHARE * (ended - began))
            self._thread = None

    def _look(self) -> None:
        try:
            has_run = self._job.has_run()
            left = sum(count.letters for count in self._job.all_left()) if has_run else 0
        except (SelectRouteError, OSError) as error:
            self.state = JobState(problem=str(error))
            return
        self.state = JobState(left, self.state.is_held)
        try:
            is_held = has_run and self._job.is_held()
        except (SelectRouteError, OSError):
            is_held = None
        self.state = JobState(left, is_held)
