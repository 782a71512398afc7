"""``selectroute broker``: JMS clients connect by AMQP 1.0."""

from __future__ import annotations

import asyncio
import ssl
import sys
from contextlib import ExitStack
from typing import Annotated

import typer

from selectroute.cli.connect import RegistryOption, is_service, registry_settings


def broker(
    registry: RegistryOption = None,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65_535, help="The port; 0 for any free port.")] = 5_672,
    queues: Annotated[
        str | None, typer.Option(metavar="URL", help="The database of queues, if not the registry's.")
    ] = None,
    snapshots: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="The folder in which revisions are published, by default next to a SQLite database.",
        ),
    ] = None,
    certificate: Annotated[
        str | None, typer.Option(metavar="FILE", help="The certificate for TLS, in PEM with its chain.")
    ] = None,
    key: Annotated[
        str | None, typer.Option(metavar="FILE", help="The private key, if not in the certificate's file.")
    ] = None,
) -> None:
    """Serve JMS clients over AMQP 1.0 until stopped (Ctrl-C, SIGTERM): topics with selectors, and queues.

    selectroute broker --registry sqlite:///subscriptions.db

    selectroute broker --registry sqlite:///subscriptions.db --host 0.0.0.0 --certificate broker.pem

    A client is a Qpid JMS client, with amqp://127.0.0.1:5672 as its URL. A token's secret is the password;
    without any token, every user of this machine may do everything.
    """
    url, _ = registry_settings(registry)
    for value, option in ((url, "--registry"), (queues, "--queues")):
        if value is not None and is_service(value):
            raise typer.BadParameter("a broker uses a database, not a service", param_hint=option)
    from selectroute.broker.accounts import Accounts
    from selectroute.broker.durable import DurableSubscriptions
    from selectroute.broker.server import BrokerServer
    from selectroute.loopback import is_loopback
    from selectroute.queues.sql.queue import SqlQueues
    from selectroute.registry.registry import Registry
    from selectroute.service.server import bind_address
    from selectroute.service.subscriptions.publishing import Publishing
    from selectroute.storage import Location

    is_local = is_loopback(host)
    if not is_local and certificate is None:
        raise typer.BadParameter(
            "other machines can reach this address, so that passwords need TLS: give --certificate",
            param_hint="--host",
        )
    tls = None
    if certificate is not None:
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        try:
            tls.load_cert_chain(certificate, key)
        except (OSError, ssl.SSLError) as error:
            raise typer.BadParameter(
                f"{certificate} cannot be read: {error}", param_hint="--certificate"
            ) from error
    with ExitStack() as held:
        listening = held.enter_context(bind_address(host, port))
        opened = held.enter_context(Registry.open(url, verify=False))
        database = held.enter_context(SqlQueues(queues or opened.url))
        publishing = Publishing(opened, None if snapshots is None else Location.of(snapshots))
        publishing.start()
        held.callback(publishing.stop)
        durable = DurableSubscriptions(opened, database, publishing)
        server = BrokerServer(database, durable, Accounts(opened.tokens, is_open=is_local))
        where = f"{'amqps' if tls else 'amqp'}://{host}:{listening.getsockname()[1]}"
        tokens = "none" if server.accounts.admits_anybody else "needed"

        def started() -> None:
            print(
                f"selectroute: {where} serves JMS clients, tokens: {tokens}; Ctrl-C ends it",
                file=sys.stderr,
                flush=True,
            )

        asyncio.run(server.serve(listening, tls, started))
