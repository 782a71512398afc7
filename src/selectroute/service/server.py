"""Process of a service: binds, serves, and shuts down gracefully."""

from __future__ import annotations

import asyncio
import errno
import gc
import resource
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from types import FrameType
from typing import Final

import uvicorn
from starlette.types import ASGIApp

from selectroute.loopback import is_loopback
from selectroute.selector.errors import SelectRouteError
from selectroute.service.app import Application
from selectroute.service.context import Service
from selectroute.service.http.protocol import AcceptErrors, Protocol
from selectroute.service.logs import log
from selectroute.service.stopping import Stop, handled

STOP_SECONDS: Final = 30
"""Longest time that running requests may take after the service is asked to stop."""

_BACKLOG: Final = 2_048

_ACCEPTED: Final = 64
"""Connections that are accepted in one turn of the event loop. If accepting fails, asyncio tries as often in
a row, and reports each failure.
"""

_SWITCH_SECONDS: Final = 0.0002
"""Interval of Python's thread switches. A request needs the GIL some fifty times: next to a computing thread,
Python's default of 5 ms would add 250 ms.
"""

_GC_THRESHOLD: Final = 5_000
"""New objects after which Python's garbage collector looks at them. Its default of 700 is met by 30 requests,
and what these still need is looked at again and again: a twentieth of the time of changes.
"""

_FILES: Final = 65_536
"""Limit of open files: each connection is one, and the usual limit of a shell is 1,024."""


_ADVICE: Final = {
    errno.EADDRINUSE: "choose another --port",
    errno.EACCES: "choose a --port from 1024 on",
    errno.EADDRNOTAVAIL: "choose a --host that is an address of this machine",
}


class ServeError(SelectRouteError):
    """Failure to start a service; the message says what to do."""


def bind_address(host: str, port: int) -> socket.socket:
    """Return a socket that is bound to this address and not listening yet. Raises ServeError."""
    # With an explicit protocol, or asyncio would leave Nagle's algorithm on: each response of more than one
    # write would wait 40 ms for the client's delayed acknowledgement.
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
    app: Application,
    host: str,
    port: int,
    *,
    started: Callable[[str], None] = lambda _: None,
    place: socket.socket | None = None,
) -> Server:
    """Create a server of an application that listens; its `run` serves until the process is asked to stop
    (SIGINT or SIGTERM).

    Args:
        app: the application; its registry stays open.
        host: a name or address of this machine; without tokens only a loopback one.
        port: 0 for any free port.
        started: called with the service's URL once it answers.
        place: the socket of `bind_address`, to bind the port before the registry is opened.

    Raises:
        ServeError: the host is not loopback and there is no token, or listening fails.
    """
    service: Service = app.state.service
    if not is_loopback(host):
        if not service.registry.tokens.had_any():
            raise ServeError(
                f"without tokens the service is for this machine only, but other machines can reach {host}: "
                "listen on 127.0.0.1, or create a token with `selectroute token create`"
            )
        service.callers.tokens_needed = True
    listening = bind_address(host, port) if place is None else place
    try:
        listening.listen(_BACKLOG)
    except OSError as error:  # another process bound it at the same time
        listening.close()
        raise _not_listened(host, port, error) from error
    shown = f"[{host}]" if listening.family is socket.AF_INET6 else host
    url = f"http://{shown}:{listening.getsockname()[1]}"
    config = uvicorn.Config(
        _with_console(app, service.queue_manager),
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
    return Server(config, listening, lambda: started(url), service)


def _with_console(app: Application, queue_manager: str) -> ASGIApp:
    """Return the application with the console, if what that needs is installed."""
    if find_spec("jinja2") is None:
        return app
    from selectroute.service.console.console import WithConsole

    return WithConsole(app, queue_manager)


def _raise_file_limit() -> None:
    """Raise this process's limit of open files to `_FILES`, within the hard limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES if hard == resource.RLIM_INFINITY else min(hard, _FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


@contextmanager
def _tuned() -> Iterator[None]:
    """Tune thread switches and the garbage collector while serving."""
    interval, thresholds = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(min(interval, _SWITCH_SECONDS))
    gc.set_threshold(max(thresholds[0], _GC_THRESHOLD), *thresholds[1:])
    try:
        yield
    finally:
        sys.setswitchinterval(interval)
        gc.set_threshold(*thresholds)


def _not_accepted(reason: str, count: int) -> None:
    log().error("connections cannot be accepted", reason=reason, times=count)


class Server(uvicorn.Server):
    """Uvicorn's server on a given socket: waiting requests are answered when it stops, and a stop by signal
    is not an error.
    """

    def __init__(
        self, config: uvicorn.Config, listening: socket.socket, started: Callable[[], None], service: Service
    ) -> None:
        super().__init__(config)
        self._listening = listening
        self._started = started
        self._service = service
        self._stop = Stop(self._exit)

    @property
    def is_publishing(self) -> bool:
        """True while a thread publishes, which may be after the server has stopped."""
        return self._service.publishing.is_running

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until asked to stop."""
        _raise_file_limit()
        with _tuned():
            super().run([self._listening] if sockets is None else sockets)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start serving, then call `started`."""
        asyncio.get_running_loop().set_exception_handler(AcceptErrors(_not_accepted, time.monotonic))
        await super().startup(sockets)
        self._listening.listen(_BACKLOG)  # asyncio used `_ACCEPTED` as the backlog
        if self.started:
            gc.freeze()  # modules and routes stay: the garbage collector would stop all threads to scan them
            self._started()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop after the running requests; at once on a later second signal. Committed changes are durable,
        others were not acknowledged.
        """
        self._stop.handle(sig, frame)

    def _exit(self) -> None:
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop: answer waiting requests now, complete all other running ones."""
        self._service.release()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop on a signal without raising it again as uvicorn does: the registry is closed afterwards."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        with handled(self.handle_exit):
            yield
