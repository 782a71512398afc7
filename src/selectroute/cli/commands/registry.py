"""``selectroute registry publish | verify | info``: commands on a whole registry."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from typing import Annotated, Final

import typer

from selectroute.cli.connect import RegistryOption, connected, opened_database, registry_settings
from selectroute.cli.exits import stopping
from selectroute.cli.output import SHOWN, Output, OutputOption, print_result, progress
from selectroute.selector.errors import SelectRouteError
from selectroute.selector.sentences import counted, printable

app = typer.Typer(
    no_args_is_help=True, help="Publish a registry's revisions for streams, verify it, show its state."
)

_PAUSE_SECONDS: Final = 0.01
"""Longest pause between two publications: those who make the changes are other processes."""

SnapshotsOption = Annotated[
    str | None,
    typer.Option(
        metavar="DIR",
        help="The folder to publish to, a path or a URL; or SELECTROUTE_SNAPSHOTS. By default the registry's "
        "own, next to a SQLite database.",
    ),
]


@app.command()
def publish(
    follow: Annotated[
        bool, typer.Option("--follow", help="Keep running: publish each revision when it is committed.")
    ] = False,
    snapshots: SnapshotsOption = None,
    output: OutputOption = Output.table,
    registry: RegistryOption = None,
) -> None:
    """Publish committed changes as a snapshot, which streams use from their next batch on.

    selectroute registry publish --registry sqlite:///subscriptions.db

    selectroute registry publish --follow --snapshots /srv/snapshots

    For a registry without a service: `selectroute serve` publishes by itself. It does not while this command
    runs: then the service stands by, and takes over when the command ends. Only one process at a time can
    publish to a folder. With --follow, Ctrl-C or SIGTERM ends the command with exit code 0.
    """
    line = "ending after the current revision; Ctrl-C again ends at once"
    with stopping(line) if follow else nullcontext() as stop, opened_database(registry, "publish") as opened:
        from sqlalchemy import make_url

        from selectroute.registry.publisher import RegistryPublisher

        folder = snapshots or registry_settings(registry)[1].snapshots
        with RegistryPublisher(opened, folder) as publisher:
            with progress("publishing"):
                revision = publisher.catch_up()
            count, target = len(publisher.snapshot), str(publisher.folder)
            text = f"revision {revision}: {counted(count, 'active subscription')} in {target}"
            print_result(output, text, {"revision": revision, "subscriptions": count, "folder": target})
            if stop is not None:
                source = make_url(opened.url).render_as_string(hide_password=True)
                print(
                    f"selectroute: publishing each revision of {source} to {target} as it is committed; "
                    "Ctrl-C ends it",
                    file=sys.stderr,
                    flush=True,
                )
                publisher.follow(stop.event, failed=_report, pause_seconds=_PAUSE_SECONDS)


@app.command()
def verify(output: OutputOption = Output.table, registry: RegistryOption = None) -> None:
    """Compare a whole registry with its digests: the chain of the log, and the tables with the log.

    selectroute registry verify --registry sqlite:///subscriptions.db

    The printed digest covers every change up to the revision: store it elsewhere to detect a rewritten
    history.
    """
    with opened_database(registry, "verify") as opened, progress("verifying") as advance:
        verified = opened.verify(lambda done, _: advance(done))
    counts = f"{counted(verified.changes, 'change')}, {counted(verified.subscriptions, 'subscription')}"
    text = f"revision {verified.revision}: {counts}, sound\ndigest {verified.digest}"
    names = ("revision", "changes", "subscriptions", "digest")
    print_result(output, text, {name: getattr(verified, name) for name in names})


@app.command()
def info(output: OutputOption = Output.table, registry: RegistryOption = None) -> None:
    """Show the newest revision; for a database also the count of subscriptions and the snapshot folder.

    selectroute registry info --registry http://127.0.0.1:8080
    """
    with connected(registry) as connection:
        data = connection.info()
    lines = []
    for name, value in data.items():
        shown = f"{value:,}" if name == "subscriptions" else "none set" if value is None else value
        lines.append(f"{name:<14}{printable(str(shown), SHOWN)}")
    print_result(output, "\n".join(lines), data)


def _report(error: SelectRouteError) -> None:
    print(f"selectroute: {error}; trying again", file=sys.stderr, flush=True)
