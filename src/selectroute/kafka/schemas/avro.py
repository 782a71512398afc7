"""Decoders of Avro: fastavro, with a reader schema of the bound paths only, so that all else is skipped.

Two schemas are made from the registered one: the writer's, and the reader's, in which each record has only
the fields on bound paths. In both, named types have names of their own (``t0``, ``t1``, …), so that the two
match however the names are qualified, and the logical types that are converted have readers of their own::

    registered                                            paths $.total, $.to.city
    Order {id: string, total: double, to: Address}        t0 {total: double, to: t1}
    Address {street: string, city: string}                t1 {city: string}

A record that occurs at several places has the fields of all. Schema resolution takes the first branch of a
reader's union to which a value can be promoted, so a schema with a union of several numbers, or of strings
and byte strings, on a bound path is decoded as a whole.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from importlib import import_module
from io import BytesIO
from typing import Any, Final
from uuid import UUID

from selectroute.kafka.binding import Path
from selectroute.kafka.errors import RecordError
from selectroute.kafka.json_body import at_path
from selectroute.kafka.schemas.decoder import Decoder, InvalidSchemaError, Paths
from selectroute.kafka.schemas.values import MAX_SCALE, NonFinite, Temporal, decimal_of

Trie = dict[str | int, Any]
"""Steps of paths, each with the steps after it."""

_PRIMITIVES: Final = frozenset(("null", "boolean", "int", "long", "float", "double", "bytes", "string"))
_NUMBERS: Final = frozenset(("int", "long", "float", "double"))
_MAX_DEPTH: Final = 100
"""Maximum nesting of a schema, and so of the calls that decode a datum of one that is not recursive."""

_PYTHON: Final = "fastavro._read_py"
"""Reader in Python, for recursive schemas: in the compiled one a deep datum ends the process."""

_OWN: Final = "selectroute-"
_TEMPORAL: Final[Mapping[tuple[str, str], tuple[Any, int]]] = {
    ("int", "date"): ("date", 1),
    ("int", "time-millis"): ("time", 1_000_000),
    ("long", "time-micros"): ("time", 1_000),
    ("long", "timestamp-millis"): ("instant", 1_000_000),
    ("long", "timestamp-micros"): ("instant", 1_000),
    ("long", "timestamp-nanos"): ("instant", 1),
    ("long", "local-timestamp-millis"): ("local", 1_000_000),
    ("long", "local-timestamp-micros"): ("local", 1_000),
    ("long", "local-timestamp-nanos"): ("local", 1),
}
"""Kind of each logical type of time, and the nanoseconds (or days) of one."""


def avro_decoder(text: str, references: tuple[tuple[str, str], ...], paths: Paths) -> Decoder:
    """Compile an Avro schema.

    Args:
        text: the schema.
        references: names and texts of the schemas that it refers to, each after those that it refers to.
        paths: the paths to read.

    Raises:
        InvalidSchemaError: it is not a valid schema, or an array's items may have no bytes.
    """
    from fastavro import parse_schema, schemaless_reader

    types = _Types()
    try:
        for _, other in references:
            types.read(json.loads(other))
        root = types.read(json.loads(text))
        writer = _Written(types, None)
        write_schema = parse_schema(writer.emit(root))
        types.check_widths(root)
        try:
            read_schema = parse_schema(_Written(types, _wanted(types, root, paths)).emit(root))
        except _PromotionError:
            read_schema = None
    except RecursionError:
        raise InvalidSchemaError("it is nested too deeply") from None
    except InvalidSchemaError:
        raise
    except Exception as error:  # fastavro and json raise many kinds
        raise InvalidSchemaError(f"it is not valid Avro ({type(error).__name__})") from None
    _register_logical_types()
    reader: Callable[..., Any] = schemaless_reader
    if writer.recursive:
        reader = import_module(_PYTHON).schemaless_reader
    if (root if isinstance(root, str) else root["type"] if isinstance(root, dict) else "") == "bytes":
        return _raw_bytes(paths)

    def decode(datum: bytes, index: bytes | None) -> list[Any]:
        try:
            body = reader(BytesIO(datum), write_schema, read_schema)
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


def _raw_bytes(paths: Paths) -> Decoder:
    """Return the decoder of a schema that is only bytes: serializers write these without their length."""

    def decode(datum: bytes, index: bytes | None) -> list[Any]:
        return [None if path else datum for path in paths]

    return decode


def _leaf(value: Any) -> Any:
    return NonFinite(value) if isinstance(value, float) and not math.isfinite(value) else value


class _PromotionError(Exception):
    """Union in which schema resolution might take another branch than the writer's."""


class _Types:
    """Types of a schema and of its references, with named types apart.

    A type is a primitive's name, a named type's new name, ``{"type": "array", "items": …}``, ``{"type":
    "map", "values": …}``, a list for a union, or a primitive with a logical type.
    """

    def __init__(self) -> None:
        self.named: dict[str, dict[str, Any]] = {}
        """Records with ``fields`` as pairs of name and type, enums and fixed types, by their new names."""

        self._new: dict[str, str] = {}

    def read(self, schema: Any, namespace: str = "", depth: int = 0) -> Any:
        """Return the type of a parsed schema. Raises InvalidSchemaError."""
        if depth > _MAX_DEPTH:
            raise InvalidSchemaError("it is nested too deeply")
        if isinstance(schema, str):
            return schema if schema in _PRIMITIVES else self._resolved(schema, namespace)
        if isinstance(schema, list):
            return [self.read(one, namespace, depth + 1) for one in schema]
        if not isinstance(schema, dict) or "type" not in schema:
            raise InvalidSchemaError("it is not valid Avro (a type is missing)")
        kind = schema["type"]
        if kind in ("record", "error"):
            name, own = self._define(schema, namespace)
            fields = [(one["name"], self.read(one["type"], own, depth + 1)) for one in schema["fields"]]
            self.named[name] = {"type": "record", "fields": fields}
            return name
        if kind == "enum":
            return self._leaf_type(schema, namespace, {"symbols": schema["symbols"]})
        if kind == "fixed":
            return self._leaf_type(schema, namespace, {"size": schema["size"], **_logical("fixed", schema)})
        if kind == "array":
            return {"type": "array", "items": self.read(schema["items"], namespace, depth + 1)}
        if kind == "map":
            return {"type": "map", "values": self.read(schema["values"], namespace, depth + 1)}
        if isinstance(kind, str) and kind in _PRIMITIVES:
            logical = _logical(kind, schema)
            return {"type": kind, **logical} if logical else kind
        return self.read(kind, namespace, depth + 1)

    def check_widths(self, type_: Any) -> None:
        """Raise InvalidSchemaError if an array's items may have no bytes: a few could then be any number."""
        for one in [type_, *self.named.values()]:
            self._check_width(one)

    def _check_width(self, type_: Any) -> None:
        if isinstance(type_, list):
            for one in type_:
                self._check_width(one)
        elif isinstance(type_, dict):
            if type_["type"] == "array" and not self._has_width(type_["items"], frozenset()):
                raise InvalidSchemaError("an array has items without any bytes")
            for one in (type_.get("items"), type_.get("values"), *(of for _, of in type_.get("fields", ()))):
                self._check_width(one)

    def _has_width(self, type_: Any, within: frozenset[str]) -> bool:
        if isinstance(type_, list) or type_ in _PRIMITIVES - {"null"}:
            return True
        if isinstance(type_, str):
            named = self.named.get(type_)
            if named is None or type_ in within:
                return False
            if named["type"] == "record":
                return any(self._has_width(one, within | {type_}) for _, one in named["fields"])
            return named["type"] == "enum" or bool(named["size"])
        return isinstance(type_, dict)

    def _define(self, schema: Mapping[str, Any], namespace: str) -> tuple[str, str]:
        """Return the new name of a named type, and the namespace of names in it."""
        own = schema.get("namespace", namespace) or ""
        full = schema["name"] if "." in schema["name"] else _qualified(schema["name"], own)
        name = self._new[full] = f"t{len(self._new)}"
        return name, full.rpartition(".")[0]

    def _leaf_type(self, schema: Mapping[str, Any], namespace: str, rest: Mapping[str, Any]) -> str:
        name, _ = self._define(schema, namespace)
        self.named[name] = {"type": schema["type"], **rest}
        return name

    def _resolved(self, name: str, namespace: str) -> str:
        for full in (_qualified(name, namespace), name):
            if full in self._new:
                return self._new[full]
        raise InvalidSchemaError(f"it has no type {name[:100]!a}")


def _qualified(name: str, namespace: str) -> str:
    return f"{namespace}.{name}" if namespace and "." not in name else name


def _logical(kind: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes of a logical type that is converted; any other is its underlying type."""
    logical = schema.get("logicalType")
    if (kind, logical) in _TEMPORAL or (kind, logical) == ("fixed", "uuid"):
        return {"logicalType": f"{_OWN}{logical}"}
    scale = schema.get("scale", 0)
    if (
        logical == "decimal"
        and kind in ("bytes", "fixed")
        and isinstance(scale, int)
        and 0 <= scale <= MAX_SCALE
    ):
        return {"logicalType": f"{_OWN}decimal", "scale": scale}
    return {}


def _wanted(types: _Types, root: Any, paths: Paths) -> dict[str, Trie]:
    """Return the fields of each record that are on a path, wherever the record occurs."""
    found: dict[str, Trie] = {}

    def visit(type_: Any, trie: Trie) -> None:
        if not trie:
            return
        if isinstance(type_, list):
            for branch in type_:
                visit(branch, trie)
        elif isinstance(type_, str):
            for name, field in types.named.get(type_, {}).get("fields", ()):
                if name in trie:
                    found.setdefault(type_, {})[name] = True
                    visit(field, trie[name])
        elif type_["type"] in ("array", "map"):
            steps = int if type_["type"] == "array" else str
            merged: Trie = {}
            for step, rest in trie.items():
                if isinstance(step, steps):
                    _merge(merged, rest)
            visit(type_.get("items", type_.get("values")), merged)

    trie: Trie = {}
    for path in paths:
        _merge(trie, _nested(path))
    visit(root, trie)
    return found


def _nested(path: Path) -> Trie:
    trie: Trie = {}
    for step in reversed(path):
        trie = {step: trie}
    return trie


def _merge(into: Trie, other: Trie) -> None:
    for step, rest in other.items():
        _merge(into.setdefault(step, {}), rest)


class _Written:
    """Schema for fastavro from types: each named type is defined where it first occurs.

    Attributes:
        recursive: whether a record contains itself.
    """

    def __init__(self, types: _Types, fields: Mapping[str, Trie] | None) -> None:
        """Write all fields of records, or only ``fields``."""
        self.recursive = False
        self._types = types
        self._fields = fields
        self._done: set[str] = set()
        self._open: set[str] = set()

    def emit(self, type_: Any, depth: int = 0) -> Any:
        """Return the schema of a type. Raises InvalidSchemaError and, for chosen fields, _PromotionError."""
        if depth > _MAX_DEPTH:
            raise InvalidSchemaError("it is nested too deeply")
        if isinstance(type_, list):
            if self._fields is not None and _promotes(type_):
                raise _PromotionError
            return [self.emit(one, depth + 1) for one in type_]
        if isinstance(type_, dict):
            inner = "items" if "items" in type_ else "values" if "values" in type_ else None
            return type_ if inner is None else {**type_, inner: self.emit(type_[inner], depth + 1)}
        if type_ in _PRIMITIVES:
            return type_
        self.recursive = self.recursive or type_ in self._open
        if type_ in self._done:
            return type_
        self._done.add(type_)
        named = self._types.named[type_]
        if named["type"] != "record":
            return {**named, "name": type_}
        self._open.add(type_)
        chosen = None if self._fields is None else self._fields.get(type_, {})
        fields = [
            {"name": name, "type": self.emit(one, depth + 1)}
            for name, one in named["fields"]
            if chosen is None or name in chosen
        ]
        self._open.discard(type_)
        return {"type": "record", "name": type_, "fields": fields}


def _promotes(union: list[Any]) -> bool:
    kinds = {one["type"] if isinstance(one, dict) else one for one in union}
    return len(kinds & _NUMBERS) > 1 or {"string", "bytes"} <= kinds


def _register_logical_types() -> None:
    """Add the readers of the logical types under names of our own, which no other user of fastavro meets."""
    for module in ("fastavro.read", _PYTHON):
        readers = import_module(module).LOGICAL_READERS
        for (kind, logical), (meaning, unit) in _TEMPORAL.items():
            readers[f"{kind}-{_OWN}{logical}"] = _temporal_reader(meaning, unit)
        for kind in ("bytes", "fixed"):
            readers[f"{kind}-{_OWN}decimal"] = _read_decimal
        readers[f"fixed-{_OWN}uuid"] = _read_uuid


def _temporal_reader(kind: Any, unit: int) -> Callable[..., Temporal]:
    return lambda count, writer_schema=None, reader_schema=None: Temporal(kind, count * unit)


def _read_decimal(digits: bytes, writer_schema: Any = None, reader_schema: Any = None) -> Any:
    return decimal_of(digits, writer_schema["scale"])


def _read_uuid(value: bytes, writer_schema: Any = None, reader_schema: Any = None) -> str:
    return str(UUID(bytes=value))
