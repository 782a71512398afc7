"""Authorization of callers: the subscriptions that each may read and change.

Every write of a client of a service passes `Permission.check_stored` with the specification that the
registry is about to store, and `Permission.check_known` in the same transaction. So the checked and the
stored specification cannot differ, and a revoked token has no effect. ``role`` has the roles of callers,
``tokens`` keeps hashes of the secrets.
"""

from __future__ import annotations

import getpass
import os
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from typing import Final

from sqlalchemy import Connection, bindparam, delete, func, select

from selectroute.index.destination import KAFKA, NOWHERE, QUEUE, topic_and_grouping
from selectroute.index.specification import SubscriptionSpec
from selectroute.registry.errors import AuthError, ForbiddenError
from selectroute.registry.log.tables import creator, subscription, token
from selectroute.registry.role import Token
from selectroute.topics.filter import TopicFilter

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
        """Return the permission of a token. A token limited in any way may name only destinations of its own
        patterns; without patterns, none at all.
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
        """Return whether a subscription with this topic filter is visible: one of the caller's filters covers
        it. Without a filter it matches every topic, and is visible only to callers without a limit on topics.

        Raises `InvalidTopicFilterError` for text that is not a topic filter.
        """
        if self.topics is None:
            return True
        return topic is not None and any(permitted.covers(_parsed(topic)) for permitted in self.topics)

    def may_name(self, kind: str, name: str | None) -> bool:
        """Return whether the caller may use this destination of deliveries, or the queue of this name. The
        grouping of a topic's records is not limited.
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
