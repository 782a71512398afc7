"""What the commands of `queue` are given: options that several have, and how they are read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from selectroute.cli.connect import missing
from selectroute.selector.names import identifier_length
from selectroute.selector.sentences import printable
from selectroute.selector.suggestion import nearest

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from selectroute.cli.queue_clients import Queues
    from selectroute.queues.rest_lookup import Lookup
    from selectroute.selector.values import Value

NameArgument = Annotated[str, typer.Argument(metavar="QUEUE", help="The queue's name.")]
QueuesOption = Annotated[
    str | None,
    typer.Option(
        "--queues",
        metavar="URL",
        help="A database or a service, as a registry is; or SELECTROUTE_QUEUES. By default the registry's.",
        show_default=False,
    ),
]
ManagerOption = Annotated[
    str | None,
    typer.Option(
        "--queue-manager", metavar="NAME", help="The queue manager of a service.", show_default="selectroute"
    ),
]
MessageIdOption = Annotated[
    str | None, typer.Option(metavar="ID", help="ID: and 48 hexadecimal digits.", show_default=False)
]
CorrelationIdOption = Annotated[
    str | None,
    typer.Option(
        metavar="ID",
        help="ID: and up to 48 hexadecimal digits, padded with zeros; or a text of your own.",
        show_default=False,
    ),
]
GroupIdOption = Annotated[
    str | None, typer.Option(metavar="ID", help="Likewise, of the group.", show_default=False)
]
SequenceOption = Annotated[
    int | None,
    typer.Option("--sequence", metavar="N", min=1, help="MsgSeqNumber in the group.", show_default=False),
]
OffsetOption = Annotated[
    int | None, typer.Option(metavar="N", min=0, help="Offset of a segment.", show_default=False)
]
TokenOption = Annotated[
    str | None,
    typer.Option("--message-token", metavar="HEX", help="32 hexadecimal digits.", show_default=False),
]
SelectorOption = Annotated[
    str | None, typer.Option(help="What the message must satisfy.", show_default=False)
]
SelectorDialectOption = Annotated[
    str | None,
    typer.Option("--dialect", help="The selector's dialect.", show_default="the queue's"),
]
MessageWaitOption = Annotated[
    float | None,
    typer.Option(metavar="SECONDS", min=0, help="Wait for the message so long at most.", show_default=False),
]
PropertyOption = Annotated[
    list[str] | None,
    typer.Option(
        "--property",
        "-p",
        metavar="NAME[:TYPE]=VALUE",
        help="A property, a string unless a type is named: boolean, byte, short, integer, long, float, "
        "double, string, bytes. Once for each.",
        show_default=False,
    ),
]


def lookup_of(*given: Any) -> Lookup:
    """Which message the options name, in the order of the fields of a `Lookup`."""
    from selectroute.queues.rest_lookup import Lookup

    return Lookup(*given)


def properties_of(given: list[str] | None) -> dict[str, Value]:
    """The properties of NAME[:TYPE]=VALUE."""
    from selectroute.queues.rest_ids import RestError
    from selectroute.queues.rest_properties import TYPES, value_of

    found: dict[str, Value] = {}
    for one in given or ():
        named, sign, text = one.partition("=")
        name, colon, kind = named.partition(":")
        if not colon:
            kind = "string"
        if not sign or not name or name in found:
            raise typer.BadParameter(
                "a property is NAME[:TYPE]=VALUE, each name once", param_hint="--property"
            )
        if identifier_length(name, dots=True) < len(name):
            raise typer.BadParameter(
                f"{printable(name)!r} cannot be the name of a property: letters, digits, _ and $ can, not "
                "beginning with a digit; dots in the dialect ibm-mq",
                param_hint="--property",
            )
        if kind not in TYPES:
            types = ("boolean", "byte", "short", "integer", "long", "float", "double", "string", "bytes")
            near = nearest(kind, types)
            advice = f"did you mean `{near}`? " if near else ""
            raise typer.BadParameter(
                f"{name}: there is no type {printable(kind)!r}: {advice}The types are {', '.join(types)}",
                param_hint="--property",
            )
        try:
            found[name] = value_of(text, kind)
        except RestError as error:
            raise typer.BadParameter(f"{name}: {error.sentence}", param_hint="--property") from None
    return found


def opened(queues: str | None, manager: str | None = None) -> AbstractContextManager[Queues]:
    """The queues that a command was told."""
    try:
        from selectroute.cli.queue_clients import opened_queues
    except ModuleNotFoundError as error:
        raise missing(error) from error
    return opened_queues(queues, manager)
