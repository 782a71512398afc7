"""Output of commands: records as a table, JSON or NDJSON; progress on standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

SHOWN: Final = 2_000
"""Characters of a text from a registry, job or message that are shown at most; -o json has all of it."""

Add = Callable[[str], None]
"""Function that prints one record."""

Advance = Callable[[int | str], None]
"""Function that shows a count of finished items, or a text."""


class Output(StrEnum):
    """Format of results."""

    table = "table"
    json = "json"
    ndjson = "ndjson"


OutputOption = Annotated[
    Output, typer.Option("-o", "--output", help="As text, one JSON document, or one JSON object per line.")
]


def print_result(output: Output, text: str, data: Mapping[str, Any]) -> None:
    """Print a result: its text, or its data as JSON."""
    print(text if output is Output.table else json.dumps(data), flush=True)


def json_with(data: Mapping[str, Any], name: str, tree: str) -> str:
    """Return data as JSON with one more member, a tree that is JSON already: `json.dumps` has a depth."""
    return f'{json.dumps(data)[:-1]}, "{name}": {tree}}}'


def plain() -> Console:
    """Return a console for standard output that prints text unchanged, without markup or emoji."""
    return Console(highlight=False, markup=False, emoji=False)


_GAP: Final = 2
_NARROWEST: Final = 10


def print_table(heading: Sequence[str], rows: Sequence[Sequence[str]], uncut: Collection[str]) -> None:
    """Print a table: on a terminal texts wrap within their columns, elsewhere a row is one line.

    Columns in ``uncut`` never wrap: they are ids, needed for other commands. On a terminal too narrow for
    columns, each row is printed as lines: its first text, then the others, each after its name.
    """
    console = plain()
    widest = {
        name: max(len(line) for text in (name, *texts) for line in text.splitlines() or [""])
        for name, *texts in zip(heading, *rows, strict=True)
    }
    if not console.is_terminal:  # for which Rich takes 80 columns
        for row in (heading, *rows):
            cells = (text.ljust(width) for text, width in zip(row, widest.values(), strict=True))
            print((" " * _GAP).join(cells).rstrip())
        return
    widths = _widths(widest, uncut, console.width - _GAP * (len(heading) - 1))
    if widths is None:
        console.print(_stacked(heading, rows))
        return
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0))
    for name, width in widths.items():
        table.add_column(name, overflow="fold", width=width)
    for row in rows:
        table.add_row(*row)
    console.print(table, width=max(console.width, sum(widths.values()) + _GAP * len(widths)))


def _widths(widest: Mapping[str, int], uncut: Collection[str], room: int) -> dict[str, int] | None:
    """Return the width of each column for a total of `room`, None if that is too little."""
    widths = {
        name: width if name in uncut else max(len(name), min(width, _NARROWEST))
        for name, width in widest.items()
    }
    spare = room - sum(widths.values())
    if spare < 0:
        return None
    # Columns that need least are served first, and leave the rest to the others.
    needy = sorted(widest, key=lambda name: widest[name] - widths[name])
    for index, name in enumerate(needy):
        more = min(widest[name] - widths[name], spare // (len(needy) - index))
        widths[name] += more
        spare -= more
    return widths


def _stacked(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """Return a table with the texts of each row below each other."""
    first, *others = heading
    table = Table.grid(padding=(0, _GAP, 0, 0))
    table.add_column()
    table.add_column(overflow="fold")
    for row in rows:
        table.add_row(first, row[0])
        for name, text in zip(others, row[1:], strict=True):
            table.add_row(f"  {name}", text)
    return table


@contextmanager
def records(output: Output, several: bool) -> Iterator[Add]:
    """Print records in sequence; as JSON, several are one array, which is closed even after an error."""
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
    """Show the progress of a command on standard error, if that is a terminal.

    With `while_printing` the command prints results at the same time: then nothing is shown if standard
    output is a terminal too, where a spinner would appear between the lines.
    """
    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    disable = not console.is_terminal or (while_printing and sys.stdout is not None and sys.stdout.isatty())
    # By default rich redirects standard output to the terminal.
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
            text = f"{what}: {done:,}" if isinstance(done, int) else done
            shown.update(task, description=text)

        yield advance
