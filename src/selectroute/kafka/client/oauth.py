"""Tokens of SASL OAUTHBEARER: the client credentials grant of OAuth 2 (RFC 6749, section 4.4).

A token is fetched when a connection needs one, and used until a fifth of its life is left. All connections of
a process with the same credentials share it.
"""

from __future__ import annotations

import base64
import binascii
import http.client
import ipaddress
import json
import os
import re
import ssl
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass, field
from typing import Any, Final

from selectroute.kafka.client.tls import Tls
from selectroute.kafka.client.values import SettingError
from selectroute.selector.errors import SelectRouteError

URL: Final = "sasl.oauthbearer.token.endpoint.url"

_USED: Final = 0.8
"""Part of a token's life during which it is used, as with Java's ``sasl.login.refresh.window.factor``."""

_MOST_BYTES: Final = 1 << 20
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*")  # RFC 6750: nothing that could end SASL's message
_CODE: Final = re.compile(r"[a-z_]{1,40}")
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
        tls: TLS of the endpoint; None for the certificates of the system.
        quoted: whether id and secret are URL-encoded in the header, as RFC 6749 says and few servers expect.
        seconds: longest wait for a connection and for each part of the answer.
    """

    url: str = field(repr=False)
    client: str = field(repr=False)
    secret: str = field(repr=False)
    scope: str = ""
    extensions: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    tls: Tls | None = None
    quoted: bool = False
    seconds: float = 10.0

    @property
    def host(self) -> str:
        """Host name of the endpoint."""
        return urllib.parse.urlsplit(self.url).hostname or ""

    def fetch(self) -> tuple[str, float]:
        """Fetch a token; return it and its life in seconds, 0 if that is not known.

        Raises:
            TokenError: the endpoint can't be reached, or answers something else.
        """
        form = {"grant_type": "client_credentials"} | ({"scope": self.scope} if self.scope else {})
        pair = [urllib.parse.quote_plus(one) if self.quoted else one for one in (self.client, self.secret)]
        request = urllib.request.Request(
            self.url,
            urllib.parse.urlencode(form).encode(),
            {
                "Accept": "application/json",
                "Authorization": f"Basic {base64.b64encode(':'.join(pair).encode()).decode()}",
            },
        )
        try:
            with self._opener().open(request, timeout=self.seconds) as response:
                answer = response.read(_MOST_BYTES)
        except urllib.error.HTTPError as error:
            retriable = error.code >= _SERVER_FAILURES or error.code == _TOO_MANY_REQUESTS
            with error:
                problem = f"the token endpoint at {self.host} answered {error.code}{_code_of(error)}"
            raise TokenError(problem, retriable) from None
        except urllib.error.URLError as error:
            raise TokenError(self._unreachable(error.reason), True) from None
        except (OSError, http.client.HTTPException) as error:
            raise TokenError(self._unreachable(error), True) from None
        return self._token(answer)

    def _opener(self) -> urllib.request.OpenerDirector:
        """Return an opener that follows no redirection, which would take the secret to another host."""
        context = self.tls.context() if self.tls else ssl.create_default_context()
        handlers: list[Any] = [_WithoutRedirection, urllib.request.HTTPSHandler(context=context)]
        if self.url.startswith("http:"):
            handlers.append(urllib.request.ProxyHandler({}))  # this machine is not asked through a proxy
        return urllib.request.build_opener(*handlers)

    def _unreachable(self, reason: object) -> str:
        return f"the token endpoint at {self.host} can't be reached: {reason or type(reason).__name__}"

    def _token(self, answer: bytes) -> tuple[str, float]:
        try:
            data = json.loads(answer)
            token, life = data["access_token"], data.get("expires_in")
            if not _TOKEN.fullmatch(token):
                raise ValueError
            return token, max(0.0, float(life) if life is not None else _life_of(token))
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
            # The answer is not part of the error: it may have the token.
            raise TokenError(f"the token endpoint at {self.host} answered without a valid token") from None


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
            if time.monotonic() >= self._until:
                began = time.monotonic()
                self._token, life = self._credentials.fetch()
                self._until = began + _USED * life
            return self._token

    def extensions(self) -> dict[str, str]:
        """Return the SASL extensions."""
        return dict(self._credentials.extensions)


_PROVIDERS: Final[dict[tuple[int, ClientCredentials], TokenProvider]] = {}


def token_provider(credentials: ClientCredentials) -> TokenProvider:
    """Return the provider of this process for these credentials."""
    from kafka.net.sasl.oauth import AbstractTokenProvider

    AbstractTokenProvider.register(TokenProvider)
    # A fork has providers of its own: another thread may have held the lock of one of these.
    return _PROVIDERS.setdefault((os.getpid(), credentials), TokenProvider(credentials))


def checked_url(url: str) -> str:
    """Return the URL of a token endpoint.

    Raises:
        SettingError: it is not https, nor http on this machine, or has a user or password in it.
    """
    url = url.strip()
    try:
        parts = urllib.parse.urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host = None
    if not host or not url.isprintable() or " " in url:
        raise SettingError(URL, "must be a URL such as https://HOST/PATH")
    if parts.username is not None or parts.password is not None:
        raise SettingError(URL, "must have no user or password in it: give the id and secret of the client")
    if parts.scheme != "https" and not (parts.scheme == "http" and _is_loopback(host)):
        raise SettingError(URL, "must begin with https://; http:// is only for this machine")
    return url


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _life_of(token: str) -> float:
    """Return the seconds until a JSON Web Token expires; 0 for another token."""
    try:
        payload = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        return float(claims["exp"]) - time.time()
    except (ValueError, TypeError, LookupError, binascii.Error, RecursionError):
        return 0.0


def _code_of(error: urllib.error.HTTPError) -> str:
    """Return OAuth's code of an error, such as ``invalid_client``, as the end of a sentence."""
    try:
        code = json.loads(error.read(_MOST_BYTES))["error"]
        return f" ({code})" if _CODE.fullmatch(code) else ""
    except (OSError, ValueError, TypeError, LookupError, http.client.HTTPException, RecursionError):
        return ""


class _WithoutRedirection(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None
