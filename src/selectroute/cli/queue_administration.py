"""``selectroute queue create | delete | depth``: queues as a whole."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated

import typer

from selectroute.cli.output import Output, OutputOption
from selectroute.cli.queue_options import NameArgument, QueuesOption, opened
from selectroute.cli.queue_text import paragraph
from selectroute.selector.errors import SelectRouteError


class Order(StrEnum):
    """Which message is first."""

    priority = "priority"
    fifo = "fifo"


def create(
    queue: NameArgument,
    order: Annotated[
        Order, typer.Option(help="The most urgent first, and then by arrival; or by arrival alone.")
    ] = Order.priority,
    default_priority: Annotated[
        int, typer.Option(min=0, max=9, help="Of messages that are put without one.")
    ] = 4,
    default_persistence: Annotated[
        bool, typer.Option("--persistent", help="Messages are persistent unless they say otherwise.")
    ] = False,
    max_depth: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="The most messages.", show_default="any number")
    ] = None,
    max_message_length: Annotated[
        int, typer.Option(min=0, metavar="BYTES", help="The longest body.")
    ] = 4_194_304,
    dialect: Annotated[str, typer.Option(help="The dialect of selectors.")] = "ibm-jms",
    output: OutputOption = Output.table,
    queues: QueuesOption = None,
) -> None:
    """Make a queue.

    selectroute queue create ORDERS --queues sqlite:///queues.db

    One that is there with these settings is left as it is; exit code 4 if it has others.
    """
    with opened(queues) as connection:
        from selectroute.queues.settings import QueueSettings

        try:
            settings = QueueSettings(
                order.value, default_priority, default_persistence, max_depth, max_message_length, dialect
            )
        except (ValueError, SelectRouteError) as error:
            raise typer.BadParameter(str(error)) from None
        if not connection.create(queue, settings):
            typer.echo(f"{queue} is there already, with these settings", err=True)
        found = connection.describe(queue)
        print(paragraph(found) if output is Output.table else json.dumps(found.to_json()))


def delete(
    queue: NameArgument,
    purge: Annotated[bool, typer.Option("--purge", help="With the messages that it has.")] = False,
    queues: QueuesOption = None,
) -> None:
    """Delete a queue that is empty, or with --purge with its messages.

    selectroute queue delete ORDERS --purge

    Exit code 3 if there is none, 4 if it has messages.
    """
    with opened(queues) as connection:
        connection.delete(queue, purge)


def depth(
    queue: NameArgument,
    output: OutputOption = Output.table,
    queues: QueuesOption = None,
) -> None:
    """Print how many messages could be got now; as JSON also the settings of the queue.

    selectroute queue depth ORDERS
    """
    with opened(queues) as connection:
        found = connection.describe(queue)
        print(found.depth if output is Output.table else json.dumps(found.to_json()))
