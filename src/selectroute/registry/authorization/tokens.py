"""Bearer tokens: authentication, roles, and permitted topics and destinations. Only hashes are stored.

A pattern of destinations is matched against the whole name, case-sensitively: ``*`` stands for any number of
characters, including none, and ``?`` for one. ``CARS.*`` matches the queue ``CARS.EU.IN``, but not ``CARS``.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Final

from sqlalchemy import Connection, delete, insert, select

from selectroute.index.errors import InvalidSpecError
from selectroute.registry.authorization.role import Role, Token
from selectroute.registry.errors import AuthError, NotFoundError
from selectroute.registry.log.header_rows import read_setting, write_setting
from selectroute.registry.log.tables import token
from selectroute.registry.model import time_of, time_text
from selectroute.store.digests import row_digest
from selectroute.store.errors import DamagedError
from selectroute.topics.filter import InvalidTopicFilterError, TopicFilter

PREFIX: Final = "srt_"
"""Prefix of every secret, so that a leaked one is recognised."""

_SECRET: Final = re.compile(PREFIX + "[A-Za-z0-9_-]{43}")

_QUEUE_PATTERN: Final = re.compile("[A-Za-z0-9./_%*?]{1,48}")
_TOPIC_PATTERN: Final = re.compile("[A-Za-z0-9._*?-]{1,249}")

_HAD_TOKENS: Final = "had-tokens"
"""Setting that records that a token existed; never unset."""


def add_token(
    connection: Connection,
    id: str,
    role: str,
    topics: Iterable[str],
    queues: Iterable[str],
    kafka: Iterable[str],
    name: str | None,
) -> tuple[Token, str]:
    """Create a token; return the token and its secret, 256 random bits that are not stored."""
    if role not in list(Role):
        raise InvalidSpecError("/role", "a role must be reader, writer or admin")
    given = tuple(topics)
    for index, one in enumerate(given):
        try:
            TopicFilter.parse(one)
        except InvalidTopicFilterError as error:
            raise InvalidSpecError(f"/topics/{index}", str(error)) from error
    own_queues = _patterns(queues, "queues", _QUEUE_PATTERN, "1 to 48 of A-Z a-z 0-9 . / _ % * ?")
    own_kafka = _patterns(kafka, "kafka", _TOPIC_PATTERN, "1 to 249 of A-Z a-z 0-9 . _ - * ?")
    own_name = id if name is None else name
    made = Token(id, own_name, Role(role), given, datetime.now(UTC), own_queues, own_kafka)
    secret = PREFIX + secrets.token_urlsafe(32)
    row = {
        "id": made.id,
        "name": made.name,
        "role": made.role.value,
        "topics": json.dumps(given),
        "hash": _hash(secret),
        "created": time_text(made.created),
        "queues": json.dumps(own_queues),
        "kafka": json.dumps(own_kafka),
    }
    connection.execute(insert(token), {**row, "seal": row_digest(*row.values())})
    if not had_tokens(connection):
        write_setting(connection, _HAD_TOKENS, "yes")
    return made, secret


def _patterns(given: Iterable[str], field: str, allowed: re.Pattern[str], letters: str) -> tuple[str, ...]:
    """Check patterns and return them: the allowed characters admit no special ones but * and ?."""
    found = tuple(given)
    for index, one in enumerate(found):
        if not allowed.fullmatch(one):
            raise InvalidSpecError(f"/{field}/{index}", f"a pattern must be {letters}")
    return found


def had_tokens(connection: Connection) -> bool:
    """Return whether a token exists or ever existed: then every caller needs one, even if all are revoked."""
    return read_setting(connection, _HAD_TOKENS) is not None


def tokens(connection: Connection) -> list[Token]:
    """Return all tokens, the oldest first."""
    return [_token(row) for row in connection.execute(select(token).order_by(token.c.id))]


def revoke_token(connection: Connection, id: str) -> None:
    """Remove a token. Raises `NotFoundError`."""
    if not connection.execute(delete(token).where(token.c.id == id)).rowcount:
        raise NotFoundError(f"there is no token {id!r}")


def authenticate(connection: Connection, secret: str) -> Token:
    """Return the token of a secret. Raises `AuthError`."""
    if _SECRET.fullmatch(secret):
        hashed = _hash(secret)
        row = connection.execute(select(token).where(token.c.hash == hashed)).one_or_none()
        # The index lookup by hash leaks nothing about the secret; the comparison takes constant time.
        if row is not None and hmac.compare_digest(row.hash, hashed):
            return _token(row)
    raise AuthError("not the secret of a token")


def token_seal(row: Any) -> bytes:
    """Return the seal of a row of the table ``token``."""
    return row_digest(row.id, row.name, row.role, row.topics, row.hash, row.created, row.queues, row.kafka)


def _token(row: Any) -> Token:
    if row.seal != token_seal(row):
        raise DamagedError(f"the table token is damaged in the row of {row.id!r}")
    topics, queues, kafka = (tuple(json.loads(text)) for text in (row.topics, row.queues, row.kafka))
    return Token(row.id, row.name, Role(row.role), topics, time_of(row.created), queues, kafka)


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
