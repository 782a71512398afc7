"""Schemas of a registry, fetched once, each with one compiled decoder; they never change under their id."""

from __future__ import annotations

import time
from functools import lru_cache
from typing import Any, Final, NamedTuple, NoReturn

from selectroute.kafka.errors import RecordError
from selectroute.kafka.schemas.decoder import Decoder, InvalidSchemaError, Paths, json_decoder
from selectroute.kafka.schemas.registry import OnMissing, RegistryClient, SchemaRegistry
from selectroute.kafka.schemas.wire import SchemaId
from selectroute.selector.errors import SelectRouteError

UNKNOWN: Final = "unknown-schema"
UNREACHABLE: Final = "registry-unreachable"

MAX_SCHEMA_BYTES: Final = 4 << 20
"""Maximum size of a schema with all that it refers to."""

MAX_REFERENCES: Final = 1_000
"""Maximum number of other schemas that a schema refers to, directly or by others."""

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


class Schema(NamedTuple):
    """Schema as registered.

    Attributes:
        type: ``AVRO``, ``PROTOBUF`` or ``JSON``.
        text: the schema; of Protobuf the file's descriptor, in Base64.
        references: names and texts of all schemas that it refers to, each after those that it refers to.
    """

    type: str
    text: str
    references: tuple[tuple[str, str], ...] = ()


class Schemas:
    """Decoders of a registry's schemas.

    A schema is fetched when a decoder is first needed. After that the registry is not needed for it. A
    registry that did not answer, or does not know an id, is asked again after a second at the earliest.
    """

    def __init__(self, client: RegistryClient, on_missing: OnMissing = "wait", where: str = "") -> None:
        """Create an empty cache.

        Args:
            client: the client of the registry.
            on_missing: the policy for schemas that are not available, see `SchemaRegistry`.
            where: the registry's address for error texts.
        """
        self.on_missing = on_missing
        self._client = client
        self._where = f"the schema registry {where}".rstrip()
        self._schemas: dict[SchemaId, Schema | RecordError] = {}
        self._decoders: dict[tuple[SchemaId, Paths], Decoder | RecordError] = {}
        self._unknown: dict[SchemaId, float] = {}
        self._unreachable: tuple[float, str] = (0.0, "")

    def decoder(self, id: SchemaId, paths: Paths) -> Decoder:
        """Return the decoder of the values at these paths. O(1), and once an id a request.

        Raises:
            SchemaUnavailableError: the schema can't be fetched.
            RecordError: the schema is not valid, or of a kind that is not known.
        """
        found = self._decoders.get((id, paths))
        if found is None:
            schema = self._schema(id)
            found = schema if isinstance(schema, RecordError) else _compiled(schema, id, paths)
            if len(self._decoders) >= _MAX_DECODERS:
                self._decoders.clear()
            self._decoders[id, paths] = found
        if isinstance(found, RecordError):
            raise RecordError(found.stage, found.reason, found.problem)
        return found

    def _schema(self, id: SchemaId) -> Schema | RecordError:
        found = self._schemas.get(id)
        if found is None:
            now = time.monotonic()
            if now < self._unknown.get(id, 0.0):
                self._raise_unknown(id)
            if now < self._unreachable[0]:
                self._raise_unreachable(id, self._unreachable[1])
            found = self._schemas[id] = self._fetch(id)
        return found

    def _fetch(self, id: SchemaId) -> Schema | RecordError:
        from confluent_kafka.schema_registry import SchemaRegistryError

        try:
            # The format concerns Protobuf only, whose text nothing here could parse.
            if isinstance(id, int):
                registered = self._client.get_schema(id, fmt="serialized")
            else:
                registered = self._client.get_schema_by_guid(id, fmt="serialized")
            return self._with_references(registered, id)
        except RecordError as error:
            return error
        except SchemaRegistryError as error:
            # 40403 and its neighbours are a registry's own; a plain 404 is anybody's.
            if error.http_status_code == 404 and 40400 <= _number(error.error_code) < 40500:
                if len(self._unknown) >= _MAX_DECODERS:
                    self._unknown.clear()
                self._unknown[id] = time.monotonic() + _PAUSE
                self._raise_unknown(id)
            cause = f"HTTP {_number(error.http_status_code)}"
        except Exception as error:
            # Texts of other errors might show a header with a password.
            named = type(error).__name__
            cause = f"{named}: {error}" if named in _CONNECTING else named
        cause = ascii(cause)[1:-1][:200]
        self._unreachable = (time.monotonic() + _PAUSE, cause)
        self._raise_unreachable(id, cause)

    def _with_references(self, registered: Any, id: SchemaId) -> Schema:
        """Return a schema with all that it refers to. Raises RecordError if these are too many or large."""
        found: dict[str, str] = {}
        size = 0

        def text_of(schema: Any) -> str:
            nonlocal size
            text = str(schema.schema_str or "")
            size += len(text)
            if size > MAX_SCHEMA_BYTES:
                raise _invalid(id, f"it is larger than {MAX_SCHEMA_BYTES:,} bytes")
            return text

        def collect(schema: Any, depth: int) -> None:
            for one in schema.references or ():
                if one.name in found:
                    continue
                if depth > _MAX_DEPTH or len(found) >= MAX_REFERENCES:
                    raise _invalid(id, f"it refers to more than {MAX_REFERENCES:,} others, or too deeply")
                found[one.name] = ""
                other = self._client.get_version(one.subject, one.version, True, "serialized").schema
                text = text_of(other)
                collect(other, depth + 1)
                del found[one.name]  # after those that it refers to
                found[one.name] = text

        text = text_of(registered)
        collect(registered, 0)
        return Schema(str(registered.schema_type or "AVRO").upper(), text, tuple(found.items()))

    def _raise_unknown(self, id: SchemaId) -> NoReturn:
        raise SchemaUnavailableError(UNKNOWN, id, f"{self._where} does not know {_called(id)}")

    def _raise_unreachable(self, id: SchemaId, cause: str) -> NoReturn:
        problem = f"{_called(id)} can't be fetched: {self._where} does not answer ({cause})"
        raise SchemaUnavailableError(UNREACHABLE, id, problem)


_MAX_DEPTH: Final = 100


@lru_cache(maxsize=16)
def open_schemas(registry: SchemaRegistry) -> Schemas:
    """Return the process's cache of a registry. The registry is first asked for the first schema.

    Raises:
        SchemaSettingsError: the client rejects the settings.
    """
    return Schemas(registry.client(), registry.on_missing, registry.url)


def _compiled(schema: Schema, id: SchemaId, paths: Paths) -> Decoder | RecordError:
    try:
        if schema.type == "AVRO":
            from selectroute.kafka.schemas.avro import avro_decoder

            return avro_decoder(schema.text, schema.references, paths)
        if schema.type == "PROTOBUF":
            from selectroute.kafka.schemas.protobuf import protobuf_decoder

            return protobuf_decoder(schema.text, schema.references, paths)
        if schema.type == "JSON":
            return json_decoder(paths)
    except InvalidSchemaError as error:
        return _invalid(id, str(error))
    return _invalid(id, f"its type is {schema.type[:40]!a}, not AVRO, PROTOBUF or JSON")


def _invalid(id: SchemaId, problem: str) -> RecordError:
    return RecordError("parse", "invalid-schema", f"{_called(id)} can't be used: {problem}")


def _called(id: SchemaId) -> str:
    return f"the schema with id {id}" if isinstance(id, int) else f"the schema with GUID {id}"


def _number(given: object) -> int:
    return given if isinstance(given, int) else -1
