"""``selectroute queue list | put | get | browse | purge | move | …``: messages and queues."""

from __future__ import annotations

import inspect
import json
import os
import re
import sys
from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, get_type_hints

import typer

from selectroute.cli.connect import opened_queues
from selectroute.cli.exit_codes import FAILURE
from selectroute.cli.output import Output, OutputOption, records
from selectroute.cli.queue_text import (
    as_data,
    description_data,
    paragraph,
    print_messages,
    stayed_sentences,
    value_text,
    write_body,
)
from selectroute.selector.errors import SelectRouteError
from selectroute.selector.explain.sentences import counted, printable
from selectroute.selector.names import identifier_length
from selectroute.selector.suggestion import nearest
from selectroute.selector.values.values import type_name

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from selectroute.client.queues import RemoteQueues
    from selectroute.queues.lookup.match import MatchOptions
    from selectroute.queues.message.message import QueuedMessage
    from selectroute.queues.sql.queues import SqlQueues
    from selectroute.selector.values.values import Value

NameArgument = Annotated[str, typer.Argument(metavar="QUEUE", help="The queue's name.")]
QueuesOption = Annotated[
    str | None,
    typer.Option(
        "--queues",
        metavar="URL",
        help="A database or a service, like --registry; or SELECTROUTE_QUEUES. By default the registry's.",
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
        help="ID: and up to 48 hexadecimal digits, zero-padded; or any text, cut to 24 bytes.",
        show_default=False,
    ),
]
GroupIdOption = Annotated[
    str | None, typer.Option(metavar="ID", help="The same for the group.", show_default=False)
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
    str | None, typer.Option(help="A selector that the message must match.", show_default=False)
]
SelectorDialectOption = Annotated[
    str | None,
    typer.Option("--dialect", help="The selector's dialect.", show_default="the queue's"),
]
MessageWaitOption = Annotated[
    float | None,
    typer.Option(metavar="SECONDS", min=0, help="Wait at most this long for a message.", show_default=False),
]
PropertyOption = Annotated[
    list[str] | None,
    typer.Option(
        "--property",
        "-p",
        metavar="NAME[:TYPE]=VALUE",
        help="A property. Without a type, true is a boolean, 3000 a long, 2.5 a double, all else a string; "
        "types: boolean, byte, short, integer, long, float, double, string, bytes. Repeatable.",
        show_default=False,
    ),
]


class Lookup(NamedTuple):
    """Options of a command that looks messages up."""

    message_id: MessageIdOption = None
    correlation_id: CorrelationIdOption = None
    group_id: GroupIdOption = None
    sequence: SequenceOption = None
    offset: OffsetOption = None
    token: TokenOption = None
    selector: SelectorOption = None
    dialect: SelectorDialectOption = None

    def options(self) -> MatchOptions:
        """Return the match options. Raises RestError and, with a dialect, InvalidSelectorError."""
        from selectroute.queues.rest.lookup import LookupParams

        return LookupParams(*self).options()


class Server(NamedTuple):
    """Options that say where queues are."""

    queues: QueuesOption = None
    manager: ManagerOption = None

    def opened(self) -> AbstractContextManager[SqlQueues | RemoteQueues]:
        """Open the queues."""
        return opened_queues(self.queues, self.manager)


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command that has, for each parameter that is a NamedTuple, its fields as options."""
    parameters = inspect.signature(command, eval_str=True).parameters
    groups = {name: one.annotation for name, one in parameters.items() if hasattr(one.annotation, "_fields")}
    options: list[inspect.Parameter] = []
    for name, parameter in parameters.items():
        if name not in groups:
            options.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        defaults = groups[name]._field_defaults
        options += [
            inspect.Parameter(
                field, inspect.Parameter.KEYWORD_ONLY, default=defaults[field], annotation=type_
            )
            for field, type_ in get_type_hints(groups[name], include_extras=True).items()
        ]

    def run(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(*[given.pop(field) for field in group._fields])
        command(**given)

    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]  # typer reads it
    return run


_INFERRED: Final = {
    "boolean": re.compile("true|false"),
    "long": re.compile("-?(0|[1-9][0-9]*)"),
    "double": re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?"),
}
"""Types of properties that are given without one, by what JSON takes for a value of the type."""


def properties_of(given: list[str] | None) -> dict[str, Value]:
    """Parse properties given as NAME[:TYPE]=VALUE."""
    from selectroute.queues.rest.ids import RestError
    from selectroute.queues.rest.properties import TYPES, value_of

    found: dict[str, Value] = {}
    for one in given or ():
        named, sign, text = one.partition("=")
        name, colon, kind = named.partition(":")
        if not colon:
            kind = next((kind for kind, read in _INFERRED.items() if read.fullmatch(text)), "string")
        if not sign or not name or name in found:
            raise typer.BadParameter(
                "a property must be NAME[:TYPE]=VALUE, each name once", param_hint="--property"
            )
        if identifier_length(name, dots=True) < len(name):
            raise typer.BadParameter(
                f"{printable(name)!r} is not a valid name of a property: use letters, digits, _ and $, not "
                "beginning with a digit; dots in the dialect ibm-mq",
                param_hint="--property",
            )
        if kind not in TYPES:
            types = tuple(dict.fromkeys(TYPES.values()))  # without synonyms
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


# ---- messages

app = typer.Typer(
    no_args_is_help=True,
    help="Queues: put messages, get each once, by its ids or by a selector; in a database or over HTTP.",
)

MAX_BODY: Final = 1 << 30
"""Bytes of a body read at most; a queue has its own limit."""


@app.command("list")
@grouped
def list_(
    queue: Annotated[
        str | None,
        typer.Argument(metavar="QUEUE", help="List the messages of this queue.", show_default="all queues"),
    ] = None,
    *,
    lookup: Lookup,
    limit: Annotated[
        int, typer.Option(min=1, help="The most messages to print; a service returns one page at most.")
    ] = 50,
    after: Annotated[
        str | None,
        typer.Option(metavar="TOKEN", help="List those behind the message that has or had this msgToken."),
    ] = None,
    output: OutputOption = Output.table,
    server: Server,
) -> None:
    """List all queues; or the messages of a queue, without their bodies, in delivery order.

    selectroute queue list

    selectroute queue list ORDERS --selector "weight > 2500" -o ndjson
    """
    from selectroute.queues.rest.ids import token_of_text

    with server.opened() as queues, records(output, several=True) as add_record:
        if queue is None:
            names = queues.names()
            for name in names:
                add_record(name if output is Output.table else json.dumps({"name": name}))
            if not names and output is Output.table:
                typer.echo("no queues", err=True)
            return
        begin = None if after is None else token_of_text(after, "after")
        found = queues.open(queue).listed(limit, after=begin, **lookup.options())
        if output is Output.table:
            print_messages(found)
            if not found:
                typer.echo("no messages", err=True)
            return
        for message in found:
            add_record(json.dumps(as_data(message, body=False)))


@app.command()
@grouped
def put(
    queue: NameArgument,
    body: Annotated[
        str,
        typer.Argument(
            metavar="BODY", help="The body; - reads it from standard input.", show_default="empty"
        ),
    ] = "",
    message_id: MessageIdOption = None,
    correlation_id: CorrelationIdOption = None,
    group_id: GroupIdOption = None,
    sequence: SequenceOption = None,
    offset: OffsetOption = None,
    last_in_group: Annotated[bool, typer.Option("--last-in-group", help="It ends its group.")] = False,
    priority: Annotated[
        int | None, typer.Option(min=0, max=9, help="9 is the most urgent.", show_default="the queue's")
    ] = None,
    persistent: Annotated[
        bool | None, typer.Option("--persistent/--non-persistent", show_default="the queue's")
    ] = None,
    expiry: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", min=0.001, help="Discard it after this time.", show_default="never"),
    ] = None,
    reply_to: Annotated[
        str | None, typer.Option(metavar="QUEUE[@MANAGER]", help="Queue for replies.", show_default=False)
    ] = None,
    property_: PropertyOption = None,
    output: OutputOption = Output.table,
    *,
    server: Server,
) -> None:
    """Put a message, and print its message id.

    selectroute queue put ORDERS shipped --correlation-id order-7 -p weight=3000 -p color=blue

    The properties are printed on standard error as they are stored, with their types.

    selectroute queue put ORDERS - < order.json

    Exit code 3 if there is no such queue, 4 if it is full.
    """
    with server.opened() as queues:
        from selectroute.queues.rest import headers as rest
        from selectroute.queues.rest.properties import header_of

        given = {
            rest.MESSAGE_ID: message_id,
            rest.CORRELATION_ID: correlation_id,
            rest.GROUP_ID: group_id,
            rest.SEQUENCE: sequence,
            rest.OFFSET: offset,
            rest.LAST_IN_GROUP: "true" if last_in_group else None,
            rest.PRIORITY: priority,
            rest.PERSISTENCE: None
            if persistent is None
            else ("persistent" if persistent else "nonPersistent"),
            rest.EXPIRY: None if expiry is None else round(1000 * expiry),
            rest.REPLY_TO: reply_to,
        }
        headers = {name: str(value) for name, value in given.items() if value is not None}
        typed = properties_of(property_)
        fields = rest.put_fields(headers, [header_of(typed)])
        made = queues.open(queue).put(_body(body), **fields)
        if output is Output.table:
            print(rest.descriptor_headers(made)[rest.MESSAGE_ID])
            if typed:
                stored = ", ".join(
                    f"{name} = {printable(value_text(value))} ({type_name(value)})"
                    for name, value in typed.items()
                )
                print(f"properties: {stored}", file=sys.stderr)
        else:
            from selectroute.queues.message.message import QueuedMessage

            data = as_data(QueuedMessage(made, b""), body=False)
            del data["properties"]
            print(json.dumps(data))


@app.command()
@grouped
def get(
    queue: NameArgument,
    lookup: Lookup,
    wait: MessageWaitOption = None,
    output: OutputOption = Output.table,
    *,
    server: Server,
) -> None:
    """Take the first match off a queue and print its body unchanged; as JSON the whole message.

    selectroute queue get ORDERS --correlation-id order-7 --wait 10

    selectroute queue get ORDERS --selector "weight > 2500" -o json

    Exit code 1 if there is none (2033), 3 if there is no such queue, 5 if the selector is invalid. In a
    database, a message that cannot be printed stays on its queue.
    """
    with server.opened() as queues:
        from selectroute.queues.sql.queue import SqlQueue

        opened, options = queues.open(queue), lookup.options()
        if isinstance(opened, SqlQueue):
            with opened.unit() as unit:
                _show(opened.get(wait=wait, syncpoint=unit, **options), output)
        else:
            _show(opened.get(wait=wait, **options), output)


@app.command()
@grouped
def browse(
    queue: NameArgument,
    lookup: Lookup,
    wait: MessageWaitOption = None,
    output: OutputOption = Output.table,
    *,
    server: Server,
) -> None:
    """Print the message that `get` would return, and leave it on the queue.

    selectroute queue browse ORDERS --correlation-id order-7

    Exit codes are those of `get`.
    """
    with server.opened() as queues:
        _show(queues.open(queue).browse(wait=wait, **lookup.options()), output)


ExpectedOption = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=0,
        help="Do nothing, with exit code 4, unless exactly so many match.",
        show_default=False,
    ),
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Only say how many messages match.")]


@app.command()
@grouped
def purge(
    queue: NameArgument,
    lookup: Lookup,
    expected: ExpectedOption = None,
    dry_run: DryRunOption = False,
    output: OutputOption = Output.table,
    *,
    server: Server,
) -> None:
    """Remove the messages that match; without options, all messages. The queue stays.

    selectroute queue purge ORDERS --selector "weight < 10" --dry-run

    selectroute queue purge ORDERS --selector "weight < 10" --expected 12

    Messages in units of work stay. Exit code 1 if others got some of the messages in the meantime, 3 if there
    is no such queue, 4 if another number matches than expected.
    """
    _bulk(queue, None, lookup, expected, dry_run, output, server)


@app.command()
@grouped
def move(
    queue: NameArgument,
    to: Annotated[str, typer.Argument(metavar="TO", help="The queue to move them to.")],
    lookup: Lookup,
    expected: ExpectedOption = None,
    dry_run: DryRunOption = False,
    output: OutputOption = Output.table,
    *,
    server: Server,
) -> None:
    """Move the messages that match to the end of another queue; without options, all messages.

    selectroute queue move ORDERS.BACKOUT ORDERS --selector "weight > 2500"

    Each is on exactly one of the queues at any time, with the same ids, properties, priority and expiry. What
    does not fit on the other queue stays: exit code 1. Exit code 3 if there is no such queue, 4 if another
    number matches than expected.
    """
    _bulk(queue, to, lookup, expected, dry_run, output, server)


def _bulk(
    queue: str,
    to: str | None,
    lookup: Lookup,
    expected: int | None,
    dry_run: bool,
    output: Output,
    server: Server,
) -> None:
    """Purge messages, or move them to the queue `to`; or only count them."""
    from dataclasses import asdict

    with server.opened() as queues:
        source, options = queues.open(queue), lookup.options()
        if dry_run:
            for name in (queue, to):
                if name is not None:
                    queues.describe(name)
            found = source.count(**options)
            least = "" if found.exact else "at least "
            verb = "match" if found.count != 1 else "matches"
            if output is Output.table:
                print(f"{least}{counted(found.count, 'message')} {verb}")
            else:
                print(json.dumps({"matched": found.count, "exact": found.exact}))
            return
        if to is None:
            done = source.purge(expected=expected, **options)
        else:
            done = source.move(to, expected=expected, **options)
    if output is Output.table:
        print(f"{counted(done.done, 'message')} {'removed' if to is None else 'moved'}")
        for sentence in stayed_sentences(done.stayed):
            typer.echo(sentence, err=True)
    else:
        matched = {"matched": done.matched.count, "exact": done.matched.exact}
        print(json.dumps({**matched, "done": done.done, "stayed": asdict(done.stayed)}))
    if done.stayed.total:
        raise typer.Exit(FAILURE)


def _show(message: QueuedMessage, output: Output) -> None:
    """Print a whole message, or raise."""
    if output is Output.table:
        write_body(message.body)
    else:
        print(json.dumps(as_data(message, body=True)), flush=True)


def _body(given: str) -> bytes:
    """Return the bytes of the body argument; for ``-`` of standard input."""
    if given != "-":
        return os.fsencode(given)
    if sys.stdin is None:
        raise SelectRouteError("standard input is closed")
    found: Any = sys.stdin.buffer.read(MAX_BODY + 1)
    if len(found) > MAX_BODY:
        raise SelectRouteError(f"standard input has more than {MAX_BODY:,} bytes")
    return bytes(found)


# ---- administration of queues


class Order(StrEnum):
    """Order of messages on a queue."""

    priority = "priority"
    fifo = "fifo"


def create(
    queue: NameArgument,
    order: Annotated[
        Order, typer.Option(help="By priority and then arrival, or by arrival alone.")
    ] = Order.priority,
    default_priority: Annotated[
        int, typer.Option(min=0, max=9, help="Priority of messages that are put without one.")
    ] = 4,
    default_persistence: Annotated[
        bool, typer.Option("--persistent", help="Make messages persistent by default.")
    ] = False,
    max_depth: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="The most messages.", show_default="any number")
    ] = None,
    max_message_length: Annotated[
        int, typer.Option(min=0, metavar="BYTES", help="The largest body.")
    ] = 4_194_304,
    dialect: Annotated[
        str, typer.Option(help="The dialect of selectors; that of subscriptions is jms by default.")
    ] = "ibm-jms",
    output: OutputOption = Output.table,
    queues: QueuesOption = None,
) -> None:
    """Create a queue.

    selectroute queue create ORDERS --queues sqlite:///queues.db

    An existing queue with these settings is left unchanged; exit code 4 if it has others.
    """
    with opened_queues(queues) as opened:
        from selectroute.queues.settings import QueueSettings

        try:
            settings = QueueSettings(
                order.value, default_priority, default_persistence, max_depth, max_message_length, dialect
            )
        except (ValueError, SelectRouteError) as error:
            raise typer.BadParameter(str(error)) from None
        if not opened.create(queue, settings):
            typer.echo(f"{queue} exists already, with these settings", err=True)
        found = opened.describe(queue)
        print(paragraph(found) if output is Output.table else json.dumps(description_data(found)))


def delete(
    queue: NameArgument,
    purge: Annotated[bool, typer.Option("--purge", help="Also delete its messages.")] = False,
    queues: QueuesOption = None,
) -> None:
    """Delete an empty queue, or with --purge also one with messages.

    selectroute queue delete ORDERS --purge

    Exit code 3 if there is no such queue, 4 if it has messages; with --purge, 4 if some are in units of work.
    """
    with opened_queues(queues) as opened:
        opened.delete(queue, purge=purge)


def depth(
    queue: NameArgument,
    output: OutputOption = Output.table,
    queues: QueuesOption = None,
) -> None:
    """Print the count of messages available to a get.

    As JSON also the settings of the queue, when its oldest message was put, and how many gets wait in the
    service.

    selectroute queue depth ORDERS
    """
    with opened_queues(queues) as opened:
        found = opened.describe(queue)
        print(found.depth if output is Output.table else json.dumps(description_data(found)))
