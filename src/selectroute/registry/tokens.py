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

from sqlalchemy import delete, insert, select

from selectroute.index.errors import InvalidSpecError
from selectroute.registry.authorization import EVERYTHING, Permission
from selectroute.registry.errors import AuthError, NotFoundError
from selectroute.registry.log.rows import read_setting, write_setting
from selectroute.registry.log.tables import row_seal, token
from selectroute.registry.model import new_id, time_of, time_text
from selectroute.registry.role import Role, Token
from selectroute.store.engine import Store, row_digest
from selectroute.store.errors import DamagedError
from selectroute.topics.filter import InvalidTopicFilterError, TopicFilter

PREFIX: Final = "srt_"
"""Prefix of every secret, so that a leaked one is recognised."""

_SECRET: Final = re.compile(PREFIX + "[A-Za-z0-9_-]{43}")

_QUEUE_PATTERN: Final = re.compile("[A-Za-z0-9./_%*?]{1,48}")
_TOPIC_PATTERN: Final = re.compile("[A-Za-z0-9._*?-]{1,249}")

_HAD_TOKENS: Final = "had-tokens"
"""Setting that records that a token existed; never unset."""


class Tokens:
    """Tokens of a registry. What changes them takes the caller's permission, `by`, and raises `AuthError` if
    the caller's token is revoked in the meantime.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def add(
        self,
        role: str,
        *,
        topics: Iterable[str] = (),
        queues: Iterable[str] = (),
        kafka: Iterable[str] = (),
        name: str | None = None,
        by: Permission = EVERYTHING,
    ) -> tuple[Token, str]:
        """Create a token; return the token and its secret, 256 random bits that are not stored.

        Args:
            role: reader, writer or admin.
            topics: the filters within which the token may use subscriptions; without any, all.
            queues: patterns of queues (``CARS.*``) that the token may use and its subscriptions may name.
            kafka: patterns of Kafka topics that its subscriptions may name. A token with topics but without
                patterns may not name any destination.
            name: the purpose of the token; its id by default.
            by: the caller's permission.
        """
        if role not in list(Role):
            raise InvalidSpecError("/role", "a role must be reader, writer or admin")
        filters = tuple(topics)
        for index, topic in enumerate(filters):
            try:
                TopicFilter.parse(topic)
            except InvalidTopicFilterError as error:
                raise InvalidSpecError(f"/topics/{index}", str(error)) from error
        own_queues = _patterns(queues, "queues", _QUEUE_PATTERN, "1 to 48 of A-Z a-z 0-9 . / _ % * ?")
        own_kafka = _patterns(kafka, "kafka", _TOPIC_PATTERN, "1 to 249 of A-Z a-z 0-9 . _ - * ?")
        id = new_id()
        own_name = id if name is None else name
        added = Token(id, own_name, Role(role), filters, datetime.now(UTC), own_queues, own_kafka)
        secret = PREFIX + secrets.token_urlsafe(32)
        row = {
            "id": added.id,
            "name": added.name,
            "role": added.role.value,
            "topics": json.dumps(filters),
            "hash": _hash(secret),
            "created": time_text(added.created),
            "queues": json.dumps(own_queues),
            "kafka": json.dumps(own_kafka),
        }
        with self._store.writing() as connection:
            by.check_known(connection)
            connection.execute(insert(token), {**row, "seal": row_digest(*row.values())})
            if read_setting(connection, _HAD_TOKENS) is None:
                write_setting(connection, _HAD_TOKENS, "yes")
        return added, secret

    def had_any(self) -> bool:
        """Return whether a token exists or ever existed: then every caller needs one, even if all are
        revoked.
        """
        with self._store.reading() as connection:
            return read_setting(connection, _HAD_TOKENS) is not None

    def all(self) -> list[Token]:
        """Return all tokens, the oldest first."""
        with self._store.reading() as connection:
            return [_token(row) for row in connection.execute(select(token).order_by(token.c.id))]

    def revoke(self, id: str, *, by: Permission = EVERYTHING) -> None:
        """Remove a token. Raises `NotFoundError`."""
        with self._store.writing() as connection:
            by.check_known(connection)
            if not connection.execute(delete(token).where(token.c.id == id)).rowcount:
                raise NotFoundError(f"there is no token {id!r}")

    def authenticate(self, secret: str) -> Token:
        """Return the token of a secret. Raises `AuthError`."""
        if _SECRET.fullmatch(secret):
            hashed = _hash(secret)
            with self._store.reading() as connection:
                row = connection.execute(select(token).where(token.c.hash == hashed)).one_or_none()
            # The index lookup by hash leaks nothing about the secret; the comparison takes constant time.
            if row is not None and hmac.compare_digest(row.hash, hashed):
                return _token(row)
        raise AuthError("not the secret of a token")


def _patterns(values: Iterable[str], field: str, allowed: re.Pattern[str], letters: str) -> tuple[str, ...]:
    """Check patterns and return them: the allowed characters admit no special ones but * and ?."""
    patterns = tuple(values)
    for index, pattern in enumerate(patterns):
        if not allowed.fullmatch(pattern):
            raise InvalidSpecError(f"/{field}/{index}", f"a pattern must be {letters}")
    return patterns


def _token(row: Any) -> Token:
    if row.seal != row_seal(row):
        raise DamagedError(f"the table token is damaged in the row of {row.id!r}")
    topics, queues, kafka = (tuple(json.loads(text)) for text in (row.topics, row.queues, row.kafka))
    return Token(row.id, row.name, Role(row.role), topics, time_of(row.created), queues, kafka)


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
