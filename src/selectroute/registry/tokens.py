"""Bearer tokens: who may call, what they may do, and which topics they may touch. Only hashes are stored."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final

from sqlalchemy import Connection, delete, insert, select

from selectroute.registry.errors import AuthError, InvalidSpecError, NotFoundError
from selectroute.registry.model import time_of, time_text
from selectroute.registry.tables import token
from selectroute.store.digests import sealed
from selectroute.store.errors import DamagedError
from selectroute.topics.filter import InvalidTopicFilterError, TopicFilter

PREFIX: Final = "srt_"
"""What a secret begins with, so that it is known for one where it should not be."""

_SECRET: Final = re.compile(PREFIX + "[A-Za-z0-9_-]{43}")


class Role(StrEnum):
    """What a token may do: read; change subscriptions as well; everything."""

    READER = "reader"
    WRITER = "writer"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class Token:
    """A token without its secret. Without topics it may touch every subscription."""

    id: str
    name: str
    role: Role
    topics: tuple[str, ...]
    created: datetime

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "id": self.id,
            "name": self.name,
            "role": self.role.value,
            "topics": list(self.topics),
            "created": time_text(self.created),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Token:
        """The inverse of `to_json`; other fields are left alone. Raises KeyError, TypeError, ValueError."""
        topics = tuple(map(str, data["topics"]))
        created = time_of(data["created"])
        return cls(str(data["id"]), str(data["name"]), Role(data["role"]), topics, created)


def add_token(
    connection: Connection, id: str, role: str, topics: Iterable[str], name: str | None
) -> tuple[Token, str]:
    """A new token and its secret, 256 random bits that are told this once."""
    if role not in list(Role):
        raise InvalidSpecError("/role", "a role is reader, writer or admin")
    given = tuple(topics)
    for index, one in enumerate(given):
        try:
            TopicFilter.parse(one)
        except InvalidTopicFilterError as error:
            raise InvalidSpecError(f"/topics/{index}", str(error)) from error
    made = Token(id, id if name is None else name, Role(role), given, datetime.now(UTC))
    secret = PREFIX + secrets.token_urlsafe(32)
    row = {
        "id": made.id,
        "name": made.name,
        "role": made.role.value,
        "topics": json.dumps(given),
        "hash": _hash(secret),
        "created": time_text(made.created),
    }
    connection.execute(insert(token), {**row, "seal": sealed(*row.values())})
    return made, secret


def tokens(connection: Connection) -> list[Token]:
    """All tokens, the oldest first."""
    return [_token(row) for row in connection.execute(select(token).order_by(token.c.id))]


def revoke_token(connection: Connection, id: str) -> None:
    """Remove a token. Raises `NotFoundError`."""
    if not connection.execute(delete(token).where(token.c.id == id)).rowcount:
        raise NotFoundError(f"there is no token {id!r}")


def authenticate(connection: Connection, secret: str) -> Token:
    """The token of a secret. Raises `AuthError`."""
    if _SECRET.fullmatch(secret):
        hashed = _hash(secret)
        row = connection.execute(select(token).where(token.c.hash == hashed)).one_or_none()
        # The index found it by its hash, of which a guess tells nothing; the comparison itself takes the
        # same time whatever it compares.
        if row is not None and hmac.compare_digest(row.hash, hashed):
            return _token(row)
    raise AuthError("this is no token's secret")


def token_seal(row: Any) -> bytes:
    """The seal of a row of the table ``token``."""
    return sealed(row.id, row.name, row.role, row.topics, row.hash, row.created)


def _token(row: Any) -> Token:
    if row.seal != token_seal(row):
        raise DamagedError(f"the table token is damaged in the row of {row.id!r}")
    return Token(row.id, row.name, Role(row.role), tuple(json.loads(row.topics)), time_of(row.created))


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
