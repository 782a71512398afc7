"""Process of a service: binds, serves, and stops without breaking off what it is doing."""

from __future__ import annotations

import asyncio
import errno
import gc
import resource
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Final

import uvicorn

from selectroute.registry.loopback import is_loopback
from selectroute.registry.registry import Registry
from selectroute.selector.errors import SelectRouteError
from selectroute.service.app import QUEUE_MANAGER, create_app
from selectroute.service.http.protocol import AcceptErrors, Protocol
from selectroute.service.limits import ServiceLimits
from selectroute.service.logs import log
from selectroute.service.stopping import Stop

STOP_SECONDS: Final = 30
"""How long requests that are under way may take when the service is told to stop."""

_BACKLOG: Final = 2_048

_ACCEPTED: Final = 64
"""Connections that are accepted before others have their turn. Where none can be, asyncio tries as often
at once, and reports each time.
"""

_SWITCH_SECONDS: Final = 0.0002
"""How long one thread of Python keeps the others waiting. A request needs its turn some fifty times: beside a
thread that computes, Python's own 5 ms would make 250 of them.
"""

_FILES: Final = 65_536
"""Open files: a connection is one, and 1,024 is what a shell mostly gives."""


_ADVICE: Final = {
    errno.EADDRINUSE: "choose another --port",
    errno.EACCES: "choose a --port from 1024 on",
    errno.EADDRNOTAVAIL: "choose another --host, which is an address of this machine",
}


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
    place: socket.socket | None = None,
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
        place: the socket of `taken_place`, to bind the port before the registry is opened.

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
        place=place,
    )
    server.run()


def taken_place(host: str, port: int) -> socket.socket:
    """Return a socket that is bound to this address, on which nobody is answered yet. Raises ServeError."""
    # The protocol is named: asyncio turns Nagle's algorithm off on no other socket, and each answer of more
    # than one write would wait 40 ms for the client's delayed acknowledgement.
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    place = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        place.bind((host, port))
    except OSError as error:
        place.close()
        raise _not_listened(host, port, error) from error
    return place


def _not_listened(host: str, port: int, error: OSError) -> ServeError:
    advice = _ADVICE.get(error.errno or 0)
    sentence = f"{host}:{port} cannot be listened on: {error.strerror or error}"
    return ServeError(sentence if advice is None else f"{sentence}: {advice}")


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
    place: socket.socket | None = None,
) -> Server:
    """Make a server that listens and does not answer yet. See `serve`."""
    open_to_others = not is_loopback(host)
    if open_to_others and not registry.had_tokens():
        raise ServeError(
            f"without tokens the service is for this machine only, and {host} is open to others: "
            "listen on 127.0.0.1, or make a token with `selectroute token create`"
        )
    listening = taken_place(host, port) if place is None else place
    try:
        listening.listen(_BACKLOG)
    except OSError as error:  # another process was bound to it at the same time
        listening.close()
        raise _not_listened(host, port, error) from error
    shown = f"[{host}]" if listening.family is socket.AF_INET6 else host
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
        backlog=_ACCEPTED,
        timeout_graceful_shutdown=STOP_SECONDS,
    )
    return Server(config, listening, lambda: started(url), app.state.service.release)


def _raise_file_limit() -> None:
    """Let this process have as many open files as it may have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES if hard == resource.RLIM_INFINITY else min(hard, _FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _not_accepted(reason: str, count: int) -> None:
    log().error("connections cannot be accepted", reason=reason, times=count)


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
        self._stop = Stop(self._exit)

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer until told to stop."""
        _raise_file_limit()
        before = sys.getswitchinterval()
        sys.setswitchinterval(min(before, _SWITCH_SECONDS))
        try:
            super().run([self._listening] if sockets is None else sockets)
        finally:
            sys.setswitchinterval(before)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to answer, and say so."""
        asyncio.get_running_loop().set_exception_handler(AcceptErrors(_not_accepted, time.monotonic))
        await super().startup(sockets)
        self._listening.listen(_BACKLOG)  # asyncio took `_ACCEPTED` for that, too
        if self.started:
            gc.freeze()  # modules and routes stay: the collector would stop all threads to look at them
            self._started()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop after what is under way; at once when asked again later. What is committed stays, and what is
        not was not acknowledged.
        """
        self._stop.handle(sig, frame)

    def _exit(self) -> None:
        self.should_exit = True

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
