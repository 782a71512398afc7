"""Texts of record headers, and values of JSON bodies, as columns of their bound type.

`kafka/texts.py` says what a text means. Here Arrow converts whole columns, where it is known to mean the
same; a column in which anything is out of the ordinary is converted value by value, by that meaning itself.
So what Arrow is not asked about costs a microsecond a message in its batch, and cannot differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from selectroute.kafka.texts import LIMITED, TextError, value_of, value_of_json
from selectroute.match.mixed import mixed_array
from selectroute.selector.message import DELIVERY_MODES
from selectroute.selector.values import Value

Column: TypeAlias = tuple[Any, dict[int, TextError]]
"""A column, and why the rows that are NULL though they have a text are none of its type."""

ARROW_TYPES: Final[Mapping[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
}
_INTEGERS: Final = ("byte", "short", "int", "long")
_IDS: Final = ("JMSMessageID", "JMSCorrelationID")
_FEW: Final = 64
"""So many distinct texts of booleans and modes at most are looked at before rows are."""


def column_of_texts(texts: Any, type_: str, name: str) -> Column:
    """Convert a binary array, a header's values, to the column of the identifier ``name``. O(rows)."""
    if type_ == "bytes":
        return _one_by_one(texts.to_pylist(), lambda text: value_of(text, type_, name), type_, name)
    found = _at_once(texts, type_, name)
    if found is not None:
        return found, {}
    return _one_by_one(texts.to_pylist(), lambda text: value_of(text, type_, name), type_, name)


def column_of_json(values: Sequence[Any], type_: str, name: str) -> Column:
    """Convert what was found in parsed bodies, None where there was nothing. O(rows)."""
    return _one_by_one(values, lambda plain: value_of_json(plain, type_, name), type_, name)


def _at_once(texts: Any, type_: str, name: str) -> Any | None:
    """The column, or None where Arrow may take for a value what is none, or the other way round."""
    try:
        strings = pc.cast(texts, pa.string())  # refuses what is not UTF-8
        if type_ == "string":
            return strings if name != "JMSDeliveryMode" or _all_in(strings, DELIVERY_MODES) else None
        if type_ == "boolean":
            return _booleans(strings)
        numbers = pc.cast(strings, ARROW_TYPES[type_])
    except pa.ArrowInvalid:
        return None
    if type_ in _INTEGERS:
        # Arrow reads 0x1F, too.
        return None if b"x" in _data(strings).lower() or not _within(numbers, name) else numbers
    # Arrow makes an infinity of 1e999, and takes names like inf.
    return numbers if pc.all(pc.is_finite(numbers)).as_py() in (True, None) else None


def _booleans(strings: Any) -> Any | None:
    encoded = strings.dictionary_encode()
    if len(encoded.dictionary) > _FEW:
        return None
    meant = [{"true": True, "false": False}.get(text.lower()) for text in encoded.dictionary.to_pylist()]
    return None if None in meant else pa.array(meant, pa.bool_()).take(encoded.indices)


def _all_in(strings: Any, allowed: Sequence[str]) -> bool:
    return bool(pc.all(pc.is_in(strings.drop_null(), pa.array(allowed))).as_py() in (True, None))


def _within(numbers: Any, name: str) -> bool:
    if name not in LIMITED:
        return True
    extremes = pc.min_max(numbers).as_py()
    return extremes["min"] is None or 0 <= extremes["min"] <= extremes["max"] <= 9


def _data(strings: Any) -> bytes:
    buffer = strings.buffers()[2]
    return b"" if buffer is None else buffer.to_pybytes()


def _one_by_one(given: Iterable[Any], value: Callable[[Any], Value | None], type_: str, name: str) -> Column:
    values: list[Value | None] = []
    errors: dict[int, TextError] = {}
    for row, one in enumerate(given):
        try:
            values.append(None if one is None else value(one))
        except TextError as error:
            values.append(None)
            errors[row] = error
    if type_ == "bytes":
        if name in _IDS:
            return pa.array(values, pa.binary(24)), errors
        return mixed_array(values), errors  # for dialects that have no byte strings, too
    plain = [getattr(one, "value", one) for one in values]
    return pa.array(plain, ARROW_TYPES[type_]), errors
