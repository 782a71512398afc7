"""Output of commands: records one after the other as a table, JSON or NDJSON; progress on standard error."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

Add = Callable[[str], None]
"""Prints one record."""

Advance = Callable[[int | str], None]
"""Shows how many are done, or what is being done instead."""


class Output(StrEnum):
    """Format of results."""

    table = "table"
    json = "json"
    ndjson = "ndjson"


OutputOption = Annotated[
    Output,
    typer.Option("-o", "--output", help="For people, as one JSON document, or as one JSON object a line."),
]


def plain() -> Console:
    """Standard output for what is printed as it is: nothing of a user's text is markup, or an emoji."""
    return Console(highlight=False, markup=False, emoji=False)


_GAP: Final = 2
_NARROWEST: Final = 10


def print_table(columns: Mapping[str, Sequence[str]], uncut: Collection[str]) -> None:
    """Print columns of texts under their names. Texts wrap within their columns.

    Those of ``uncut`` never do, however narrow the terminal is: they are ids, which other commands want.
    Where the terminal is too narrow for columns, each record is some lines: its first text, and beneath it
    the others, each behind its name.
    """
    console = plain()
    widest = {
        name: max(len(line) for text in (name, *texts) for line in text.splitlines() or [""])
        for name, texts in columns.items()
    }
    # Rich would crop what is wider than the terminal; elsewhere a record is a line.
    room = console.width if console.is_terminal else sum(widest.values()) + _GAP * len(widest)
    widths = _widths(widest, uncut, room - _GAP * (len(columns) - 1))
    if widths is None:
        console.print(_beneath(columns))
        return
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0))
    for name, width in widths.items():
        table.add_column(name, overflow="fold", width=width)
    for row in zip(*columns.values(), strict=True):
        table.add_row(*row)
    console.print(table, width=max(room, sum(widths.values()) + _GAP * len(widths)))


def _widths(widest: Mapping[str, int], uncut: Collection[str], room: int) -> dict[str, int] | None:
    """Return how wide each column is in so much room, None if that is too little."""
    found = {
        name: width if name in uncut else max(len(name), min(width, _NARROWEST))
        for name, width in widest.items()
    }
    spare = room - sum(found.values())
    if spare < 0:
        return None
    # Those that need least get it, and leave the rest to the others.
    needy = sorted(widest, key=lambda name: widest[name] - found[name])
    for place, name in enumerate(needy):
        more = min(widest[name] - found[name], spare // (len(needy) - place))
        found[name] += more
        spare -= more
    return found


def _beneath(columns: Mapping[str, Sequence[str]]) -> Table:
    """Records of which each text stands beneath the other."""
    first, *others = columns
    table = Table.grid(padding=(0, _GAP, 0, 0))
    table.add_column()
    table.add_column(overflow="fold")
    for row in zip(*columns.values(), strict=True):
        table.add_row(first, row[0])
        for name, text in zip(others, row[1:], strict=True):
            table.add_row(f"  {name}", text)
    return table


@contextmanager
def records(output: Output, several: bool) -> Iterator[Add]:
    """Print records one after the other; as JSON, several are one array, also up to an error."""
    array = several and output is Output.json
    count = 0

    def add(record: str) -> None:
        nonlocal count
        print(f"{',' if count else '['}\n{record}" if array else record, end="" if array else "\n")
        count += 1

    try:
        yield add
    finally:
        if array:
            print("\n]" if count else "[]")


@contextmanager
def progress(what: str, *, while_printing: bool = False) -> Iterator[Advance]:
    """Show on standard error how far a command is, only where that is a terminal.

    With `while_printing` the command prints results meanwhile: then nothing is shown if these go to a
    terminal too, where a spinner would stand between their lines.
    """
    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    disable = not console.is_terminal or (while_printing and sys.stdout is not None and sys.stdout.isatty())
    # By default rich prints on the terminal what is written to standard output, wherever that goes.
    with Progress(
        *columns,
        console=console,
        transient=True,
        disable=disable,
        redirect_stdout=False,
        redirect_stderr=False,
    ) as shown:
        task = shown.add_task(what)

        def advance(done: int | str) -> None:
            said = f"{what}: {done:,}" if isinstance(done, int) else done
            shown.update(task, description=said)

        yield advance
