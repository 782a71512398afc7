"""``selectroute serve``: serves a registry over HTTP and publishes its revisions for streams."""

from __future__ import annotations

import os
import re
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated, Final

import typer

from selectroute.cli.connect import RegistryOption, is_service, registry_settings

if TYPE_CHECKING:
    from selectroute.job_output import JobOutput

_VERIFIED_ROWS: Final = 20_000
"""Rows of the largest registry that is verified before it is served, in about a second."""


def serve(
    registry: RegistryOption = None,
    host: Annotated[
        str | None,
        typer.Option(
            help="The address to listen on; without tokens a loopback address.",
            show_default="127.0.0.1",
        ),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65_535, help="The port; 0 for any free port.", show_default="8080"),
    ] = None,
    snapshots: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="The folder in which revisions are published: a path or a URL.",
            show_default="next to a SQLite database",
        ),
    ] = None,
    queues: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="The database of queues, if not the registry's. Or SELECTROUTE_QUEUES.",
            show_default="the registry's",
        ),
    ] = None,
    queue_manager: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="The name of the service's queue manager.", show_default="selectroute"
        ),
    ] = None,
    job: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=OUTPUT",
            help="A job whose dead letters the service shows and has replayed, and its output folder. Can be "
            "given several times.",
            show_default=False,
        ),
    ] = None,
    log_level: Annotated[
        str | None, typer.Option(help="debug, info, warning or error.", show_default="info")
    ] = None,
    log: Annotated[
        str | None,
        typer.Option(
            help="text, or json: one JSON object per event.", show_default="text on a terminal, else json"
        ),
    ] = None,
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

    from selectroute.cli.settings import Settings, settings_of
    from selectroute.registry.registry import Registry
    from selectroute.service.app import create_app
    from selectroute.service.limits import ServiceLimits
    from selectroute.service.logs import FORMS, LEVELS, configure
    from selectroute.service.server import bind_address, bound

    class ServeSettings(Settings, env_nested_delimiter="__"):
        host: str = "127.0.0.1"
        port: int = 8080
        log_level: str = "info"
        log: str | None = None
        limits: ServiceLimits = ServiceLimits()

    given = settings_of(
        ServeSettings,
        host=host,
        port=port,
        snapshots=snapshots,
        queues=queues,
        queue_manager=queue_manager,
        log_level=log_level,
        log=log,
    )
    if given.queues is not None and is_service(given.queues):
        raise typer.BadParameter("the URL must be that of a database", param_hint="--queues")
    if given.log_level not in LEVELS:
        raise typer.BadParameter(f"the log level must be one of {', '.join(LEVELS)}")
    if given.log is not None and given.log not in FORMS:
        raise typer.BadParameter("must be text or json", param_hint="--log")
    jobs = _jobs(job or [])
    configure(given.log_level, given.log)
    # The port first: if it is taken, no database is created.
    with ExitStack() as held:
        place = held.enter_context(bind_address(given.host, given.port))
        opened = held.enter_context(Registry.open(url, limits=given.limits.of_selectors, verify=False))
        if verify and opened.rows <= _VERIFIED_ROWS:
            opened.verify()
        needed = "needed" if opened.tokens.had_any() else "none"
        where = make_url(opened.url).render_as_string(hide_password=True)
        app = create_app(
            opened,
            limits=given.limits,
            snapshots=given.snapshots or opened.snapshots_folder,  # raises if no folder is set
            queues=given.queues,
            queue_manager=given.queue_manager,
            jobs=jobs,
        )
        server = bound(
            app,
            given.host,
            given.port,
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


def _jobs(given: list[str]) -> dict[str, JobOutput]:
    """Return the output folders of the jobs in ``NAME=OUTPUT``. A job that follows a service starts after it:
    a folder that is not there yet is told, and no error. Raises BadParameter, JobError.
    """
    if not given:
        return {}
    from selectroute.spark.serving.job_folder import JobFolder

    found: dict[str, JobOutput] = {}
    for one in given:
        name, equals, output = one.partition("=")
        if not equals or not output or not re.fullmatch("[A-Za-z0-9._-]{1,128}", name):
            raise typer.BadParameter(
                f"write NAME=OUTPUT, with a name of letters, digits, . _ and -, not {one!r}",
                param_hint="--job",
            )
        if name in found:
            raise typer.BadParameter(f"there are two jobs of the name {name!r}", param_hint="--job")
        found[name] = folder = JobFolder(output)
        if not folder.has_run():
            print(f"selectroute: the job {name} has not run yet: {output} is empty", file=sys.stderr)
    return found
