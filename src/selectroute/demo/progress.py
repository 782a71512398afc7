"""Progress on standard error: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

from selectroute.spark import BatchReport


class Progress:
    """Says what is being done and how long it took. Safe to call from the stream's thread."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True, highlight=False)
        self._bars: Bars | None = None
        self._task: TaskID | None = None

    def say(self, text: str) -> None:
        """One line, at once."""
        self._console.print(text, soft_wrap=True, markup=False)

    @contextmanager
    def stage(self, doing: str) -> Iterator[None]:
        """A stage: its line appears, with its seconds, when it is done."""
        started = time.perf_counter()
        yield
        self.say(f"{time.perf_counter() - started:6.1f} s  {doing}")

    @contextmanager
    def stream(self, messages: int) -> Iterator[None]:
        """The stream runs: batches move a bar, where there is a terminal to draw it on."""
        if not self._console.is_terminal:
            yield
            return
        columns = TextColumn("routing"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
        # Standard output is not ours to move: it may be a file while standard error is a terminal.
        with Bars(
            *columns, console=self._console, transient=True, redirect_stdout=False, redirect_stderr=False
        ) as self._bars:
            self._task = self._bars.add_task("routing", total=messages)
            try:
                yield
            finally:
                self._bars = None

    def batch(self, report: BatchReport) -> None:
        """A batch is done."""
        counts = report.counts
        self.say(
            f"{sum(report.seconds.values()):6.1f} s  batch {report.batch} at revision {report.revision}: "
            f"{counts.messages:,} messages, {counts.deliveries:,} deliveries"
        )
        if self._bars is not None and self._task is not None:
            self._bars.advance(self._task, counts.messages)
