"""Casts of Arrow columns to the types of properties."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from selectroute.match.columns.from_messages import ARROW_TYPES, with_unlike
from selectroute.selector.values import FLOATS

_STRING: Final = "string"


_UNITS: Final = {"s": 1_000, "ms": 1, "us": 1_000, "ns": 1_000_000}


_LONG_END: Final = float(1 << 63)


def casts_of(type_: pa.DataType) -> tuple[str, ...]:
    """Return the types that a column of this type can be cast to, the most useful one first."""
    if pa.types.is_timestamp(type_):
        return "long", _STRING
    if pa.types.is_date(type_):
        return _STRING, "int", "long"
    if pa.types.is_decimal(type_):
        whole = ("long", "double") if type_.scale <= 0 else ("double", "long")
        return (*whole, _STRING, "float", "int", "short", "byte")
    if pa.types.is_floating(type_):
        return "double", "float", "long", "int", "short", "byte"
    is_integer = pa.types.is_integer(type_)
    return ("long", _STRING, "double", "float", "int", "short", "byte") if is_integer else ()


def cast_array(column: Any, to: str) -> Any:
    """Return a column, cast; values that do not convert are of a type that no property has. O(rows)."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    type_ = column.type
    if to not in casts_of(type_):
        return _unlike_where(pa.nulls(len(column), pa.string()), column.is_valid())
    if pa.types.is_timestamp(type_):
        return _timestamp(column, to)
    if pa.types.is_date(type_):
        days = column.cast(pa.date32())
        return days.cast(pa.string()) if to == _STRING else days.cast(pa.int32()).cast(ARROW_TYPES[to])
    if to == _STRING:
        return _digits(column) if pa.types.is_decimal(type_) else column.cast(pa.string())
    if to in FLOATS:
        if pa.types.is_decimal(type_):
            column = column.cast(pa.float64())
        return column.cast(ARROW_TYPES[to], safe=False)
    return _whole(column, ARROW_TYPES[to])


def _timestamp(column: Any, to: str) -> Any:
    unit, is_instant = column.type.unit, column.type.tz is not None
    if to != _STRING:
        counts = column.cast(pa.int64())
        if unit == "s":
            return pc.multiply(counts, _UNITS[unit])
        # Arrow's own division rounds towards 0.
        whole = pc.fill_null(counts, 0).to_numpy(zero_copy_only=False) // _UNITS[unit]
        return pa.array(whole, pa.int64(), mask=column.is_null().to_numpy(zero_copy_only=False))
    texts = column.cast(pa.int64()).cast(pa.timestamp(unit)).cast(pa.string())
    texts = pc.replace_substring(texts, " ", "T")
    if unit != "s":
        texts = pc.replace_substring_regex(texts, r"\.?0+$", "")
    return pc.binary_join_element_wise(texts, "Z", "") if is_instant else texts


def _whole(column: Any, type_: pa.DataType) -> Any:
    """Return numbers as integers; those that are not whole, or out of range, are unlike values."""
    if pa.types.is_floating(column.type):
        values = column.cast(pa.float64())
        floor = pc.equal(pc.floor(values), values)
        inside = pc.and_(pc.less(values, _LONG_END), pc.greater_equal(values, -_LONG_END))
        fits = pc.and_(floor, inside)
        whole = pc.if_else(fits, values, 0.0).cast(pa.int64())
    elif pa.types.is_decimal(column.type):
        whole = pc.cast(column, options=pc.CastOptions(pa.int64(), **_UNCHECKED))
        back = pc.cast(whole, options=pc.CastOptions(pa.decimal256(76, max(0, column.type.scale))))
        fits = pc.equal(back, column.cast(back.type))
    else:
        whole = pc.cast(column, options=pc.CastOptions(pa.int64(), allow_int_overflow=True))
        # Only uint64 has numbers beyond int64, which come out negative.
        is_unsigned = pa.types.is_unsigned_integer(column.type)
        fits = pc.greater_equal(whole, 0) if is_unsigned else column.is_valid()
    if type_ != pa.int64():
        bound = 1 << type_.bit_width - 1
        fits = pc.and_(fits, pc.and_(pc.less(whole, bound), pc.greater_equal(whole, -bound)))
    fitting = pc.if_else(fits, whole, None).cast(type_)
    return _unlike_where(fitting, pc.and_(column.is_valid(), pc.invert(pc.fill_null(fits, True))))


_UNCHECKED: Final = {"allow_int_overflow": True, "allow_decimal_truncate": True}


def _unlike_where(values: Any, mask: Any) -> Any:
    rows = np.flatnonzero(mask.to_numpy(zero_copy_only=False))
    return with_unlike(values, rows.tolist()) if len(rows) else values


def _digits(column: Any) -> Any:
    """Return decimals as digits; Arrow's own texts have exponents."""
    texts = [None if value is None else format(value, "f") for value in column.to_pylist()]
    return pa.array(texts, pa.string())
