"""HTTP/1.1 as uvicorn speaks it with h11; what is no HTTP is refused with a problem document too."""

from __future__ import annotations

import uuid
from typing import cast

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from selectroute.service.problems import ProblemError


class Protocol(H11Protocol):
    """A connection. The application never sees a request that cannot be read."""

    def send_400_response(self, msg: str) -> None:
        """Refuse what was received, and close; in the midst of an answer only that."""
        cycle = cast(RequestResponseCycle | None, self.cycle)  # none before the first request
        if cycle is None or cycle.response_complete or not cycle.response_started:
            answer = ProblemError("invalid-request", "this is no HTTP request").response(str(uuid.uuid4()))
            head = [(b"connection", b"close"), (b"cache-control", b"no-store"), *answer.raw_headers]
            lines = b"".join(b"%s: %s\r\n" % one for one in head)
            self.transport.write(b"HTTP/1.1 400 Bad Request\r\n" + lines + b"\r\n" + bytes(answer.body))
        self.transport.close()
