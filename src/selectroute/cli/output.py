"""How commands print: records one after the other as a table, JSON or NDJSON; progress on standard error."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

Add = Callable[[str], None]
"""Prints one record."""

Advance = Callable[[int | str], None]
"""Shows how many are done, or what is being done instead."""


class Output(StrEnum):
    """How results are printed."""

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


def print_table(columns: Mapping[str, Sequence[str]], uncut: Collection[str]) -> None:
    """Print columns of texts under their names. Texts wrap within their columns.

    Those of ``uncut`` never do, however narrow the terminal is: they are ids, which other commands want.
    """
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name, texts in columns.items():
        widest = max([len(name), *map(len, texts)])
        if name in uncut:
            table.add_column(name, no_wrap=True, min_width=widest)
        else:
            table.add_column(name, overflow="fold", min_width=max(len(name), min(widest, 10)))
    for row in zip(*columns.values(), strict=True):
        table.add_row(*row)
    plain().print(table)


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
