"""Run from end to end: data, subscriptions, index, snapshot, stream, one change, accounting, check."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import selectroute as sr
from selectroute.demo import flights, subscriptions
from selectroute.demo.feed import Feed, Watch
from selectroute.demo.flights import DemoError
from selectroute.demo.pictures import write_report
from selectroute.demo.progress import Progress
from selectroute.demo.subscriptions import WATCHED, WATCHED_CHANGED, DemoSubscription
from selectroute.demo.verify import Check, Judge, busiest
from selectroute.durable import disk
from selectroute.selector.explain.sentences import counted
from selectroute.spark import Job, local_session, start_fanout

FILES: Final = 12
"""Number of message files: enough for several batches, each large enough to keep every core busy."""

FILES_A_BATCH: Final = 3

_FOLDER: Final = "selectroute-demo"


@dataclass(frozen=True, slots=True)
class Options:
    """Options of a run; the defaults are those of ``selectroute demo``."""

    messages: int = flights.FLIGHTS
    subscriptions: int = 100_000
    seed: int = 1
    out: Path | None = None
    verify: int = 10
    cores: int | None = None


@dataclass(slots=True)
class Outcome:
    """Result of a run: the folder, ``summary.json`` as data, the check, the busiest subscriptions, and the
    page with its pictures.
    """

    folder: Path
    summary: dict[str, Any]
    check: Check
    busiest: list[tuple[DemoSubscription, int]]
    report: Path


@dataclass(slots=True)
class _Stages:
    """Seconds of each stage, in order."""

    progress: Progress
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def stage(self, name: str, done: str, description: str | None = None) -> Iterator[None]:
        started = time.perf_counter()
        with self.progress.stage(done, description):
            yield
        self.seconds[name] = round(time.perf_counter() - started, 3)


def run(options: Options, progress: Progress) -> Outcome:
    """Run the whole demo and write all files to its folder, ``summary.json`` and ``report.html`` last.

    Raises `SelectRouteError`, in one sentence, if the demo cannot run or its accounting does not add up.
    Differences between the deliveries and the reference evaluator are in ``Outcome.check``, not an exception.
    """
    if options.subscriptions < 1 or options.verify < 0 or (options.cores is not None and options.cores < 1):
        raise DemoError("--subscriptions and --cores must be at least 1, --verify at least 0")
    started = time.perf_counter()
    stages = _Stages(progress)
    # Before a folder is created, since this may raise.
    data = flights.sample(flights.read_flights(), options.messages)
    folder = fresh_folder(options.out)
    progress.say(f"everything goes to {folder}")
    # Java starts and the kernel is compiled on other cores while this process generates its data.
    kernel = _compile_kernel()
    session = ThreadPoolExecutor(1).submit(local_session, "selectroute demo", options.cores, log_level="OFF")
    with stages.stage("messages", f"{counted(options.messages, 'flight')} to messages"):
        waiting = flights.write_messages(
            flights.to_messages(data), folder / "waiting", _files(options.messages)
        )
    with stages.stage(
        "subscriptions", f"{counted(options.subscriptions, 'subscription')} from seed {options.seed}"
    ):
        wanted = subscriptions.generate(data, options.subscriptions, options.seed)
    if session.done():
        session.result()  # fail early, for example without Java
    with stages.stage("index", "selectors checked and indexed"):
        snapshot = sr.build_snapshot((one.id, one.selector, one.topic) for one in wanted)
    with stages.stage("snapshot", "snapshot published"):
        first = sr.publish(snapshot, folder / "snapshots")
    subscriptions.write_jsonl(folder / "subscriptions.jsonl", ((one, first, None) for one in wanted))
    with stages.stage(
        "spark",
        "waited for Spark and the kernel, started in the background",
        "waiting for Spark to start, and for the matching kernel, which is compiled once per machine",
    ):
        spark = session.result()
        kernel.wait()
    feed = Feed(waiting, folder / "messages")
    feed.move(1 / 3)
    watch = Watch(len(waiting), progress.batch)
    job = Job.of(folder / "messages", folder / "snapshots", folder / "output", max_files=FILES_A_BATCH)
    with stages.stage("stream", "messages routed"), progress.stream(options.messages):
        fan = start_fanout(spark, job, on_batch=watch.batch)
        try:
            watch.wait_first(fan)
            feed.move(1 / 2)
            second = _change(folder)
            feed.move(1)
            fan.wait(watch.complete)
        except BaseException:
            fan.stop()
            raise
    subscriptions.write_jsonl(folder / "subscriptions.jsonl", _history(wanted, first, second))
    watch.account(options.messages)
    changed_from = watch.first_batch_of(second)
    progress.say(f"{WATCHED.id} was changed while the stream ran: effective from batch {changed_from}")
    judged = counted(options.verify, "message")
    with stages.stage(
        "verify",
        f"{judged} judged against every subscription",
        f"judging {judged} against every subscription, one by one",
    ):
        check = Judge(folder).check(options.verify, options.seed)
    stages.seconds["total"] = round(time.perf_counter() - started, 3)
    summary = {
        "options": {
            "messages": options.messages,
            "subscriptions": options.subscriptions,
            "seed": options.seed,
        },
        **watch.totals(),
        "messages_per_second": round(options.messages / stages.seconds["stream"]),
        "messages_per_second_warm": watch.warm_rate(),
        "seconds": stages.seconds,
        "batch_seconds": watch.step_seconds(),
        "change": {
            "subscription": WATCHED.id,
            "before": WATCHED.selector,
            "after": WATCHED_CHANGED.selector,
            "revisions": [first, second],
            "first_batch": changed_from,
        },
        "verified": check.summary(),
    }
    disk.replace_text(folder / "summary.json", json.dumps(summary, indent=2) + "\n")
    named = {one.id: one for one in wanted}
    most = [(named[id], count) for id, count in busiest(folder / "output", 8)]
    report = write_report(folder, summary, watch.reports, most, check)
    return Outcome(folder, summary, check, most, report)


def fresh_folder(out: Path | None) -> Path:
    """Return a new or empty folder: ``out``, or the first unused of ``selectroute-demo``,
    ``selectroute-demo-2``, …

    Raises ``DemoError`` if ``out`` is given and not empty, or cannot be created.
    """
    if out is None:
        number = 1
        while not _take(path := Path(_FOLDER if number == 1 else f"{_FOLDER}-{number}")):
            number += 1
        return path.resolve()
    if not _take(out):
        raise DemoError(f"{out} is not an empty folder: name a new one with --out, or omit --out")
    return out.resolve()


def _take(path: Path) -> bool:
    try:
        path.mkdir(parents=True, exist_ok=True)
        return not any(path.iterdir())
    except (FileExistsError, NotADirectoryError):
        return False
    except OSError as error:
        raise DemoError(f"the folder {path} cannot be created or read: {error.strerror or error}") from error


def _compile_kernel() -> subprocess.Popen[bytes]:
    """Compile the kernel into its cache in another process, so that workers need not.

    A failure is ignored: it slows down the first batch only.
    """
    code = "from selectroute.index.warm import warm_up; warm_up()"
    return subprocess.Popen(
        [sys.executable, "-P", "-c", code], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def _files(messages: int) -> int:
    # At least three, so that some come before the change and some after it.
    return max(3, min(FILES, messages // 1_000))


def _change(folder: Path) -> int:
    """Replace the watched subscription and publish the next revision, while the stream runs."""
    snapshots = folder / "snapshots"
    change = sr.Replace(WATCHED_CHANGED.id, WATCHED_CHANGED.selector)
    return sr.publish(sr.Snapshot.open(snapshots).changed([change]), snapshots)


def _history(
    wanted: list[DemoSubscription], first: int, second: int
) -> Iterator[tuple[DemoSubscription, int, int | None]]:
    for one in wanted:
        if one.id == WATCHED.id:
            yield one, first, second
            yield WATCHED_CHANGED, second, None
        else:
            yield one, first, None
