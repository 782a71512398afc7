"""Permissions of callers, checked on the stored specification, in the transaction that stores it.

Every write of a client of a service passes `Permission.check_stored` with the specification that the registry
is about to store, and `Permission.check_known` in the same transaction. So the checked and the stored
specification cannot differ, and a revoked token has no effect.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Final

from sqlalchemy import Connection, bindparam, select

from selectroute.index.destination import KAFKA, NOWHERE, QUEUE, topic_and_grouping
from selectroute.index.specification import SubscriptionSpec
from selectroute.registry.authorization.tokens import Token
from selectroute.registry.errors import AuthError, ForbiddenError
from selectroute.registry.log.tables import token
from selectroute.topics.filter import TopicFilter

_KNOWN: Final = select(token.c.id).where(token.c.id == bindparam("given_id"))


@dataclass(frozen=True, slots=True)
class Permission:
    """Subscriptions, topics and destinations that a caller may use. Without arguments: all.

    Args:
        topics: the filters within which a subscription's topic filter must be; None for all.
        queues: patterns of the queues that may be named and used; None for all.
        kafka: patterns of the Kafka topics that may be named; None for all.
        token: the id of the token, which must not be revoked; None for a permission without a token.
    """

    topics: tuple[TopicFilter, ...] | None = None
    queues: tuple[str, ...] | None = None
    kafka: tuple[str, ...] | None = None
    token: str | None = None

    @classmethod
    def of(cls, token: Token) -> Permission:
        """Return the permission of a token. A token limited in any way may name only destinations of its own
        patterns; without patterns, none at all.
        """
        topics = tuple(map(_parsed, token.topics)) if token.topics else None
        if topics is None and not token.queues and not token.kafka:
            return cls(token=token.id)
        return cls(topics, token.queues, token.kafka, token.id)

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
        return topic is not None and any(one.covers(_parsed(topic)) for one in self.topics)

    def may_name(self, kind: str, name: str | None) -> bool:
        """Return whether the caller may use this destination of deliveries, or the queue of this name. The
        grouping of a topic's records is not limited.
        """
        if kind == NOWHERE or not self.is_limited:
            return True
        patterns = {QUEUE: self.queues, KAFKA: self.kafka}.get(kind, ())
        if kind == KAFKA and name is not None:
            name, _ = topic_and_grouping(name)
        return patterns is None or (name is not None and any(fnmatchcase(name, one) for one in patterns))

    def check_stored(self, new: SubscriptionSpec) -> None:
        """Check a specification before it is stored. Raises `ForbiddenError`, `InvalidTopicFilterError`."""
        if not self.is_limited:
            return
        if not self.sees(new.topic):
            allowed = ", ".join(one.text for one in self.topics or ())
            raise ForbiddenError("/topic", f"the token permits only topic filters within {allowed}")
        kind, name = new.destination.kind, new.destination.name
        if not self.may_name(kind, name):
            patterns = [f"queue:{one}" for one in self.queues or ()]
            patterns += [f"kafka:{one}" for one in self.kafka or ()]
            allowed = ", ".join(patterns) or "none"
            raise ForbiddenError("/destination", f"the token permits only these destinations: {allowed}")

    def check_known(self, connection: Connection) -> None:
        """Check that the token is not revoked. Raises `AuthError`."""
        if self.token is None:
            return
        if connection.execute(_KNOWN, {"given_id": self.token}).scalar() is None:
            raise AuthError("the token was revoked during the request")


EVERYTHING: Final = Permission()
"""Permission of a process with direct access to the database."""


@lru_cache(maxsize=4_096)
def _parsed(topic: str) -> TopicFilter:
    return TopicFilter.parse(topic)
