"""Tables and sentences about the outcome of a run, on a terminal and, with charts, on a page for a browser.

The charts are drawn by Matplotlib as SVG inside the page: nothing is loaded, and no script runs.
"""

from __future__ import annotations

import io
import json
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any, Final

import matplotlib
import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc
import pyarrow.parquet as pq
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from selectroute.demo.data import WATCHED, WATCHED_CHANGED
from selectroute.demo.run import DemoResult
from selectroute.demo.verify import read_output
from selectroute.selector.sentences import counted

_DAY: Final = 86_400_000
"""Milliseconds."""

_DIFFERENCES_SHOWN: Final = 20

_MESSAGE: Final = {
    "topic": "flights/JFK/LAX",
    "properties": {"origin": "JFK", "dest": "LAX", "dep_delay": 20},
}
"""A message that matches the changed subscription, and did not match it before the change."""

_PAGE: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>selectroute demo</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem }
svg { width: 100%; height: auto }
pre { line-height: 1.25; overflow-x: auto }
</style></head><body>
<h1>A year of flights, routed</h1>
"""


def show(outcome: DemoResult, console: Console) -> None:
    """Print the outcome, write ``report.html``, and print commands to go on with."""
    _print_outcome(outcome, console)
    report = write_page(outcome)
    console.print(f"Everything is in {outcome.folder}", soft_wrap=True, markup=False)
    console.print(f"Charts for a browser: {report}\n\nNow try:", soft_wrap=True, markup=False)
    for command in next_commands(outcome.folder):
        console.print(f"  {command}", soft_wrap=True, markup=False)


def next_commands(folder: Path) -> list[str]:
    """Return commands that read a demo's output, quoted for a shell in the current directory."""

    def from_here(path: Path) -> str:
        here = Path.cwd()
        return shlex.quote(str(path.relative_to(here) if path.is_relative_to(here) else path))

    # The README starts the demo by its path, before the environment is activated.
    program = "selectroute"
    if not shutil.which(program):
        program = from_here(Path(sys.executable).with_name(program))
    output, snapshots = from_here(folder / "output"), from_here(folder / "snapshots")
    message = shlex.quote(json.dumps(_MESSAGE))
    return [
        f"{program} stream status {output} --top 3",
        f"{program} stream deliveries {output} --subscription {WATCHED.id} --limit 3",
        f"{program} message match {message} --snapshots {snapshots} --explain --limit 3",
    ]


def write_page(outcome: DemoResult) -> Path:
    """Write ``report.html`` to the folder of a run, what is printed and the charts; return its path."""
    printer = Console(record=True, width=110, file=io.StringIO(), highlight=False)
    _print_outcome(outcome, printer)
    text = printer.export_html(inline_styles=True, code_format="<pre>{code}</pre>\n")
    path = outcome.folder / "report.html"
    path.write_text(f"{_PAGE}{_charts(outcome)}{text}</body></html>\n", encoding="utf-8")
    return path


def _print_outcome(outcome: DemoResult, console: Console) -> None:
    counts = _table("What became of the messages", "", "number")
    for name, count in outcome.totals.items():
        counts.add_row(name.replace("_", " "), f"{count:,}")
    counts.add_row("batches", f"{len(outcome.batches):,}")
    counts.add_row("messages per second of warm batches", f"{outcome.warm_rate:,}")
    console.print(counts)
    console.print()
    by_id = {each.id: each for each in outcome.subscriptions}
    busy = _table("The busiest subscriptions", "subscription", "deliveries", "topic filter", "selector")
    for id, count in busiest(outcome.folder, 8):
        topic, selector = by_id[id].topic or "any", by_id[id].selector or "none: every message"
        busy.add_row(id, f"{count:,}", topic, selector)
    console.print(busy)
    console.print()
    console.print(
        f"Changed while the stream ran: {WATCHED.id}\n"
        f"  before  {WATCHED.selector}\n"
        f"  after   {WATCHED_CHANGED.selector}\n"
        f"  holds from batch {outcome.changed_from} on\n",
        markup=False,
    )
    _print_check(outcome, console)


def _print_check(outcome: DemoResult, console: Console) -> None:
    check = outcome.check
    if check.differences:
        console.print(f"CHECK FAILED, {counted(len(check.differences), 'difference')}:", style="bold red")
        for difference in check.differences[:_DIFFERENCES_SHOWN]:
            console.print(f"  {difference}", markup=False, soft_wrap=True)
    elif check.messages:
        console.print(
            f"Checked: {counted(check.messages, 'random message')} against every subscription by the "
            f"reference evaluator, {counted(check.judged, 'pair')}, "
            f"{counted(check.matches, 'match', 'matches')}: the deliveries are exactly these.",
            style="green",
        )
    else:
        console.print("Not checked (--verify 0).")


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", show_edge=False, pad_edge=False)
    for column in columns:
        is_number = column in ("number", "deliveries")
        table.add_column(column, justify="right" if is_number else "left", no_wrap=is_number, overflow="fold")
    return table


def busiest(folder: Path, count: int) -> list[tuple[str, int]]:
    """Return the subscriptions with the most deliveries, and the number of each, the busiest first."""
    entries = pc.value_counts(read_output(folder / "output", "deliveries")["subscription"]).to_pylist()
    entries.sort(key=lambda entry: (-entry["counts"], entry["values"]))
    return [(entry["values"], entry["counts"]) for entry in entries[:count]]


def deliveries_by_day(folder: Path) -> tuple[npt.NDArray[np.datetime64], npt.NDArray[np.int64]]:
    """Return the days (UTC) of the flights that were delivered, and the number of deliveries of each."""
    deliveries = read_output(folder / "output", "deliveries")
    times = [np.array([], np.int64)]
    for path in (folder / "messages").glob("*.parquet"):
        offsets = deliveries.filter(pc.field("source") == path.name)["offset"]
        times.append(pq.read_table(path, columns=["JMSTimestamp"])["JMSTimestamp"].take(offsets).to_numpy())
    days, counts = np.unique(np.concatenate(times) // _DAY, return_counts=True)
    return days.astype("datetime64[D]"), counts


def _charts(outcome: DemoResult) -> str:
    """Return two charts as one SVG; its texts stay texts."""
    figure = Figure(figsize=(10, 7), layout="constrained")
    by_day, by_step = figure.subplots(2, 1)
    days, counts = deliveries_by_day(outcome.folder)
    by_day.plot(days, counts)
    by_day.set(title="Deliveries by day of the flight", ylabel="deliveries", ylim=(0, None))
    names = [f"batch {each.batch}" for each in outcome.batches]
    start: Any = np.zeros(len(names))
    for step in outcome.batches[0].seconds:
        seconds = np.array([each.seconds.get(step, 0.0) for each in outcome.batches])
        by_step.barh(names, seconds, left=start, label=step)
        start = start + seconds
    by_step.invert_yaxis()
    by_step.legend(frameon=False)
    by_step.set(title="Seconds of each step; Spark's workers start in the first batch", xlabel="seconds")
    svg = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "font.family": "sans-serif"}):
        figure.savefig(svg, format="svg", metadata={"Date": None})
    label = '<svg role="img" aria-label="Deliveries by day, and seconds of each step" '
    return svg.getvalue()[svg.getvalue().index("<svg") :].replace("<svg ", label, 1)
