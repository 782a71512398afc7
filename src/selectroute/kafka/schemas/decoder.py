"""Decoders: functions from the datum of a schema to its values at paths; that of JSON.

Avro and Protobuf have values that JSON does not have: times, infinities. Byte strings and decimals are
Python's own ``bytes`` and ``Decimal``; every other value is what the same JSON would be. `value_of_json`
converts all of them to the bound types.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from selectroute.kafka.binding import Path
from selectroute.kafka.errors import RecordError
from selectroute.kafka.texts import NOT_UTF_8
from selectroute.selector.errors import SelectRouteError
from selectroute.selector.strict_json import JsonError, parse_json

Paths = tuple[Path, ...]

Decoder = Callable[[bytes, bytes | None], list[Any]]
"""Function from a datum, and the index of its message if a header has it, to one value a path.

A value is None, what parsed JSON would have, or one of `values`. It raises `RecordError` for a datum that is
not valid.
"""


class InvalidSchemaError(SelectRouteError):
    """Schema that can't be compiled."""


def parsed(value: bytes) -> Any:
    """Return a record's value as parsed JSON. Raises RecordError."""
    try:
        return parse_json(value)
    except JsonError as error:
        stage = "read" if error.kind == NOT_UTF_8 else "parse"
        raise RecordError(stage, error.kind, f"the body is {error}") from None


def at_path(body: Any, path: Path) -> Any:
    """Return the value at a path of parsed JSON, None if there is none."""
    for step in path:
        if isinstance(step, int):
            body = body[step] if isinstance(body, list) and step < len(body) else None
        else:
            body = body.get(step) if isinstance(body, dict) else None
        if body is None:
            return None
    return body


def json_decoder(paths: Paths) -> Decoder:
    """Return the decoder of JSON Schema, whose bodies are JSON. They are not validated."""

    def decode(datum: bytes, index: bytes | None) -> list[Any]:
        body = parsed(datum)
        return [at_path(body, path) for path in paths]

    return decode
