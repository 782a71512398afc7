"""Connections of kafka-python, with a reading and writing of megabytes that copies them once, and logins that
are stricter.

kafka-python joins what it receives from pieces of 4 KiB, and copies a response five more times until its
bytes are in a field. Here the rest of a long response is received where it stays, and a long field is a view
of it.
"""

from __future__ import annotations

import ssl
from typing import Any, Final

import kafka.errors as codes
from kafka.net.manager import KafkaConnectionManager
from kafka.net.sasl import register_sasl_mechanism
from kafka.net.sasl.scram import SaslMechanismScram, ScramClient
from kafka.protocol.frame import KafkaBytes

from selectroute.kafka.client.oauth import is_loopback
from selectroute.kafka.client.settings import PLAINTEXT_CREDENTIALS

_PIECE: Final = 1 << 16
_LONG: Final = 1 << 16
"""Bytes that are received at a time of short responses; and from which on a field is a view (no text is as
long)."""

_FEWEST_ITERATIONS: Final = 4096
"""Iterations of SCRAM below which Java's client refuses, too: a false broker could ask for a proof that is
cheap to guess the password by."""

_SAFE_IN_PLAINTEXT: Final = ("GSSAPI",)


class _ScramClient(ScramClient):  # type: ignore[misc]  # it has no types
    def create_salted_password(self, salt: bytes, iterations: int) -> None:
        if iterations < _FEWEST_ITERATIONS:
            raise codes.SaslAuthenticationFailedError(
                f"the broker asks for {iterations} iterations of SCRAM, fewer than {_FEWEST_ITERATIONS:,}"
            )
        super().create_salted_password(salt, iterations)


class _Scram(SaslMechanismScram):  # type: ignore[misc]  # it has no types
    def __init__(self, **config: Any) -> None:
        super().__init__(**config)
        self._scram_client = _ScramClient(
            config["sasl_plain_username"], config["sasl_plain_password"], config["sasl_mechanism"]
        )


for _name in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
    register_sasl_mechanism(_name, _Scram, overwrite=True)


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

    Passwords and tokens go unencrypted to this machine only, unless ``allow_plaintext_credentials`` is set.
    """

    def __init__(self, net: Any, *, allow_plaintext_credentials: bool = False, **settings: Any) -> None:
        super().__init__(net, **settings)
        self._allows_plaintext = (
            allow_plaintext_credentials
            or self.config["security_protocol"] != "SASL_PLAINTEXT"
            or self.config["sasl_mechanism"] in _SAFE_IN_PLAINTEXT
        )

    def is_connected(self, node: int | str) -> bool:
        """Return whether there is a connection to a node."""
        connection = self._conns.get(node)
        return connection is not None and connection.connected

    async def _build_transport(self, node: Any, timeout_at: float | None = None) -> Any:
        if not self._allows_plaintext and not is_loopback(node.host):
            raise codes.SaslAuthenticationFailedError(
                f"SASL_PLAINTEXT would send the login to {node.host} unencrypted: use SASL_SSL, or, in a "
                f"network that is trusted, set {PLAINTEXT_CREDENTIALS}=true"
            )
        transport = await super()._build_transport(node, timeout_at=timeout_at)

        def receive() -> tuple[bytes, Exception | None]:
            return _received(transport._sock, getattr(transport.get_protocol(), "parser", None))

        def write(data: Any) -> None:
            # Over TLS, kafka-python would copy the rest of a request for each 16 KiB that are sent.
            type(transport).write(transport, memoryview(data))

        transport._sock_recv, transport.write = receive, write
        return transport


def is_whole(answer: Any, version: int) -> bool:
    """Return whether an answer has all texts and arrays that Kafka's protocol asks for: kafka-python decodes
    any null as None, also a UUID of zeros and a set of rights that is not told.
    """
    for name, field in answer.fields.items():
        value = getattr(answer, name)
        if value is None:
            may_lack = field.tag is not None or field.type_str in ("uuid", "bitfield")
            may_lack |= field.nullable_for_version_q(version) or not field.for_version_q(version)
            if not may_lack:
                return False
        elif field.is_struct_array() and not all(is_whole(part, version) for part in value):
            return False
    return True


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
