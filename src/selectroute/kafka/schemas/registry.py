"""Schema registry: its settings, its client, and a decoder of each schema, compiled once.

A schema never changes under its id.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Literal, Protocol
from urllib.parse import urlsplit

from selectroute.durable.settings_file import secrets_by_reference
from selectroute.extras import importing
from selectroute.kafka.errors import RecordError
from selectroute.kafka.schemas.framing import Decoder, InvalidSchemaError, Paths, SchemaId, json_decoder
from selectroute.selector.errors import SelectRouteError, did_you_mean

OnMissing = Literal["wait", "dead-letter"]
ON_MISSING: Final = ("wait", "dead-letter")

SETTINGS: Final[Mapping[str, Callable[[str], Any]]] = {
    "basic.auth.user.info": str,
    "bearer.auth.client.id": str,
    "bearer.auth.client.secret": str,
    "bearer.auth.credentials.source": str,
    "bearer.auth.identity.pool.id": str,
    "bearer.auth.issuer.endpoint.url": str,
    "bearer.auth.logical.cluster": str,
    "bearer.auth.scope": str,
    "bearer.auth.token": str,
    "max.retries": int,
    "proxy": str,
    "retries.max.wait.ms": int,
    "retries.wait.ms": int,
    "ssl.ca.location": str,
    "ssl.certificate.location": str,
    "ssl.key.location": str,
    "ssl.key.password": str,
    "timeout": float,
}
"""Settings of the client by their names, and the type of each."""

_SECRETS: Final = frozenset(
    ("basic.auth.user.info", "bearer.auth.client.secret", "bearer.auth.token", "proxy", "ssl.key.password")
)
_DEFAULTS: Final[Mapping[str, Any]] = {"timeout": 10.0, "retries.wait.ms": 200, "retries.max.wait.ms": 2_000}
_FILES: Final = ("ssl.ca.location", "ssl.certificate.location", "ssl.key.location")
_LIBRARIES: Final = ("fastavro", "google.protobuf")
"""Libraries of the decoders, which the client does not import."""


class SchemaSettingsError(SelectRouteError):
    """Invalid setting of a schema registry. The text names it and never shows its value."""


class SchemaClient(Protocol):
    """Requests of a registry's client, as in ``confluent_kafka``, that readers of bodies make."""

    def get_schema(self, schema_id: int, *, fmt: str | None = ...) -> Any:
        """Return the schema with this id."""

    def get_schema_by_guid(self, guid: str, fmt: str | None = ...) -> Any:
        """Return the schema with this GUID."""

    def get_version(self, subject_name: str, version: int, deleted: bool = ..., fmt: str | None = ...) -> Any:
        """Return a version of a subject."""


@dataclass(frozen=True)
class SchemaRegistry:
    """Schema registry of the bodies of records.

    Attributes:
        url: ``https://host:port`` or ``http://…``; of several, separated by commas, the next one is asked if
            one does not answer.
        options: settings of the client, by the names of `SETTINGS`. Secrets among them are never shown, and
            pickled as their place: the file that they are from, or one of this user. Files that they name
            must exist wherever records are read.
        on_missing: for a schema that is unknown to the registry, or can't be fetched because the registry
            does not answer: ``wait`` until it can, or ``dead-letter`` the record.

    Raises:
        SchemaSettingsError: a setting is unknown or not valid.
    """

    url: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    on_missing: OnMissing = "wait"

    def __post_init__(self) -> None:
        for url in self.url.split(","):
            _check_url(url.strip())
        if self.on_missing not in ON_MISSING:
            raise SchemaSettingsError(
                f"a missing schema can be {' or '.join(ON_MISSING)}, not {self.on_missing!r:.40}"
            )
        options: Mapping[str, Any] = self.options
        for name, value in options.items():
            if name not in SETTINGS:
                advice = did_you_mean(name, SETTINGS, "it is one of")
                raise SchemaSettingsError(f"a schema registry has no setting {name!r:.80}: {advice}")
            if not isinstance(value, str) or not _is_of(SETTINGS[name], value):
                kind = "text" if SETTINGS[name] is str else "a number of at least 0"
                raise SchemaSettingsError(f"the setting {name} of a schema registry must be {kind}")
        if "bearer.auth.token" in self.options and "basic.auth.user.info" in self.options:
            raise SchemaSettingsError("give a schema registry basic.auth.user.info or a token, not both")
        object.__setattr__(self, "options", secrets_by_reference(self.options, _SECRETS))

    def __hash__(self) -> int:
        return hash((self.url, tuple(sorted(self.options.items())), self.on_missing))

    def client(self) -> SchemaClient:
        """Return a client. It connects when it is first used.

        Raises:
            SchemaSettingsError: the client rejects the settings, or can't read a file.
            MissingExtraError: the extra ``schemas`` is not installed.
        """
        with importing("schemas"):
            from confluent_kafka.schema_registry import SchemaRegistryClient

            for name in _LIBRARIES:
                import_module(name)
        for name in _FILES:
            if name in self.options and not Path(self.options[name]).exists():
                raise SchemaSettingsError(f"the file of {name} does not exist: {self.options[name]!r:.200}")
        settings = {name: SETTINGS[name](value) for name, value in self.options.items()}
        if "bearer.auth.token" in settings:
            # Registries of other makers have neither; the client asks for both.
            settings = {
                "bearer.auth.credentials.source": "STATIC_TOKEN",
                "bearer.auth.logical.cluster": "",
                **settings,
            }
        try:
            return SchemaRegistryClient({**_DEFAULTS, **settings, "url": self.url})
        except (ValueError, TypeError, OSError) as error:
            # The error's own text may show a value; those of missing settings name only settings.
            named = re.findall(r"\b(?:basic|bearer|ssl)\.[a-z.]+[a-z]\b", str(error))
            about = f" ({', '.join(dict.fromkeys(named))})" if named else f" ({type(error).__name__})"
            raise SchemaSettingsError(f"the settings of the schema registry are not valid{about}") from None


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        raise SchemaSettingsError("the URL of a schema registry is not valid") from None
    if parts.username is not None or parts.password is not None:
        raise SchemaSettingsError(
            "the URL of a schema registry may not contain a password: write basic.auth.user.info into the "
            "file of its settings"
        )
    if not valid:
        raise SchemaSettingsError(
            f"the URL of a schema registry must be https://host or http://host, not {url!r:.80}"
        )


def _is_of(type_: Callable[[str], Any], value: str) -> bool:
    if type_ is str:
        return True
    try:
        return bool(0 <= type_(value) < 1e9)
    except ValueError:
        return False


UNKNOWN: Final = "unknown-schema"
UNREACHABLE: Final = "registry-unreachable"

MAX_SCHEMA_BYTES: Final = 4 << 20
"""Maximum size of a schema with all that it refers to."""

MAX_REFERENCES: Final = 1_000
"""Maximum number of other schemas that a schema refers to, directly or by others."""

_MAX_DEPTH: Final = 100
_MAX_DECODERS: Final = 10_000
_PAUSE: Final = 1.0
_CONNECTING: Final = ("ConnectError", "ConnectTimeout", "ReadTimeout", "ReadError", "RemoteProtocolError")


class SchemaUnavailableError(SelectRouteError):
    """Schema that is unknown to the registry, or can't be fetched; it may be there later.

    Attributes:
        reason: `UNKNOWN` or `UNREACHABLE`, as in a dead letter.
        id: the id of the schema.
        problem: the text.
    """

    def __init__(self, reason: str, id: SchemaId, problem: str) -> None:
        super().__init__(reason, id, problem)
        self.reason = reason
        self.id = id
        self.problem = problem

    def __str__(self) -> str:
        return self.problem

    def as_record_error(self) -> RecordError:
        """Return the error of a record with this schema."""
        return RecordError("read", self.reason, self.problem)


class Schemas:
    """Decoders of a registry's schemas.

    A schema is fetched when a decoder is first needed. After that the registry is not needed for it. A
    registry that did not answer, or does not know an id, is asked again after a second at the earliest.
    """

    def __init__(self, client: SchemaClient, on_missing: OnMissing = "wait", where: str = "") -> None:
        """Create an empty cache.

        Args:
            client: the client of the registry, which keeps the schemas.
            on_missing: the policy for schemas that are not available, see `SchemaRegistry`.
            where: the registry's address for error texts.
        """
        self.on_missing = on_missing
        self._client = client
        self._where = f"the schema registry {where}".rstrip()
        self._decoders: dict[tuple[SchemaId, Paths], Decoder | RecordError] = {}
        self._failures: dict[SchemaId | None, tuple[float, str]] = {}
        """Until when an id counts as unknown, or (None) the registry as out of reach, and why."""

    def decoder(self, id: SchemaId, paths: Paths) -> Decoder:
        """Return the decoder of the values at these paths. O(1), and once an id a request.

        Raises:
            SchemaUnavailableError: the schema can't be fetched.
            RecordError: the schema is not valid, or of a kind that is not known.
        """
        decoder = self._decoders.get((id, paths))
        if decoder is None:
            if len(self._decoders) >= _MAX_DECODERS:
                self._decoders.clear()
            decoder = self._decoders[id, paths] = self._compiled(id, paths)
        if isinstance(decoder, RecordError):
            raise RecordError(decoder.stage, decoder.reason, decoder.problem)
        return decoder

    def _compiled(self, id: SchemaId, paths: Paths) -> Decoder | RecordError:
        try:
            type_, text, references = self._fetched(id)
            # Each kind has a library of its own, which the others do not need.
            if type_ == "AVRO":
                from selectroute.kafka.schemas.avro import avro_decoder

                return avro_decoder(text, references, paths)
            if type_ == "PROTOBUF":
                from selectroute.kafka.schemas.protobuf import protobuf_decoder

                return protobuf_decoder(text, references, paths)
            if type_ == "JSON":
                return json_decoder(paths)
            raise InvalidSchemaError(f"its type is {type_[:40]!a}, not AVRO, PROTOBUF or JSON")
        except InvalidSchemaError as error:
            return RecordError("parse", "invalid-schema", f"{_called(id)} can't be used: {error}")

    def _fetched(self, id: SchemaId) -> tuple[str, str, tuple[tuple[str, str], ...]]:
        """Return the type and text of a schema, and names and texts of the schemas that it refers to.

        Each of these comes after those that it refers to. Raises InvalidSchemaError if they are too
        many or large.
        """
        from confluent_kafka.schema_registry import SchemaRegistryError

        for failed in (id, None):
            until, cause = self._failures.get(failed, (0.0, ""))
            if time.monotonic() < until:
                raise self._unavailable(id, failed, cause)
        try:
            # The format concerns Protobuf only, whose text nothing here could parse.
            fetch: Any = self._client.get_schema if isinstance(id, int) else self._client.get_schema_by_guid
            registered = fetch(id, fmt="serialized")
            return (str(registered.schema_type or "AVRO").upper(), *self._with_references(registered))
        except InvalidSchemaError:
            raise
        except SchemaRegistryError as error:
            # 40403 and its neighbours are a registry's own; a plain 404 is anybody's.
            is_unknown = error.http_status_code == 404 and 40400 <= _number(error.error_code) < 40500
            failed, cause = id if is_unknown else None, f"HTTP {_number(error.http_status_code)}"
        except Exception as error:
            # Texts of other errors might show a header with a password.
            named = type(error).__name__
            failed, cause = None, f"{named}: {error}" if named in _CONNECTING else named
        cause = ascii(cause)[1:-1][:200]
        if len(self._failures) >= _MAX_DECODERS:
            self._failures.clear()
        self._failures[failed] = time.monotonic() + _PAUSE, cause
        raise self._unavailable(id, failed, cause)

    def _with_references(self, registered: Any) -> tuple[str, tuple[tuple[str, str], ...]]:
        texts: dict[str, str] = {}
        size = 0

        def collect(schema: Any, depth: int) -> str:
            """Find what a schema refers to; return its text."""
            nonlocal size
            text = str(schema.schema_str or "")
            size += len(text)
            if size > MAX_SCHEMA_BYTES:
                raise InvalidSchemaError(f"it is larger than {MAX_SCHEMA_BYTES:,} bytes")
            for reference in schema.references or ():
                if reference.name in texts:
                    continue
                if depth > _MAX_DEPTH or len(texts) >= MAX_REFERENCES:
                    raise InvalidSchemaError(
                        f"it refers to more than {MAX_REFERENCES:,} others, or too deeply"
                    )
                texts[reference.name] = ""
                other = collect(
                    self._client.get_version(reference.subject, reference.version, True, "serialized").schema,
                    depth + 1,
                )
                del texts[reference.name]  # after those that it refers to
                texts[reference.name] = other
            return text

        return collect(registered, 0), tuple(texts.items())

    def _unavailable(self, id: SchemaId, failed: SchemaId | None, cause: str) -> SchemaUnavailableError:
        if failed is not None:
            return SchemaUnavailableError(UNKNOWN, id, f"{self._where} does not know {_called(id)}")
        problem = f"{_called(id)} can't be fetched: {self._where} does not answer ({cause})"
        return SchemaUnavailableError(UNREACHABLE, id, problem)


@lru_cache(maxsize=16)
def open_schemas(registry: SchemaRegistry) -> Schemas:
    """Return the process's cache of a registry. The registry is first asked for the first schema.

    Raises:
        SchemaSettingsError: the client rejects the settings.
    """
    return Schemas(registry.client(), registry.on_missing, registry.url)


def _called(id: SchemaId) -> str:
    return f"the schema with id {id}" if isinstance(id, int) else f"the schema with GUID {id}"


def _number(value: object) -> int:
    return value if isinstance(value, int) else -1
