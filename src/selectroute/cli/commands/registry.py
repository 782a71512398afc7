"""``selectroute registry publish | verify | info``: the registry as a whole."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from selectroute.cli.connect import RegistryOption, connected, opened_database, registry_settings
from selectroute.cli.output import Output, OutputOption, progress
from selectroute.cli.stopping import stopping
from selectroute.selector.errors import SelectRouteError
from selectroute.selector.explain.sentences import counted, printable

app = typer.Typer(
    no_args_is_help=True, help="Publish a registry's revisions for streams; verify it; see what it holds."
)

SnapshotsOption = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="The folder to publish to; or SELECTROUTE_SNAPSHOTS. By default the registry's own, beside a "
        "SQLite database.",
        show_default=False,
    ),
]


@app.command()
def publish(
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on: publish each revision as soon as it is committed.")
    ] = False,
    snapshots: SnapshotsOption = None,
    output: OutputOption = Output.table,
    registry: RegistryOption = None,
) -> None:
    """Publish what is committed as a snapshot that streams pick up with their next batch.

    selectroute registry publish --registry sqlite:///subscriptions.db

    selectroute registry publish --follow --snapshots /srv/snapshots

    A service publishes by itself; this is for a registry without one. One process at a time publishes to a
    folder. With --follow, Ctrl-C or SIGTERM ends it with 0.
    """
    line = "ending after the revision that is being published; Ctrl-C again ends at once"
    with stopping(line) if follow else nullcontext() as stop, opened_database(registry, "publish") as opened:
        from sqlalchemy import make_url

        from selectroute.registry.publisher import RegistryPublisher

        folder = snapshots or registry_settings(registry)[1].snapshots
        with RegistryPublisher(opened, folder) as publisher:
            with progress("publishing"):
                revision = publisher.catch_up()
            count, place = len(publisher.snapshot), str(publisher.folder)
            if output is Output.table:
                print(f"revision {revision}: {counted(count, 'active subscription')} in {place}", flush=True)
            else:
                data = {"revision": revision, "subscriptions": count, "folder": place}
                print(json.dumps(data), flush=True)
            if stop is not None:
                source = make_url(opened.url).render_as_string(hide_password=True)
                print(
                    f"selectroute: publishing each revision of {source} to {place} as it is committed; "
                    "Ctrl-C ends it",
                    file=sys.stderr,
                    flush=True,
                )
                publisher.follow(stop.event, failed=_report)


@app.command()
def verify(output: OutputOption = Output.table, registry: RegistryOption = None) -> None:
    """Read a whole registry and compare it with its digests: the chain over the log, the tables with the log.

    selectroute registry verify --registry sqlite:///subscriptions.db

    The digest that is printed vouches for every change up to the revision: keep it elsewhere to be sure that
    nobody has written another history.
    """
    with opened_database(registry, "verify") as opened, progress("verifying") as advance:
        found = opened.verify(lambda done, _: advance(done))
    if output is Output.table:
        counts = f"{counted(found.changes, 'change')}, {counted(found.subscriptions, 'subscription')}"
        print(f"revision {found.revision}: {counts}, sound\ndigest {found.digest}")
    else:
        data = {"revision": found.revision, "changes": found.changes, "subscriptions": found.subscriptions}
        print(json.dumps({**data, "digest": found.digest}))


@app.command()
def info(output: OutputOption = Output.table, registry: RegistryOption = None) -> None:
    """Show the newest revision; of a database also how many subscriptions it has, and where it is published.

    selectroute registry info --registry http://127.0.0.1:8080
    """
    with connected(registry) as connection:
        data = connection.info()
    if output is not Output.table:
        print(json.dumps(data))
        return
    for name, value in data.items():
        shown = f"{value:,}" if name == "subscriptions" else "none set" if value is None else value
        print(f"{name:<14}{printable(str(shown), 2_000)}")


def _report(error: SelectRouteError) -> None:
    print(f"selectroute: {error}; trying again", file=sys.stderr, flush=True)
