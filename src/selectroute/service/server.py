"""The process that answers: binds, serves, and stops without breaking off what it is doing."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import uvicorn

from selectroute.registry.registry import Registry
from selectroute.selector.errors import SelectRouteError
from selectroute.service.app import QUEUE_MANAGER, create_app
from selectroute.service.callers import is_loopback
from selectroute.service.limits import ServiceLimits
from selectroute.service.protocol import Protocol

STOP_SECONDS: Final = 30
"""How long requests that are under way may take when the service is told to stop."""

_BACKLOG: Final = 2_048


class ServeError(SelectRouteError):
    """A service that cannot be started; the message says what to do."""


def serve(
    registry: Registry,
    host: str = "127.0.0.1",
    port: int = 8080,
    *,
    limits: ServiceLimits | None = None,
    snapshots: Path | None = None,
    queues: str | None = None,
    queue_manager: str = QUEUE_MANAGER,
    started: Callable[[str], None] = lambda _: None,
) -> None:
    """Serve a registry until the process is told to stop (SIGINT or SIGTERM).

    Args:
        registry: an open registry; it stays open.
        host: a name or address of this machine; without tokens only one that others cannot reach.
        port: 0 for any that is free.
        limits: what a request may hold.
        snapshots: the folder to which revisions are published; the registry's own by default.
        queues: the URL of the database of queues; the registry's own by default.
        queue_manager: the name under which all queues are found.
        started: called with the service's URL when it answers.

    Raises:
        ServeError: the host is open to others and there is no token, or it cannot be listened on.
        StoreError: the URL of the queues names no database that can be used, or that one refuses.
    """
    server = bound(
        registry,
        host,
        port,
        limits=limits,
        snapshots=snapshots,
        queues=queues,
        queue_manager=queue_manager,
        started=started,
    )
    server.run()


def bound(
    registry: Registry,
    host: str,
    port: int,
    *,
    limits: ServiceLimits | None = None,
    snapshots: Path | None = None,
    queues: str | None = None,
    queue_manager: str = QUEUE_MANAGER,
    started: Callable[[str], None] = lambda _: None,
) -> Server:
    """A server that listens and does not answer yet. See `serve`."""
    open_to_others = not is_loopback(host)
    if open_to_others and not registry.tokens():
        raise ServeError(
            f"without tokens the service is for this machine only, and {host} is open to others: "
            "listen on 127.0.0.1, or make a token with `selectroute token create`"
        )
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = _listening(host, port, family)
    except OSError as error:
        raise ServeError(f"{host}:{port} cannot be listened on: {error.strerror or error}") from error
    shown = f"[{host}]" if family is socket.AF_INET6 else host
    url = f"http://{shown}:{listening.getsockname()[1]}"
    app = create_app(
        registry,
        limits=limits,
        tokens_needed=open_to_others,
        snapshots=snapshots,
        queues=queues,
        queue_manager=queue_manager,
    )
    if queues is not None:
        app.state.service.queues.names()  # a URL of something else is said at once
    config = uvicorn.Config(
        app,
        lifespan="on",
        ws="none",
        http=Protocol,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=STOP_SECONDS,
    )
    return Server(config, listening, lambda: started(url), app.state.service.release)


def _listening(host: str, port: int, family: socket.AddressFamily) -> socket.socket:
    # The protocol is named: asyncio turns Nagle's algorithm off on no other socket, and each answer of more
    # than one write would wait 40 ms for the client's delayed acknowledgement.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(_BACKLOG)
    except BaseException:
        listening.close()
        raise
    return listening


class Server(uvicorn.Server):
    """Uvicorn's server on a socket of ours: waiting requests are answered when it stops, and stopping is no
    failure.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        listening: socket.socket,
        started: Callable[[], None],
        release: Callable[[], None],
    ) -> None:
        super().__init__(config)
        self._listening = listening
        self._started = started
        self._release = release

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer until told to stop."""
        super().run([self._listening] if sockets is None else sockets)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to answer, and say so."""
        await super().startup(sockets)
        if self.started:
            self._started()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop: who waits is answered now, what else is under way is completed."""
        self._release()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop on a signal, and do not raise it again as uvicorn does: the registry is closed after this."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {one: signal.signal(one, self.handle_exit) for one in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for one, handler in before.items():
                signal.signal(one, handler)
