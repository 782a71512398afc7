"""Messages: headers and typed properties, topic and body, and their form on the wire.

The wire form is JSON: a plain string, boolean or number is a string, boolean, long (an integer) or double;
the object ``{"type": "int", "value": 3000}`` gives any other type; ``null`` is NULL. The object form writes
numbers that JSON lacks as "NaN", "Infinity" and "-Infinity"; a number beyond its type's range is an error,
not an infinity.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

from selectroute.selector.errors import SelectRouteError, did_you_mean, either, nearest, unknown_field
from selectroute.selector.fields import CORRELATION_IDS, DERIVED, PREFIX, is_no_id, read
from selectroute.selector.names import INVALID_NAMES, check_property_names, message_breaches
from selectroute.selector.syntax.source import SURROGATE
from selectroute.selector.values import (
    FLOATS,
    INTEGERS,
    UNSUPPORTED,
    Byte,
    Double,
    Int,
    Long,
    Short,
    Value,
    coerce,
    type_name,
)

MAX_PROPERTIES = 1_000
"""Maximum number of properties of one message."""

MAX_NAME_LENGTH = 4_095
"""Longest name of a property, in characters, unless a message is made with another limit."""

MAX_TOPIC_BYTES = 65_535
"""Longest topic of a message, in bytes of UTF-8, as in MQTT."""

MAX_TOPIC_LEVELS = 1_000
"""Maximum levels of the topic of a message."""

TOO_LONG_TOPIC: Final = f"more than {MAX_TOPIC_BYTES:,} bytes of UTF-8, or {MAX_TOPIC_LEVELS:,} levels"

HEADER_TYPES: Final[Mapping[str, type]] = MappingProxyType(
    {
        "JMSDeliveryMode": str,
        "JMSPriority": Int,
        "JMSMessageID": str,
        "JMSTimestamp": Long,
        "JMSCorrelationID": str,
        "JMSType": str,
        # Headers of messages that `jms` selectors cannot read.
        "JMSDestination": str,
        "JMSReplyTo": str,
        "JMSExpiration": Long,
        "JMSDeliveryTime": Long,
        "JMSRedelivered": bool,
    }
)
"""Every header of a message and its fixed type."""

ONE_MESSAGE: Final = "a Message: sr.Message(properties={'weight': 3000})"
"""Advice in an error where one message is expected."""

DELIVERY_MODES = ("PERSISTENT", "NON_PERSISTENT")

_NON_FINITE: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_OUT_OF_RANGE: Final = "the number is outside the range of a Java {}"
_TYPES: Final = ("boolean", *INTEGERS, *FLOATS, "string", "bytes")
_TYPED: Final = ("type", "value")
_MEMBERS: Final = ("headers", "properties", "topic", "body")


def longest_name(reads: Iterable[str]) -> int:
    """Return the maximum length of a property's name where selectors read these names, which may have been
    registered under larger limits.
    """
    return max(MAX_NAME_LENGTH, *map(len, reads), 0)


class MessageError(SelectRouteError):
    """Invalid message. `place` names the invalid part, such as ``properties.weight``."""

    def __init__(self, place: str, problem: str) -> None:
        super().__init__(place, problem)
        self.place = place
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.place}: {self.problem}"


class Message:
    """Message: selectors read its headers and properties; topic and body are only carried.

    Plain Python values have a default type (an int is a long, a float a double); ``Int(3000)`` and the like
    give any other, ``bytes`` are a byte string. Headers take the type of their name. Raises MessageError for
    invalid parts; with `validate` also PropertyNameError for property names that break a rule of seed 003, as
    MQSETMP does. Without `validate` such a message is allowed, but never selected in a dialect that has these
    rules. `name_length` is the maximum number of characters in a property's name. `unlike` names properties
    with a value of a type that no property has: to selectors they are not NULL, and unlike every type.
    """

    __slots__ = ("_invalid_names", "_unlike", "_values", "body", "headers", "properties", "topic")

    headers: Mapping[str, Value | None]
    properties: Mapping[str, Value | None]
    topic: str | None
    body: bytes | str | None

    def __init__(
        self,
        headers: Mapping[str, object] | None = None,
        properties: Mapping[str, object] | None = None,
        topic: str | None = None,
        body: bytes | str | None = None,
        *,
        validate: bool = False,
        name_length: int = MAX_NAME_LENGTH,
        unlike: Iterable[str] = (),
    ) -> None:
        valid_headers = checked_headers(headers)
        valid_properties = checked_properties(properties, name_length)
        if topic is not None:
            _text("topic", topic)
            if topic.count("/") >= MAX_TOPIC_LEVELS or len(topic.encode()) > MAX_TOPIC_BYTES:
                raise MessageError("topic", TOO_LONG_TOPIC)
        if body is not None and not isinstance(body, bytes):
            _text("body", body)
        self._set(valid_headers, valid_properties, topic, body, unlike)
        if validate:
            check_property_names(self._set_properties())

    @classmethod
    def of_checked(
        cls,
        headers: dict[str, Value | None],
        properties: dict[str, Value | None],
        topic: str | None = None,
        unlike: Iterable[str] = (),
    ) -> Message:
        """Return a message of typed values that were checked before; the dictionaries must not change.

        A wire protocol has typed and bounded what it decodes.
        """
        message = cls.__new__(cls)
        message._set(headers, properties, topic, None, unlike)
        return message

    def _set(
        self,
        headers: dict[str, Value | None],
        properties: dict[str, Value | None],
        topic: str | None,
        body: bytes | str | None,
        unlike: Iterable[str],
    ) -> None:
        self.headers = MappingProxyType(headers)
        self.properties = MappingProxyType(properties)
        self.topic = topic
        self.body = body
        self._values: dict[str, Any] = properties | headers  # what selectors read
        for name in CORRELATION_IDS:
            if is_no_id(name, self._values.get(name)):  # `headers` and `properties` keep it
                del self._values[name]
        self._unlike = frozenset(unlike)
        unsupported: Any = UNSUPPORTED
        for name in self._unlike:
            self._values[name] = unsupported
        self._invalid_names: bool | None = None  # computed when a selector first reads it

    @property
    def values(self) -> Mapping[str, Any]:
        """Headers and properties by their names, as selectors read them: `Unsupported` ones, too, and without
        a correlation id of zeros; not the derived fields.
        """
        return MappingProxyType(self._values)

    def value(self, name: str) -> Value | None:
        """Return the header, property or derived field called `name`; None, NULL, if the message has none.

        O(1); of the field `INVALID_NAMES` O(names) once.
        """
        if name.startswith(PREFIX):
            if name == INVALID_NAMES:
                if self._invalid_names is None:
                    self._invalid_names = bool(message_breaches(self._set_properties()))
                return self._invalid_names
            if name.removeprefix(PREFIX) in DERIVED:
                return read(name.removeprefix(PREFIX), self._values.get)
        return self._values.get(name)

    def _set_properties(self) -> list[str]:
        """Return the names of the properties that the message has, without those that are NULL."""
        own = {name: None for name, value in self.properties.items() if value is not None}
        return list(own | {name: None for name in self._unlike if name not in HEADER_TYPES})

    @classmethod
    def from_json(cls, data: object, *, name_length: int = MAX_NAME_LENGTH) -> Message:
        """Return the message of parsed JSON in the wire form: the inverse of `to_json`.

        Raises MessageError, also for a property whose name has more than `name_length` characters.
        """
        if not isinstance(data, Mapping):
            raise MessageError("message", f"expected an object, not {_described(data)}")
        for member in data:
            if member not in _MEMBERS:
                raise MessageError(_shown(member), unknown_field("a message", member, _MEMBERS))
        body = data.get("body")
        if isinstance(body, Mapping):
            body = _bytes("body", body)
        return cls(
            headers=_converted("headers", data.get("headers"), _read, "an object"),
            properties=_converted("properties", data.get("properties"), _read, "an object"),
            topic=data.get("topic"),
            body=body,
            name_length=name_length,
        )

    def to_json(self) -> dict[str, Any]:
        """Return the wire form, for ``json.dumps``, without empty members."""
        data: dict[str, Any] = {}
        if self.headers:
            # The name of a header gives its type.
            data["headers"] = {name: getattr(value, "value", value) for name, value in self.headers.items()}
        if self.properties:
            data["properties"] = {name: to_wire(value) for name, value in self.properties.items()}
        if self.topic is not None:
            data["topic"] = self.topic
        if isinstance(self.body, bytes):
            data["body"] = {"type": "bytes", "value": self.body.hex()}
        elif self.body is not None:
            data["body"] = self.body
        return data

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Message):
            return NotImplemented
        return self._parts() == other._parts()

    def __hash__(self) -> int:
        return hash((frozenset(self._values.items()), self.topic, self.body))

    def __repr__(self) -> str:
        parts = zip(_MEMBERS, self._parts(), strict=True)
        return f"Message({', '.join(f'{name}={part!r}' for name, part in parts if part)})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (*self._parts(), self._unlike)

    def _parts(self) -> tuple[dict[str, Value | None], dict[str, Value | None], str | None, Any]:
        return dict(self.headers), dict(self.properties), self.topic, self.body


def _restored(
    headers: dict[str, Value | None],
    properties: dict[str, Value | None],
    topic: str | None,
    body: bytes | str | None,
    unlike: frozenset[str] = frozenset(),
) -> Message:
    """Return an unpickled message, without a limit on the length of names."""
    return Message(headers, properties, topic, body, name_length=sys.maxsize, unlike=unlike)


def to_wire(value: Value | None) -> Any:
    """Return a value in the wire form: plain if JSON's types suffice, else an object with the type."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, bytes):
        return {"type": "bytes", "value": value.hex().upper()}
    number = value.value
    if isinstance(number, float) and not math.isfinite(number):
        number_text = "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"
        return {"type": type_name(value), "value": number_text}
    return number if isinstance(value, Long | Double) else {"type": type_name(value), "value": number}


def from_wire(place: str, data: object) -> Value | None:
    """Return the value of parsed JSON in the wire form. Raises MessageError with `place`."""
    if not isinstance(data, Mapping):
        if isinstance(data, float) and math.isinf(data):
            raise MessageError(place, _OUT_OF_RANGE.format("double"))  # JSON's 1e400, as Python reads it
        return _coerced(place, data)
    _check_typed(place, data)
    name, plain = data["type"], data["value"]
    if name not in _TYPES:
        advice = did_you_mean(name, _TYPES, "the types are")
        raise MessageError(place, f"no property has the type {_described(name)}: {advice}")
    if plain is None:
        return None
    try:
        return _typed(name, plain)
    except OverflowError:
        raise MessageError(place, _OUT_OF_RANGE.format(name)) from None
    except (TypeError, ValueError):
        raise MessageError(place, f"{_described(plain)} is not a valid {name}") from None


def _check_typed(place: str, data: Mapping[str, object]) -> None:
    """Raise MessageError unless an object has the fields of a typed value, and no others."""
    for name in data:
        if name not in _TYPED:
            raise MessageError(place, unknown_field("a typed value", name, _TYPED))
    if len(data) < len(_TYPED):
        raise MessageError(place, 'a typed value is {"type": …, "value": …}')


def _typed(name: str, plain: Any) -> Value:
    if name in INTEGERS:
        return INTEGERS[name](plain)
    if name in FLOATS:
        if isinstance(plain, str):
            named: Any = _NON_FINITE.get(plain)
            return FLOATS[name](named)
        number = FLOATS[name](plain)
        if math.isinf(number.value):
            raise OverflowError  # JSON has no infinite numbers
        return number
    if name == "bytes":
        return octets_of(plain)
    wanted = bool if name == "boolean" else str
    if not isinstance(plain, wanted):
        raise TypeError
    return plain


def checked_headers(headers: Mapping[str, object] | None) -> dict[str, Value | None]:
    """Return headers as values of the types in `HEADER_TYPES`. Raises MessageError."""
    return _converted("headers", headers, _header)


def checked_properties(
    properties: Mapping[str, object] | None, name_length: int = MAX_NAME_LENGTH
) -> dict[str, Value | None]:
    """Return properties as typed values. Raises MessageError, also for more than `MAX_PROPERTIES` and for a
    name of more than `name_length` characters.
    """
    checked = _converted("properties", properties, _property)
    if any(len(name) > name_length for name in checked):
        raise MessageError("properties", f"a name is longer than {name_length:,} characters")
    if len(checked) > MAX_PROPERTIES:
        raise MessageError("properties", f"more than {MAX_PROPERTIES:,} properties")
    return checked


def _converted(
    place: str, values: object, convert: Callable[[str, str, object], Value | None], wanted: str = "a mapping"
) -> dict[str, Value | None]:
    if values is None:
        return {}
    if not isinstance(values, Mapping):
        raise MessageError(place, f"expected {wanted}, not {_described(values)}")
    return {name: convert(f"{place}.{_shown(name)}", name, value) for name, value in values.items()}


def _read(place: str, _: str, data: object) -> Value | None:
    return from_wire(place, data)


def _header(place: str, name: str, thing: object) -> Value | None:
    kind = HEADER_TYPES.get(name)
    if kind is None:
        near = nearest(name, HEADER_TYPES)
        advice = f": did you mean `{near}`?" if near else f"; the headers are {', '.join(HEADER_TYPES)}"
        raise MessageError(place, f"there is no such header{advice}")
    value = _coerced(place, thing)
    if value is None:
        return None
    if kind in (Int, Long) and isinstance(value, Byte | Short | Int | Long):
        try:
            value = kind(value.value)
        except ValueError as error:
            raise MessageError(place, str(error)) from None
    if type(value) is not kind:
        raise MessageError(place, f"this header is {_article(kind)}, not {_described(thing)}")
    if name == "JMSPriority" and not 0 <= value.value <= 9:  # type: ignore[union-attr]
        raise MessageError(place, f"a priority is 0 to 9, not {value.value}")  # type: ignore[union-attr]
    if name == "JMSDeliveryMode" and value not in DELIVERY_MODES:
        raise MessageError(place, f"it is {either(DELIVERY_MODES)}, not {_described(value)}")
    return value


def _property(place: str, name: str, thing: object) -> Value | None:
    _text(place, name)
    if not name:
        raise MessageError(place, "a property needs a name")
    if name in HEADER_TYPES:
        raise MessageError(place, "this is a header, not a property")
    return _coerced(place, thing)


def _coerced(place: str, thing: object) -> Value | None:
    try:
        value = coerce(thing)
    except (TypeError, ValueError) as error:
        raise MessageError(place, str(error)) from None
    if isinstance(value, str):
        _text(place, value)
    return value


def _text(place: str, text: object) -> None:
    """Check a string: half of a surrogate pair is not a character, and UTF-8 cannot encode it."""
    if not isinstance(text, str):
        raise MessageError(place, f"expected a string, not {_described(text)}")
    if not text.isascii() and SURROGATE.search(text):
        raise MessageError(place, "half of a surrogate pair is not a character")


def _bytes(place: str, data: Mapping[str, object]) -> bytes:
    _check_typed(place, data)
    if data["type"] != "bytes" or not isinstance(data["value"], str):
        raise MessageError(place, 'bytes are {"type": "bytes", "value": "<hex>"}')
    try:
        return octets_of(data["value"])
    except ValueError:
        raise MessageError(place, "bytes are written as pairs of hexadecimal digits") from None


def octets_of(digits: object) -> bytes:
    """Return the bytes of pairs of hexadecimal digits; ValueError for anything else."""
    if not isinstance(digits, str) or not (digits.isalnum() or digits == ""):  # fromhex would take spaces
        raise ValueError
    return bytes.fromhex(digits)


def _described(thing: object) -> str:
    """Return a user's value as an error shows it: short, and safe to print."""
    plain = isinstance(thing, str | bool | float) or (isinstance(thing, int) and thing.bit_length() <= 64)
    shown = ascii(thing) if plain else type(thing).__name__
    return shown if len(shown) <= 40 else f"{shown[:39]}…"


def _shown(name: object) -> str:
    return name if isinstance(name, str) and name.isprintable() and len(name) <= 80 else _described(name)


def _article(kind: type) -> str:
    return {str: "a string", bool: "a boolean", Int: "an int", Long: "a long"}[kind]
