"""Connections of kafka-python, with a reading and writing of megabytes that copies them once.

kafka-python joins what it receives from pieces of 4 KiB, and copies a response five more times until its
bytes are in a field. Here the rest of a long response is received where it stays, and a long field is a view
of it.
"""

from __future__ import annotations

import ssl
from typing import Any, Final

import kafka.errors as codes
from kafka.net.manager import KafkaConnectionManager
from kafka.protocol.frame import KafkaBytes

_PIECE: Final = 1 << 16
_LONG: Final = 1 << 16
"""Bytes that are received at a time of short responses; and from which on a field is a view (no text is as
long)."""


class Response(KafkaBytes):  # type: ignore[misc]  # it has no types
    """Bytes of a response, whose long fields are views."""

    def read(self, nbytes: int | None = None) -> Any:
        """Return the next bytes, or all that are left."""
        start = self.tell()
        stop = len(self) if nbytes is None else min(start + nbytes, len(self))
        self.seek(stop)
        found = memoryview(self)[start:stop]
        return found if stop - start >= _LONG else bytes(found)

    def receive(self, connected: Any) -> int:
        """Receive some more of the bytes from a socket, except for the last one; return how many."""
        start = self.tell()
        received = memoryview(self)[start:-1]
        count = int(connected.recv_into(received))
        self.seek(start + count)
        return count

    @property
    def lacks(self) -> int:
        """Number of bytes that were not received yet."""
        return len(self) - int(self.tell())


class Manager(KafkaConnectionManager):  # type: ignore[misc]  # it has no types
    """Connections that receive responses as `Response`, and do not lose what comes with the end of a stream,
    such as the reason of a refused login.
    """

    def is_connected(self, node: int | str) -> bool:
        """Return whether there is a connection to a node."""
        connection = self._conns.get(node)
        return connection is not None and connection.connected

    async def _build_transport(self, node: Any, timeout_at: float | None = None) -> Any:
        transport = await super()._build_transport(node, timeout_at=timeout_at)

        def receive() -> tuple[bytes, Exception | None]:
            return _received(transport._sock, getattr(transport.get_protocol(), "parser", None))

        def write(data: Any) -> None:
            # Over TLS, kafka-python would copy the rest of a request for each 16 KiB that are sent.
            type(transport).write(transport, memoryview(data))

        transport._sock_recv, transport.write = receive, write
        return transport


def _received(connected: Any, parser: Any) -> tuple[bytes, Exception | None]:
    """Receive what there is: into the response that has begun, else return it; with the error, if any.

    The last byte of a response is never received into it, so that the parser finds its end.
    """
    found: list[bytes] = []
    closed = codes.KafkaConnectionError("the broker closed the connection")
    try:
        while True:
            response = _begun(parser) if not found else None
            if response is not None and response.lacks > _LONG:
                if not response.receive(connected):
                    return b"", closed
                continue
            if not (data := connected.recv(_PIECE)):
                return b"".join(found), None if found else closed
            found.append(data)
            # The parser must see what begins with these bytes; but nobody is told of what TLS has buffered.
            if not isinstance(connected, ssl.SSLSocket) or not connected.pending():
                break
    except (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
        pass
    except OSError as problem:
        return b"".join(found), None if found else codes.KafkaConnectionError(str(problem))
    return b"".join(found), None


def _begun(parser: Any) -> Response | None:
    """Return the response that a parser has received in part."""
    if parser is None or not parser._receiving:
        return None
    begun = parser._rbuffer
    if not isinstance(begun, Response):
        response = Response(len(begun))
        response.write(begun[: begun.tell()])
        parser._rbuffer = begun = response
    return begun
