"""Conversion of header texts and values of bodies to values of their bound types.

This is the reference, one value at a time; `spark/sources/kafka/columns.py` does the same column by column.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Context, Decimal
from typing import Any, Final, Literal

from selectroute.selector.message import DELIVERY_MODES, octets_of
from selectroute.selector.syntax.numbers import decimal_float32
from selectroute.selector.syntax.source import SURROGATE
from selectroute.selector.values import FLOATS, INTEGERS, Value

NOT_UTF_8: Final = "not-utf-8"
NOT_OF_TYPE: Final = "not-of-its-type"

_INTEGER: Final = re.compile("[+-]?0*([0-9]{1,19})")
_DECIMAL: Final = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
_NAMED: Final = {"NaN": math.nan, "Infinity": math.inf, "+Infinity": math.inf, "-Infinity": -math.inf}
_BOOLEANS: Final = {"true": True, "false": False}
_ID_BYTES: Final = 24
_SHOWN: Final = 40


class TextError(ValueError):
    """Invalid value of a type: ``reason`` is `NOT_UTF_8` or `NOT_OF_TYPE`, the text gives the details."""

    def __init__(self, reason: str, problem: str) -> None:
        super().__init__(problem)
        self.reason = reason


def value_of(text: bytes, type_: str, name: str = "") -> Value:
    """Convert a header's bytes to a value of its bound type.

    Numbers are decimal digits with an optional sign; a float or double may have a fraction and an exponent,
    or be ``NaN``, ``Infinity`` or ``-Infinity``, and is rounded once; a boolean is ``true`` or ``false`` in
    any case. ``name`` is the identifier: some JMS headers and the ids have a range of their own.

    Raises:
        TextError: the text is not a valid value of the type.
    """
    if type_ == "bytes":
        return checked(text, name)
    try:
        characters = text.decode("utf-8")
    except UnicodeDecodeError as error:
        raise TextError(NOT_UTF_8, f"byte {error.start} is not UTF-8") from None
    if type_ == "string":
        return checked(characters, name)
    value: Value | None
    if type_ == "boolean":
        value = _BOOLEANS.get(characters.lower())
    elif type_ in INTEGERS:
        value = _integer(characters, type_)
    else:
        value = _number(characters, type_)
    if value is None:
        raise TextError(NOT_OF_TYPE, f"{shown(characters)} is not a valid {type_}")
    return checked(value, name)


def value_of_json(plain: Any, type_: str, name: str = "") -> Value | None:
    """Convert parsed JSON to a value of its bound type; null is NULL.

    A JSON number is a float or double, and without fraction and exponent any integer; strings are strings, or
    pairs of hexadecimal digits for bytes; there are no other conversions.

    Avro and Protobuf have values that JSON does not: byte strings are bytes; a decimal is what its digits are
    in a header; NaN and infinities are floats and doubles; a `Temporal` is its number or its text.

    Raises:
        TextError: the JSON is not a valid value of the type.
    """
    if plain is None:
        return None
    value: Value | None = None
    if type_ == "string":
        if isinstance(plain, str) and (plain.isascii() or not SURROGATE.search(plain)):
            value = plain
    elif type_ == "boolean":
        value = plain if isinstance(plain, bool) else None
    elif type_ == "bytes":
        try:
            value = octets_of(plain)
        except ValueError:
            value = None
    elif isinstance(plain, int | float) and not isinstance(plain, bool):
        value = _plain_number(plain, type_)
    if value is None and isinstance(plain, bytes | Decimal | Temporal):
        value = _of_schema(plain, type_)
    if value is None:
        raise TextError(NOT_OF_TYPE, f"{shown(plain)} is not a valid {type_}")
    return checked(value, name)


def checked(value: Value, name: str) -> Value:
    """Return a value that is valid for the header ``name``. Raises TextError for any other."""
    if isinstance(value, bytes) and name in ("JMSMessageID", "JMSCorrelationID") and len(value) != _ID_BYTES:
        raise TextError(NOT_OF_TYPE, f"an id has {_ID_BYTES} bytes, not {len(value)}")
    rule = LIMITED.get(name)
    if rule is not None and not rule(value):
        raise TextError(NOT_OF_TYPE, f"{shown(getattr(value, 'value', value))} is not a valid {name}")
    return value


LIMITED: Final[Mapping[str, Callable[[Any], bool]]] = {
    "JMSPriority": lambda value: 0 <= value.value <= 9,
    "JMSDeliveryMode": lambda value: value in DELIVERY_MODES,
}
"""Headers with a narrower range than their type."""


def shown(thing: object) -> str:
    """Return a value of a message for an error text: short, and safe to print."""
    if not isinstance(thing, str | int | float):
        kinds = {list: "an array", bytes: "a byte string", Decimal: "a decimal", Temporal: "a time"}
        return kinds.get(type(thing), "an object")
    if isinstance(thing, int) and thing.bit_length() > 64:
        return "an integer of more than 64 bits"
    text = ascii(thing)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def _integer(text: str, type_: str) -> Value | None:
    digits = _INTEGER.fullmatch(text)
    if digits is None:
        return None
    return _fitting(-int(digits[1]) if text[0] == "-" else int(digits[1]), type_)


def _fitting(number: int, type_: str) -> Value | None:
    try:
        return INTEGERS[type_](number)
    except ValueError:
        return None


def _number(text: str, type_: str) -> Value | None:
    named = _NAMED.get(text)
    if named is not None:
        return FLOATS[type_](named)
    if not _DECIMAL.fullmatch(text):
        return None
    number = float(text)
    if type_ == "float" and math.isfinite(number) and number:
        number = math.copysign(decimal_float32(text.lstrip("+-"), abs(number)), number)
    if not math.isfinite(number):
        return None  # a number beyond its type's range is invalid, not infinity
    return FLOATS[type_](number)


def _of_schema(plain: bytes | Decimal | Temporal, type_: str) -> Value | None:
    """Convert a value that only Avro and Protobuf have; None if it is not of the type."""
    if isinstance(plain, bytes):
        return plain if type_ == "bytes" else None
    if type_ in ("boolean", "bytes"):
        return None
    if isinstance(plain, Temporal):
        return plain.text if type_ == "string" else _plain_number(plain.number, type_)
    digits = format(plain, "f")
    if type_ == "string":
        return digits
    return _integer(digits, type_) if type_ in INTEGERS else _number(digits, type_)


def _plain_number(plain: int | float, type_: str) -> Value | None:
    if type_ in INTEGERS:
        return _fitting(plain, type_) if isinstance(plain, int) else None
    if isinstance(plain, NonFinite):
        return FLOATS[type_](float(plain))
    try:
        number = FLOATS[type_](plain)
    except OverflowError:
        return None
    return number if math.isfinite(number.value) else None


MAX_DECIMAL_BYTES: Final = 64
"""Maximum size of a decimal's digits, as the 154 decimal ones that fit: their conversion is quadratic."""


MAX_SCALE: Final = 1_000
"""Maximum number of decimal places, either way: a decimal's text has as many digits."""


_EXACT: Final = Context(prec=MAX_SCALE)


_EPOCH: Final = datetime(1970, 1, 1)


class NonFinite(float):
    """NaN or an infinity, which JSON does not have; a JSON number beyond its type's range is invalid."""


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
