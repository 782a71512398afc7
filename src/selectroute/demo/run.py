"""Run from end to end: data, subscriptions, index, snapshot, stream, one change, accounting, check."""

from __future__ import annotations

import itertools
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from rich.console import Console

import selectroute as sr
from selectroute.demo import data as demo_data
from selectroute.demo.data import WATCHED, WATCHED_CHANGED, DemoError, DemoSubscription
from selectroute.demo.verify import Check, check
from selectroute.selector.sentences import counted
from selectroute.spark import BatchReport, Job, local_session, start_fanout

FILES: Final = 12
"""Number of message files: enough for several batches, each large enough to keep every core busy."""

FILES_A_BATCH: Final = 3


@dataclass(slots=True)
class DemoResult:
    """Result of a run: its folder, all subscriptions, the reports of the batches in order, and the check."""

    folder: Path
    subscriptions: list[DemoSubscription]
    batches: list[BatchReport] = field(default_factory=list)
    check: Check = field(default_factory=Check)

    @property
    def totals(self) -> dict[str, int]:
        """Counts of all batches together."""
        names = ("messages", "routed", "unrouted", "dead_lettered", "deliveries")
        return {name: sum(getattr(each.counts, name) for each in self.batches) for name in names}

    @property
    def warm_rate(self) -> int:
        """Messages per second without the first batch, in which workers start and load the kernel."""
        warm = self.batches[1:]
        seconds = sum(sum(each.seconds.values()) for each in warm)
        return round(sum(each.counts.messages for each in warm) / seconds)

    @property
    def changed_from(self) -> int:
        """First batch that was routed after the change of `WATCHED`."""
        return min(each.batch for each in self.batches if WATCHED_CHANGED.is_valid_at(each.revision))

    def account(self, messages: int) -> None:
        """Raise `DemoError` unless each message is exactly one of routed, unrouted and dead-lettered."""
        totals = self.totals
        parts = totals["routed"] + totals["unrouted"] + totals["dead_lettered"]
        if not messages == totals["messages"] == parts:
            raise DemoError(
                f"messages were lost or duplicated: {messages:,} were fed, {totals['messages']:,} read and "
                f"{parts:,} are accounted for"
            )


def run(messages: int, count: int, verify: int, out: Path | None, console: Console) -> DemoResult:
    """Run the demo and write its messages, snapshots, output and ``subscriptions.jsonl`` to its folder.

    Differences between the deliveries and the reference evaluator are in ``DemoResult.check``.

    Args:
        messages: number of flights to route, at least 1,000.
        count: number of subscriptions.
        verify: number of random messages to check.
        out: a new folder, see `new_folder`.
        console: what progress is printed to.

    Raises:
        SelectRouteError: the demo cannot run or its accounting does not add up, in one sentence.
    """
    flights = demo_data.sample(demo_data.read_flights(), messages)  # raises if the data is missing
    folder = new_folder(out)
    console.print(f"everything goes to {folder}", soft_wrap=True, markup=False)
    # Java starts and the kernel is compiled on other cores while this process generates its data.
    kernel = _compile_kernel()
    session = ThreadPoolExecutor(1).submit(local_session, "selectroute demo", log_level="OFF")
    with _stage(console, f"converting {counted(messages, 'flight')} to messages"):
        files = min(FILES, messages // 300)
        waiting = demo_data.write_messages(demo_data.to_messages(flights), folder / "waiting", files)
    with _stage(console, f"generating {counted(count, 'subscription')}"):
        wanted = demo_data.generate(flights, count)
    if session.done():
        session.result()  # fail early, for example without Java
    with _stage(console, "checking and indexing selectors"):
        snapshot = sr.build_snapshot((each.id, each.selector, each.topic) for each in wanted)
        sr.publish(snapshot, folder / "snapshots")
    with _stage(console, "waiting for Spark and the matching kernel, which is compiled once per machine"):
        spark = session.result()
        kernel.wait()
    outcome = DemoResult(folder, [WATCHED, WATCHED_CHANGED, *wanted[1:]])
    demo_data.write_jsonl(folder / "subscriptions.jsonl", outcome.subscriptions)

    def on_batch(report: BatchReport) -> None:
        outcome.batches.append(report)
        console.print(
            f"{sum(report.seconds.values()):6.1f} s  batch {report.batch} at revision {report.revision}: "
            f"{counted(report.counts.messages, 'message')}, {report.counts.deliveries:,} deliveries"
        )
        if len(outcome.batches) == 1:
            _change(folder)
            _feed(waiting[FILES_A_BATCH:], folder)

    with _stage(console, f"routing {counted(messages, 'message')}"):
        (folder / "messages").mkdir()
        _feed(waiting[:FILES_A_BATCH], folder)
        job = Job.of(folder / "messages", folder / "snapshots", folder / "output", max_files=FILES_A_BATCH)
        fan = start_fanout(spark, job, on_batch=on_batch)
        fan.wait(lambda: sum(each.inputs for each in outcome.batches) >= files)
    outcome.account(messages)
    (folder / "waiting").rmdir()
    with _stage(console, f"judging {counted(verify, 'message')} against every subscription, one by one"):
        outcome.check = check(folder, outcome.subscriptions, verify)
    return outcome


def new_folder(out: Path | None) -> Path:
    """Create the folder ``out``, or the first new one of ``selectroute-demo``, ``selectroute-demo-2``, …

    Raises `DemoError` if ``out`` exists or cannot be created.
    """
    numbered = (Path(f"selectroute-demo-{number}") for number in itertools.count(2))
    for path in [out] if out else itertools.chain([Path("selectroute-demo")], numbered):
        try:
            path.mkdir(parents=True)
            return path.resolve()
        except FileExistsError:
            continue
        except OSError as error:
            raise DemoError(f"the folder {path} cannot be created: {error.strerror or error}") from error
    raise DemoError(f"{out} exists: name a new folder with --out, or omit --out")


@contextmanager
def _stage(console: Console, description: str) -> Iterator[None]:
    """Show a stage with a spinner on a terminal, as a line elsewhere; print its seconds when it is done."""
    started = time.perf_counter()
    if not console.is_terminal:
        console.print(f"{description} …", soft_wrap=True, markup=False)
    with console.status(description):
        yield
    console.print(f"{time.perf_counter() - started:6.1f} s  {description}", soft_wrap=True, markup=False)


def _compile_kernel() -> subprocess.Popen[bytes]:
    """Compile the kernel into its cache in another process, so that workers need not.

    A failure is ignored: it slows down the first batch only.
    """
    code = "from selectroute.index.warm import warm_up; warm_up()"
    return subprocess.Popen(
        [sys.executable, "-P", "-c", code], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def _feed(files: list[Path], folder: Path) -> None:
    """Move files into the stream's input folder, each by an atomic rename."""
    for path in files:
        path.rename(folder / "messages" / path.name)


def _change(folder: Path) -> None:
    """Publish the next revision, in which the watched subscription is replaced."""
    snapshots = folder / "snapshots"
    change = sr.Replace(WATCHED_CHANGED.id, WATCHED_CHANGED.selector)
    sr.publish(sr.Snapshot.open(snapshots).changed([change]), snapshots)
