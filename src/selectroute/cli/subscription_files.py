"""``selectroute subscription import | export``: all subscriptions as lines of JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from enum import Enum
from itertools import chain
from typing import Annotated

import typer

from selectroute.cli.connect import RegistryOption, connected
from selectroute.cli.inputs import naming_lines, opened, up_to_first
from selectroute.cli.output import Advance, Output, OutputOption, progress
from selectroute.cli.selector_warnings import FirstLines, warn_of_selectors
from selectroute.selector import SelectRouteError
from selectroute.selector.sentences import counted


class Mode(Enum):
    """What becomes of an id that is there already."""

    add = "add"
    replace = "replace"


def import_(
    file: Annotated[
        str,
        typer.Argument(
            metavar="SUBS.jsonl", help="Subscriptions, one JSON object a line; - reads standard input."
        ),
    ],
    mode: Annotated[
        Mode,
        typer.Option(
            help="add: an id that is there is refused; replace: it is replaced, and keeps its status unless "
            "the line gives one."
        ),
    ] = Mode.add,
    allow_empty: Annotated[
        bool, typer.Option("--allow-empty", help="Accept input without any subscription: nothing is changed.")
    ] = False,
    output: OutputOption = Output.table,
    registry: RegistryOption = None,
) -> None:
    """Register many subscriptions as one revision: all of them, or none.

    selectroute subscription import subscriptions.jsonl

    selectroute subscription export --registry sqlite:///old.db | selectroute subscription import -

    A line is {"topic": "cars/+", "selector": "JMSType = 'car'"}, perhaps with "id", "name", "dialect",
    "labels", "destination" and "status". The first 20 lines that cannot be are named with their errors, and
    nothing is imported; exit code 5 if the first has an invalid selector. Exit code 1 if the input is empty,
    which a failed command before a pipe makes it.
    """
    with naming_lines(file), opened(file) as lines:
        first = list(up_to_first(lines))  # before a database is made for nothing
        if not allow_empty and not (first and first[-1].strip()):
            name = "standard input" if file == "-" else file
            raise SelectRouteError(
                f"{name} has no subscriptions: nothing is changed; --allow-empty accepts that"
            )
        with connected(registry, create=True) as connection, progress("importing") as advance:
            given = FirstLines(chain(first, lines))
            done = connection.import_(
                _then(given, advance), mode=mode.value, progress=lambda rows, _: advance(rows)
            )
    warn_of_selectors(given.rows(), done.rows)
    if output is Output.table:
        print(f"revision {done.revision}: {counted(done.rows, 'subscription')}")
    else:
        print(json.dumps({"rows": done.rows, "revision": done.revision}))


def export(
    revision: Annotated[
        int | None,
        typer.Option(min=0, max=2**63 - 1, help="As they were at a revision.", show_default="as they are"),
    ] = None,
    registry: RegistryOption = None,
) -> None:
    """Print all subscriptions of one revision, one JSON object a line.

    selectroute subscription export > subscriptions.jsonl

    selectroute subscription export --revision 17 | grep '"cars/+"'
    """
    with connected(registry) as connection, progress("exporting", while_printing=True) as advance:
        for line in _counted(connection.export(revision=revision), advance):
            print(line)


def _then(lines: Iterable[str], advance: Advance) -> Iterator[str]:
    """Yield lines; when all were taken, say that the registry works on them."""
    count = 0
    for line in lines:
        count += 1
        yield line
    advance(f"read {counted(count, 'line')}, waiting for the registry")


def _counted(lines: Iterable[str], advance: Advance) -> Iterator[str]:
    for count, line in enumerate(lines, start=1):
        yield line
        if not count % 1_000:
            advance(count)
