"""Decoders of a registry's schemas, each compiled once: schemas never change under their id."""

from __future__ import annotations

import time
from functools import lru_cache
from typing import Any, Final

from selectroute.kafka.errors import RecordError
from selectroute.kafka.schemas.decoder import Decoder, InvalidSchemaError, Paths, json_decoder
from selectroute.kafka.schemas.framing import SchemaId
from selectroute.kafka.schemas.registry import OnMissing, SchemaClient, SchemaRegistry
from selectroute.selector.errors import SelectRouteError

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
        """Return the type and text of a schema, and names and texts of the schemas that it refers to, each
        after those that it refers to. Raises InvalidSchemaError if these are too many or large.
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
