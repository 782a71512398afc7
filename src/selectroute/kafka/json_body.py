"""JSON bodies of records: parsed, and their values at paths."""

from __future__ import annotations

from typing import Any

from selectroute.kafka.binding import Path
from selectroute.kafka.errors import RecordError
from selectroute.kafka.texts import NOT_UTF_8
from selectroute.selector.strict_json import JsonError, parse_json


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
