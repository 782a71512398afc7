"""Program that serves moto's S3 on loopback: ``python moto_server.py DESCRIPTOR``, of a socket that listens.

Conditional writes are one after another here. moto compares the condition and writes in two steps, on a
thread for each request, so that two writers of one new object may both be told that they made it. S3 tells
one.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import make_server


class ConditionsInTurn:
    """A WSGI application in which one request with a condition on a write is answered at a time."""

    def __init__(self, application: Any) -> None:
        self._application = application
        self._turn = threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        """Answer a request."""
        written = environ["REQUEST_METHOD"] in ("PUT", "POST")
        if written and ("HTTP_IF_MATCH" in environ or "HTTP_IF_NONE_MATCH" in environ):
            with self._turn:
                return self._application(environ, start_response)
        return self._application(environ, start_response)


if __name__ == "__main__":
    make_server(
        "127.0.0.1",
        0,
        ConditionsInTurn(DomainDispatcherApplication(create_backend_app)),
        threaded=True,
        request_handler=MotoRequestHandler,
        fd=int(sys.argv[1]),
    ).serve_forever()
