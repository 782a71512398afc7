"""Python workers of a stream, ready before a batch needs them.

Spark starts a worker when a batch has a task for it, and ends all of them when they had no task for a minute.
A worker takes one to three seconds to start, to import and to load the kernel; a batch of some thousand
messages takes a tenth of a second.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from functools import cache, partial
from importlib import import_module
from typing import Any, Final

from pyspark.sql import SparkSession

from selectroute.index.warm import warm_up
from selectroute.selector.errors import SelectRouteError
from selectroute.spark.batch.router import Router
from selectroute.spark.columns.snapshot_ref import SnapshotRef, open_once

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


@cache
def _load_kernel() -> None:
    warm_up()
