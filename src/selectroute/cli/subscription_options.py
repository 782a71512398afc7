"""What the commands of `subscription` are given: options that several have, and how they are read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from selectroute.cli.connect import Connection, opened_database
from selectroute.cli.inputs import MAX_LINE, opened

if TYPE_CHECKING:
    from selectroute.registry.model import Destination

_COMPLETED: Final = 1_000
"""Subscriptions among which an id is looked for to complete it: a key press must not read a million."""


def known_dialect(name: str | None) -> str | None:
    """Return the name of a dialect. One that is unknown is wrong usage."""
    from selectroute.selector.dialect import UnknownDialectError, dialect

    try:
        return None if name is None else dialect(name).name
    except UnknownDialectError as error:
        raise typer.BadParameter(str(error)) from error


def dialects_for(incomplete: str) -> list[str]:
    """Return the dialects whose names begin so, for a shell that completes one."""
    from selectroute.selector import DIALECTS

    return [name for name in DIALECTS if name.startswith(incomplete)]


def ids_for(incomplete: str) -> list[str]:
    """Return ids that begin so, for a shell that completes one: of a registry that the settings name and
    that is a database, so that no key press asks a service.
    """
    try:
        with opened_database(None, "completion") as registry:
            found = [one.id for one in registry.list(limit=_COMPLETED).items]
    except Exception:  # whatever is wrong, a shell that completes shows no error
        return []
    return [id for id in found if id.startswith(incomplete)]


IdArgument = Annotated[
    str | None,
    typer.Argument(metavar="ID", help="The subscription's id.", show_default=False, autocompletion=ids_for),
]
ByNameOption = Annotated[
    str | None, typer.Option("--by-name", metavar="NAME", help="The one of this name.", show_default=False)
]
SELECTOR_HELP: Final = (
    "What a message must satisfy; - reads it from standard input. After -- if it begins with a dash."
)
TopicOption = Annotated[
    str | None,
    typer.Option(metavar="FILTER", help="Topics such as a/+/c or a/#.", show_default="every topic"),
]
DialectOption = Annotated[
    str | None,
    typer.Option(
        help="The selector's dialect; see `selector dialects`.",
        show_default="jms",
        callback=known_dialect,
        autocompletion=dialects_for,
    ),
]
ExtendedOption = Annotated[
    bool, typer.Option("--extended", help="Leave the selector to an extended selection provider (ibm-mq).")
]
NameOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="A unique name of your own.", show_default="the id")
]
LabelOption = Annotated[
    list[str] | None,
    typer.Option("--label", metavar="KEY=VALUE", help="A label; once for each.", show_default=False),
]
DestinationOption = Annotated[
    str | None,
    typer.Option(
        metavar="KIND",
        help="none, queue:NAME or kafka:TOPIC.",
        show_default="none",
    ),
]
IfRevisionOption = Annotated[
    int | None,
    typer.Option(
        "--if-revision",
        metavar="N",
        min=0,
        max=2**63 - 1,
        help="Only if its revision is still N: otherwise nothing is changed, and the exit code is 4.",
        show_default=False,
    ),
]
WaitOption = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS",
        min=0,
        help="Wait until a batch has used the change, so long at most; exit code 1 if none has.",
        show_default=False,
    ),
]


def chosen(connection: Connection, id: str | None, by_name: str | None) -> str:
    """The id that was given, or that of the name. Neither or both: wrong usage."""
    if (id is None) == (by_name is None):
        raise typer.BadParameter("give an id, or --by-name", param_hint="ID")
    return id if id is not None else connection.get_by_name(by_name or "").id


def selector_text(selector: str) -> str:
    """The selector; for ``-`` what is on standard input, without the end of its last line."""
    if selector != "-":
        return selector
    with opened("-") as lines:
        text = ""
        for line in lines:
            text += line
            if len(text) > MAX_LINE:
                raise typer.BadParameter(f"the selector has more than {MAX_LINE:,} characters")
    return text.rstrip("\r\n")


def labels_of(given: list[str] | None) -> dict[str, str]:
    """The labels of KEY=VALUE."""
    pairs = [one.partition("=") for one in given or ()]
    if not all(key and sign for key, sign, _ in pairs):
        raise typer.BadParameter("a label is KEY=VALUE", param_hint="--label")
    return {key: text for key, _, text in pairs}


def destination_of(given: str | None) -> Destination:
    """The destination of none, queue:NAME or kafka:TOPIC; the registry refuses any other."""
    from selectroute.registry.model import Destination

    if given is None:
        return Destination()
    kind, sign, name = given.partition(":")
    return Destination.from_json({"kind": kind, "name": name if sign else None})
