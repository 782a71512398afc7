"""Progress on standard error: a bar or a spinner on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    ProgressColumn,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.progress import Progress as Bars

from selectroute.selector.explain.sentences import counted
from selectroute.spark import BatchReport


class Progress:
    """Printer of stages and batches with their durations. Safe to call from the stream's thread."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True, highlight=False)
        self._bars: Bars | None = None
        self._task: TaskID | None = None

    def say(self, text: str) -> None:
        """Print one line, at once."""
        self._console.print(text, soft_wrap=True, markup=False)

    @contextmanager
    def stage(self, done: str, description: str | None = None) -> Iterator[None]:
        """Print a stage, with its seconds, when it is done.

        `description` is shown until then, with a spinner on a terminal, and as a line of its own elsewhere.
        """
        started = time.perf_counter()
        if description is None:
            yield
        elif self._console.is_terminal:
            with self._live(SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()) as live:
                live.add_task(description, total=None)
                yield
        else:
            self.say(f"{description} …")
            yield
        self.say(f"{time.perf_counter() - started:6.1f} s  {done}")

    @contextmanager
    def stream(self, messages: int) -> Iterator[None]:
        """Show the progress of the stream as a bar, on a terminal only."""
        if not self._console.is_terminal:
            yield
            return
        columns = TextColumn("routing"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
        with self._live(*columns) as self._bars:
            self._task = self._bars.add_task("routing", total=messages)
            try:
                yield
            finally:
                self._bars = None

    def _live(self, *columns: ProgressColumn) -> Bars:
        # Standard output is not redirected: it may be a file while standard error is a terminal.
        return Bars(
            *columns, console=self._console, transient=True, redirect_stdout=False, redirect_stderr=False
        )

    def batch(self, report: BatchReport) -> None:
        """Print a batch that is done, and advance the bar."""
        counts = report.counts
        self.say(
            f"{sum(report.seconds.values()):6.1f} s  batch {report.batch} at revision {report.revision}: "
            f"{counted(counts.messages, 'message')}, {counts.deliveries:,} deliveries"
        )
        if self._bars is not None and self._task is not None:
            self._bars.advance(self._task, counts.messages)
