"""``selectroute queue put | get | browse | list``; those of ``queue_administration`` are beside them."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from selectroute.cli.output import Output, OutputOption, records
from selectroute.cli.queue_options import (
    CorrelationIdOption,
    GroupIdOption,
    ManagerOption,
    MessageIdOption,
    MessageWaitOption,
    NameArgument,
    OffsetOption,
    PropertyOption,
    QueuesOption,
    SelectorDialectOption,
    SelectorOption,
    SequenceOption,
    TokenOption,
    lookup_of,
    opened,
    properties_of,
)
from selectroute.cli.queue_text import as_data, print_messages, write_body
from selectroute.selector.errors import SelectRouteError

if TYPE_CHECKING:
    from selectroute.queues.message import Message

app = typer.Typer(
    no_args_is_help=True,
    help="Queues: put messages, get each once, by its ids or by a selector; in a database or over HTTP.",
)

MAX_BODY: Final = 1 << 30
"""Bytes of a body that are read; a queue has its own limit."""


@app.command("list")
def list_(
    queue: Annotated[
        str | None,
        typer.Argument(metavar="[QUEUE]", help="List the messages of this queue.", show_default="all queues"),
    ] = None,
    message_id: MessageIdOption = None,
    correlation_id: CorrelationIdOption = None,
    group_id: GroupIdOption = None,
    selector: SelectorOption = None,
    dialect: SelectorDialectOption = None,
    limit: Annotated[
        int, typer.Option(min=1, help="So many messages at most; a service gives no more than a page.")
    ] = 50,
    output: OutputOption = Output.table,
    queues: QueuesOption = None,
    manager: ManagerOption = None,
) -> None:
    """List all queues; or messages of one, without their bodies, in the order in which they would be got.

    selectroute queue list

    selectroute queue list ORDERS --selector "weight > 2500" -o ndjson
    """
    lookup = lookup_of(message_id, correlation_id, group_id, None, None, None, selector, dialect)
    with opened(queues, manager) as connection, records(output, several=True) as add_record:
        if queue is None:
            names = list(connection.names())
            for name in names:
                add_record(name if output is Output.table else json.dumps({"name": name}))
            if not names and output is Output.table:
                typer.echo("no queues", err=True)
            return
        found = connection.listed(queue, lookup, limit)
        if output is Output.table:
            print_messages(found)
            if not found:
                typer.echo("no messages", err=True)
            return
        for message in found:
            add_record(json.dumps(as_data(message, body=False)))


@app.command()
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
    last_in_group: Annotated[bool, typer.Option("--last-in-group", help="The group ends with it.")] = False,
    priority: Annotated[
        int | None, typer.Option(min=0, max=9, help="9 is the most urgent.", show_default="the queue's")
    ] = None,
    persistent: Annotated[
        bool | None, typer.Option("--persistent/--non-persistent", show_default="the queue's")
    ] = None,
    expiry: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", min=0.001, help="After so long it is gone.", show_default="never"),
    ] = None,
    reply_to: Annotated[
        str | None, typer.Option(metavar="QUEUE[@MANAGER]", help="Where replies go.", show_default=False)
    ] = None,
    property_: PropertyOption = None,
    output: OutputOption = Output.table,
    queues: QueuesOption = None,
    manager: ManagerOption = None,
) -> None:
    """Put a message, and print its message id.

    selectroute queue put ORDERS shipped --correlation-id order-7 -p weight:integer=3000

    selectroute queue put ORDERS - < order.json

    Exit code 3 if there is no such queue.
    """
    with opened(queues, manager) as connection:
        from selectroute.queues import rest_headers as rest
        from selectroute.queues.rest_properties import header_of

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
        properties = header_of(properties_of(property_))
        fields = rest.put_fields(headers, [properties])
        made = connection.put(queue, _body(body), fields)
        if output is Output.table:
            print(rest.descriptor_headers(made)[rest.MESSAGE_ID])
        else:
            from selectroute.queues.message import Message

            data = as_data(Message(made, b""), body=False)
            del data["properties"]
            print(json.dumps(data))


def _taking(removes: bool) -> Callable[..., None]:
    """The command that prints the first match, and leaves it on its queue or not."""

    def command(
        queue: NameArgument,
        message_id: MessageIdOption = None,
        correlation_id: CorrelationIdOption = None,
        group_id: GroupIdOption = None,
        sequence: SequenceOption = None,
        offset: OffsetOption = None,
        token: TokenOption = None,
        selector: SelectorOption = None,
        dialect: SelectorDialectOption = None,
        wait: MessageWaitOption = None,
        output: OutputOption = Output.table,
        queues: QueuesOption = None,
        manager: ManagerOption = None,
    ) -> None:
        ids = (message_id, correlation_id, group_id, sequence, offset, token)
        lookup = lookup_of(*ids, selector, dialect)
        with opened(queues, manager) as connection:
            if removes:
                connection.get(queue, lookup, wait, lambda message: _show(message, output))
            else:
                _show(connection.browse(queue, lookup, wait), output)

    return command


app.command(
    "get",
    help="""Take the first match off a queue and print its body as it is; as JSON everything about it.

    selectroute queue get ORDERS --correlation-id order-7 --wait 10

    selectroute queue get ORDERS --selector "weight > 2500" -o json

    Exit code 1 if there is none (2033), 3 if there is no such queue, 5 if the selector is invalid. Of a
    database, a message that cannot be printed stays on its queue.
    """,
)(_taking(removes=True))
app.command(
    "browse",
    help="""Print what `get` would, and leave it on the queue.

    selectroute queue browse ORDERS --message-id ID:414D51…
    """,
)(_taking(removes=False))


def _show(message: Message, output: Output) -> None:
    """Print a message, all of it, or raise."""
    if output is Output.table:
        write_body(message.body)
    else:
        print(json.dumps(as_data(message, body=True)), flush=True)


def _body(given: str) -> bytes:
    """The bytes of a body as it was given; for ``-`` what is on standard input."""
    if given != "-":
        return os.fsencode(given)
    if sys.stdin is None:
        raise SelectRouteError("standard input is closed")
    found: Any = sys.stdin.buffer.read(MAX_BODY + 1)
    if len(found) > MAX_BODY:
        raise SelectRouteError(f"standard input has more than {MAX_BODY:,} bytes")
    return bytes(found)
