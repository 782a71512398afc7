"""Authentication of a client by SASL (AMQP 1.0, part 5, section 3): the mechanisms PLAIN and ANONYMOUS."""

from __future__ import annotations

from typing import Final, NamedTuple

from selectroute.amqp.errors import DECODE_ERROR, AmqpError
from selectroute.amqp.performatives import SaslInit

PLAIN: Final = "PLAIN"
ANONYMOUS: Final = "ANONYMOUS"

OK: Final = 0
REFUSED: Final = 1
FAILED: Final = 3
"""Codes of an outcome: `FAILED` if the server could not check the credentials."""


class Credentials(NamedTuple):
    """User and password of a client; no user if the mechanism is ANONYMOUS."""

    user: str | None
    password: str

    def __repr__(self) -> str:
        return f"Credentials(user={self.user!r})"


def credentials_of(init: SaslInit, mechanisms: tuple[str, ...]) -> Credentials:
    """Return the credentials of a client.

    Raises AmqpError for a mechanism that was not offered, and a malformed response (RFC 4616).
    """
    if init.mechanism not in mechanisms:
        raise AmqpError(DECODE_ERROR, f"the mechanism {init.mechanism!r:.40} was not offered")
    if init.mechanism == ANONYMOUS:
        return Credentials(None, "")
    try:
        _, user, password = (init.initial_response or b"").decode().split("\0")
    except ValueError:
        raise AmqpError(DECODE_ERROR, "a response of PLAIN is an identity, a user and a password") from None
    return Credentials(user, password)
