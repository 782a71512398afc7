"""``selectroute serve``: serves a registry over HTTP and publishes its revisions for streams."""

from __future__ import annotations

import os
import re
import sys
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Final

import typer

from selectroute.cli.connect import RegistryOption, is_service, registry_settings
from selectroute.cli.options import takes_options
from selectroute.job_options import option

if TYPE_CHECKING:
    from selectroute.job_output import JobOutput

_VERIFIED_ROWS: Final = 20_000
"""Rows of the largest registry that is verified before it is served, in about a second."""


@dataclass(frozen=True, kw_only=True)
class ServedOptions:
    """Options of where the service listens and of what it serves; each is a setting, too, with its default.

    Attributes:
        host: The address to listen on; without tokens a loopback address.
        port: The port; 0 for any free port.
        snapshots: The folder in which revisions are published: a path or a URL.
        queues: The database of queues, if not the registry's. Or SELECTROUTE_QUEUES.
        queue_manager: The name of the service's queue manager.
    """

    host: str | None = option(None, shown_default="127.0.0.1")
    port: int | None = option(None, range=(0, 65_535), shown_default="8080")
    snapshots: str | None = option(None, metavar="DIR", shown_default="next to a SQLite database")
    queues: str | None = option(None, metavar="URL", shown_default="the registry's")
    queue_manager: str | None = option(None, metavar="NAME", shown_default="selectroute")


@dataclass(frozen=True, kw_only=True)
class LogOptions:
    """Options of the service's log; each is a setting, too.

    Attributes:
        log_level: debug, info, warning or error.
        log: text, or json: one JSON object per event.
    """

    log_level: str | None = option(None, shown_default="info")
    log: str | None = option(None, shown_default="text on a terminal, else json")


@takes_options
def serve(
    *,
    registry: RegistryOption = None,
    served: ServedOptions,
    job: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=OUTPUT",
            help="A job whose dead letters the service shows and has replayed, and its output folder. Can be "
            "given several times.",
        ),
    ] = None,
    log: LogOptions,
    verify: Annotated[
        bool,
        typer.Option(
            help="Compare a registry of at most 20,000 rows with its digests first; a larger one only by "
            "`registry verify`."
        ),
    ] = True,
) -> None:
    """Serve a registry and queues over HTTP until stopped (Ctrl-C, SIGTERM), and publish the registry's
    revisions.

    selectroute serve --registry sqlite:///subscriptions.db

    selectroute serve --registry postgresql+psycopg://user@db/r --host 0.0.0.0 --snapshots /srv/snapshots

    selectroute serve --registry sqlite:///subscriptions.db --job flights=out

    With the extra `console`, a browser finds the console at /: subscriptions, who gets a message, queues.

    Without tokens every user of this machine may do everything, and no other machine can reach the service;
    `selectroute token create` creates one.

    Limits are settings: SELECTROUTE_LIMITS__PAGE=100, or a table `limits` in the TOML file, with the names in
    GET /v1/limits.
    """
    url, _ = registry_settings(registry)
    if is_service(url):
        raise typer.BadParameter("a service serves a database, not another service", param_hint="--registry")
    from sqlalchemy import make_url

    from selectroute.cli.settings import ServeSettings, settings_of
    from selectroute.registry.registry import Registry
    from selectroute.service.app import create_app
    from selectroute.service.logs import configure
    from selectroute.service.server import bind_address, bound

    settings = settings_of(ServeSettings, **asdict(served), **asdict(log))
    if settings.queues is not None and is_service(settings.queues):
        raise typer.BadParameter("the URL must be that of a database", param_hint="--queues")
    jobs = _jobs(job or [])
    configure(settings.log_level, settings.log)
    # The port first: if it is taken, no database is created.
    with ExitStack() as held:
        place = held.enter_context(bind_address(settings.host, settings.port))
        opened = held.enter_context(Registry.open(url, limits=settings.limits.of_selectors, verify=False))
        if verify and opened.rows <= _VERIFIED_ROWS:
            opened.verify()
        needed = "needed" if opened.tokens.had_any() else "none"
        where = make_url(opened.url).render_as_string(hide_password=True)
        app = create_app(
            opened,
            limits=settings.limits,
            snapshots=settings.snapshots or opened.snapshots_folder,  # raises if no folder is set
            queues=settings.queues,
            queue_manager=settings.queue_manager,
            jobs=jobs,
        )
        server = bound(
            app,
            settings.host,
            settings.port,
            started=lambda url: print(
                f"selectroute: {url} serves {where}, tokens: {needed}; Ctrl-C ends it",
                file=sys.stderr,
                flush=True,
            ),
            place=place,
        )
        server.run()
    if server.is_publishing:
        # A thread inside a library does not survive the end of the interpreter: that would be a crash.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def _jobs(texts: list[str]) -> dict[str, JobOutput]:
    """Return the output folders of the jobs in ``NAME=OUTPUT``. A missing folder is only reported, because a
    job may start after the service. Raises BadParameter, JobError.
    """
    if not texts:
        return {}
    from selectroute.spark.job_administration import JobFolder

    jobs: dict[str, JobOutput] = {}
    for job_text in texts:
        name, equals, output = job_text.partition("=")
        if not equals or not output or not re.fullmatch("[A-Za-z0-9._-]{1,128}", name):
            raise typer.BadParameter(
                f"write NAME=OUTPUT, with a name of letters, digits, . _ and -, not {job_text!r}",
                param_hint="--job",
            )
        if name in jobs:
            raise typer.BadParameter(f"there are two jobs of the name {name!r}", param_hint="--job")
        jobs[name] = folder = JobFolder(output)
        if not folder.has_run():
            print(f"selectroute: the job {name} has not run yet: {output} is empty", file=sys.stderr)
    return jobs
