"""Decoders: functions from the datum of a schema to its values at paths."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from selectroute.kafka.binding import Path
from selectroute.kafka.json_body import at_path, parsed
from selectroute.selector.errors import SelectRouteError

Paths = tuple[Path, ...]

Decoder = Callable[[bytes, bytes | None], list[Any]]
"""Function from a datum, and the index of its message if a header has it, to one value a path.

A value is None, what parsed JSON would have, or one of `values`. It raises `RecordError` for a datum that is
not valid.
"""


class InvalidSchemaError(SelectRouteError):
    """Schema that can't be compiled."""


def json_decoder(paths: Paths) -> Decoder:
    """Return the decoder of JSON Schema, whose bodies are JSON. They are not validated."""

    def decode(datum: bytes, index: bytes | None) -> list[Any]:
        body = parsed(datum)
        return [at_path(body, path) for path in paths]

    return decode
