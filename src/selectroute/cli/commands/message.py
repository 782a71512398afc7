"""``selectroute message match``: the subscriptions that get a message."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Final

import typer

from selectroute.cli.commands.subscription import as_json_text, as_text
from selectroute.cli.connect import RegistryOption, SnapshotsOption, matching
from selectroute.cli.exits import FAILURE
from selectroute.cli.inputs import MessagesArgument, SkipOption, answering
from selectroute.cli.output import SHOWN, Output, OutputOption, json_with
from selectroute.selector import Message
from selectroute.selector.sentences import counted, printable

if TYPE_CHECKING:
    from selectroute.cli.connect import Matcher
    from selectroute.index.matches import MatchedSubscriptions, NearMiss

app = typer.Typer(no_args_is_help=True, help="Find the subscriptions that get a message.")

_ROW: Final = "  {:<26}  {:<24}  {}"
_TRUTHS: Final = {"void": "of unlike types, which makes the whole selector false"}


@app.command()
def match(
    messages: MessagesArgument,
    snapshots: SnapshotsOption = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Also explain why each gets it, with the values read.")
    ] = False,
    near: Annotated[
        bool,
        typer.Option("--near", help="Also list those that miss it by one condition, with the value read."),
    ] = False,
    limit: Annotated[
        int, typer.Option(min=1, max=1_000, help="The most ids to print for a message, and the most near it.")
    ] = 20,
    output: OutputOption = Output.table,
    skip_bad: SkipOption = False,
    registry: RegistryOption = None,
) -> None:
    """Print the subscriptions that get a message, by the same matcher as deliveries.

    selectroute message match '{"topic": "cars/eu", "properties": {"weight": 3000}}'

    selectroute message match messages.jsonl --snapshots subscriptions.db.snapshots -o ndjson

    A subscription is near a message if its topic filter matches and another truth of a single condition would
    make its selector true. Those with more true conditions come first. At most 10,000 are evaluated for a
    message; with a million subscriptions that takes a few seconds. `selectroute subscription explain` says
    why one subscription does not get a message.

    Exit code 1 if no subscription gets any of the messages.
    """
    matched = False
    with matching(registry, snapshots) as source, answering(messages, skip_bad, output) as (inputs, add):
        for entry in inputs:
            matches = source.match(entry.message, limit, near)
            matched = matched or matches.total > 0
            if output is Output.table:
                add(_text(source, entry.message, entry.line, matches, explain))
            else:
                add(_json(source, entry.message, entry.line, matches, explain))
    if not matched:
        raise typer.Exit(FAILURE)


def _text(
    source: Matcher, message: Message, line: int | None, matches: MatchedSubscriptions, explain: bool
) -> str:
    which = "the message" if line is None else f"line {line:,}"
    noun = "subscription" if matches.total == 1 else "subscriptions"
    lines = [f"{matches.total or 'no'} {noun} get{'s' if matches.total == 1 else ''} {which}"]
    for id in matches.ids:
        subscription = source.get(id)
        if explain:
            why = as_text(subscription, message, source.explain(id, message), line)
            lines += [f"  {part}" for part in why.splitlines()]
            continue
        lines += _row(id, subscription.topic, subscription.selector)
    if matches.total > len(matches.ids):
        lines.append(f"  and {matches.total - len(matches.ids):,} more; --limit names more of them")
    lines += [f"  {id}: no extended selection provider could judge its selector" for id in matches.refused]
    if matches.near is not None:
        lines += _near(matches.near, bool(matches.near_complete))
    return "\n".join(lines)


def _row(id: str, topic: str | None, selector: str) -> list[str]:
    """Return a subscription in one line; if that is too long for a terminal, with the selector below."""
    shown = "every topic" if topic is None else printable(topic, SHOWN)
    text = printable(selector, SHOWN) or "every message"
    line = _ROW.format(id, shown, text)
    width = shutil.get_terminal_size().columns
    if len(line) <= width or not sys.stdout.isatty():
        return [line]
    beneath = textwrap.wrap(text, width, initial_indent=" " * 6, subsequent_indent=" " * 6)
    return [f"  {id}  {shown}", *beneath]


def _near(misses: Sequence[NearMiss], complete: bool) -> list[str]:
    """Return each subscription, followed by the conditions that fail."""
    if not misses:
        judged = "" if complete else ", among those that were judged"
        return [f"no others would get it if one condition were otherwise{judged}"]
    lines = [f"{counted(len(misses), 'other')} would get it if one condition were otherwise"]
    for miss in misses:
        lines += _row(miss.id, miss.topic, miss.selector)
        if len(miss.conditions) > 1:
            lines.append("    any of these would do:")
        for condition in miss.conditions:
            truth = _TRUTHS.get(condition.truth, condition.truth.upper())
            saw = "".join(f"; {printable(value, SHOWN)}" for value in condition.saw)
            lines.append(f"    {printable(condition.text, SHOWN)} is {truth}{saw}")
    if not complete:
        lines.append("  there may be more; --limit lists more of them")
    return lines


def _json(
    source: Matcher, message: Message, line: int | None, matches: MatchedSubscriptions, explain: bool
) -> str:
    data = ({} if line is None else {"line": line}) | matches.to_json()
    if not explain:
        return json.dumps(data)
    trees = ", ".join(as_json_text({}, source.explain(id, message)) for id in matches.ids)
    return json_with(data, "explanations", f"[{trees}]")
