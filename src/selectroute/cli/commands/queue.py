"""``selectroute queue list | put | get | browse | purge | move | …``: messages and queues."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, astuple, dataclass
from math import inf
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from selectroute.cli.connect import opened_queues
from selectroute.cli.exits import FAILURE
from selectroute.cli.options import takes_options
from selectroute.cli.output import Output, OutputOption, print_result, print_table, records
from selectroute.job_options import option
from selectroute.queues.settings import QueueSettings
from selectroute.selector.errors import SelectRouteError, nearest
from selectroute.selector.names import identifier_length
from selectroute.selector.sentences import counted, printable
from selectroute.selector.values import type_name

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from selectroute.client.queues import RemoteQueues
    from selectroute.queues.lookup import MatchOptions
    from selectroute.queues.message.message import QueuedMessage
    from selectroute.queues.queue import Stayed
    from selectroute.queues.settings import QueueDescription
    from selectroute.queues.sql.queue import SqlQueues
    from selectroute.selector.values import Value

NameArgument = Annotated[str, typer.Argument(metavar="QUEUE", help="The queue's name.")]
MessageWaitOption = Annotated[
    float | None, typer.Option(metavar="SECONDS", min=0, help="Wait at most this long for a message.")
]


@dataclass(frozen=True, kw_only=True)
class QueueOptions:
    """Option that says where queues are.

    Attributes:
        queues: A database or a service, like --registry; or SELECTROUTE_QUEUES. By default the registry's.
    """

    queues: str | None = option(None, metavar="URL")

    def opened(self) -> AbstractContextManager[SqlQueues | RemoteQueues]:
        """Open the queues."""
        return opened_queues(**asdict(self))


@dataclass(frozen=True, kw_only=True)
class ServerOptions(QueueOptions):
    """Options that say where queues with messages are.

    Attributes:
        manager: The queue manager of a service.
    """

    manager: str | None = option(None, metavar="NAME", flag="queue-manager", shown_default="selectroute")


@dataclass(frozen=True, kw_only=True)
class IdOptions:
    """Options that identify a message.

    Attributes:
        message_id: ID: and 48 hexadecimal digits.
        correlation_id: ID: and up to 48 hexadecimal digits, zero-padded; or any text, cut to 24 bytes.
        group_id: The same for the group.
        msg_seq_number: MsgSeqNumber in the group.
        offset: Offset of a segment.
    """

    message_id: str | None = option(None, metavar="ID")
    correlation_id: str | None = option(None, metavar="ID")
    group_id: str | None = option(None, metavar="ID")
    msg_seq_number: int | None = option(None, metavar="N", flag="sequence", range=(1, inf))
    offset: int | None = option(None, metavar="N", range=(0, inf))


@dataclass(frozen=True, kw_only=True)
class LookupOptions(IdOptions):
    """Options of a command that looks messages up.

    Attributes:
        msg_token: 32 hexadecimal digits.
        selector: A selector that the message must match.
        dialect: The selector's dialect.
    """

    msg_token: str | None = option(None, metavar="HEX", flag="message-token")
    selector: str | None = option(None)
    dialect: str | None = option(None, shown_default="the queue's")

    def options(self) -> MatchOptions:
        """Return the match options. Raises RestError and, with a dialect, InvalidSelectorError."""
        from selectroute.queues.rest.lookup import LookupParams

        return LookupParams(*astuple(self)).options()


@dataclass(frozen=True, kw_only=True)
class BulkOptions:
    """Options of a command on all messages that match.

    Attributes:
        expected: Do nothing, with exit code 4, unless exactly so many match.
        dry_run: Only say how many messages match.
    """

    expected: int | None = option(None, metavar="N", range=(0, inf))
    dry_run: bool = option(False)


@dataclass(frozen=True, kw_only=True)
class PutOptions(IdOptions):
    """Options of a message that is put.

    Attributes:
        last_in_group: It ends its group.
        priority: 9 is the most urgent.
        expiry: Discard it after this time.
        reply_to: Queue for replies.
    """

    last_in_group: bool = option(False)
    priority: int | None = option(None, range=(0, 9), shown_default="the queue's")
    persistence: bool | None = option(None, flag="persistent/--non-persistent", shown_default="the queue's")
    expiry: float | None = option(None, metavar="SECONDS", range=(0.001, inf), shown_default="never")
    reply_to: str | None = option(None, metavar="QUEUE[@MANAGER]")

    def headers(self) -> dict[str, str]:
        """Return the headers that say the same in a request."""
        from selectroute.queues.rest import headers as rest

        persistence = "persistent" if self.persistence else "nonPersistent"
        headers = {
            rest.MESSAGE_ID: self.message_id,
            rest.CORRELATION_ID: self.correlation_id,
            rest.GROUP_ID: self.group_id,
            rest.SEQUENCE: self.msg_seq_number,
            rest.OFFSET: self.offset,
            rest.LAST_IN_GROUP: "true" if self.last_in_group else None,
            rest.PRIORITY: self.priority,
            rest.PERSISTENCE: None if self.persistence is None else persistence,
            rest.EXPIRY: None if self.expiry is None else round(1000 * self.expiry),
            rest.REPLY_TO: self.reply_to,
        }
        return {name: str(value) for name, value in headers.items() if value is not None}


_INFERRED: Final = {
    "boolean": re.compile("true|false"),
    "long": re.compile("-?(0|[1-9][0-9]*)"),
    "double": re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?"),
}
"""Types of properties that are given without one, by what JSON takes for a value of the type."""


def properties_of(texts: list[str] | None) -> dict[str, Value]:
    """Parse properties given as NAME[:TYPE]=VALUE."""
    from selectroute.queues.rest.lookup import RestError
    from selectroute.queues.rest.properties import TYPES, value_of

    properties: dict[str, Value] = {}
    for property_text in texts or ():
        named, sign, text = property_text.partition("=")
        name, colon, kind = named.partition(":")
        if not colon:
            kind = next((kind for kind, read in _INFERRED.items() if read.fullmatch(text)), "string")
        if not sign or not name or name in properties:
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
            properties[name] = value_of(text, kind)
        except RestError as error:
            raise typer.BadParameter(f"{name}: {error.sentence}", param_hint="--property") from None
    return properties


# ---- messages

app = typer.Typer(
    no_args_is_help=True,
    help="Queues: put messages, get each once, by its ids or by a selector; in a database or over HTTP.",
)

MAX_BODY: Final = 1 << 30
"""Bytes of a body read at most; a queue has its own limit."""


@app.command("list")
@takes_options
def list_(
    queue: Annotated[
        str | None,
        typer.Argument(metavar="QUEUE", help="List the messages of this queue.", show_default="all queues"),
    ] = None,
    *,
    lookup: LookupOptions,
    limit: Annotated[
        int, typer.Option(min=1, help="The most messages to print; a service returns one page at most.")
    ] = 50,
    after: Annotated[
        str | None,
        typer.Option(metavar="TOKEN", help="List those behind the message that has or had this msgToken."),
    ] = None,
    output: OutputOption = Output.table,
    server: ServerOptions,
) -> None:
    """List all queues; or the messages of a queue, without their bodies, in delivery order.

    selectroute queue list

    selectroute queue list ORDERS --selector "weight > 2500" -o ndjson
    """
    from selectroute.queues.rest.lookup import token_of_text

    with server.opened() as queues, records(output, several=True) as add_record:
        if queue is None:
            names = queues.names()
            for name in names:
                add_record(name if output is Output.table else json.dumps({"name": name}))
            if not names and output is Output.table:
                typer.echo("no queues", err=True)
            return
        begin = None if after is None else token_of_text(after, "after")
        messages = queues.open(queue).listed(limit, after=begin, **lookup.options())
        if output is Output.table:
            print_messages(messages)
            if not messages:
                typer.echo("no messages", err=True)
            return
        for message in messages:
            add_record(json.dumps(as_data(message, body=False)))


@app.command()
@takes_options
def put(
    queue: NameArgument,
    body: Annotated[
        str,
        typer.Argument(
            metavar="BODY", help="The body; - reads it from standard input.", show_default="empty"
        ),
    ] = "",
    *,
    descriptor: PutOptions,
    property_: Annotated[
        list[str] | None,
        typer.Option(
            "--property",
            "-p",
            metavar="NAME[:TYPE]=VALUE",
            help="A property. Without a type, true is a boolean, 3000 a long, 2.5 a double, all else a "
            "string; types: boolean, byte, short, integer, long, float, double, string, bytes. Repeatable.",
        ),
    ] = None,
    output: OutputOption = Output.table,
    server: ServerOptions,
) -> None:
    """Put a message, and print its message id.

    selectroute queue put ORDERS shipped --correlation-id order-7 -p weight=3000 -p color=blue

    The properties are printed on standard error as they are stored, with their types.

    selectroute queue put ORDERS - < order.json

    Exit code 3 if there is no such queue, 4 if it is full.
    """
    with server.opened() as queues:
        from selectroute.queues.message.message import QueuedMessage
        from selectroute.queues.rest import headers as rest
        from selectroute.queues.rest.properties import header_of

        typed = properties_of(property_)
        fields = rest.put_fields(descriptor.headers(), [header_of(typed)])
        put_as = queues.open(queue).put(_body(body), **fields)
    data = as_data(QueuedMessage(put_as, b""), body=False)
    del data["properties"]
    print_result(output, rest.descriptor_headers(put_as)[rest.MESSAGE_ID], data)
    if typed and output is Output.table:
        stored = ", ".join(
            f"{name} = {printable(value_text(value))} ({type_name(value)})" for name, value in typed.items()
        )
        print(f"properties: {stored}", file=sys.stderr)


@app.command()
@takes_options
def get(
    queue: NameArgument,
    lookup: LookupOptions,
    wait: MessageWaitOption = None,
    output: OutputOption = Output.table,
    *,
    server: ServerOptions,
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
@takes_options
def browse(
    queue: NameArgument,
    lookup: LookupOptions,
    wait: MessageWaitOption = None,
    output: OutputOption = Output.table,
    *,
    server: ServerOptions,
) -> None:
    """Print the message that `get` would return, and leave it on the queue.

    selectroute queue browse ORDERS --correlation-id order-7

    Exit codes are those of `get`.
    """
    with server.opened() as queues:
        _show(queues.open(queue).browse(wait=wait, **lookup.options()), output)


@app.command()
@takes_options
def purge(
    queue: NameArgument,
    lookup: LookupOptions,
    bulk: BulkOptions,
    output: OutputOption = Output.table,
    *,
    server: ServerOptions,
) -> None:
    """Remove the messages that match; without options, all messages. The queue stays.

    selectroute queue purge ORDERS --selector "weight < 10" --dry-run

    selectroute queue purge ORDERS --selector "weight < 10" --expected 12

    Messages in units of work stay. Exit code 1 if others got some of the messages in the meantime, 3 if there
    is no such queue, 4 if another number matches than expected.
    """
    _bulk(queue, None, lookup, bulk, output, server)


@app.command()
@takes_options
def move(
    queue: NameArgument,
    to: Annotated[str, typer.Argument(metavar="TO", help="The queue to move them to.")],
    lookup: LookupOptions,
    bulk: BulkOptions,
    output: OutputOption = Output.table,
    *,
    server: ServerOptions,
) -> None:
    """Move the messages that match to the end of another queue; without options, all messages.

    selectroute queue move ORDERS.BACKOUT ORDERS --selector "weight > 2500"

    Each is on exactly one of the queues at any time, with the same ids, properties, priority and expiry. What
    does not fit on the other queue stays: exit code 1. Exit code 3 if there is no such queue, 4 if another
    number matches than expected.
    """
    _bulk(queue, to, lookup, bulk, output, server)


def _bulk(
    queue: str,
    to: str | None,
    lookup: LookupOptions,
    bulk: BulkOptions,
    output: Output,
    server: ServerOptions,
) -> None:
    """Purge messages, or move them to the queue `to`; or only count them."""
    with server.opened() as queues:
        source, options = queues.open(queue), lookup.options()
        if bulk.dry_run:
            for name in (queue, to):
                if name is not None:
                    queues.describe(name)
            matching = source.count(**options)
            least = "" if matching.exact else "at least "
            verb = "match" if matching.count != 1 else "matches"
            text = f"{least}{counted(matching.count, 'message')} {verb}"
            print_result(output, text, {"matched": matching.count, "exact": matching.exact})
            return
        if to is None:
            done = source.purge(expected=bulk.expected, **options)
        else:
            done = source.move(to, expected=bulk.expected, **options)
    matched = {"matched": done.matched.count, "exact": done.matched.exact}
    print_result(
        output,
        f"{counted(done.done, 'message')} {'removed' if to is None else 'moved'}",
        {**matched, "done": done.done, "stayed": asdict(done.stayed)},
    )
    if output is Output.table:
        for sentence in stayed_sentences(done.stayed):
            typer.echo(sentence, err=True)
    if done.stayed.total:
        raise typer.Exit(FAILURE)


def _show(message: QueuedMessage, output: Output) -> None:
    """Print a whole message, or raise."""
    if output is Output.table:
        write_body(message.body)
    else:
        print(json.dumps(as_data(message, body=True)), flush=True)


def _body(argument: str) -> bytes:
    """Return the bytes of the body argument; for ``-`` of standard input."""
    if argument != "-":
        return os.fsencode(argument)
    if sys.stdin is None:
        raise SelectRouteError("standard input is closed")
    data: Any = sys.stdin.buffer.read(MAX_BODY + 1)
    if len(data) > MAX_BODY:
        raise SelectRouteError(f"standard input has more than {MAX_BODY:,} bytes")
    return bytes(data)


# ---- administration of queues


_DEFAULTS: Final = QueueSettings()


@dataclass(frozen=True, kw_only=True)
class SettingOptions:
    """Options that are settings of a queue.

    Attributes:
        order: By priority and then arrival, or by arrival alone.
        default_priority: Priority of messages that are put without one.
        default_persistence: Make messages persistent by default.
        max_depth: The most messages.
        max_message_length: The largest body.
        dialect: The dialect of selectors; that of subscriptions is jms by default.
    """

    order: Literal["priority", "fifo"] = option(_DEFAULTS.order)
    default_priority: int = option(_DEFAULTS.default_priority, range=(0, 9))
    default_persistence: bool = option(_DEFAULTS.default_persistence, flag="persistent")
    max_depth: int | None = option(
        _DEFAULTS.max_depth, metavar="N", range=(0, inf), shown_default="any number"
    )
    max_message_length: int = option(_DEFAULTS.max_message_length, metavar="BYTES", range=(0, inf))
    dialect: str = option(_DEFAULTS.dialect)

    def settings(self) -> QueueSettings:
        """Return the settings. Raises BadParameter for an unknown dialect."""
        try:
            return QueueSettings(**asdict(self))
        except SelectRouteError as error:
            raise typer.BadParameter(str(error)) from None


@app.command()
@takes_options
def create(
    queue: NameArgument, settings: SettingOptions, output: OutputOption = Output.table, *, store: QueueOptions
) -> None:
    """Create a queue.

    selectroute queue create ORDERS --queues sqlite:///queues.db

    An existing queue with these settings is left unchanged; exit code 4 if it has others.
    """
    with store.opened() as queues:
        if not queues.create(queue, settings.settings()):
            typer.echo(f"{queue} exists already, with these settings", err=True)
        description = queues.describe(queue)
        print_result(output, paragraph(description), description_data(description))


@app.command()
@takes_options
def delete(
    queue: NameArgument,
    purge: Annotated[bool, typer.Option("--purge", help="Also delete its messages.")] = False,
    *,
    store: QueueOptions,
) -> None:
    """Delete an empty queue, or with --purge also one with messages.

    selectroute queue delete ORDERS --purge

    Exit code 3 if there is no such queue, 4 if it has messages; with --purge, 4 if some are in units of work.
    """
    with store.opened() as queues:
        queues.delete(queue, purge=purge)


@app.command()
@takes_options
def depth(queue: NameArgument, output: OutputOption = Output.table, *, store: QueueOptions) -> None:
    """Print the count of messages available to a get.

    As JSON also the settings of the queue, when its oldest message was put, and how many gets wait in the
    service.

    selectroute queue depth ORDERS
    """
    with store.opened() as queues:
        description = queues.describe(queue)
        print_result(output, str(description.depth), description_data(description))


# ---- queues and messages as text and data

_HEADING: Final = ("message id", "correlation id", "priority", "put (UTC)", "properties")

_SHOWN: Final = 200


def paragraph(queue: QueueDescription) -> str:
    """Return the properties of a queue, one per line."""
    return "\n".join(
        (
            f"{queue.name}: {counted(queue.depth, 'message')}",
            f"  order         {queue.order}",
            f"  priority      {queue.default_priority}, of messages without one",
            f"  persistent    {'yes' if queue.default_persistence else 'no'}, of messages that do not say",
            f"  depth         {'any' if queue.max_depth is None else f'{queue.max_depth:,}'}",
            f"  bytes         {queue.max_message_length:,} in a body",
            f"  dialect       {queue.dialect}",
        )
    )


def description_data(queue: QueueDescription) -> dict[str, Any]:
    """Return the description of a queue as plain data."""
    from selectroute.registry.model import plain

    return {"name": queue.name, **plain(queue)}


def stayed_sentences(stayed: Stayed) -> Iterator[str]:
    """Yield a sentence for each reason for which messages stayed on their queue."""
    reasons = (
        (stayed.full, "the other queue is full"),
        (stayed.too_long, "the other queue does not take bodies of this length"),
        (stayed.in_use, "others got them in the meantime, or were getting them"),
    )
    for number, reason in reasons:
        if number:
            yield f"{counted(number, 'message')} stayed: {reason}"


def print_messages(messages: Sequence[QueuedMessage]) -> None:
    """Print messages as a table, or as lines if the terminal is too narrow."""
    if messages:
        print_table(_HEADING, [*map(_cells, messages)], uncut=("message id", "priority", "put (UTC)"))


def _cells(message: QueuedMessage) -> tuple[str, ...]:
    """Return the texts of a message in a table, in the order of its heading."""
    from selectroute.selector.fields import NO_ID, id_to_text

    descriptor, properties = message.descriptor, dict(message.properties)
    text = properties.pop("JMSCorrelationID", None)
    if not isinstance(text, str):
        text = "" if descriptor.correl_id == NO_ID else (id_to_text(descriptor.correl_id) or "")
    shown = ", ".join(f"{name}={value_text(value)}" for name, value in properties.items())
    put = f"{descriptor.put_time:%Y-%m-%d %H:%M:%S.%f}"[:-3]
    return (
        id_to_text(descriptor.msg_id) or "",
        printable(text),
        str(descriptor.priority),
        put,
        printable(shown, _SHOWN),
    )


def as_data(message: QueuedMessage, *, body: bool) -> dict[str, Any]:
    """Return a message as plain data, with `body` also its body: a text if it is UTF-8."""
    from selectroute.queues.rest.lookup import item_of

    data = item_of(message)
    if not body:
        return data
    try:
        return {**data, "body": message.body.decode()}
    except UnicodeDecodeError:
        return {**data, "body": {"type": "bytes", "value": message.body.hex()}}


def write_body(body: bytes) -> None:
    """Write a body to standard output unchanged; on a terminal, with a final line feed."""
    sys.stdout.flush()
    sys.stdout.buffer.write(body)
    if sys.stdout.isatty() and body and not body.endswith(b"\n"):
        sys.stdout.buffer.write(b"\n")
    sys.stdout.buffer.flush()


def value_text(value: Any) -> str:
    """Return a value of a property as a text."""
    return str(getattr(value, "value", value))
