"""Callers of the service: token and role. ``registry.authorization`` decides what a caller may use."""

from __future__ import annotations

import base64
import threading
import time
from dataclasses import dataclass
from typing import Final

from selectroute.index.destination import QUEUE
from selectroute.registry.authorization import EVERYTHING, Permission
from selectroute.registry.errors import AuthError
from selectroute.registry.registry import Registry
from selectroute.registry.role import Role
from selectroute.service.http.problems import ProblemError

OPEN_SECONDS: Final = 1.0
"""Longest delay until the creation of the first token is noticed."""

_BASIC: Final = "basic"
_CHALLENGE: Final = 'Basic realm="selectroute", Bearer realm="selectroute"'
"""Basic is first: Java's HTTP client reads the first scheme of a header only."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Caller: a token, or any process on this machine. `name` is the token's, None without a token."""

    subject: str
    role: Role
    permission: Permission = EVERYTHING
    name: str | None = None

    @property
    def sees_all(self) -> bool:
        """True if every subscription is visible to the caller."""
        return self.permission.sees_all

    def sees(self, topic: str | None) -> bool:
        """Return whether a subscription with this topic filter is visible, see `Permission.sees`."""
        return self.permission.sees(topic)

    def check_all_topics(self, what: str) -> None:
        """Raise a problem, 403, if the caller is limited to some topics: `what` concerns all of them."""
        if not self.sees_all:
            allowed = ", ".join(topic.text for topic in self.permission.topics or ())
            raise ProblemError("forbidden", f"{what} for all topics, this one permits those within {allowed}")

    def check_unlimited(self, what: str) -> None:
        """Raise a problem, 403, if the caller is limited in any way."""
        self.check_all_topics(what)
        if self.permission.is_limited:
            raise ProblemError("forbidden", f"{what} for all destinations, this one permits only some")

    def check_queue(self, name: str) -> None:
        """Raise a problem, 403, if the caller may not use this queue, whether it exists or not."""
        self.check_queues()
        if not self.permission.may_name(QUEUE, name):
            allowed = ", ".join(self.permission.queues or ())
            raise ProblemError("forbidden", f"the token permits only the queues {allowed}")

    def check_queues(self) -> None:
        """Raise a problem, 403, if the caller may not use any queue."""
        if self.permission.queues == ():
            raise ProblemError("forbidden", "queues need a token for all topics, or one made with --queue")


ANYBODY: Final = Caller("anybody", Role.admin, Permission(actor="anybody"))


class Callers:
    """Authentication of callers. Without any token, every process on this machine may do everything.

    Once a token was created, every caller needs one, even after all are revoked: the registry records it.

    Args:
        tokens_needed: require tokens in any case: the service listens on more than the loopback.
        quota: the most subscriptions that one token may have added; None for any number.
    """

    def __init__(self, registry: Registry, tokens_needed: bool, quota: int | None = None) -> None:
        self._registry = registry
        self._quota = quota
        self._lock = threading.Lock()
        self._looked: float | None = None
        self.tokens_needed = tokens_needed

    def caller(self, authorization: str | None) -> Caller:
        """Return the caller of this Authorization header. Raises a problem, 401.

        Clients of IBM MQ send HTTP Basic: the password is the token, the user is ignored. Where no token is
        needed, Basic is ignored.
        """
        is_basic = sent_by_browsers(authorization)
        if (authorization is None or is_basic) and self.is_open():
            return ANYBODY
        if authorization is None:
            raise _unauthorised(
                "send Authorization: Bearer and a token of this registry, or Basic with the token as the "
                "password; the command line reads it from SELECTROUTE_TOKEN"
            )
        scheme, _, secret = authorization.partition(" ")
        secret = _password(secret) if is_basic else secret.strip()
        if not secret or (not is_basic and scheme.lower() != "bearer"):
            raise _unauthorised(
                "the Authorization header must be Bearer and a token, or Basic with a token as the password"
            )
        try:
            token = self._registry.tokens.authenticate(secret)
        except AuthError:
            raise _unauthorised("unknown or revoked token") from None
        return Caller(f"token {token.id}", token.role, Permission.of(token, self._quota), token.name)

    def is_known_open(self) -> bool:
        """Return whether callers without a token are admitted for now, without reading the registry."""
        looked = self._looked
        return not self.tokens_needed and looked is not None and time.monotonic() - looked < OPEN_SECONDS

    def is_open(self) -> bool:
        """Return whether callers without a token are admitted."""
        with self._lock:
            if not self.tokens_needed and not self.is_known_open():
                now = time.monotonic()
                self.tokens_needed = self._registry.tokens.had_any()
                self._looked = now  # last: `is_known_open` reads without the lock
            return not self.tokens_needed


def sent_by_browsers(authorization: str | None) -> bool:
    """Return whether an Authorization header is Basic, which a browser adds to requests of any site."""
    return authorization is not None and authorization.partition(" ")[0].lower() == _BASIC


def _password(credentials: str) -> str:
    """Return the password of HTTP Basic (RFC 7617); empty if there is none."""
    try:
        text = base64.b64decode(credentials.strip(), validate=True).decode()
    except ValueError:
        return ""
    return text.partition(":")[2]


def _unauthorised(detail: str) -> ProblemError:
    return ProblemError("unauthorised", detail, headers={"WWW-Authenticate": _CHALLENGE})
