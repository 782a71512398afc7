"""Threads behind a stream: `TableUpkeep` merges files and writes checkpoints, `ReadyWorkers` warms up.

Spark starts a Python worker when a batch has a task for it, and ends all of them when they had no task for a
minute. A worker takes one to three seconds to start, to import and to load the kernel; a batch of some
thousand messages takes a tenth of a second.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from importlib import import_module
from typing import Any, Final

from pyspark.sql import SparkSession

from selectroute.index.warm import warm_up
from selectroute.selector.errors import SelectRouteError
from selectroute.spark.batch.commits import Commits
from selectroute.spark.batch.router import Router
from selectroute.spark.columns.snapshot_ref import SnapshotRef, open_once
from selectroute.storage.patient import WAITED_FOR

_IDLE_SECONDS: Final = 25.0
"""Time without a batch after which workers get a task: less than half of the minute that Spark waits."""

_LOOK_SECONDS: Final = 1.0
"""Least time between two looks."""

_LAST_TASK_SECONDS: Final = 10.0

_STAY_SECONDS: Final = 0.1
"""Time that each task takes at least: a worker that is done gets the next task, and no other is started."""


class ReadyWorkers:
    """Thread that runs from `start` to `finish`; call `note` after each batch.

    At its start, as many workers as run at once are started, and get what a first batch needs: the code, the
    kernel and the newest snapshot. Then they get a task when no batch came for a while; not where Spark takes
    executors away that have none, since that would keep them.

    Args:
        spark: the session.
        router: the router of the job, whose source runs tasks in the workers.
    """

    def __init__(self, spark: SparkSession, router: Router) -> None:
        self._spark = spark
        self._router = router
        conf = spark.sparkContext.getConf()
        self._is_elastic = conf.get("spark.dynamicAllocation.enabled", "false") == "true"
        self._last = time.monotonic()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="selectroute-workers", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def note(self) -> None:
        """Note that a batch has ended."""
        self._last = time.monotonic()

    def finish(self) -> None:
        """End the thread; wait some seconds for a task that is running. Idempotent."""
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join(_LAST_TASK_SECONDS)

    def _run(self) -> None:
        self._give_task("selectroute: starts the Python workers")
        while not self._ending.wait(max(_LOOK_SECONDS, self._last + _IDLE_SECONDS - time.monotonic())):
            if time.monotonic() - self._last >= _IDLE_SECONDS and not self._is_elastic:
                self._give_task("selectroute: keeps the Python workers")
                self.note()

    def _give_task(self, description: str) -> None:
        source = self._router.source
        # A failure, of whatever kind, is left to a batch, which has the same one and says why.
        with suppress(Exception):
            self._spark.sparkContext.setJobDescription(description)
            work = partial(_get_ready, type(source).__module__, self._router.newest_snapshot())
            source.run(work, range(source.tasks))


def _get_ready(module: str, snapshot: SnapshotRef, number: int) -> dict[str, Any]:
    """Import the module of a source, with all that its tasks use, load the kernel, and open the snapshot."""
    import_module(module)
    _load_kernel()
    with suppress(SelectRouteError, OSError):
        open_once(snapshot)
    time.sleep(_STAY_SECONDS)
    return {}


_load_kernel = cache(warm_up)


_FINISH_SECONDS = 60.0
_PAUSE_SECONDS = 60.0
"""Pause after an error: a failing step may be expensive, as a merge on a full disk."""

_ACCOUNT_SECONDS = 60.0
"""Interval in which the accounting is written to remote storage."""


_QUIET_SECONDS = 0.25
"""Time without a batch after which a stream is idle: longer than Spark takes from one to the next."""


class TableUpkeep:
    """Thread that runs from `start` to `finish`; tell it when a batch begins, and `wake` it after the batch.

    Batches do not wait for it. A failure is a warning, and is tried again after a minute.

    Args:
        commits: the prepared commits and tables of the job.
        warn: called with a sentence, once for each error.
    """

    def __init__(self, commits: Commits, warn: Callable[[str], None]) -> None:
        self._commits = commits
        self._warn = warn
        self._warned: set[str] = set()
        self._due = threading.Event()
        self._busy = threading.Event()
        self._ending = threading.Event()
        self._stopping = threading.Event()
        # A daemon: a merge that is interrupted leaves a file that the next start removes.
        self._thread = threading.Thread(target=self._run, name="selectroute-upkeep", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def begin(self) -> None:
        """Defer expensive maintenance: a batch begins."""
        self._busy.set()

    def wake(self) -> None:
        """Look for due maintenance: a batch has ended."""
        self._busy.clear()
        self._due.set()

    def finish(self, at_once: bool) -> None:
        """End the thread; unless ``at_once``, after a last look. Idempotent."""
        if at_once:
            self._stopping.set()
        self._ending.set()
        self._due.set()
        if self._thread.is_alive():
            self._thread.join(_FINISH_SECONDS)
        self._stopping.set()

    def _is_busy(self) -> bool:
        """Return whether batches follow each other without a pause."""
        return not self._ending.is_set() and self._busy.wait(_QUIET_SECONDS)

    def _run(self) -> None:
        written = time.monotonic()
        not_before = 0.0
        while not self._stopping.is_set():
            self._due.wait()
            self._due.clear()
            is_last = self._ending.is_set()
            try:
                if time.monotonic() < not_before:
                    continue
                self._commits.tables.maintain(self._stopping.is_set, self._is_busy)
                if is_last or time.monotonic() - written >= _ACCOUNT_SECONDS:
                    written = time.monotonic()
                    self._commits.write_accounting()
            except WAITED_FOR:  # of remote storage, which the stream warns of
                not_before = time.monotonic() + _PAUSE_SECONDS
            except Exception as error:  # of the disk, of Arrow, of the table: none of them concerns a batch
                not_before = time.monotonic() + _PAUSE_SECONDS
                text = next(iter(str(error).strip().splitlines()), repr(error))
                if text not in self._warned:
                    self._warned.add(text)
                    self._warn(f"tables are not compacted, and it is tried again: {text}")
            finally:
                if is_last:
                    self._stopping.set()
