"""Settings of a client, translated from the names of Kafka's own Java clients.

A file of settings that works with Kafka's tools works here: `client_settings` takes its names and values.
Each name is one of

- translated: connections, TLS, SASL, sizes and times (`_CONNECTION`, `_FIELDS`, ``ssl.…``, ``sasl.…``);
- ignored, because this client has nothing that it could set (`_IGNORED`, listed in `ClientSettings.ignored`);
- refused, because the job sets it itself, or because it names a Java class (`_REFUSED`, `_JAVA_CLASSES`);
- unknown, and refused with the nearest known name.

Passwords, keys and tokens are in no repr, no error text and no log line: see `hide_secrets_from_logs`.
"""

from __future__ import annotations

import logging
import re
import socket
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from selectroute.kafka.client.jaas import SETTING as JAAS
from selectroute.kafka.client.jaas import login
from selectroute.kafka.client.oauth import URL, ClientCredentials, checked_url, token_provider
from selectroute.kafka.client.tls import SETTINGS as TLS_SETTINGS
from selectroute.kafka.client.tls import Tls
from selectroute.kafka.client.values import LARGEST, SettingError, boolean, choice, listed, whole
from selectroute.selector.suggestion import nearest, shown

__all__ = ["ClientSettings", "SettingError", "client_settings", "hide_secrets_from_logs"]

SECONDS: Final = 20.0
"""Longest wait for an answer, and longest time of retries, by default."""

_MEGABYTE: Final = 1 << 20
_LARGEST_ANSWER: Final = 256 << 20
"""Longest answer of a broker, by default: more than any record that topics take in practice, and less than
the length that the first bytes of another protocol (TLS, HTTP) make."""
_LARGEST_FETCH: Final = "fetch.max.bytes"
"""Setting that raises this limit, and has no other effect."""
_OVERHEAD: Final = 1 << 20
"""Bytes of an answer beside its records."""


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """Settings of a client. They can be pickled, and then have the secrets; their repr has none.

    Attributes:
        client: keyword arguments of kafka-python's ``KafkaConnectionManager`` that are plain data;
            `connection_options` has all of them.
        tls: certificates and checks of TLS; None without TLS.
        oauth: credentials of OAUTHBEARER; None with another mechanism.
        isolation: ``read_uncommitted`` or ``read_committed``.
        batch_bytes: largest record batch before compression; not more than `request_bytes`.
        request_bytes: largest request of a producer.
        compression: codec of `selectroute.kafka.batches`.
        request_seconds: longest wait for the answer to a request.
        delivery_seconds: longest time of retries until records are acknowledged.
        api_seconds: longest time of retries of all other requests.
        transaction_seconds: time after which the broker aborts a transaction that is not ended.
        ignored: names of the given settings that have no effect.
    """

    client: Mapping[str, Any] = field(default_factory=dict, repr=False)
    tls: Tls | None = None
    oauth: ClientCredentials | None = None
    isolation: str = "read_uncommitted"
    batch_bytes: int = _MEGABYTE // 2
    request_bytes: int = _MEGABYTE
    compression: str = "none"
    request_seconds: float = SECONDS
    delivery_seconds: float = SECONDS
    api_seconds: float = SECONDS
    transaction_seconds: float = 60.0
    ignored: tuple[str, ...] = ()

    def ssl_context(self) -> ssl.SSLContext | None:
        """Return a new context of TLS; None without TLS."""
        return None if self.tls is None else self.tls.context()

    def connection_options(self) -> dict[str, Any]:
        """Return the keyword arguments of ``KafkaConnectionManager``, for this process, without the servers.

        Hides secrets from logs: see `hide_secrets_from_logs`.
        """
        hide_secrets_from_logs()
        options = dict(self.client)
        if self.tls is not None:
            options["ssl_context"] = self.tls.context()
        if self.oauth is not None:
            options["sasl_oauth_token_provider"] = token_provider(self.oauth)
        return options


_DEFAULT: Final = ClientSettings()


def hide_secrets_from_logs() -> None:
    """Raise kafka-python's loggers to INFO where they are lower.

    On DEBUG, it logs the bytes of each request, and with them passwords and tokens.
    """
    for name in ("kafka", "kafka.net", "kafka.net.connection", "kafka.protocol", "kafka.protocol.parser"):
        logger = logging.getLogger(name)
        if logger.getEffectiveLevel() < logging.INFO:
            logger.setLevel(logging.INFO)


def client_settings(options: Mapping[str, str]) -> ClientSettings:
    """Translate the settings of Kafka's own clients.

    Args:
        options: settings by name, without the prefix ``kafka.`` and without the servers.

    Raises:
        SettingError: a setting is unknown, not allowed, or not valid. The text names it, and shows no value.
    """
    for name in options:
        _check_name(name)
    _check_classes(options)
    for name, allowed in _REQUIRED.items():
        if options.get(name, allowed[0]).strip().lower() not in allowed:
            raise SettingError(name, f"must be {allowed[0]!r}, or committed deliveries could be lost")
    ignored = {name for name in options if name in _IGNORED or name.startswith(_IGNORED_PREFIXES)}
    client: dict[str, Any] = {"client_id": options.get("client.id", "").strip() or "selectroute"}
    for name, (argument, least, most) in _CONNECTION.items():
        if name in options:
            client[argument] = whole(name, options[name], least, most)
    if client.get("connections_max_idle_ms", 1) < 1:  # -1: never
        client["connections_max_idle_ms"] = LARGEST
    if "client.dns.lookup" in options:
        client["client_dns_lookup"] = choice("client.dns.lookup", options["client.dns.lookup"], _LOOKUPS)
    client["socket_options"] = _socket_options(options)
    fields = {
        attribute: convert(name, options[name])
        for name, (attribute, convert) in _FIELDS.items()
        if name in options
    }
    _relate(fields)
    client["receive_message_max_bytes"] = _LARGEST_ANSWER
    if _LARGEST_FETCH in options:
        most = whole(_LARGEST_FETCH, options[_LARGEST_FETCH], 1) + _OVERHEAD
        client["receive_message_max_bytes"] = min(max(most, _LARGEST_ANSWER), LARGEST)
        if most <= _LARGEST_ANSWER:
            ignored.add(_LARGEST_FETCH)
    protocol = choice("security.protocol", options.get("security.protocol", _PROTOCOLS[0]), _PROTOCOLS)
    client["security_protocol"] = protocol
    tls = oauth = None
    if protocol.endswith("SSL"):
        tls = Tls.of(options)
    else:
        ignored |= {name for name in options if name in TLS_SETTINGS}
    if protocol.startswith("SASL"):
        arguments, oauth = _sasl(options)
        client |= arguments
        if oauth is None:
            ignored |= {name for name in options if name in _OAUTH_SETTINGS}
    else:
        ignored |= {name for name in options if name.startswith("sasl.")}
    return ClientSettings(client, tls, oauth, **fields, ignored=tuple(sorted(ignored)))


def _check_name(name: str) -> None:
    if name in _JAVA_CLASSES:
        return  # its value decides
    if name in _REFUSED:
        raise SettingError(name, f"is not allowed: {_REFUSED[name]}")
    if name.startswith(_REFUSED_PREFIXES):
        raise SettingError(name, f"is not allowed: {_REFUSED['config.providers']}")
    if name not in _KNOWN and not name.startswith(_IGNORED_PREFIXES):
        near = nearest(name, _KNOWN)
        hint = f": did you mean `{near}`?" if near else ""
        if not hint and not _LIKE_A_NAME.fullmatch(name):
            raise SettingError("a name", "in the settings is not one of Kafka's clients, nor like one")
        raise SettingError(shown(name), f"is not a setting of Kafka's clients{hint}")


def _check_classes(options: Mapping[str, str]) -> None:
    """Refuse Java classes, but for those of Kafka's own whose work this client does itself."""
    for name, stand_ins in _JAVA_CLASSES.items():
        given = options.get(name, "").strip()
        if given and given.rpartition(".")[2] not in stand_ins:
            raise SettingError(name, "is not allowed: this client is not Java and can't load a Java class")


def _relate(fields: dict[str, Any]) -> None:
    """Complete settings that depend on each other, as Java's producer does."""
    request = fields.get("request_seconds", _DEFAULT.request_seconds)
    fields.setdefault("api_seconds", max(_DEFAULT.api_seconds, request))
    if fields.setdefault("delivery_seconds", max(_DEFAULT.delivery_seconds, request)) < request:
        raise SettingError("delivery.timeout.ms", "must not be less than request.timeout.ms")
    batch = fields.get("batch_bytes", _DEFAULT.batch_bytes)
    fields["batch_bytes"] = min(batch, fields.get("request_bytes", _DEFAULT.request_bytes))


def _socket_options(options: Mapping[str, str]) -> list[tuple[int, int, int]]:
    found = [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1), (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
    for name, option in (("send.buffer.bytes", socket.SO_SNDBUF), ("receive.buffer.bytes", socket.SO_RCVBUF)):
        size = whole(name, options.get(name, "-1"), -1)
        if size != -1:  # the system's own size
            found.append((socket.SOL_SOCKET, option, size))
    return found


def _sasl(options: Mapping[str, str]) -> tuple[dict[str, Any], ClientCredentials | None]:
    """Return the arguments of SASL, and the credentials of OAUTHBEARER."""
    mechanism = options.get("sasl.mechanism", "").strip().upper()
    if not mechanism:
        raise SettingError("sasl.mechanism", f"is missing: set it to {listed(_MECHANISMS)}")
    if mechanism not in _MECHANISMS:
        which = f"{mechanism} is not supported: it" if mechanism in _OTHER_MECHANISMS else ""
        raise SettingError("sasl.mechanism", f"{which} must be {listed(_MECHANISMS)}".strip())
    given = _login_options(options, mechanism)
    if mechanism == "OAUTHBEARER":
        return {"sasl_mechanism": mechanism}, _oauth(options, given)
    user, password = given.get("username", ""), given.get("password", "")
    where = JAAS if JAAS in options else "sasl.username"
    if not user:
        raise SettingError(where, f"has no user name, which {mechanism} needs")
    if not password:
        raise SettingError(JAAS if JAAS in options else "sasl.password", "has no password")
    if "\0" in user + password:
        raise SettingError(where, "has a NUL character in the user name or password")
    if mechanism != "PLAIN":
        # kafka-python writes the name as it is into a message in which "," and "=" are marks (RFC 5802).
        user = user.replace("=", "=3D").replace(",", "=2C")
    return {
        "sasl_mechanism": mechanism,
        "sasl_plain_username": user,
        "sasl_plain_password": password,
    }, None


def _login_options(options: Mapping[str, str], mechanism: str) -> dict[str, str]:
    """Return the options of the login: user name and password, or those of OAUTHBEARER."""
    plain = {name: options[name] for name in ("sasl.username", "sasl.password") if name in options}
    if JAAS not in options:
        if mechanism == "OAUTHBEARER":
            for name in plain:
                raise SettingError(name, "does not apply to OAUTHBEARER")
        return {name.removeprefix("sasl."): value for name, value in plain.items()}
    for name in plain:
        raise SettingError(name, f"and {JAAS} are both given: give one of them")
    found = login(options[JAAS])
    module, known = _MECHANISMS[mechanism]
    if found.module != module:
        raise SettingError(JAAS, f"must have the login module {module}, which {mechanism} needs")
    # An option's name is not shown: where a quote is missing, it is a piece of the password.
    prefixes = _OAUTH_PREFIXES if mechanism == "OAUTHBEARER" else ()
    if any(name not in known and not name.startswith(prefixes) for name in found.options):
        raise SettingError(JAAS, f"has an option that is not supported: {module} has {listed(known)}")
    return found.options


def _oauth(options: Mapping[str, str], given: Mapping[str, str]) -> ClientCredentials:
    if not options.get(URL, "").strip():
        raise SettingError(URL, "is missing: OAUTHBEARER fetches its tokens there")

    def value(name: str, option: str) -> str:
        return options.get(name, given.get(option, ""))

    client = value("sasl.oauthbearer.client.credentials.client.id", "clientId")
    secret = value("sasl.oauthbearer.client.credentials.client.secret", "clientSecret")
    for name, text in (("client.id", client), ("client.secret", secret)):
        if not text:
            setting = f"sasl.oauthbearer.client.credentials.{name}"
            raise SettingError(setting, "is missing: OAUTHBEARER needs it, here or in sasl.jaas.config")
    extensions = {
        name.removeprefix("extension_"): text for name, text in given.items() if name.startswith("extension_")
    }
    for name, text in extensions.items():
        # RFC 7628, section 3.1; another character could end the message.
        if not _EXTENSION.fullmatch(name) or name == "auth" or not _EXTENSION_VALUE.fullmatch(text):
            raise SettingError(JAAS, "has an extension that is not valid: its name must be letters")
    own = {name: text for name, text in given.items() if name.startswith("ssl.")}
    for name in own:
        if name not in TLS_SETTINGS:
            raise SettingError(JAAS, "has an option of TLS that is not supported")
    waits = [
        whole(name, options.get(name, "10000"), 1)
        for name in ("sasl.login.connect.timeout.ms", "sasl.login.read.timeout.ms")
    ]
    quoted = "sasl.oauthbearer.header.urlencode"
    return ClientCredentials(
        checked_url(options[URL]),
        client,
        secret,
        value("sasl.oauthbearer.scope", "scope"),
        tuple(sorted(extensions.items())),
        Tls.of(own) if own else None,
        boolean(quoted, options.get(quoted, "false")),
        max(waits) / 1000,
    )


def _milliseconds(least: int = 1) -> Callable[[str, str], float]:
    return lambda name, text: whole(name, text, least) / 1000


def _number(least: int = 0) -> Callable[[str, str], int]:
    return lambda name, text: whole(name, text, least)


def _one_of(*allowed: str) -> Callable[[str, str], str]:
    return lambda name, text: choice(name, text, allowed)


_CONNECTION: Final[Mapping[str, tuple[str, int, int]]] = {
    "connections.max.idle.ms": ("connections_max_idle_ms", -1, LARGEST),
    "max.in.flight.requests.per.connection": ("max_in_flight_requests_per_connection", 1, 5),
    "reconnect.backoff.max.ms": ("reconnect_backoff_max_ms", 0, LARGEST),
    "reconnect.backoff.ms": ("reconnect_backoff_ms", 0, LARGEST),
    "request.timeout.ms": ("request_timeout_ms", 1, LARGEST),
    "socket.connection.setup.timeout.max.ms": ("socket_connection_setup_timeout_max_ms", 1, LARGEST),
    "socket.connection.setup.timeout.ms": ("socket_connection_setup_timeout_ms", 1, LARGEST),
}
"""Argument of kafka-python's connections, and its range. More than five requests in flight would undo the
order that idempotence needs."""

_FIELDS: Final[Mapping[str, tuple[str, Callable[[str, str], Any]]]] = {
    "batch.size": ("batch_bytes", _number()),
    "compression.type": ("compression", _one_of("none", "gzip", "snappy", "lz4", "zstd")),
    "default.api.timeout.ms": ("api_seconds", _milliseconds()),
    "delivery.timeout.ms": ("delivery_seconds", _milliseconds()),
    "isolation.level": ("isolation", _one_of("read_uncommitted", "read_committed")),
    "max.request.size": ("request_bytes", _number(1)),
    "request.timeout.ms": ("request_seconds", _milliseconds()),
    "transaction.timeout.ms": ("transaction_seconds", _milliseconds()),
}
"""Attribute of `ClientSettings`, and conversion of the text."""

_LIKE_A_NAME: Final = re.compile(r"[a-z]{1,30}|[A-Za-z][A-Za-z0-9]*([._-][A-Za-z0-9]+){1,9}")
"""Form of a name that an error shows. Another one may be a line of a key, in a file that lost a backslash."""

_REQUIRED: Final[Mapping[str, tuple[str, ...]]] = {"acks": ("all", "-1"), "enable.idempotence": ("true",)}
"""Required settings of a producer: a record is acknowledged when all replicas in sync have it, and a client's
own retry does not duplicate it."""

_LOOKUPS: Final = ("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only")
_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MECHANISMS: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "PLAIN": ("PlainLoginModule", ("username", "password")),
    "SCRAM-SHA-256": ("ScramLoginModule", ("username", "password")),
    "SCRAM-SHA-512": ("ScramLoginModule", ("username", "password")),
    "OAUTHBEARER": ("OAuthBearerLoginModule", ("clientId", "clientSecret", "scope")),
}
"""Login module of a mechanism, and its options."""
_OTHER_MECHANISMS: Final = frozenset(
    {"AWS_MSK_IAM", "GSSAPI", "EXTERNAL", "ANONYMOUS", "DIGEST-MD5", "CRAM-MD5"}
)
_OAUTH_PREFIXES: Final = ("extension_", "ssl.")
_EXTENSION: Final = re.compile("[A-Za-z]+")
_EXTENSION_VALUE: Final = re.compile(r"[\x21-\x7e \t\r\n]+")

_OAUTH_SETTINGS: Final = frozenset(
    {
        URL,
        "sasl.login.connect.timeout.ms",
        "sasl.login.read.timeout.ms",
        "sasl.oauthbearer.client.credentials.client.id",
        "sasl.oauthbearer.client.credentials.client.secret",
        "sasl.oauthbearer.header.urlencode",
        "sasl.oauthbearer.scope",
    }
)
_OWN: Final = "the job sets it itself"
_REFUSED: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        (
            "auto.offset.reset",
            "enable.auto.commit",
            "group.id",
            "group.instance.id",
            "key.deserializer",
            "key.serializer",
            "transactional.id",
            "transaction.two.phase.commit.enable",
            "value.deserializer",
            "value.serializer",
        ),
        _OWN,
    ),
    "bootstrap.servers": "the servers are given apart from the settings",
    "bootstrap.controllers": "the servers are given apart from the settings",
    "config.providers": "values are taken as they stand, and not looked up elsewhere",
    **dict.fromkeys(
        (
            "sasl.oauthbearer.assertion.algorithm",
            "sasl.oauthbearer.assertion.claim.aud",
            "sasl.oauthbearer.assertion.claim.exp.seconds",
            "sasl.oauthbearer.assertion.claim.iss",
            "sasl.oauthbearer.assertion.claim.jti.include",
            "sasl.oauthbearer.assertion.claim.nbf.seconds",
            "sasl.oauthbearer.assertion.claim.sub",
            "sasl.oauthbearer.assertion.file",
            "sasl.oauthbearer.assertion.private.key.file",
            "sasl.oauthbearer.assertion.private.key.passphrase",
            "sasl.oauthbearer.assertion.template.file",
        ),
        "tokens are fetched by client id and secret only",
    ),
    "ssl.cipher.suites": "restrict the suites at the broker, or the version by ssl.enabled.protocols",
}
_REFUSED_PREFIXES: Final = ("config.providers.",)

_JAVA_CLASSES: Final[Mapping[str, tuple[str, ...]]] = {
    "interceptor.classes": (),
    "partitioner.class": ("DefaultPartitioner",),
    "sasl.client.callback.handler.class": (),
    "sasl.login.callback.handler.class": ("OAuthBearerLoginCallbackHandler",),
    "sasl.login.class": (),
    "sasl.oauthbearer.jwt.retriever.class": ("DefaultJwtRetriever", "ClientCredentialsJwtRetriever"),
    "sasl.oauthbearer.jwt.validator.class": ("DefaultJwtValidator", "ClientJwtValidator"),
    "security.providers": (),
    "ssl.engine.factory.class": ("DefaultSslEngineFactory",),
}
"""Settings that name a Java class, and the classes of Kafka's own whose work is done here."""

_IGNORED: Final = frozenset(
    {
        "allow.auto.create.topics",
        "auto.commit.interval.ms",
        "auto.include.jmx.reporter",
        "buffer.memory",
        "check.crcs",
        "client.rack",
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.zstd.level",
        "enable.metrics.push",
        "exclude.internal.topics",
        "fetch.max.wait.ms",
        "fetch.min.bytes",
        "group.protocol",
        "group.remote.assignor",
        "heartbeat.interval.ms",
        "linger.ms",
        "max.block.ms",
        "max.partition.fetch.bytes",
        "max.poll.interval.ms",
        "max.poll.records",
        "metadata.max.age.ms",
        "metadata.max.idle.ms",
        "metadata.recovery.rebootstrap.trigger.ms",
        "metadata.recovery.strategy",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "partition.assignment.strategy",
        "partitioner.adaptive.partitioning.enable",
        "partitioner.availability.timeout.ms",
        "partitioner.ignore.keys",
        "rebalance.timeout.ms",
        "retries",
        "retry.backoff.max.ms",
        "retry.backoff.ms",
        "sasl.login.refresh.buffer.seconds",
        "sasl.login.refresh.min.period.seconds",
        "sasl.login.refresh.window.factor",
        "sasl.login.refresh.window.jitter",
        "sasl.login.retry.backoff.max.ms",
        "sasl.login.retry.backoff.ms",
        "sasl.oauthbearer.clock.skew.seconds",
        "sasl.oauthbearer.expected.audience",
        "sasl.oauthbearer.expected.issuer",
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        "sasl.oauthbearer.jwks.endpoint.url",
        "sasl.oauthbearer.scope.claim.name",
        "sasl.oauthbearer.sub.claim.name",
        "session.timeout.ms",
        "share.acknowledgement.mode",
        "ssl.keymanager.algorithm",
        "ssl.protocol",
        "ssl.provider",
        "ssl.secure.random.implementation",
        "ssl.trustmanager.algorithm",
    }
)
"""Settings of Kafka's clients without a meaning here: groups and their members, waits and shares of Java's
consumer (a task reads offsets that are known, and asks for the leaders that it needs), buffers and threads of
Java's producer, Java's security providers, and what only the broker's side of SASL has."""
_IGNORED_PREFIXES: Final = ("sasl.kerberos.",)

_KNOWN: Final = frozenset(
    {
        *_CONNECTION,
        *_FIELDS,
        *_REQUIRED,
        *_REFUSED,
        *_JAVA_CLASSES,
        *_IGNORED,
        *_OAUTH_SETTINGS,
        *TLS_SETTINGS,
    }
    | {
        "client.dns.lookup",
        "client.id",
        _LARGEST_FETCH,
        "receive.buffer.bytes",
        JAAS,
        "sasl.mechanism",
        "sasl.password",
        "sasl.username",
        "security.protocol",
        "send.buffer.bytes",
    }
)
