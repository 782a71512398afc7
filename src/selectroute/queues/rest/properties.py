"""Properties of a message in the header ``ibm-mq-usr`` of IBM MQ's messaging REST API.

::

    ibm-mq-usr: weight;3000;integer, color;"light blue";string

Properties are separated by commas, in one or several headers. Text with other than plain characters is in
double quotes, with the escapes of JSON, so that a header can carry any text.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from selectroute.queues.rest.lookup import RestError
from selectroute.selector.errors import nearest
from selectroute.selector.values import Byte, Double, Float, Int, Long, Short, Value

PROPERTIES: Final = "ibm-mq-usr"
"""Name of the header."""

_QUOTED: Final = re.compile(r'"(?>(?:[^"\\]|\\.)*)"', re.DOTALL)
_BARE: Final = re.compile(r'[^";,]*+')
_PLAIN: Final = re.compile(r"[A-Za-z0-9_.$-]+")
_FLOATING: Final = re.compile(r"[+-]?(?:[0-9]{1,400}\.?[0-9]{0,400}|\.[0-9]{1,400})(?:[eE][+-]?[0-9]{1,4})?")
_NON_FINITE: Final = ("NaN", "Infinity", "-Infinity")
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,20}")


def _integral(kind: Callable[[int], Value]) -> Callable[[str], Value]:
    def read(text: str) -> Value:
        if not _INTEGER.fullmatch(text):
            raise ValueError
        return kind(int(text))

    return read


def _floating(kind: type[Float | Double]) -> Callable[[str], Value]:
    def read(text: str) -> Value:
        if text in _NON_FINITE:
            return kind(float(text))
        if not _FLOATING.fullmatch(text) or math.isinf((value := kind(float(text))).value):
            raise ValueError
        return value

    return read


class _Type(NamedTuple):
    """Type of a property: the reader of its texts, what one is, and the types that take a larger value."""

    read: Callable[[str], Value]
    example: str
    wider: str = ""


_WHOLE: Final = "a whole number"
_TYPES: Final[Mapping[str, _Type]] = {
    "boolean": _Type(lambda text: {"true": True, "false": False}[text.lower()], "true or false"),
    "byte": _Type(_integral(Byte), _WHOLE, ":short, :integer, :long or :double"),
    "short": _Type(_integral(Short), _WHOLE, ":integer, :long or :double"),
    "integer": _Type(_integral(Int), _WHOLE, ":long or :double"),
    "long": _Type(_integral(Long), _WHOLE, ":double"),
    "float": _Type(_floating(Float), "a number"),
    "double": _Type(_floating(Double), "a number"),
    "string": _Type(str, "a string"),
    # An extension: IBM MQ's REST API has no byte strings.
    "bytes": _Type(bytes.fromhex, "pairs of hexadecimal digits"),
}
_NUMBER: Final = re.compile(r"[+-]?[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?")
_INTEGER_TEXT: Final = re.compile(r"[+-]?[0-9]+")
TYPES: Final = {**{name: name for name in _TYPES}, "int": "integer"} | {
    # Those of the older header x-msg-usr.
    "i1": "byte",
    "i2": "short",
    "i4": "integer",
    "i8": "long",
    "r4": "float",
    "r8": "double",
}
"""Types by name and synonym."""
_NAMES: Final = {Byte: "byte", Short: "short", Int: "integer", Long: "long", Float: "float", Double: "double"}


def properties_of(headers: Iterable[str]) -> dict[str, Value]:
    """Return the properties of all headers ``ibm-mq-usr``. Raises RestError. O(length).

    >>> properties_of(['weight;3000;integer, color;"light blue";string'])
    {'weight': Int(3000), 'color': 'light blue'}
    """
    properties: dict[str, Value] = {}
    for header in headers:
        at = 0
        while at < len(header):
            name, at = _token(header, at, ";")
            text, at = _token(header, at, ";")
            kind, at = _token(header, at, ",")
            if name in properties:
                raise RestError(PROPERTIES, "a property is given twice")
            properties[name] = value_of(text, kind)
    return properties


def header_of(properties: Mapping[str, Value]) -> str:
    """Return properties as one header, in ASCII, the inverse of `properties_of`.

    >>> header_of({"color": "light blue", "weight": Int(3000)})
    'color;"light blue";string, weight;3000;integer'
    """
    return ", ".join(f"{_named(name)};{_shown(value)}" for name, value in properties.items())


def _token(header: str, at: int, end: str) -> tuple[str, int]:
    """Return the next text, and the position after its end: a separator, or the end of the header."""
    while at < len(header) and header[at] in " \t":
        at += 1
    quoted = _QUOTED.match(header, at)
    if quoted is not None:
        try:
            text = json.loads(quoted[0], strict=False)
        except ValueError:
            raise RestError(PROPERTIES, "a text in quotes must have only the escapes of JSON") from None
        at = quoted.end()
        while at < len(header) and header[at] in " \t":
            at += 1
    else:
        bare = _BARE.match(header, at)
        assert bare is not None, "the pattern also matches the empty text"
        text, at = bare[0].rstrip(" \t"), bare.end()
    if at < len(header) and header[at] == end:
        return text, at + 1
    if at == len(header) and end == ",":
        return text, at
    raise RestError(PROPERTIES, "a property must be NAME;VALUE;TYPE, several are separated by commas")


def value_of(text: str, kind: str) -> Value:
    """Return a text as a value of a type in `TYPES`. Raises RestError."""
    name = TYPES.get(kind)
    if name is None:
        near = nearest(kind, TYPES)
        advice = f": did you mean `{near}`?" if near else ""
        raise RestError(PROPERTIES, f"a type must be one of {', '.join(_TYPES)}{advice}")
    try:
        return _TYPES[name].read(text)
    except (ValueError, KeyError, OverflowError):
        raise RestError(PROPERTIES, _not_a(name, text)) from None


def _not_a(name: str, text: str) -> str:
    """Return the error text of a text that is not a value of a type."""
    example, wider = _TYPES[name][1:]
    if wider and _NUMBER.fullmatch(text):
        if not _INTEGER_TEXT.fullmatch(text):
            return "not a whole number; use :double"
        java = "int" if name == "integer" else name
        return f"the value is outside the range of a Java {java}; use {wider}"
    if name in ("float", "double") and _NUMBER.fullmatch(text):
        return f"the value is outside the range of a Java {name}"
    return f"the value is not {example}"


def _named(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else json.dumps(name)


def _shown(value: Value) -> str:
    if isinstance(value, bool):
        return f"{str(value).upper()};boolean"
    if isinstance(value, str):
        return f"{json.dumps(value)};string"
    if isinstance(value, bytes):
        return f"{value.hex().upper()};bytes"
    number = value.value
    if isinstance(number, float) and not math.isfinite(number):
        text = "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"
    else:
        text = repr(number)
    return f"{text};{_NAMES[type(value)]}"
