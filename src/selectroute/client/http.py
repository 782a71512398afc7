"""HTTP requests to a service and their responses: timeouts, retries, size limits."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, TypeVar

import httpx

from selectroute.loopback import is_loopback
from selectroute.registry.errors import RegistryError
from selectroute.registry.model import adapter_of
from selectroute.selector.limits import MAX_LINE_BYTES

MAX_ANSWER: Final = 64 << 20
"""Bytes of one response at most, unless a request sets another limit; a stream has no limit."""

ATTEMPTS: Final = 5
"""Attempts of a request at most."""

REFUSED_ATTEMPTS: Final = 3
"""Attempts at most while the service answers that it cannot serve the request now."""

_LATER: Final = frozenset({429, 503})
"""Status codes after which nothing was done and a retry is safe."""

_GATEWAY: Final = frozenset({502, 504})
"""Status codes of a proxy that lost the service: treated as a lost connection."""

_NOT_SENT: Final = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
"""Errors before any byte of the request was sent."""

_LONGEST_PAUSE_SECONDS: Final = 30.0

_T = TypeVar("_T")

Params = Mapping[str, str | int | Sequence[str] | None]
"""Query of a request; a parameter with several values is repeated, None leaves the parameter out."""


class ServiceUnreachableError(RegistryError):
    """Service that does not answer, or breaks off. `sent`: whether the request may have taken effect."""

    def __init__(self, url: str, reason: str, sent: bool) -> None:
        super().__init__(f"{url} does not answer: {reason}")
        self.sent = sent
        if sent:
            self.add_note("the connection was lost after the request was sent, which may have taken effect")


class Response(NamedTuple):
    """Response of a service; `repeated` if an earlier attempt was sent and lost its connection."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    repeated: bool = False

    def data(self, kind: type[_T]) -> _T:
        """Return the body, which is JSON of this type; other members are ignored. Raises ValueError."""
        data: _T = adapter_of(kind).validate_json(self.body, strict=True)
        return data


class HttpClient:
    """Pool of connections to one service. Thread-safe; `close` it."""

    def __init__(
        self,
        url: str,
        token: str | None,
        timeout_seconds: float,
        *,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.url = url
        self._sleep = sleep
        headers = {"Accept": "application/json", "User-Agent": "selectroute"}
        if token is not None:
            if not (token.isascii() and token.isprintable()):
                raise RegistryError("the token has invalid characters: copy the secret again")
            headers["Authorization"] = f"Bearer {token}"
        self._client = httpx.Client(
            base_url=_checked(url),
            headers=headers,
            timeout=timeout_seconds,
            transport=transport,
            follow_redirects=False,  # the token is for this service, not for the target of a redirect
            trust_env=not is_loopback(httpx.URL(url).host),  # a proxy cannot reach this machine's loopback
        )

    def close(self) -> None:
        """Close every connection."""
        self._client.close()

    def ask(
        self,
        method: str,
        path: str,
        *,
        params: Params | None = None,
        body: Any = None,
        content: bytes | Iterable[bytes] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_seconds: float | None = None,
        max_bytes: int = MAX_ANSWER,
        attempts: int = ATTEMPTS,
    ) -> Response:
        """Send a request, `body` as JSON or `content` as it is, and return its response whatever the status
        code.

        A request that lost its connection, or is refused for now, is sent again after a pause, so it must be
        idempotent. Raises ServiceUnreachableError, which says whether the request may have taken effect.
        """
        sent = dict(headers or {})
        if body is not None:
            content = json.dumps(body).encode()
            sent.setdefault("Content-Type", "application/json")
        timeout = httpx.USE_CLIENT_DEFAULT if timeout_seconds is None else timeout_seconds
        request: Any = {"params": _present(params), "content": content, "headers": sent, "timeout": timeout}
        repeated = False
        for attempt in range(1, attempts + 1):
            last = attempt == attempts
            try:
                with self._client.stream(method, path, **request) as response:
                    answer = self._read(response, max_bytes)
            except httpx.TransportError as error:
                repeated |= not isinstance(error, _NOT_SENT)
                if last:
                    raise ServiceUnreachableError(self.url, _reason(error), repeated) from error
                self._sleep(_pause(attempt))
                continue
            is_lost = answer.status in _GATEWAY and not last
            is_later = answer.status in _LATER and not last and attempt < REFUSED_ATTEMPTS
            if not is_lost and not is_later:
                return answer._replace(repeated=repeated)
            repeated |= is_lost
            self._sleep(_pause(attempt, answer.headers.get("Retry-After")))
        raise AssertionError("the last attempt returns or raises")

    def once(self, method: str, path: str, **sent: Any) -> Response:
        """Send a request as `ask` does, but without retries: for requests that are not idempotent."""
        return self.ask(method, path, attempts=1, **sent)

    @contextmanager
    def lines(
        self, path: str, params: Params, timeout_seconds: float
    ) -> Iterator[Response | Iterator[bytes]]:
        """Open a stream: yield its lines without line ends if the code is 200, otherwise the response.

        A stream that breaks off raises ServiceUnreachableError at that point.
        """
        headers = {"Accept": "application/x-ndjson"}
        try:
            with self._client.stream(
                "GET", path, params=_present(params), headers=headers, timeout=timeout_seconds
            ) as answer:
                if answer.status_code == 200:
                    yield _lines(answer.iter_bytes(), self.url)
                else:
                    yield self._read(answer, MAX_ANSWER)
        except httpx.TransportError as error:
            raise ServiceUnreachableError(self.url, _reason(error), False) from error

    def _read(self, answer: httpx.Response, max_bytes: int) -> Response:
        body = bytearray()
        try:
            for part in answer.iter_bytes():
                body += part
                if len(body) > max_bytes:
                    raise RegistryError(f"the response of {self.url} has more than {max_bytes:,} bytes")
        except httpx.DecodingError as error:
            raise RegistryError(f"the response of {self.url} cannot be decoded: {error}") from error
        return Response(answer.status_code, answer.headers, bytes(body))


def _present(params: Params | None) -> dict[str, Any]:
    return {name: value for name, value in (params or {}).items() if value is not None}


def _lines(parts: Iterator[bytes], url: str) -> Iterator[bytes]:
    rest = b""
    for part in parts:
        *whole, rest = (rest + part).split(b"\n")
        yield from whole
        if len(rest) > MAX_LINE_BYTES:
            raise RegistryError(f"{url} sends a line of more than {MAX_LINE_BYTES:,} bytes")
    if rest:
        yield rest


def _checked(url: str) -> str:
    try:
        parts = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise RegistryError(f"not a URL of a service: {error}") from None
    if parts.userinfo:
        raise RegistryError("a URL with a password is not supported: use a bearer token")
    if parts.scheme not in ("http", "https") or not parts.host or parts.query or parts.fragment:
        raise RegistryError("the URL of a service is http(s)://host:port, perhaps with a path")
    return url.rstrip("/")


def _pause(attempt: int, retry_after: str | None = None) -> float:
    """Return the seconds until the next attempt: the Retry-After, or exponential backoff with jitter."""
    if retry_after is not None and retry_after.isascii() and retry_after.isdigit():
        return min(float(retry_after), _LONGEST_PAUSE_SECONDS)
    return min(0.1 * 2.0**attempt, _LONGEST_PAUSE_SECONDS) * random.uniform(0.5, 1.0)


def _reason(error: httpx.TransportError) -> str:
    if isinstance(error, httpx.TimeoutException):
        return "timed out"
    return str(error) or type(error).__name__
