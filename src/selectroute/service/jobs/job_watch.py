"""Dead letters left of the jobs beside a service, and whether a driver runs them, looked up now and then.

Counting reads the files of a job, and whether a lease is renewed takes seconds. So each job is looked at in
a thread of its own, when it is asked for and the last look is some seconds old. Who asks waits for a moment,
and gets what is known.
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
"""Time for which a look is good."""

_SHARE: Final = 10
"""A look that takes long is good for so many times as long."""


class JobState(NamedTuple):
    """Job at the last look: its dead letters that no replay took, and whether a driver holds its folder; None
    for what is not known. ``problem`` tells why its folder can't be read.
    """

    left: int | None = None
    is_held: bool | None = None
    problem: str | None = None


class JobWatch:
    """Watch on the jobs of one service. May be called in any thread."""

    def __init__(self, jobs: Mapping[str, JobOutput], clock: Callable[[], float] = time.monotonic) -> None:
        self._looks = {name: _Look(job, clock) for name, job in jobs.items()}

    def states(self, wait_seconds: float = 1.0) -> dict[str, JobState]:
        """Return what is known of each job, after a wait for looks that are on their way."""
        threads = [look.begin() for look in self._looks.values()]
        deadline = time.monotonic() + wait_seconds
        for thread in threads:
            if thread is not None:
                thread.join(max(deadline - time.monotonic(), 0.0))
        return {name: look.state for name, look in self._looks.items()}


class _Look:
    """Look at one job, by one thread at a time."""

    def __init__(self, job: JobOutput, clock: Callable[[], float]) -> None:
        self._job = job
        self._clock = clock
        self._guard = threading.Lock()
        self._thread: threading.Thread | None = None
        self._due = float("-inf")
        self.state = JobState()

    def begin(self) -> threading.Thread | None:
        """Return the thread that looks, which may be on its way; None if the last look is good."""
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
