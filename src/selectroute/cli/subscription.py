"""``selectroute subscription add | get | list | replace | remove | pause | resume``, and the commands of
``subscription_files`` and ``subscription_explain`` beside them.
"""

from __future__ import annotations

import json
import sys
import time
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from selectroute.cli.connect import Connection, RegistryOption, connected, told
from selectroute.cli.output import Output, OutputOption, records
from selectroute.cli.selector_warnings import warn_of_selector
from selectroute.cli.subscription_options import (
    SELECTOR_HELP,
    ByNameOption,
    DestinationOption,
    DialectOption,
    ExtendedOption,
    IdArgument,
    IfRevisionOption,
    LabelOption,
    NameOption,
    TopicOption,
    WaitOption,
    chosen,
    destination_of,
    dialects_for,
    known_dialect,
    labels_of,
    selector_text,
)
from selectroute.cli.subscription_text import as_data, as_line, paragraph, print_rows

if TYPE_CHECKING:
    from selectroute.registry.changes import EffectiveFrom
    from selectroute.registry.model import Subscription

app = typer.Typer(
    no_args_is_help=True,
    help="Subscriptions of a registry: who gets which messages. A change holds from one batch on.",
)

_PAGE: Final = 1_000
_LOOK_SECONDS: Final = 0.2


class State(StrEnum):
    """Whether a subscription gets messages."""

    active = "active"
    paused = "paused"


class Start(StrEnum):
    """From where on a resumed subscription gets messages."""

    latest = "latest"
    last_processed = "last-processed"


@app.command()
def add(
    selector: Annotated[
        str, typer.Argument(metavar="SELECTOR", help=SELECTOR_HELP, show_default="every message")
    ] = "",
    topic: TopicOption = None,
    dialect: DialectOption = None,
    extended: ExtendedOption = False,
    name: NameOption = None,
    label: LabelOption = None,
    destination: DestinationOption = None,
    id: Annotated[
        str | None, typer.Option("--id", metavar="ID", help="An id of your own.", show_default="made here")
    ] = None,
    wait: WaitOption = None,
    output: OutputOption = Output.table,
    registry: RegistryOption = None,
) -> None:
    """Register a subscription, and print it with its id.

    selectroute subscription add "JMSType = 'car' AND weight > 2500" --topic 'cars/+' --id heavy

    selectroute subscription add - --dialect ibm-mq --name invoices --label team=billing < selector.txt

    Exit code 4 if the id or the name is taken, 5 if the selector is invalid.
    """
    _, told_ = told(registry)
    with connected(registry, create=True) as connection:
        from selectroute.registry.model import SubscriptionSpec

        spec = SubscriptionSpec(
            selector_text(selector),
            topic,
            told_.dialect if dialect is None else dialect,
            "EXTENDED" if extended else None,
            name,
            destination_of(destination),
            labels_of(label),
        )
        registered = connection.register(spec, id=id)
        warn_of_selector(as_data(registered, None))
        _changed(connection, registered, wait, output)


@app.command()
def get(
    id: IdArgument = None,
    by_name: ByNameOption = None,
    wait: WaitOption = None,
    output: OutputOption = Output.table,
    registry: RegistryOption = None,
) -> None:
    """Print a subscription, and from which batch of each query on it holds.

    selectroute subscription get heavy

    selectroute subscription get --by-name invoices -o json

    Exit code 3 if there is none.
    """
    with connected(registry) as connection:
        one = connection.get(chosen(connection, id, by_name))
        _changed(connection, one, 0.0 if wait is None else wait, output, must=wait is not None)


@app.command("list")
def list_(
    topic: Annotated[
        str | None, typer.Option(metavar="FILTER", help="With this topic filter.", show_default=False)
    ] = None,
    status: Annotated[State | None, typer.Option(help="In this state.", show_default=False)] = None,
    dialect: Annotated[
        str | None,
        typer.Option(
            metavar="DIALECT",
            help="Of this dialect.",
            show_default=False,
            callback=known_dialect,
            autocompletion=dialects_for,
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="Of this name.", show_default=False)
    ] = None,
    label: Annotated[
        str | None, typer.Option(metavar="KEY=VALUE", help="With this label.", show_default=False)
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="So many at most.")] = 50,
    all_: Annotated[bool, typer.Option("--all", help="All, however many there are.")] = False,
    cursor: Annotated[str | None, typer.Option(help="Go on where a list ended.", show_default=False)] = None,
    output: OutputOption = Output.table,
    registry: RegistryOption = None,
) -> None:
    """List subscriptions in the order of their ids.

    selectroute subscription list --topic 'cars/+' --status active

    selectroute subscription list --all -o ndjson

    Where there are more, standard error says with which --cursor the list goes on.
    """
    left: int | None = None if all_ else limit
    if label is not None:
        labels_of([label])
    with connected(registry) as connection, records(output, several=True) as add_record:
        any_ = False
        while left is None or left > 0:
            page = connection.list(
                limit=_PAGE if left is None else min(left, _PAGE),
                cursor=cursor,
                topic=topic,
                status=None if status is None else status.value,
                dialect=dialect,
                name=name,
                label=label,
            )
            if output is not Output.table:
                for one in page.items:
                    add_record(as_line(one))
            elif page.items:
                print_rows(page.items, with_heading=not any_)
            any_ = any_ or bool(page.items)
            left = None if left is None else left - len(page.items)
            cursor = page.next_cursor
            if cursor is None:
                if not any_ and output is Output.table:
                    print("no subscriptions", file=sys.stderr)
                return
        print(f"there are more: --cursor {cursor}", file=sys.stderr)


@app.command()
def replace(
    id: IdArgument = None,
    selector: Annotated[
        str | None, typer.Argument(metavar="SELECTOR", help=SELECTOR_HELP, show_default="as it is")
    ] = None,
    by_name: ByNameOption = None,
    topic: Annotated[
        str | None,
        typer.Option(metavar="FILTER", help="Other topics; '' for every topic.", show_default="as it is"),
    ] = None,
    dialect: Annotated[
        str | None,
        typer.Option(
            help="Another dialect.",
            show_default="as it is",
            callback=known_dialect,
            autocompletion=dialects_for,
        ),
    ] = None,
    name: Annotated[str | None, typer.Option(help="Another name.", show_default="as it is")] = None,
    label: Annotated[
        list[str] | None,
        typer.Option("--label", metavar="KEY=VALUE", help="A label more, or another value; KEY= removes it."),
    ] = None,
    destination: Annotated[
        str | None,
        typer.Option(metavar="KIND", help="none, queue:NAME or kafka:TOPIC.", show_default="as it is"),
    ] = None,
    if_revision: IfRevisionOption = None,
    wait: WaitOption = None,
    output: OutputOption = Output.table,
    registry: RegistryOption = None,
) -> None:
    """Change a subscription; what is not given stays as it is. With --by-name, SELECTOR is the only argument.

    selectroute subscription replace heavy "JMSType = 'car' AND weight > 3000"

    selectroute subscription replace heavy --topic 'cars/#' --if-revision 17 --wait 30

    Each message is judged by exactly one revision: --wait tells the first batch that used this one.
    """
    if by_name is not None and id is not None and selector is None:
        id, selector = None, id
    patch: dict[str, Any] = {}
    if selector is not None:
        patch["selector"] = selector_text(selector)
    for field, value in (("dialect", dialect), ("name", name)):
        if value is not None:
            patch[field] = value
    if topic is not None:
        patch["topic"] = topic or None
    if label:
        patch["labels"] = {key: text or None for key, text in labels_of(label).items()}
    if destination is not None:
        place = destination_of(destination)
        patch["destination"] = {"kind": place.kind, "name": place.name}
    if not patch:
        raise typer.BadParameter("say what is to change: a selector, --topic, --label, …")
    with connected(registry) as connection:
        one = connection.change(chosen(connection, id, by_name), patch, expected=if_revision)
        if "selector" in patch or "dialect" in patch:
            warn_of_selector(as_data(one, None))
        _changed(connection, one, wait, output)


@app.command()
def remove(
    id: IdArgument = None,
    by_name: ByNameOption = None,
    if_revision: IfRevisionOption = None,
    output: OutputOption = Output.table,
    registry: RegistryOption = None,
) -> None:
    """Remove a subscription, and print what it was.

    selectroute subscription remove heavy --if-revision 18
    """
    with connected(registry) as connection:
        one = connection.remove(chosen(connection, id, by_name), expected=if_revision)
        print(paragraph(one, None, past=True) if output is Output.table else as_line(one))


@app.command()
def pause(
    id: IdArgument = None,
    by_name: ByNameOption = None,
    if_revision: IfRevisionOption = None,
    wait: WaitOption = None,
    output: OutputOption = Output.table,
    registry: RegistryOption = None,
) -> None:
    """Let a subscription get no messages until it is resumed.

    selectroute subscription pause heavy
    """
    with connected(registry) as connection:
        one = connection.pause(chosen(connection, id, by_name), expected=if_revision)
        _changed(connection, one, wait, output)


@app.command()
def resume(
    id: IdArgument = None,
    by_name: ByNameOption = None,
    from_: Annotated[
        Start, typer.Option("--from", help="With messages to come only, or also with those it missed.")
    ] = Start.latest,
    if_revision: IfRevisionOption = None,
    wait: WaitOption = None,
    output: OutputOption = Output.table,
    registry: RegistryOption = None,
) -> None:
    """Let a paused subscription get messages again, and say which queries can deliver what it missed.

    selectroute subscription resume heavy --from last-processed
    """
    with connected(registry) as connection:
        found = connection.resume(
            chosen(connection, id, by_name), from_="latest" if from_ is Start.latest else "last-processed",
            expected=if_revision,
        )  # fmt: skip
        backfill = [one.to_json() for one in found.backfill]
        more: dict[str, Any] = {"backfill": backfill} if from_ is Start.last_processed else {}
        _changed(connection, found.subscription, wait, output, **more)
        if output is Output.table and from_ is Start.last_processed:
            for one in found.backfill:
                can = "delivers what it missed" if one.can_replay else f"cannot: {one.reason}"
                print(f"  backfill      query {one.query} {can}")
            if not found.backfill:
                print("  backfill      no query has reported to this registry yet")


def effective(connection: Connection, one: Subscription, seconds: float) -> list[EffectiveFrom]:
    """Return the first batch of each query that used a subscription as it is. Where there is none, wait for
    one at most so many seconds; a service does the waiting itself.
    """
    from selectroute.registry.remote import RemoteRegistry

    until = time.monotonic() + seconds
    while True:
        left = max(until - time.monotonic(), 0.0)
        if isinstance(connection, RemoteRegistry):
            now, batches = connection.effective_of(one.id, wait_seconds=left)
            if now.revision != one.revision:
                return []  # it was changed meanwhile, and what is told is of the change
        else:
            batches = connection.effective_from(one.revision)
        left = until - time.monotonic()
        if batches or left <= 0:
            return batches
        time.sleep(min(left, _LOOK_SECONDS))


def _changed(
    connection: Connection,
    one: Subscription,
    wait: float | None,
    output: Output,
    *,
    must: bool = True,
    **more: Any,
) -> None:
    """Print a subscription; with `wait`, when a batch has used it, at the latest after so many seconds."""
    batches = None
    if wait is not None:
        batches = effective(connection, one, wait)
    if output is Output.table:
        print(paragraph(one, batches))
    else:
        print(json.dumps({**as_data(one, batches), **more}))
    if must and batches == []:
        print(f"selectroute: no batch has used revision {one.revision} yet", file=sys.stderr)
        raise typer.Exit(1)
