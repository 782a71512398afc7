"""Connection of a command to its registry: settings, database or service."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Annotated, Final

import typer

from selectroute.cli.output import progress

if TYPE_CHECKING:
    from selectroute.cli.settings import Settings
    from selectroute.client import SubscriptionRegistry
    from selectroute.client.queues import RemoteQueues
    from selectroute.client.registry import RemoteRegistry
    from selectroute.index.match_report import SnapshotMatcher
    from selectroute.queues.sql.queue import SqlQueues
    from selectroute.registry.registry import Registry
    from selectroute.selector.limits import Limits

    Matcher = SnapshotMatcher | RemoteRegistry

RegistryOption = Annotated[
    str | None,
    typer.Option("--registry", metavar="URL", help="A database or a service; see `selectroute --help`."),
]


_SNAPSHOTS: Final = "--snapshots"

SnapshotsOption = Annotated[
    str | None,
    typer.Option(
        _SNAPSHOTS, help="A snapshot folder, a path or a URL, instead of a registry.", metavar="FOLDER"
    ),
]


def registry_settings(registry: str | None, instead: str = "") -> tuple[str, Settings]:
    """Return the URL of the registry and all settings. Raises BadParameter without a URL, with the name of an
    option that could be used ``instead``.
    """
    return _settings_of("registry", instead, registry=registry)


def _settings_of(name: str, instead: str = "", **options: str | None) -> tuple[str, Settings]:
    from selectroute.cli.settings import Settings, config_file, settings_of

    settings = settings_of(Settings, **options)
    url: str | None = getattr(settings, name) or settings.registry
    if url is None:
        option = f"--{name} or {instead}" if instead else f"--{name}"
        raise typer.BadParameter(
            f"give {option}, or set SELECTROUTE_{name.upper()}, or `{name}` in {config_file()[0]}",
            param_hint=f"--{name}",
        )
    return url, settings


def _service(url: str, settings: Settings) -> RemoteRegistry:
    from selectroute.client.registry import connect

    token = None if settings.token is None else settings.token.get_secret_value()
    return connect(url, token=token, timeout_seconds=settings.timeout)


def _database(url: str, create: bool = False) -> Registry:
    from selectroute.registry.registry import Registry

    return Registry.open(url, create=create, limits=selector_limits(), verify=False)


def connected(registry: str | None, *, create: bool = False, instead: str = "") -> SubscriptionRegistry:
    """Open the registry. A missing database is created only with `create`; rows are checked against their
    digests as they are read, all of them only by `registry verify`. For ``instead`` see `registry_settings`.
    """
    url, settings = registry_settings(registry, instead)
    return _service(url, settings) if is_service(url) else _database(url, create)


@contextmanager
def opened_queues(queues: str | None, manager: str | None = None) -> Iterator[SqlQueues | RemoteQueues]:
    """Open the queues of a command, in a database or of a service, which have the same methods."""
    url, settings = _settings_of("queues", queues=queues, queue_manager=manager)
    if is_service(url):
        with _service(url, settings) as service:
            yield service.queues(
                settings.queue_manager, warn=lambda text: typer.echo(f"warning: {text}", err=True)
            )
    else:
        from selectroute.queues.sql.queue import SqlQueues

        with SqlQueues(url) as opened:
            yield opened


def opened_database(registry: str | None, what: str) -> Registry:
    """Open the registry, which must be a database: a service does not support `what`."""
    url, _ = registry_settings(registry)
    if is_service(url):
        raise typer.BadParameter(
            f"{what} needs the database itself; {url.partition('://')[0]}:// is a service",
            param_hint="--registry",
        )
    return _database(url)


def selector_limits() -> Limits:
    """Return the limits of selectors registered in a database: the setting `limits`, as for `serve`."""
    from selectroute.cli.settings import LimitSettings, settings_of

    return settings_of(LimitSettings).limits.of_selectors


def is_service(url: str) -> bool:
    """Return whether a URL names a service."""
    return url.lower().startswith(("http://", "https://"))


@contextmanager
def matching(registry: str | None, snapshots: str | None) -> Iterator[Matcher]:
    """Open a matcher of many messages: of a snapshot folder, or of a registry, which is indexed."""
    if snapshots is not None:
        yield _of_snapshot(snapshots, registry)
        return
    with connected(registry, instead=_SNAPSHOTS) as connection:
        with progress("indexing") as advance:
            matcher = connection.matcher(advance)
        yield matcher


def explaining(
    registry: str | None, snapshots: str | None
) -> AbstractContextManager[SnapshotMatcher | SubscriptionRegistry]:
    """Open a snapshot folder or a registry, which explains single subscriptions."""
    if snapshots is None:
        return connected(registry, instead=_SNAPSHOTS)
    return nullcontext(_of_snapshot(snapshots, registry))


def _of_snapshot(folder: str, registry: str | None) -> SnapshotMatcher:
    if registry is not None:
        raise typer.BadParameter("give --snapshots or --registry, not both", param_hint=_SNAPSHOTS)
    from selectroute.index.match_report import SnapshotMatcher
    from selectroute.index.snapshot import Snapshot

    snapshot = Snapshot.open(folder)
    return SnapshotMatcher(snapshot, snapshot.revision)
