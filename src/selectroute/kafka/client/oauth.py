"""Tokens of SASL OAUTHBEARER: the client credentials grant of OAuth 2 (RFC 6749, section 4.4).

A token is fetched when a connection needs one, and used until a fifth of its life is left. All connections of
a process with the same credentials share it.
"""

from __future__ import annotations

import os
import re
import ssl
import threading
import time
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final
from urllib.parse import urlsplit

from selectroute.extras import importing
from selectroute.loopback import is_loopback
from selectroute.selector.errors import SelectRouteError

_USED: Final = 0.8
"""Part of a token's life during which it is used, as with Java's ``sasl.login.refresh.window.factor``."""

_SECONDS: Final = 10.0
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*")  # RFC 6750: nothing that could end SASL's message
_CODE: Final = re.compile(r"[a-z_]{1,40}")
_OK: Final = 200
_SERVER_FAILURES: Final = 500
_TOO_MANY_REQUESTS: Final = 429


class TokenError(SelectRouteError):
    """Failed fetch of a token. The text names the host of the endpoint, and shows no secret.

    Attributes:
        retriable: whether a later try may succeed: the endpoint can't be reached, or has a fault of its own.
    """

    def __init__(self, problem: str, retriable: bool = False) -> None:
        super().__init__(problem, retriable)
        self.problem = problem
        self.retriable = retriable

    def __str__(self) -> str:
        return self.problem


@dataclass(frozen=True, slots=True)
class ClientCredentials:
    """Credentials of a client at a token endpoint.

    Attributes:
        url: the endpoint: https, or http on this machine.
        client: id of the client.
        secret: secret of the client.
        scope: requested scope; empty for the default of the endpoint.
        extensions: SASL extensions (RFC 7628) for the broker, name and value.
        ca: file of the certificates that are trusted at the endpoint, in PEM; None for those of the system.
    """

    url: str = field(repr=False)
    client: str = field(repr=False)
    secret: str = field(repr=False)
    scope: str = ""
    extensions: tuple[tuple[str, str], ...] = ()
    ca: str | None = None

    def fetch(self) -> tuple[str, float]:
        """Fetch a token; return it, and the seconds that it is valid: 0 if the endpoint does not say.

        Raises:
            TokenError: the endpoint can't be reached, or gives no valid token.
        """
        with importing("kafka"):
            import httpx

        where = f"the token endpoint at {urlsplit(self.url).hostname}"
        form = {"grant_type": "client_credentials"} | ({"scope": self.scope} if self.scope else {})
        try:
            # This machine is not asked through a proxy. A redirection would take the secret to another host.
            with httpx.Client(
                verify=ssl.create_default_context(cafile=self.ca),
                trust_env=self.url.startswith("https:"),
                follow_redirects=False,
                timeout=_SECONDS,
            ) as client:
                answer = client.post(self.url, data=form, auth=(self.client, self.secret))
        except (httpx.HTTPError, OSError) as error:
            reason = str(error) or type(error).__name__
            raise TokenError(f"{where} can't be reached: {reason}", True) from None
        data: Any = None
        try:
            data = answer.json()
            if answer.status_code == _OK:
                token, life = data["access_token"], float(data.get("expires_in") or 0)
                if _TOKEN.fullmatch(token):
                    return token, life
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
            pass  # the answer is not part of an error: it may have the token
        if answer.status_code == _OK:
            raise TokenError(f"{where} answered without a valid token")
        code = str(data.get("error")) if isinstance(data, dict) else ""
        raise TokenError(
            f"{where} answered {answer.status_code}" + (f" ({code})" if _CODE.fullmatch(code) else ""),
            answer.status_code >= _SERVER_FAILURES or answer.status_code == _TOO_MANY_REQUESTS,
        )


class TokenProvider:
    """Provider of the tokens of one client, as kafka-python asks for them. Threads may share it."""

    def __init__(self, credentials: ClientCredentials) -> None:
        self._credentials = credentials
        self._lock = threading.Lock()
        self._token = ""
        self._until = 0.0

    def token(self) -> str:
        """Return a token that is still valid; fetch one if there is none.

        Raises:
            TokenError: no token can be had.
        """
        with self._lock:
            if not time.monotonic() < self._until:
                began = time.monotonic()
                self._token, life = self._credentials.fetch()
                self._until = began + _USED * life
            return self._token

    def extensions(self) -> dict[str, str]:
        """Return the SASL extensions."""
        return dict(self._credentials.extensions)


def provider_of(credentials: ClientCredentials) -> TokenProvider:
    """Return the provider of this process for these credentials."""
    from kafka.net.sasl.oauth import AbstractTokenProvider

    AbstractTokenProvider.register(TokenProvider)
    return _provider(os.getpid(), credentials)


@cache
def _provider(_process: int, credentials: ClientCredentials) -> TokenProvider:
    # A fork has providers of its own: another thread may have held the lock of one of these.
    return TokenProvider(credentials)


def checked_url(url: str) -> str:
    """Return the URL of a token endpoint.

    Raises:
        ValueError: it is not https, nor http on this machine, or has a user or password in it.
    """
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host = None
    if not host or not url.isprintable() or " " in url:
        raise ValueError("must be a URL such as https://HOST/PATH")
    if parts.username is not None or parts.password is not None:
        raise ValueError("must have no user or password in it: give the id and secret of the client")
    if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(host)):
        raise ValueError("must begin with https://; http:// is only for this machine")
    return url
