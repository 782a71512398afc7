"""Settings of a client by the names of Kafka's own clients, as keywords of kafka-python.

`SETTINGS` has every name; another one is an error. Certificates and keys are files in PEM. Passwords, keys
and tokens are in no repr, no error text and no log line: see `hide_secrets_from_logs`.

Tokens of SASL OAUTHBEARER come by the client credentials grant of OAuth 2 (RFC 6749, section 4.4). A token
is fetched when a connection needs one, and used until a fifth of its life is left. All connections of a
process with the same credentials share it.
"""

from __future__ import annotations

import logging
import os
import re
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from selectroute.extras import importing
from selectroute.loopback import is_loopback
from selectroute.selector.errors import SelectRouteError, nearest, shown

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


SECONDS: Final = 20.0
"""Longest wait for an answer, and longest time of retries, by default."""

_MEGABYTE: Final = 1 << 20
_LARGEST_ANSWER: Final = 256 << 20
"""Longest answer of a broker: more than any record that topics take in practice, and less than the length
that the first bytes of another protocol (TLS, HTTP) make."""

_LARGEST: Final = (1 << 31) - 1
"""Largest value of Kafka's integers, most of which are a Java int."""

PLAINTEXT_CREDENTIALS: Final = "selectroute.allow.plaintext.credentials"
"""Setting that lets passwords and tokens cross the network unencrypted."""


class SettingError(SelectRouteError):
    """Invalid setting of a Kafka client. The text names the setting, and shows no value.

    Attributes:
        setting: its name.
        problem: rest of the sentence.
    """

    def __init__(self, setting: str, problem: str) -> None:
        super().__init__(setting, problem)
        self.setting = setting
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.setting} {self.problem}"


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """Settings of a client; their repr has no secret.

    Attributes:
        client: keyword arguments of kafka-python's ``KafkaConnectionManager`` that are plain data;
            `connection_options` has all of them.
        oauth: credentials of OAUTHBEARER; None with another mechanism.
        isolation: ``read_uncommitted`` or ``read_committed``.
        batch_bytes: largest record batch before compression; not more than `request_bytes`.
        request_bytes: largest request of a producer.
        compression: codec of `selectroute.kafka.batches`.
        request_seconds: longest wait for the answer to a request.
        delivery_seconds: longest time of retries until records are acknowledged.
        api_seconds: longest time of retries of all other requests.
        transaction_seconds: time after which the broker aborts a transaction that is not ended.
    """

    client: Mapping[str, Any] = field(default_factory=dict, repr=False)
    oauth: ClientCredentials | None = None
    isolation: str = "read_uncommitted"
    batch_bytes: int = _MEGABYTE // 2
    request_bytes: int = _MEGABYTE
    compression: str = "none"
    request_seconds: float = SECONDS
    delivery_seconds: float = SECONDS
    api_seconds: float = SECONDS
    transaction_seconds: float = 60.0

    def connection_options(self) -> dict[str, Any]:
        """Return the keyword arguments of ``KafkaConnectionManager``, for this process, without the servers.

        Hides secrets from logs: see `hide_secrets_from_logs`.
        """
        hide_secrets_from_logs()
        options = dict(self.client)
        if options["security_protocol"].endswith("SSL"):
            options["ssl_context"] = _context(options)
        if self.oauth is not None:
            options["sasl_oauth_token_provider"] = provider_of(self.oauth)
        return options


def hide_secrets_from_logs() -> None:
    """Raise kafka-python's loggers to INFO where they are lower.

    On DEBUG, it logs the bytes of each request, and with them passwords and tokens.
    """
    for name in ("kafka", "kafka.net", "kafka.net.connection", "kafka.protocol", "kafka.protocol.parser"):
        logger = logging.getLogger(name)
        if logger.getEffectiveLevel() < logging.INFO:
            logger.setLevel(logging.INFO)


# ---- the table


def _whole(least: int = 0) -> Callable[[str], int]:
    def number(text: str) -> int:
        if not re.fullmatch("-?[0-9]{1,10}", text) or not least <= int(text) <= _LARGEST:
            raise ValueError(f"must be a whole number from {least} to {_LARGEST}")
        return int(text)

    return number


def _seconds(text: str) -> float:
    return _whole(1)(text) / 1000


def _choice(*allowed: str) -> Callable[[str], str]:
    def chosen(text: str) -> str:
        for value in allowed:
            if value.casefold() == text.casefold():
                return value
        *first, last = allowed
        raise ValueError(f"must be {', '.join(first)} or {last}")

    return chosen


def _file(text: str) -> str:
    try:
        Path(text).open("rb").close()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not a file name"
        raise ValueError(f"names a file that can't be read: {reason}") from None
    return text


_PEM: Final = (
    "JKS and PKCS12 are not read: name files in PEM by ssl.truststore.location (trusted certificates) and "
    "ssl.keystore.location (certificate and key of the client), with ssl.key.password"
)


def _pem(text: str) -> str:
    if text.upper() != "PEM":
        raise ValueError(f"must be PEM: {_PEM}")
    return text


def _checks_hostname(text: str) -> bool:
    if text.casefold() not in ("", "https"):
        raise ValueError("must be https, or empty to accept a certificate for another host")
    return bool(text)


def _extensions(text: str) -> tuple[tuple[str, str], ...]:
    pairs = tuple(pair.strip().partition("=")[::2] for pair in text.split(","))
    # RFC 7628, section 3.1; another character could end the message.
    if not all(
        re.fullmatch("(?!auth$)[A-Za-z]+", name) and re.fullmatch("[ -~]+", value) for name, value in pairs
    ):
        raise ValueError("must be NAME=VALUE,…, with letters as names")
    return pairs


_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_PACKAGES: Final = {"GSSAPI": "gssapi", "AWS_MSK_IAM": "botocore"}
"""Package by which kafka-python does a mechanism."""
_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", *_PACKAGES)
_CREDENTIALS: Final = "sasl.oauthbearer.client.credentials.client"

SETTINGS: Final[Mapping[str, tuple[str, Callable[[str], Any]]]] = {
    "batch.size": ("batch_bytes", _whole()),
    "client.dns.lookup": (
        "client_dns_lookup",
        _choice("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"),
    ),
    "client.id": ("client_id", str),
    "compression.type": ("compression", _choice("none", "gzip", "snappy", "lz4", "zstd")),
    "connections.max.idle.ms": ("connections_max_idle_ms", _whole(1)),
    "default.api.timeout.ms": ("api_seconds", _seconds),
    "delivery.timeout.ms": ("delivery_seconds", _seconds),
    "https.ca.location": ("oauth_ca", _file),
    "isolation.level": ("isolation", _choice("read_uncommitted", "read_committed")),
    "max.request.size": ("request_bytes", _whole(1)),
    "reconnect.backoff.max.ms": ("reconnect_backoff_max_ms", _whole()),
    "reconnect.backoff.ms": ("reconnect_backoff_ms", _whole()),
    "request.timeout.ms": ("request_seconds", _seconds),
    "sasl.kerberos.service.name": ("sasl_kerberos_service_name", str),
    "sasl.mechanism": ("sasl_mechanism", _choice(*_MECHANISMS)),
    f"{_CREDENTIALS}.id": ("oauth_client", str),
    f"{_CREDENTIALS}.secret": ("oauth_secret", str),
    "sasl.oauthbearer.extensions": ("oauth_extensions", _extensions),
    "sasl.oauthbearer.scope": ("oauth_scope", str),
    "sasl.oauthbearer.token.endpoint.url": ("oauth_url", checked_url),
    "sasl.password": ("sasl_plain_password", str),
    "sasl.username": ("sasl_plain_username", str),
    "security.protocol": ("security_protocol", _choice(*_PROTOCOLS)),
    PLAINTEXT_CREDENTIALS: (
        "allow_plaintext_credentials",
        lambda text: _choice("true", "false")(text) == "true",
    ),
    "socket.connection.setup.timeout.max.ms": ("socket_connection_setup_timeout_max_ms", _whole(1)),
    "socket.connection.setup.timeout.ms": ("socket_connection_setup_timeout_ms", _whole(1)),
    "ssl.ca.location": ("ssl_cafile", _file),
    "ssl.certificate.location": ("ssl_certfile", _file),
    "ssl.endpoint.identification.algorithm": ("ssl_check_hostname", _checks_hostname),
    "ssl.key.location": ("ssl_keyfile", _file),
    "ssl.key.password": ("ssl_password", str),
    "ssl.keystore.location": ("ssl_certfile", _file),
    "ssl.keystore.type": ("ssl_keystore_type", _pem),
    "ssl.truststore.location": ("ssl_cafile", _file),
    "ssl.truststore.type": ("ssl_truststore_type", _pem),
    "transaction.timeout.ms": ("transaction_seconds", _seconds),
}
"""Keyword of kafka-python, or field of `ClientSettings` or (``oauth_…``) of `ClientCredentials`, and the
conversion of the text, which raises ValueError with the problem."""

SECRETS: Final = frozenset(("sasl.password", "ssl.key.password", f"{_CREDENTIALS}.secret"))

_REFUSED: Final[Mapping[str, str]] = {
    "sasl.jaas.config": (
        "configures a Java class: write sasl.username and sasl.password instead (for OAUTHBEARER "
        f"{_CREDENTIALS}.id and {_CREDENTIALS}.secret)"
    ),
    **dict.fromkeys(("ssl.truststore.password", "ssl.keystore.password"), f"has no use: {_PEM}"),
}


# ---- from text


def client_settings(options: Mapping[str, str]) -> ClientSettings:
    """Translate the settings of Kafka's own clients.

    Args:
        options: settings by name, without the servers.

    Raises:
        SettingError: a setting is unknown or not valid. The text names it, and shows no value.
    """
    values: dict[str, Any] = {}
    names: dict[str, str] = {}
    for name, text in options.items():
        if name not in SETTINGS:
            raise _unknown(name)
        target, convert = SETTINGS[name]
        if target in names:
            raise SettingError(name, f"and {names[target]} are both given: give one of them")
        names[target] = name
        try:
            values[target] = convert(text.strip())
        except ValueError as error:
            raise SettingError(name, str(error)) from None
    own = {option.name for option in fields(ClientSettings)} & values.keys()
    settings = {name: values.pop(name) for name in own}
    request = settings.get("request_seconds", SECONDS)
    settings.setdefault("api_seconds", max(SECONDS, request))
    if settings.setdefault("delivery_seconds", max(SECONDS, request)) < request:
        raise SettingError("delivery.timeout.ms", "must not be less than request.timeout.ms")
    most = settings.get("request_bytes", _MEGABYTE)
    settings["batch_bytes"] = min(settings.get("batch_bytes", _MEGABYTE // 2), most)
    oauth = {name.removeprefix("oauth_"): values.pop(name) for name in [*values] if name.startswith("oauth_")}
    client = {
        "client_id": "selectroute",
        "receive_message_max_bytes": _LARGEST_ANSWER,
        "request_timeout_ms": request * 1000,
        "security_protocol": "PLAINTEXT",
        **values,
    }
    protocol = client["security_protocol"]
    if protocol.startswith("SASL"):
        _check_login(client, oauth)
    if protocol.endswith("SSL"):
        _context(client, names)  # what is wrong with a file should not wait for the first connection
    is_oauth = protocol.startswith("SASL") and client["sasl_mechanism"] == "OAUTHBEARER"
    return ClientSettings(client, ClientCredentials(**oauth) if is_oauth else None, **settings)


def _unknown(name: str) -> SettingError:
    if name in _REFUSED:
        return SettingError(name, _REFUSED[name])
    near = nearest(name, SETTINGS)
    if near is None and not re.fullmatch("[a-z][a-z0-9._-]{0,60}", name):
        # It may be a line of a key.
        return SettingError("the settings", "have a line that is not `name=value`")
    hint = f": did you mean `{near}`?" if near else "; leave it out"
    return SettingError(shown(name), f"is not a setting of this client{hint}")


def _check_login(client: dict[str, Any], oauth: Mapping[str, Any]) -> None:
    mechanism = client.get("sasl_mechanism")
    if mechanism is None:
        raise SettingError("sasl.mechanism", f"is missing: set it to {', '.join(_MECHANISMS)}")
    package = _PACKAGES.get(mechanism)
    if package is not None:
        if find_spec(package) is None:
            raise SettingError("sasl.mechanism", f"{mechanism} needs the Python package {package}")
        return
    values: Mapping[str, Any] = client
    needed: tuple[str, ...] = ("sasl_plain_username", "sasl_plain_password")
    if mechanism == "OAUTHBEARER":
        values, needed = oauth, ("url", "client", "secret")
    for name, (target, _) in SETTINGS.items():
        if target.removeprefix("oauth_") in needed and not values.get(target.removeprefix("oauth_")):
            raise SettingError(name, f"is missing, which {mechanism} needs")
    user = client.get("sasl_plain_username", "")
    if "\0" in user + client.get("sasl_plain_password", ""):
        raise SettingError("sasl.username", "or sasl.password has a NUL character")
    if mechanism.startswith("SCRAM"):
        # kafka-python writes the name as it is into a message in which "," and "=" are marks (RFC 5802).
        client["sasl_plain_username"] = user.replace("=", "=3D").replace(",", "=2C")


def _context(client: Mapping[str, Any], names: Mapping[str, str] | None = None) -> ssl.SSLContext:
    """Return a new context of TLS. Raises SettingError, with the setting by its target from ``names``."""

    def error(target: str, problem: str) -> SettingError:
        return SettingError((names or {}).get(target, target), problem)

    try:
        context = ssl.create_default_context(cafile=client.get("ssl_cafile"))
    except (ssl.SSLError, OSError):
        raise error("ssl_cafile", f"is not a file of certificates in PEM; {_PEM}") from None
    # Debian's Python leaves the oldest version to OpenSSL.
    context.minimum_version = max(context.minimum_version, ssl.TLSVersion.TLSv1_2)
    context.check_hostname = client.get("ssl_check_hostname", True)
    # As in Java, each of these certificates is trusted itself, not only those that sign themselves.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if "ssl_certfile" in client:
        try:
            # With a password, even an empty one, OpenSSL never asks for it on a terminal.
            password = client.get("ssl_password", "")
            context.load_cert_chain(client["ssl_certfile"], client.get("ssl_keyfile"), password)
        except (ssl.SSLError, OSError, ValueError):
            raise error(
                "ssl_certfile",
                "can't be loaded: the file is not in PEM, or lacks the key of its certificate, or "
                f"ssl.key.password is wrong; {_PEM}",
            ) from None
    return context
