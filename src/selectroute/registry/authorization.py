"""Authorization of callers: bearer tokens, and the subscriptions that each caller may read and change.

Of a token's secret only the hash is stored; ``role`` has the roles of callers. A pattern of destinations is
matched against the whole name, case-sensitively: ``*`` stands for any number of characters, including none,
and ``?`` for one. ``CARS.*`` matches the queue ``CARS.EU.IN``, but not ``CARS``.

Every write of a client of a service passes `Permission.check_stored` with the specification that the
registry is about to store, and `Permission.check_known` in the same transaction. So the checked and the
stored specification cannot differ, and a revoked token has no effect.
"""

from __future__ import annotations

import getpass
import hashlib
import hmac
import json
import os
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from typing import Any, Final

from sqlalchemy import Connection, bindparam, delete, func, insert, select

from selectroute.index.destination import KAFKA, NOWHERE, QUEUE, topic_and_grouping
from selectroute.index.errors import InvalidSpecError
from selectroute.index.specification import SubscriptionSpec
from selectroute.registry.errors import AuthError, ForbiddenError, NotFoundError
from selectroute.registry.log.rows import read_setting, write_setting
from selectroute.registry.log.tables import creator, row_seal, subscription, token
from selectroute.registry.model import new_id, time_of, time_text
from selectroute.registry.role import Role, Token
from selectroute.store.engine import Store, row_digest
from selectroute.store.errors import DamagedError
from selectroute.topics.filter import InvalidTopicFilterError, TopicFilter

_KNOWN: Final = select(token.c.id).where(token.c.id == bindparam("given_id"))
_OF_TOKEN: Final = creator.c.token == bindparam("of_token")
_HELD: Final = select(func.count()).select_from(creator).where(_OF_TOKEN)
_FORGET_REMOVED: Final = delete(creator).where(
    _OF_TOKEN,
    creator.c.id.not_in(select(subscription.c.id)),
    creator.c.id.not_in(bindparam("pending", expanding=True)),
)


@dataclass(frozen=True, slots=True)
class Permission:
    """Subscriptions, topics and destinations that a caller may use. Without arguments: all.

    Args:
        topics: the filters within which a subscription's topic filter must be; None for all.
        queues: patterns of the queues that may be named and used; None for all.
        kafka: patterns of the Kafka topics that may be named; None for all.
        token: the id of the token, which must not be revoked; None for a permission without a token.
        actor: who changes something, for the log; None for the user of this process.
        quota: the most subscriptions that the token may have added; None for any number.
    """

    topics: tuple[TopicFilter, ...] | None = None
    queues: tuple[str, ...] | None = None
    kafka: tuple[str, ...] | None = None
    token: str | None = None
    actor: str | None = None
    quota: int | None = None

    @classmethod
    def of(cls, token: Token, quota: int | None = None) -> Permission:
        """Return the permission of a token.

        A token limited in any way may name only destinations of its own patterns; without patterns,
        none at all.
        """
        topics = tuple(map(_parsed, token.topics)) if token.topics else None
        actor = f"token {token.id}" if token.name == token.id else f"token {token.id} ({token.name})"
        if topics is None and not token.queues and not token.kafka:
            return cls(token=token.id, actor=actor, quota=quota)
        return cls(topics, token.queues, token.kafka, token.id, actor, quota)

    @property
    def is_limited(self) -> bool:
        """True if any subscription, topic or destination is forbidden."""
        return not (self.topics is None and self.queues is None and self.kafka is None)

    @property
    def sees_all(self) -> bool:
        """True if every subscription is visible to the caller."""
        return self.topics is None

    def sees(self, topic: str | None) -> bool:
        """Return whether a subscription with this topic filter is visible: a filter of the caller covers it.

        Without a filter it matches every topic, and is visible only to callers without a limit on
        topics.

        Raises `InvalidTopicFilterError` for text that is not a topic filter.
        """
        if self.topics is None:
            return True
        return topic is not None and any(permitted.covers(_parsed(topic)) for permitted in self.topics)

    def may_name(self, kind: str, name: str | None) -> bool:
        """Return whether the caller may use this destination of deliveries, or the queue of this name.

        The grouping of a topic's records is not limited.
        """
        if kind == NOWHERE or not self.is_limited:
            return True
        patterns = {QUEUE: self.queues, KAFKA: self.kafka}.get(kind, ())
        if kind == KAFKA and name is not None:
            name, _ = topic_and_grouping(name)
        return patterns is None or (
            name is not None and any(fnmatchcase(name, pattern) for pattern in patterns)
        )

    def check_stored(self, new: SubscriptionSpec) -> None:
        """Check a specification before it is stored. Raises `ForbiddenError`, `InvalidTopicFilterError`."""
        if not self.is_limited:
            return
        if not self.sees(new.topic):
            allowed = ", ".join(permitted.text for permitted in self.topics or ())
            raise ForbiddenError("/topic", f"the token permits only topic filters within {allowed}")
        kind, name = new.destination.kind, new.destination.name
        if not self.may_name(kind, name):
            patterns = [f"queue:{pattern}" for pattern in self.queues or ()]
            patterns += [f"kafka:{pattern}" for pattern in self.kafka or ()]
            allowed = ", ".join(patterns) or "none"
            raise ForbiddenError("/destination", f"the token permits only these destinations: {allowed}")

    def check_known(self, connection: Connection) -> None:
        """Check that the token is not revoked. Raises `AuthError`."""
        if self.token is None:
            return
        if connection.execute(_KNOWN, {"given_id": self.token}).scalar() is None:
            raise AuthError("the token was revoked during the request")

    def check_quota(self, connection: Connection, added: int, pending: list[str]) -> None:
        """Check that the token may add so many subscriptions. Raises `ForbiddenError`.

        O(quota). `pending` are the ids of subscriptions that the transaction has not written yet.
        """
        assert self.quota is not None
        of_token = {"of_token": self.token}
        if connection.execute(_HELD, of_token).scalar_one() + added <= self.quota:
            return
        connection.execute(_FORGET_REMOVED, {**of_token, "pending": pending})
        held = connection.execute(_HELD, of_token).scalar_one()
        if held + added > self.quota:
            raise ForbiddenError(
                "", f"a token may have {self.quota:,} subscriptions, and this one has {held:,}: remove some"
            )


EVERYTHING: Final = Permission()
"""Permission of a process with direct access to the database."""


@cache
def local_user() -> str:
    """Return the user of this process, as the log names who made a change."""
    try:
        return f"user {getpass.getuser()}"
    except (KeyError, OSError):  # a container's user may have no name
        return f"user {os.getuid()}"


@lru_cache(maxsize=4_096)
def _parsed(topic: str) -> TopicFilter:
    return TopicFilter.parse(topic)


PREFIX: Final = "srt_"
"""Prefix of every secret, so that a leaked one is recognised."""

_SECRET: Final = re.compile(PREFIX + "[A-Za-z0-9_-]{43}")

_QUEUE_PATTERN: Final = re.compile("[A-Za-z0-9./_%*?]{1,48}")
_TOPIC_PATTERN: Final = re.compile("[A-Za-z0-9._*?-]{1,249}")

_HAD_TOKENS: Final = "had-tokens"
"""Setting that records that a token existed; never unset."""


class Tokens:
    """Tokens of a registry.

    What changes them takes the caller's permission, `by`, and raises `AuthError` if the caller's token is
    revoked in the meantime.
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
        """Return whether a token ever existed: then every caller needs one, even if all are revoked."""
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
