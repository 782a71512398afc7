"""Strict reader of JSON from outside: messages and subscriptions.

Python reads more than RFC 8259 allows, and takes the last of two members with one name, where another reader
takes the first. This reader accepts what I-JSON (RFC 7493) does: no duplicate members, no half of a surrogate
pair, no NaN, no number beyond a double. A byte order mark before the text is ignored, as RFC 8259 permits.

C reads the text, with two calls into Python: for each object, to count its members, and for each float.
Neither knows its place, so an invalid text is read again, token by token.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from typing import Any, Final, Literal, NoReturn

from selectroute.selector.errors import SelectRouteError, shown
from selectroute.selector.syntax.source import SURROGATE

_BOM: Final = "\ufeff"
_WHITE_SPACE: Final = " \t\r\n"

_SURROGATE_ESCAPE: Final = re.compile(r"\\u[dD][89a-fA-F]")
_ENCODE: Final = json.JSONEncoder(ensure_ascii=False).encode
_TOKEN: Final = re.compile(
    r'(?P<string>"[^"\\]*(?:\\.[^"\\]*)*")(?P<named>\s*:)?|(?P<other>[^\s,:\[\]{}"]+)|[\[\]{}]'
)


class JsonError(SelectRouteError):
    """Text that is not strict JSON.

    Attributes:
        kind: ``not-json``, ``not-utf-8``, or ``too-deep``: more nested than Python can follow.
        reason: what is wrong, and where.
        place: the offset of it in characters, its line and its column, both from 1; None if unknown.
    """

    def __init__(
        self,
        reason: str,
        place: tuple[int, int, int] | None = None,
        kind: Literal["not-json", "not-utf-8", "too-deep"] = "not-json",
    ) -> None:
        super().__init__(f"not valid JSON: {reason}" if kind == "not-json" else reason)
        self.kind = kind
        self.reason = reason
        self.place = place


def parse_json(data: str | bytes) -> Any:
    """Return the value of a text, in UTF-8 if it is bytes. Raises `JsonError`.

    >>> parse_json('{"weight": 3000}')
    {'weight': 3000}
    """
    try:
        if isinstance(data, str):
            text = data
            if not text.isascii():
                text.encode()  # finds half of a surrogate pair, faster than a pattern
        else:
            text = data.decode()
        text = text.strip(_WHITE_SPACE)
        # `scan_once`, not `decode`, which skips white space with regular expressions: twice as slow.
        value, end = _SCAN(text, 0)
        if end == len(text):
            if "\\u" in text and _SURROGATE_ESCAPE.search(text):
                _ENCODE(value).encode()  # of a whole pair, or not
            return value
    except UnicodeDecodeError as error:
        raise JsonError(f"not valid UTF-8 at byte {error.start + 1:,}", kind="not-utf-8") from None
    except RecursionError:
        raise JsonError("nested too deeply", kind="too-deep") from None
    except (StopIteration, ValueError):
        pass
    return _checked(data if isinstance(data, str) else data.decode())


class _NotStrictError(ValueError):
    """Text that only the lenient reader accepts."""


def _object(members: list[tuple[str, Any]]) -> dict[str, Any]:
    parsed = dict(members)
    if len(parsed) != len(members):
        raise _NotStrictError
    return parsed


def _double(digits: str) -> float:
    number = float(digits)
    if number in (math.inf, -math.inf):
        raise _NotStrictError
    return number


def _constant(name: str) -> NoReturn:
    raise _NotStrictError


_DECODER: Final = json.JSONDecoder(object_pairs_hook=_object, parse_float=_double, parse_constant=_constant)
_SCAN: Final[Callable[[str, int], tuple[Any, int]]] = _DECODER.scan_once  # type: ignore[attr-defined]


def _checked(text: str) -> Any:
    """Return the value of a text that the quick way refused, or raise the error that names the place."""
    start = len(text) - len(text.lstrip(_WHITE_SPACE).removeprefix(_BOM))
    try:
        value = json.loads(text[start:])
    except json.JSONDecodeError as error:
        raise _error(text, error.msg.removesuffix(" at"), start + error.pos) from None
    except RecursionError:
        raise JsonError("nested too deeply", kind="too-deep") from None
    except ValueError:  # an integer of more digits than Python converts: the text is valid up to there
        value = None
    members: list[set[str]] = []
    for token in _TOKEN.finditer(text, start):
        wrong = _wrong(token, members)
        if wrong is not None:
            raise _error(text, wrong, token.start())
    return value


def _wrong(token: re.Match[str], members: list[set[str]]) -> str | None:
    """Return the fault of a token; None if it is strict. ``members`` are the names so far in each open object
    or array.
    """
    if token["string"]:
        string = json.loads(token["string"])
        if SURROGATE.search(string):
            return "half of a surrogate pair"
        if token["named"]:
            if string in members[-1]:
                return f"duplicate member `{shown(string)}`"
            members[-1].add(string)
    elif token["other"]:
        return _wrong_number(token["other"])
    elif token[0] in "[{":
        members.append(set())
    else:
        members.pop()
    return None


def _wrong_number(text: str) -> str | None:
    """Return the fault of a number; None if it is valid, or a word of JSON."""
    digits = text.removeprefix("-")
    if digits.isdecimal():
        try:
            int(digits)
        except ValueError:
            return f"a number of {len(digits):,} digits is too long"
    elif text not in ("true", "false", "null") and not math.isfinite(float(text)):
        wrong = "beyond the range of a double" if text[-1].isdecimal() else "not a number of JSON"
        return f"{shown(text)} is {wrong}"
    return None


def _error(text: str, reason: str, offset: int) -> JsonError:
    before = text[:offset]
    line, column = before.count("\n") + 1, offset - before.rfind("\n")
    many = "\n" in text.strip(_WHITE_SPACE)
    return JsonError(f"{reason} at {f'line {line}, ' if many else ''}column {column}", (offset, line, column))
