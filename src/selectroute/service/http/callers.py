"""Callers of the service: token and role, their limits (a token bucket for each, requests that run at the
same time, bodies being read), and encrypted cursors for those who may not see all subscriptions.
``registry.authorization`` decides what a caller may use.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import math
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Final
from weakref import WeakValueDictionary

from anyio import CapacityLimiter

from selectroute.index.destination import QUEUE
from selectroute.registry.authorization import EVERYTHING, Permission
from selectroute.registry.errors import AuthError
from selectroute.registry.log.change_log import no_cursor
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


# ---- limits of callers

REMEMBERED: Final = 10_000
"""Callers whose buckets are kept; the least recently seen one is forgotten, which fills its bucket."""


UNCOUNTED_BYTES: Final = 1 << 16
"""Bytes of each body that `OpenBodies` does not count, so that no caller can keep others from small ones."""


class Rates:
    """Token bucket of each caller: holds `burst` requests, refilled by `per_second`. Not thread-safe.

    >>> rates = Rates(per_second=10, burst=1, clock=lambda: 0.0)
    >>> rates.wait_seconds("a"), rates.wait_seconds("a"), rates.wait_seconds("b")
    (0, 1, 0)
    """

    def __init__(
        self, per_second: float | None, burst: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._per_second = per_second
        self._burst = burst
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait_seconds(self, caller: str) -> int:
        """Take one request from the caller's bucket; return 0, or whole seconds until there is one. O(1)."""
        if self._per_second is None:
            return 0
        now = self._clock()
        held, since = self._buckets.pop(caller, (float(self._burst), now))
        held = min(self._burst, held + (now - since) * self._per_second)
        taken = held >= 1
        self._buckets[caller] = (held - 1 if taken else held), now
        if len(self._buckets) > REMEMBERED:
            self._buckets.popitem(last=False)
        return 0 if taken else max(1, math.ceil((1 - held) / self._per_second))


class FairLimiter:
    """Limit of requests that run at the same time; a caller has at most half of them.

    Args:
        total: the most requests.
    """

    def __init__(self, total: int) -> None:
        self._total = total
        self._all = CapacityLimiter(total)
        self._each: WeakValueDictionary[str, CapacityLimiter] = WeakValueDictionary()

    @asynccontextmanager
    async def of(self, caller: str) -> AsyncIterator[None]:
        """Wait until a request of this caller may run, and run it as the block."""
        limiter = self._each.get(caller)
        if limiter is None:
            limiter = self._each[caller] = CapacityLimiter(max(1, self._total // 2))
        async with limiter, self._all:
            yield


class OpenBodies:
    """Bytes of the bodies of all requests in progress; a caller has at most half of them. Not thread-safe."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._all = 0
        self._each: Counter[str] = Counter()

    @contextmanager
    def of(self, caller: str) -> Iterator[Callable[[int], None]]:
        """Yield a function to call with the size of a growing body. It raises a problem, 503, if the limit is
        reached; the bytes are released at the end of the block.
        """
        held = 0

        def grow(size: int) -> None:
            nonlocal held
            more = size - UNCOUNTED_BYTES - held
            if more <= 0:
                return
            if self._all + more > self._limit or self._each[caller] + more > self._limit // 2:
                detail = "other large bodies are being received: retry"
                raise ProblemError("unavailable", detail, headers={"Connection": "close"})
            held += more
            self._all += more
            self._each[caller] += more

        try:
            yield grow
        finally:
            self._all -= held
            self._each[caller] -= held
            if not self._each[caller]:
                del self._each[caller]


# ---- cursors: one contains the last id of its page, which may be hidden from the caller

_TAG: Final = 16


class HiddenCursors:
    """Encryption of cursors that only the service of this registry can read and create.

    The tag, a MAC of the cursor, is also the input of its key stream: equal cursors are encrypted equally,
    and different ones never with the same stream (SIV, RFC 5297, with HMAC and SHAKE for AES).

    >>> cursors = HiddenCursors(lambda: "a registry's id")
    >>> cursors.read(cursors.hidden("MS4uYQ"))
    'MS4uYQ'

    Args:
        secret: returns a secret of the registry; called for the first cursor.
    """

    def __init__(self, secret: Callable[[], str]) -> None:
        self._secret = secret

    @cached_property
    def _key(self) -> bytes:
        return hashlib.sha256(b"selectroute cursors " + self._secret().encode()).digest()

    def hidden(self, cursor: str) -> str:
        """Encrypt a cursor."""
        plain = cursor.encode()
        tag = self._tag(plain)
        return base64.urlsafe_b64encode(tag + self._turned(plain, tag)).decode().rstrip("=")

    def read(self, text: str) -> str:
        """Decrypt a cursor. Raises `InvalidSpecError` for one that this service did not issue."""
        try:
            data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        except ValueError:
            raise no_cursor() from None
        tag, plain = data[:_TAG], self._turned(data[_TAG:], data[:_TAG])
        if not hmac.compare_digest(tag, self._tag(plain)):
            raise no_cursor()
        return plain.decode()

    def _tag(self, plain: bytes) -> bytes:
        return hmac.digest(self._key, plain, "sha256")[:_TAG]

    def _turned(self, data: bytes, tag: bytes) -> bytes:
        stream = hashlib.shake_256(self._key + tag).digest(len(data))
        return bytes(byte ^ other for byte, other in zip(data, stream, strict=True))
