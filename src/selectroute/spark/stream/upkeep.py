"""Upkeep of a job's tables behind the stream: merged files, checkpoints, a short log."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from selectroute.spark.batch.commits import Commits
from selectroute.storage.patient import WAITED_FOR

_FINISH_SECONDS = 60.0
_PAUSE_SECONDS = 60.0
"""Pause after an error: what fails may cost much, as a merge that the disk has no room for."""

_ACCOUNT_SECONDS = 60.0
"""Interval in which the accounting is written to remote storage."""


_QUIET_SECONDS = 0.25
"""Time without a batch after which a stream is idle: longer than Spark takes from one to the next."""


class TableUpkeep:
    """Thread that runs from `start` to `finish`; tell it when a batch begins, and `wake` it after the batch.

    Batches do not wait for it, and what it cannot do is a warning: it is tried again after a minute.

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
        """Let it put off what costs much: a batch begins."""
        self._busy.set()

    def wake(self) -> None:
        """Let it look for what is due: a batch has ended."""
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
