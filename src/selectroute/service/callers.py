"""Who asks. What he may touch is said by ``registry.permission``."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from ipaddress import ip_address
from typing import Final

from selectroute.index.destination import QUEUE
from selectroute.registry.errors import AuthError
from selectroute.registry.permission import EVERYTHING, Permission
from selectroute.registry.registry import Registry
from selectroute.service.problems import ProblemError

OPEN_SECONDS: Final = 1.0
"""How long it may go unnoticed that the first token was made."""


class Role(IntEnum):
    """What a caller may do; each may do what the one before it may."""

    reader = 1
    writer = 2
    admin = 3


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks: a token, or anybody on this machine. `name` is the token's, None for anybody."""

    subject: str
    role: Role
    permission: Permission = EVERYTHING
    name: str | None = None

    @property
    def sees_all(self) -> bool:
        """Whether every subscription exists for the caller."""
        return self.permission.sees_all

    def sees(self, topic: str | None) -> bool:
        """Whether a subscription with this topic filter exists for the caller, see `Permission.sees`."""
        return self.permission.sees(topic)

    def check_all_topics(self, what: str) -> None:
        """Raise a problem, 403, if the caller may touch some topics only: `what` is not divided by them."""
        if not self.sees_all:
            allowed = ", ".join(one.text for one in self.permission.topics or ())
            raise ProblemError("forbidden", f"{what} for all topics, this one permits those within {allowed}")

    def check_unlimited(self, what: str) -> None:
        """Raise a problem, 403, if there is anything that the caller may not touch."""
        self.check_all_topics(what)
        if self.permission.is_limited:
            raise ProblemError("forbidden", f"{what} for all destinations, this one permits some only")

    def check_queue(self, name: str) -> None:
        """Raise a problem, 403, if the caller may not use this queue, whether there is one or not."""
        self.check_queues()
        if not self.permission.may_name(QUEUE, name):
            allowed = ", ".join(self.permission.queues or ())
            raise ProblemError("forbidden", f"the token permits the queues {allowed}")

    def check_queues(self) -> None:
        """Raise a problem, 403, if the caller may use no queue at all."""
        if self.permission.queues == ():
            raise ProblemError("forbidden", "queues need a token for all topics, or one made with --queue")


ANYBODY: Final = Caller("anybody", Role.admin)


class Callers:
    """Finds out who asks. Without any token everybody may do everything, if he is on this machine.

    Once there was a token, one is wanted, also when the last one is revoked: the registry keeps a mark.

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
            raise _unauthorised(
                "send Authorization: Bearer and a token of this registry; the command line takes it from "
                "SELECTROUTE_TOKEN"
            )
        scheme, _, secret = authorization.partition(" ")
        if scheme.lower() != "bearer" or not secret.strip():
            raise _unauthorised("the Authorization header is Bearer and a token")
        try:
            token = self._registry.authenticate(secret.strip())
        except AuthError:
            raise _unauthorised("this is no token of this registry, or no longer one") from None
        return Caller(f"token {token.id}", Role[token.role], Permission.of(token), token.name)

    def is_open(self) -> bool:
        """Whether callers without a token are let in."""
        with self._lock:
            now = self._clock()
            if not self.tokens_needed and (self._looked is None or now - self._looked >= OPEN_SECONDS):
                self._looked = now
                self.tokens_needed = self._registry.had_tokens()
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
