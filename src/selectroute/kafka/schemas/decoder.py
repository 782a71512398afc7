"""Decoders: functions from the datum of a schema to its values at paths; that of JSON.

Avro and Protobuf have values that JSON does not have: times, infinities. Byte strings and decimals are
Python's own ``bytes`` and ``Decimal``; every other value is what the same JSON would be. `value_of_json`
converts all of them to the bound types.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Context, Decimal
from typing import Any, Final, Literal

from selectroute.kafka.binding import Path
from selectroute.kafka.errors import RecordError
from selectroute.kafka.texts import NOT_UTF_8
from selectroute.selector.errors import SelectRouteError
from selectroute.selector.strict_json import JsonError, parse_json

MAX_DECIMAL_BYTES: Final = 64
"""Maximum size of a decimal's digits, as the 154 decimal ones that fit: their conversion is quadratic."""

MAX_SCALE: Final = 1_000
"""Maximum number of decimal places, either way: a decimal's text has as many digits."""

_EXACT: Final = Context(prec=MAX_SCALE)
_EPOCH: Final = datetime(1970, 1, 1)


class NonFinite(float):
    """NaN or an infinity, which JSON does not have. (A JSON number beyond its type's range is invalid.)"""


@dataclass(frozen=True, slots=True)
class Temporal:
    """Point in time, date, time of day or duration.

    Attributes:
        kind: the meaning of the count; ``local`` is a date and time without a time zone.
        count: days for a date, and nanoseconds for all others: since 1970, since midnight, or of a duration.
    """

    kind: Literal["instant", "local", "date", "time", "duration"]
    count: int

    @property
    def number(self) -> int:
        """Days since 1970 for a date, and whole milliseconds, rounded down, for all others."""
        return self.count if self.kind == "date" else self.count // 1_000_000

    @property
    def text(self) -> str | None:
        """Text as in RFC 3339, with as many digits of a second as are needed; a duration is ``1.5s``.

        None for a year before 1 or after 9999.
        """
        seconds, nanos = divmod(self.count, 1_000_000_000)
        fraction = f".{nanos:09}".rstrip("0") if nanos else ""
        try:
            if self.kind == "duration":
                sign, rest = ("-", -self.count) if self.count < 0 else ("", self.count)
                fraction = f".{rest % 1_000_000_000:09}".rstrip("0").rstrip(".")
                return f"{sign}{rest // 1_000_000_000}{fraction}s"
            if self.kind == "date":
                return (date(1970, 1, 1) + timedelta(days=self.count)).isoformat()
            moment = (_EPOCH + timedelta(seconds=seconds)).isoformat()
        except OverflowError:
            return None
        if self.kind == "time":
            return moment[11:] + fraction if 0 <= seconds < 86_400 else None
        return moment + fraction + ("Z" if self.kind == "instant" else "")


def decimal_of(digits: bytes, scale: int) -> Decimal | bytes:
    """Return the decimal with this unscaled value, a big-endian two's complement; the bytes if too large."""
    if len(digits) > MAX_DECIMAL_BYTES or not -MAX_SCALE <= scale <= MAX_SCALE:
        return digits
    return Decimal(int.from_bytes(digits, "big", signed=True)).scaleb(-scale, _EXACT)


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
