"""A service that listens on a port of this machine, in a thread of the tests, with its console."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from selectroute.registry.registry import Registry
from selectroute.service.app import QUEUE_MANAGER, create_app
from selectroute.service.console.console import WithConsole


@contextmanager
def served(registry: Registry, port: int = 0, **options: Any) -> Iterator[str]:
    """Serve a registry; gives the URL."""
    listening = socket.create_server(("127.0.0.1", port))
    app = WithConsole(create_app(registry, **options), QUEUE_MANAGER)
    config = uvicorn.Config(app, log_config=None, access_log=False, timeout_graceful_shutdown=5)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        while not server.started and thread.is_alive():
            time.sleep(0.01)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
        listening.close()
