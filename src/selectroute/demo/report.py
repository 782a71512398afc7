"""Tables and sentences about the outcome of a run."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

import selectroute as sr
from selectroute.demo.run import Outcome
from selectroute.selector.explain.sentences import counted

_DIFFERENCES_SHOWN = 20
_MESSAGE: Final = {
    "topic": "flights/JFK/LAX",
    "properties": {"origin": "JFK", "dest": "LAX", "dep_delay": 20},
}
"""A message that matches the changed subscription, and did not match it before the change."""


def show(outcome: Outcome, console: Console) -> None:
    """Print counts and times, the change, the busiest subscriptions, one match explained, and the check."""
    summary = outcome.summary
    counts = _table("What became of the messages", ("", "number"))
    for name in (
        "messages",
        "routed",
        "unrouted",
        "dead_lettered",
        "deliveries",
        "batches",
    ):
        counts.add_row(name.replace("_", " "), f"{summary[name]:,}")
    counts.add_row("messages per second, the first batch included", f"{summary['messages_per_second']:,}")
    if (warm := summary["messages_per_second_warm"]) is not None:
        counts.add_row("messages per second of warm batches", f"{warm:,}")
    console.print(counts)
    times = _table("Where the time went", ("stage", "seconds"))
    for name, seconds in summary["seconds"].items():
        times.add_row(name, f"{seconds:.1f}")
    console.print(times)
    busy = _table("The busiest subscriptions", ("subscription", "deliveries", "topic filter", "selector"))
    for subscription, count in outcome.busiest:
        topic, selector = subscription.topic or "any", subscription.selector or "none: every message"
        busy.add_row(subscription.id, f"{count:,}", topic, selector)
    console.print(busy)
    change = summary["change"]
    console.print(
        f"Changed while the stream ran: {change['subscription']}\n"
        f"  before  {change['before']}\n"
        f"  after   {change['after']}\n"
        f"  holds from batch {change['first_batch']} on, revision {change['revisions'][1]}\n",
        markup=False,
    )
    _why(outcome, console)
    _verdict(outcome, console)
    console.print(f"Everything is in {outcome.folder}", soft_wrap=True, markup=False)
    console.print(f"Pictures of it, for a browser: {outcome.report}\n", soft_wrap=True, markup=False)
    console.print("Now try:")
    for command in next_commands(outcome):
        console.print(f"  {command}", soft_wrap=True, markup=False)


def next_commands(outcome: Outcome) -> list[str]:
    """Return commands that read the demo's output, quoted for a shell in the current directory."""
    # The README starts the demo by its path, before the environment is activated.
    called = "selectroute"
    if not shutil.which(called):
        by_name = Path(sys.argv[0]).name == called
        called = shlex.quote(sys.argv[0]) if by_name else f"{shlex.quote(sys.executable)} -m selectroute"
    here, folder = Path.cwd(), outcome.folder
    if folder.is_relative_to(here):
        folder = folder.relative_to(here)
    output, snapshots = shlex.quote(str(folder / "output")), shlex.quote(str(folder / "snapshots"))
    commands = [f"{called} stream status {output} --top 3"]
    if outcome.busiest:
        id = shlex.quote(outcome.busiest[0][0].id)
        commands.append(f"{called} stream deliveries {output} --subscription {id} --limit 3")
    message = shlex.quote(json.dumps(_MESSAGE))
    commands.append(f"{called} message match {message} --snapshots {snapshots} --explain --limit 3")
    return commands


def _why(outcome: Outcome, console: Console) -> None:
    worked = outcome.check.worked
    if worked is None:
        return
    subscription, message = worked.subscription, worked.message
    console.print(
        f"Why {message.headers['JMSMessageID']!s}\non {message.topic} went to {subscription.id}",
        markup=False,
        soft_wrap=True,
    )
    if subscription.topic is not None:
        console.print(f"  topic filter {subscription.topic}", markup=False)
    for line in str(sr.Selector(subscription.selector).explain(message)).splitlines():
        console.print(f"  {line}", markup=False, soft_wrap=True)
    console.print()


def _verdict(outcome: Outcome, console: Console) -> None:
    check = outcome.check
    if check.differences:
        console.print(f"CHECK FAILED, {counted(len(check.differences), 'difference')}:", style="bold red")
        for difference in check.differences[:_DIFFERENCES_SHOWN]:
            console.print(f"  {difference}", markup=False, soft_wrap=True)
        if len(check.differences) > _DIFFERENCES_SHOWN:
            console.print("  …; all of them are in summary.json")
    elif check.messages:
        console.print(
            f"Checked: {counted(check.messages, 'random message')} against every subscription by the "
            f"reference evaluator, {counted(check.judged, 'pair')}, "
            f"{counted(check.matches, 'match', 'matches')}: the deliveries are exactly these.",
            style="green",
            soft_wrap=True,
        )
    else:
        console.print("Not checked (--verify 0).")


def _table(title: str, columns: tuple[str, ...]) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", show_edge=False, pad_edge=False)
    for column in columns:
        number = column in ("number", "seconds", "deliveries")
        table.add_column(column, justify="right" if number else "left", no_wrap=number, overflow="fold")
    return table
