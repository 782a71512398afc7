"""Input files fed to the stream step by step, and the reports of its batches."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from selectroute.demo.flights import DemoError
from selectroute.spark import BatchReport, FanOut


class Feed:
    """Files outside the input folder that are moved into it by atomic renames."""

    def __init__(self, waiting: list[Path], folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._waiting = list(waiting)
        self._folder = folder

    def move(self, part: float) -> None:
        """Move this part of the waiting files into the input folder, at least one; 1 moves all."""
        count = max(1, int(len(self._waiting) * part))
        for path in self._waiting[:count]:
            os.replace(path, self._folder / path.name)
        emptied = self._waiting[0].parent if self._waiting else None
        del self._waiting[:count]
        if emptied is not None and not self._waiting:
            emptied.rmdir()


class Watch:
    """Reports of batches, in order. `batch` is called in the stream's thread."""

    def __init__(self, files: int, show: Callable[[BatchReport], None]) -> None:
        self.reports: list[BatchReport] = []
        self._files = files
        self._show = show
        self._first = threading.Event()

    def batch(self, report: BatchReport) -> None:
        """Record one report."""
        self.reports.append(report)
        self._show(report)
        if report.counts.messages:
            self._first.set()

    def wait_first(self, fan: FanOut) -> None:
        """Wait until a batch was routed, or the query ended (`FanOut.wait` then raises the reason)."""
        while not self._first.wait(0.1):
            if fan.query is None or not fan.query.isActive:
                return

    def complete(self) -> bool:
        """Return whether all files have been routed."""
        return sum(report.inputs for report in self.reports) >= self._files

    def account(self, messages: int) -> None:
        """Raise `DemoError` unless each message is exactly one of routed, unrouted and dead-lettered."""
        totals = self.totals()
        parts = totals["routed"] + totals["unrouted"] + totals["dead_lettered"]
        if not messages == totals["messages"] == parts:
            raise DemoError(
                f"messages were lost or duplicated: {messages:,} were fed, {totals['messages']:,} read and "
                f"{parts:,} are accounted for"
            )

    def first_batch_of(self, revision: int) -> int:
        """Return the first batch that was routed against a revision."""
        return min(report.batch for report in self.reports if report.revision == revision)

    def totals(self) -> dict[str, int]:
        """Return the counts of all batches together."""
        counted = [report.counts for report in self.reports]
        names = ("messages", "deliveries", "routed", "unrouted", "dead_lettered")
        return {
            **{name: sum(getattr(counts, name) for counts in counted) for name in names},
            "batches": len(self.reports),
        }

    def warm_rate(self) -> int | None:
        """Return messages per second without the first batch, in which workers start and load the kernel;
        None if there was only one batch.
        """
        warm = self.reports[1:]
        seconds = sum(sum(report.seconds.values()) for report in warm)
        return round(sum(report.counts.messages for report in warm) / seconds) if seconds else None

    def step_seconds(self) -> dict[str, float]:
        """Return the seconds that all batches together spent in each step."""
        seconds: Counter[str] = Counter()
        for report in self.reports:
            seconds.update(report.seconds)
        return {step: round(spent, 3) for step, spent in seconds.items()}
