"""Who asks, and what he may touch."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from ipaddress import ip_address
from typing import Final

from selectroute.registry.errors import AuthError
from selectroute.registry.registry import Registry
from selectroute.service.problems import ProblemError
from selectroute.topics.filter import TopicFilter

OPEN_SECONDS: Final = 1.0
"""How long it may go unnoticed that the first token was made."""


class Role(IntEnum):
    """What a caller may do; each may do what the one before it may."""

    reader = 1
    writer = 2
    admin = 3


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks: a token, or anybody on this machine. `topics` are the filters that he may touch, None for
    all.
    """

    subject: str
    role: Role
    topics: tuple[TopicFilter, ...] | None = None

    def sees(self, topic: str | None) -> bool:
        """Whether a subscription with this topic filter exists for the caller: one of his filters takes every
        topic of it. One without a filter takes every topic, so it is seen by those who may touch all.
        """
        if self.topics is None:
            return True
        return topic is not None and any(one.covers(_parsed(topic)) for one in self.topics)

    def check_all_topics(self, what: str) -> None:
        """Raise a problem, 403, if the caller may touch some topics only: `what` is not divided by them."""
        if self.topics is not None:
            allowed = ", ".join(one.text for one in self.topics)
            raise ProblemError("forbidden", f"{what} for all topics, this one permits those within {allowed}")

    def check_topic(self, topic: str | None, pointer: str = "/topic") -> None:
        """Raise a problem, 403, if the caller may not have a subscription with this topic filter.

        A filter that is none raises `InvalidTopicFilterError`.
        """
        if not self.sees(topic):
            allowed = ", ".join(one.text for one in self.topics or ())
            raise ProblemError(
                "forbidden", f"the token permits topic filters within {allowed}", place=pointer
            )


@lru_cache(maxsize=4_096)
def _parsed(topic: str) -> TopicFilter:
    return TopicFilter.parse(topic)


ANYBODY: Final = Caller("anybody", Role.admin)


class Callers:
    """Finds out who asks. Without any token everybody may do everything, if he is on this machine.

    Once there was a token, one is wanted until the service ends, also if the last one is revoked.

    Args:
        tokens_needed: tokens are wanted in any case: the service listens on more than the loopback.
    """

    def __init__(
        self, registry: Registry, tokens_needed: bool, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._registry = registry
        self._clock = clock
        self._lock = threading.Lock()
        self._looked: float | None = None
        self.tokens_needed = tokens_needed

    def caller(self, authorization: str | None) -> Caller:
        """Who sent this Authorization header. Raises a problem, 401."""
        if authorization is None:
            if self.is_open():
                return ANYBODY
            raise _unauthorised("send Authorization: Bearer and a token of this registry")
        scheme, _, secret = authorization.partition(" ")
        if scheme.lower() != "bearer" or not secret.strip():
            raise _unauthorised("the Authorization header is Bearer and a token")
        try:
            token = self._registry.authenticate(secret.strip())
        except AuthError:
            raise _unauthorised("this is no token of this registry, or no longer one") from None
        topics = tuple(map(_parsed, token.topics)) if token.topics else None
        return Caller(f"token {token.id}", Role[token.role], topics)

    def is_open(self) -> bool:
        """Whether callers without a token are let in."""
        with self._lock:
            now = self._clock()
            if not self.tokens_needed and (self._looked is None or now - self._looked >= OPEN_SECONDS):
                self._looked = now
                self.tokens_needed = bool(self._registry.tokens())
            return not self.tokens_needed


def _unauthorised(detail: str) -> ProblemError:
    return ProblemError("unauthorised", detail, headers={"WWW-Authenticate": "Bearer"})


def is_loopback(host: str) -> bool:
    """Whether a name or address is this machine's own.

    >>> is_loopback("localhost"), is_loopback("::1"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
