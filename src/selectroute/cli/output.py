"""How commands print: records one after the other as a table, JSON or NDJSON; progress on standard error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

Add = Callable[[str], None]
"""Prints one record."""

Advance = Callable[[int], None]
"""Shows how many are done."""


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
def progress(what: str) -> Iterator[Advance]:
    """A line on standard error that shows how far it is, only where that is a terminal."""
    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as shown:
        task = shown.add_task(what)
        yield lambda done: shown.update(task, description=f"{what}: {done:,}")
