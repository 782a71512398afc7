"""``selectroute token create | list | revoke``: tokens for the callers of a service."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Annotated

import typer
from rich.console import Console

from selectroute.cli.connect import RegistryOption, connected
from selectroute.cli.options import takes_options
from selectroute.cli.output import Output, OutputOption, print_table, records
from selectroute.job_options import option
from selectroute.registry.model import plain
from selectroute.registry.role import Role
from selectroute.selector.sentences import printable

app = typer.Typer(
    no_args_is_help=True,
    help="Bearer tokens for a service, created in its database, or over HTTP by an admin. Once there is "
    "one, every caller needs a token.",
)


@dataclass(frozen=True, kw_only=True)
class PermissionOptions:
    """Options that limit what a token permits.

    Attributes:
        topics: Only subscriptions whose topic filters are within this one; repeatable.
        queues: Only these queues as destinations and to put and get, such as CARS.*; repeatable.
        kafka: Only these Kafka topics as destinations, such as cars.*; repeatable.
    """

    topics: tuple[str, ...] = option((), metavar="FILTER", flag="topic", shown_default="all subscriptions")
    queues: tuple[str, ...] = option(
        (), metavar="PATTERN", flag="queue", shown_default="all; with --topic or --kafka none"
    )
    kafka: tuple[str, ...] = option((), metavar="PATTERN", shown_default="all; with --topic or --queue none")


@app.command()
@takes_options
def create(
    role: Annotated[
        Role,
        typer.Option(
            help="reader: read; writer: also change, put and get; admin: also manage tokens and queues."
        ),
    ],
    permission: PermissionOptions,
    name: Annotated[str | None, typer.Option(help="Its purpose.", show_default="its id")] = None,
    registry: RegistryOption = None,
    output: OutputOption = Output.table,
) -> None:
    """Create a token and print its secret, which is shown only once and not stored.

    export SELECTROUTE_TOKEN=$(selectroute token create --role admin --registry sqlite:///subscriptions.db)

    selectroute token create --role writer --topic 'cars/#' --name "the garage" -o json

    selectroute token create --role writer --topic 'cars/#' --queue 'CARS.*' --kafka 'cars.*'

    A PATTERN must match the whole name: * is any number of characters, ? is one. With any of --topic, --queue
    and --kafka, the token permits only the queues and Kafka topics that its patterns match: with --topic
    alone, none. With --queue or --kafka alone, it still permits all subscriptions.

    A job (selectroute stream run) needs a writer's token without these three options.
    """
    with connected(registry, create=True) as opened:
        is_first = not opened.tokens.had_any()
        token, secret = opened.tokens.add(role.value, **asdict(permission), name=name)
    if is_first:
        typer.echo(_first(role), err=True)
    if output is not Output.table:
        print(json.dumps({**plain(token), "secret": secret}))
        return
    Console(stderr=True, highlight=False).print(f"token {token.id} ({token.role}); its secret, once:")
    print(secret)


def _first(role: Role) -> str:
    """Return the notice about the first token of a registry."""
    now = (
        "this is the registry's first token: from now on every caller of a service needs one "
        "(SELECTROUTE_TOKEN)"
    )
    if role is Role.admin:
        return now
    return (
        f"{now}. It cannot create other tokens: create an admin's in the database with "
        "`selectroute token create --role admin`"
    )


@app.command("list")
def list_(registry: RegistryOption = None, output: OutputOption = Output.table) -> None:
    """List the tokens, without their secrets.

    selectroute token list --registry sqlite:///subscriptions.db
    """
    with connected(registry) as opened:
        tokens = opened.tokens.all()
    if output is not Output.table:
        with records(output, several=True) as add:
            for token in tokens:
                add(json.dumps(plain(token)))
        return
    if not tokens:
        typer.echo("no tokens", err=True)
        return
    rows = []
    for token in tokens:
        topics = ", ".join(token.topics) or "all"
        patterns = [*map("queue:{}".format, token.queues), *map("kafka:{}".format, token.kafka)]
        destinations = "\n".join(patterns) or ("none" if token.topics else "all")
        name = "" if token.name == token.id else printable(token.name)
        rows.append(
            (token.id, name, token.role.value, printable(topics), destinations, f"{token.created:%F}")
        )
    names = ("id", "name", "role", "topics", "delivers to", "created")
    print_table(names, rows, uncut=("id", "role", "created"))


@app.command()
def revoke(
    id: Annotated[str, typer.Argument(metavar="ID", help="The token's id, as `token list` shows it.")],
    registry: RegistryOption = None,
) -> None:
    """Revoke a token at once. A registry still requires tokens after the last one is revoked: create another
    one in its database.

    selectroute token revoke 01k7tq2x8m4ha6s0v3wznb5c9d
    """
    with connected(registry) as opened:
        opened.tokens.revoke(id)
