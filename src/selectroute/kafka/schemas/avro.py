"""Decoder of Avro: fastavro reads a datum by the writer's schema, and the bound paths are taken from it.

Two things are changed in a schema before it is parsed. Its logical types get names of this package, whose
readers keep what Python's types can't hold: nanoseconds, years after 9999, long decimals. And it becomes the
only field of a record, which is written in the same bytes, so that a body of any type is read in one way.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from io import BytesIO
from typing import Any, Final
from uuid import UUID

from fastavro import _read_py, parse_schema, read, schemaless_reader
from fastavro.const import AVRO_TYPES
from fastavro.schema import UnknownType

from selectroute.kafka.errors import RecordError
from selectroute.kafka.schemas.framing import Decoder, InvalidSchemaError, Paths, at_path
from selectroute.kafka.texts import NonFinite, Temporal, decimal_of

_MAX_DEPTH: Final = 100
"""Maximum nesting of a schema's types, and so of the calls that decode a datum if no type contains itself."""

_MAX_JSON_DEPTH: Final = 3 * _MAX_DEPTH
"""Maximum nesting of the JSON of a schema, in which a record is an object, its fields and each of these."""

_BODY: Final = "selectroute_body"
_OWN: Final = "selectroute-"


def avro_decoder(text: str, references: tuple[tuple[str, str], ...], paths: Paths) -> Decoder:
    """Compile an Avro schema.

    Args:
        text: the schema.
        references: names and texts of the schemas that it refers to, each after those that it refers to.
        paths: the paths to read.

    Raises:
        InvalidSchemaError: it is not a valid schema, or an array's items may have no bytes.
    """
    named: dict[str, Any] = {}
    try:
        for _, other in references:
            parse_schema(_prepared(json.loads(other)), named)
        root = _prepared(json.loads(text))
        body = {"type": "record", "name": _BODY, "fields": [{"name": _BODY, "type": root}]}
        schema: Any = parse_schema(body, named)
        is_recursive = _is_recursive(schema, named)
    except RecursionError:
        raise InvalidSchemaError("it is nested too deeply") from None
    except InvalidSchemaError:
        raise
    except UnknownType as error:
        raise InvalidSchemaError(f"it has no type {str(error.name)[:100]!a}") from None
    except Exception as error:  # fastavro and json raise many kinds
        raise InvalidSchemaError(f"it is not valid Avro ({type(error).__name__})") from None
    if (root["type"] if isinstance(root, dict) else root) == "bytes":
        # Serializers write these without their length.
        return lambda datum, index: [None if path else datum for path in paths]
    # In the compiled reader a deep datum ends the process.
    reader: Callable[..., Any] = _read_py.schemaless_reader if is_recursive else schemaless_reader

    def decode(datum: bytes, index: bytes | None) -> list[Any]:
        try:
            body = reader(BytesIO(datum), schema)[_BODY]
        except RecursionError:
            raise RecordError("parse", "too-deep", "the body is nested too deeply") from None
        except UnicodeDecodeError as error:
            raise RecordError(
                "parse", "not-avro", f"a string of the body is not UTF-8: {error.reason}"
            ) from None
        except Exception as error:  # fastavro has no error of its own for data that is not valid
            raise RecordError(
                "parse", "not-avro", f"the body is not Avro of its schema ({type(error).__name__})"
            ) from None
        return [_leaf(at_path(body, path)) for path in paths]

    return decode


def _leaf(value: Any) -> Any:
    return NonFinite(value) if isinstance(value, float) and not math.isfinite(value) else value


def _prepared(schema: Any, depth: int = 0) -> Any:
    """Return a schema in which only the logical types of `_READERS` are left.

    What does not matter to a reader and may be wrong is removed.
    """
    if depth > _MAX_JSON_DEPTH:
        raise InvalidSchemaError("it is nested too deeply")
    if isinstance(schema, list):
        return [_prepared(part, depth + 1) for part in schema]
    if not isinstance(schema, dict):
        return schema
    type_ = _prepared(schema["type"], depth + 1)
    if "name" not in schema and not (isinstance(type_, str) and type_ in AVRO_TYPES):
        return type_  # only braces around a type
    prepared = {
        name: part for name, part in schema.items() if name not in ("default", "aliases", "logicalType")
    }
    for name in ("fields", "items", "values"):
        if name in prepared:
            prepared[name] = _prepared(prepared[name], depth + 1)
    logical = f"{_OWN}{schema.get('logicalType')}"
    if f"{type_}-{logical}" in _READERS:
        prepared["logicalType"] = logical
    return {**prepared, "type": type_}


def _is_recursive(schema: Any, named: Mapping[str, Any]) -> bool:
    """Return whether a record of a parsed schema contains itself.

    Raises:
        InvalidSchemaError: it is nested too deeply, or an array's items may have no bytes, of which a few
            bytes of a body could claim any number.
    """
    records: dict[str, tuple[int, bool] | None] = {}
    is_recursive = False

    def measured(type_: Any) -> tuple[int, bool]:
        """Return the nesting of a type, and whether each of its values has bytes."""
        nonlocal is_recursive
        type_ = named.get(type_, type_) if isinstance(type_, str) else type_
        if isinstance(type_, str):
            return 0, type_ != "null"
        if isinstance(type_, list):
            inner, has_bytes = [measured(branch) for branch in type_], True
        elif type_["type"] in ("array", "map"):
            inner, has_bytes = [measured(type_.get("items", type_.get("values")))], True
            if type_["type"] == "array" and not inner[0][1]:
                raise InvalidSchemaError("an array has items without any bytes")
        elif "fields" not in type_:
            return 0, type_["type"] != "null" and type_.get("size") != 0
        elif type_["name"] in records:
            known = records[type_["name"]]
            is_recursive = is_recursive or known is None
            return known or (0, False)
        else:
            records[type_["name"]] = None  # while its fields are measured
            inner = [measured(field["type"]) for field in type_["fields"]]
            has_bytes = any(of_field for _, of_field in inner)
        depth = 1 + max((of_inner for of_inner, _ in inner), default=0)
        if depth > _MAX_DEPTH:
            raise InvalidSchemaError("it is nested too deeply")
        if "fields" in type_:
            records[type_["name"]] = depth, has_bytes
        return depth, has_bytes

    measured(schema)
    return is_recursive


def _temporal(kind: Any, unit: int) -> Callable[..., Temporal]:
    return lambda count, *_: Temporal(kind, count * unit)


def _decimal(digits: bytes, schema: Any, *_: Any) -> Any:
    scale = schema.get("scale", 0)
    return decimal_of(digits, scale) if isinstance(scale, int) and scale >= 0 else digits


_READERS: Final[Mapping[str, Callable[..., Any]]] = {
    f"{kind}-{_OWN}{logical}": read
    for kind, logical, read in (
        ("int", "date", _temporal("date", 1)),
        ("int", "time-millis", _temporal("time", 1_000_000)),
        ("long", "time-micros", _temporal("time", 1_000)),
        ("long", "timestamp-millis", _temporal("instant", 1_000_000)),
        ("long", "timestamp-micros", _temporal("instant", 1_000)),
        ("long", "timestamp-nanos", _temporal("instant", 1)),
        ("long", "local-timestamp-millis", _temporal("local", 1_000_000)),
        ("long", "local-timestamp-micros", _temporal("local", 1_000)),
        ("long", "local-timestamp-nanos", _temporal("local", 1)),
        ("bytes", "decimal", _decimal),
        ("fixed", "decimal", _decimal),
        ("fixed", "uuid", lambda value, *_: str(UUID(bytes=value))),
    )
}
"""Readers of the logical types that are converted; any other is its underlying type. A unit is a nanosecond,
or a day. No other user of fastavro meets their names.
"""

read.LOGICAL_READERS.update(_READERS)
_read_py.LOGICAL_READERS.update(_READERS)  # type: ignore[attr-defined]
