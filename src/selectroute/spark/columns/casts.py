"""Casts of columns whose type no property has, such as times and decimals, to a type of properties.

==================================  ============================  ======================================
a column of                         cast to a number              cast to ``string``
==================================  ============================  ======================================
``timestamp``                       ``long``: milliseconds since  ``2026-01-02T03:04:05.678Z``
                                    1970 UTC, rounded down, as
                                    ``JMSTimestamp`` has them
``timestamp_ntz``                   ``long``: the same, as if it  ``2026-01-02T03:04:05.678``
                                    were UTC
``date``                            ``int``, ``long``: days       ``2026-01-02``
                                    since 1970
``decimal``                         any: see below                its digits, ``12.50``
integers                            any: see below                its digits
``float``, ``double``               any: see below                no cast
==================================  ============================  ======================================

A number becomes the nearest ``float`` or ``double``, beyond the range of ``float`` an infinity. It becomes an
integer only if it is whole and in the range of the type: any other value is of an unlike type to the
subscriptions that read it. NULL is NULL. No cast depends on the time zone of the session.

Values of Avro and Protobuf bodies become the same (`kafka.texts.value_of_json`).
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    NullType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from selectroute.arrays import tables as t
from selectroute.spark.columns.arrow_casts import casts_of as arrow_casts_of

_INTEGERS: Final[dict[str, tuple[DataType, int]]] = {
    "byte": (ByteType(), t.BYTE),
    "short": (ShortType(), t.SHORT),
    "int": (IntegerType(), t.INT),
    "long": (LongType(), t.LONG),
}
_FLOATS: Final[dict[str, DataType]] = {"float": FloatType(), "double": DoubleType()}
_STRING: Final = "string"

CAST_TYPES: Final = (*_INTEGERS, *_FLOATS, _STRING)
"""Types that a column can be cast to."""

MIXED: Final = StructType(
    [StructField("tag", ByteType()), StructField("bits", LongType()), StructField("text", StringType())]
)
"""Spark's type of a property whose type varies by message, see `match.columns.from_messages.MIXED`."""

PROPERTY_TYPES: Final[dict[type[DataType], pa.DataType]] = {
    BooleanType: pa.bool_(),
    ByteType: pa.int8(),
    ShortType: pa.int16(),
    IntegerType: pa.int32(),
    LongType: pa.int64(),
    FloatType: pa.float32(),
    DoubleType: pa.float64(),
    StringType: pa.string(),
    BinaryType: pa.binary(),
    NullType: pa.null(),
}
"""Spark's types that a property can have, with their Arrow types in the workers."""

_TIMES: Final[dict[type[DataType], pa.DataType]] = {
    TimestampType: pa.timestamp("us", "UTC"),
    TimestampNTZType: pa.timestamp("us"),
    DateType: pa.date32(),
}
_WIDTHS: Final[list[type[DataType]]] = [ByteType, ShortType, IntegerType, LongType]
_LONG_END: Final = float(1 << 63)
_DAY_MS: Final = 86_400_000


def casts_of(type_: DataType) -> tuple[str, ...]:
    """Return the types that a column of this type can be cast to, the most useful one first; none for most
    types.
    """
    if isinstance(type_, DecimalType):
        return arrow_casts_of(pa.decimal128(type_.precision, type_.scale))
    return arrow_casts_of((PROPERTY_TYPES | _TIMES).get(type(type_), pa.null()))


def type_of(type_: DataType, to: str) -> DataType:
    """Return the type of a column of this type after its cast: `MIXED` if some values may not convert."""
    if to == _STRING:
        return StringType()
    if to in _FLOATS:
        return _FLOATS[to]
    own, _ = _INTEGERS[to]
    if isinstance(type_, TimestampType | TimestampNTZType | DateType):
        return own
    fits = type(type_) in _WIDTHS and _WIDTHS.index(type(type_)) <= _WIDTHS.index(type(own))
    return own if fits else MIXED


def cast_column(column: Column, type_: DataType, to: str) -> Column:
    """Return a column of this type, cast to one of `casts_of`."""
    if isinstance(type_, TimestampType | TimestampNTZType):
        return _text(column, type_) if to == _STRING else _milliseconds(column, type_)
    if isinstance(type_, DateType):
        return column.cast("string") if to == _STRING else F.unix_date(column).cast(_INTEGERS[to][0])
    result = type_of(type_, to)
    if not isinstance(result, StructType):
        return column.cast(result)
    own, tag = _INTEGERS[to]
    whole = column.try_cast(own)
    fits = whole.isNotNull() & (whole.cast(type_) == column)
    if isinstance(type_, FloatType | DoubleType):
        fits = fits & (column < F.lit(_LONG_END)) & ~F.isnan(column)
    return F.when(fits, _value(tag, whole)).otherwise(unlike_values(column))


def unlike_values(column: Column) -> Column:
    """Return a column of type `MIXED` whose values are of a type that no property has; NULL is NULL."""
    return F.when(column.isNotNull(), _value(t.UNSUPPORTED, F.lit(0)))


def _value(tag: int, bits: Column) -> Column:
    return F.struct(
        F.lit(tag).cast("tinyint").alias("tag"),
        bits.cast("bigint").alias("bits"),
        F.lit(None).cast("string").alias("text"),
    )


def _milliseconds(column: Column, type_: DataType) -> Column:
    if isinstance(type_, TimestampType):
        return F.unix_millis(column)
    # Spark would convert it in the time zone of the session, where some hours exist twice or never.
    days = F.unix_date(column.cast("date")).cast("bigint") * _DAY_MS
    minutes = F.hour(column).cast("bigint") * 3_600_000 + F.minute(column).cast("bigint") * 60_000
    return days + minutes + F.floor(F.date_part(F.lit("SECOND"), column) * 1_000).cast("bigint")


def _text(column: Column, type_: DataType) -> Column:
    if isinstance(type_, TimestampNTZType):
        return F.replace(column.cast("string"), F.lit(" "), F.lit("T"))
    epoch = F.lit("1970-01-01 00:00:00").cast("timestamp_ntz")
    utc = F.timestamp_add("MICROSECOND", F.unix_micros(column), epoch)
    return F.concat(F.replace(utc.cast("string"), F.lit(" "), F.lit("T")), F.lit("Z"))
