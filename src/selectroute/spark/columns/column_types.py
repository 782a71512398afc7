"""Types that the columns which selectors read can have: Arrow's in a worker, Spark's before any job runs."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Protocol

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
    VariantType,
    YearMonthIntervalType,
)

from selectroute.index.snapshot import Snapshot
from selectroute.match.batch import Batch
from selectroute.match.columns import ColumnTypeError, check_column
from selectroute.match.from_messages import BODY, MIXED
from selectroute.selector.fields import PREFIX
from selectroute.selector.names import INVALID_NAMES
from selectroute.spark.columns.binding import Bound, is_mixed


class Reads(Protocol):
    """Snapshot that is never loaded whole, as far as columns are concerned: `PartitionedSnapshot`."""

    @property
    def reads(self) -> tuple[str, ...]:
        """Identifiers that selectors read."""

    @property
    def no_bytes(self) -> frozenset[str]:
        """Identifiers among them that can't be bytes."""


_ARROW_TYPES: dict[type[DataType], pa.DataType] = {
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
"""The types of Spark that a property can have, as they reach the workers."""


_CASTS: dict[type[DataType], str] = {
    DecimalType: "F.col({0}).cast('double'), or 'bigint' where it is whole",
    TimestampType: "F.unix_millis({0}), milliseconds since 1970 as JMSTimestamp has them",
    TimestampNTZType: "F.unix_millis(F.col({0}).cast('timestamp')), milliseconds since 1970",
    DateType: "F.date_format({0}, 'yyyy-MM-dd'), a string",
    DayTimeIntervalType: "F.col({0}).cast('string')",
    YearMonthIntervalType: "F.col({0}).cast('string')",
    ArrayType: "F.try_element_at({0}, F.lit(1)) for one element, or F.array_join({0}, ',') for a string",
    MapType: "F.col({0}).getItem('key') for one key, a column each",
    VariantType: "F.try_variant_get({0}, '$.path', 'string') for one value",
}
"""What to make of a column whose type no property has; the column's name stands for ``{0}``."""


def how_to_cast(column: str, type_: DataType) -> str | None:
    """Return what to write to make a property of a column; None if nothing is known for its type."""
    cast = _CASTS.get(type(type_))
    if cast is None:
        return None
    # Field ``b`` of a struct column ``a`` becomes a column of that name beside it.
    return (
        f"no property has this type: route df.withColumn({column!r}, …) with {cast.format(repr(column))}; or "
        "leave the column out"
    )


def can_be_property(type_: DataType) -> bool:
    """Return whether a property can have this type."""
    return type(type_) in _ARROW_TYPES or is_mixed(type_)


_BODIES = (pa.string(), pa.large_string(), pa.binary(), pa.large_binary(), pa.null(), MIXED)


class ReadTypes:
    """Types that the columns of a snapshot can have. ``no_bytes`` are those that can't be bytes."""

    def __init__(self, snapshot: Snapshot | Reads) -> None:
        if not isinstance(snapshot, Snapshot):
            self.no_bytes = snapshot.no_bytes
            return
        # Who converts between the names of a field takes its ids as bytes; who reads a property as it is
        # takes bytes where all the dialects that read it have byte strings.
        self.no_bytes = frozenset(
            attribute.name
            for attribute in snapshot.attributes
            if not attribute.byte_strings and not attribute.name.startswith(PREFIX)
        )

    def check(self, name: str, type_: pa.DataType) -> None:
        """Raise `ColumnTypeError` if the column that is read as ``name`` cannot have this type."""
        if name == INVALID_NAMES:
            if not pa.types.is_boolean(type_):
                raise ColumnTypeError(name, type_, "it is a boolean")
        elif name == BODY:
            if type_ not in _BODIES:
                raise ColumnTypeError(name, type_, "the body is a string or binary")
        else:
            check_column(name, type_, name not in self.no_bytes)

    def unlike(self, columns: pa.RecordBatch, names: Iterable[str]) -> dict[str, tuple[str, bool]]:
        """Return which of these columns have a type that no property has, with the sentence that says so, and
        whether they hold bytes, which a property of another dialect may have.
        """
        batch = Batch(columns)
        found: dict[str, tuple[str, bool]] = {}
        for name in names:
            if name in (INVALID_NAMES, BODY):
                continue
            try:
                column = batch.column(name)
            except ColumnTypeError:  # two columns of a name: matching says so
                continue
            if column is not None:
                try:
                    self.check(name, column.type)
                except ColumnTypeError as error:
                    found[name] = str(error), self.is_binary(name, column.type)
        return found

    def is_binary(self, name: str, type_: pa.DataType) -> bool:
        """Return whether a column is refused only because some who read it have no byte strings."""
        try:
            check_column(name, type_, byte_strings=True)
        except ColumnTypeError:
            return False
        return name in self.no_bytes


def unlike_sentence(sentence: str, snapshot: Snapshot | Reads, name: str, binary: bool) -> str:
    """Return the warning for a column whose type no property has. O(subscriptions).

    Args:
        sentence: which column, which type, and what mends it.
        snapshot: whose subscriptions read the column.
        name: the identifier as which they read it.
        binary: it holds bytes: dialects that have byte strings read them.
    """
    whose = "the subscriptions that read it"
    if isinstance(snapshot, Snapshot):
        count = snapshot.readers(name, byte_strings=not binary)
        whose = (
            "the one subscription that reads it"
            if count == 1
            else f"the {count:,} subscriptions that read it"
        )
    return (
        f"{sentence}. As it is, its values are of an unlike type to {whose}: a comparison with them is false "
        "(in the IBM dialects the whole selector), IS NOT NULL is true. No other subscription is affected"
    )


def check_types(snapshot: Snapshot | Reads, bound: Iterable[Bound], strict: bool = False) -> frozenset[str]:
    """Return the identifiers whose columns have a type that no property has, before any job runs.

    Of each a warning says which subscriptions it concerns; bytes among them are not returned, as dialects
    that have byte strings read them.

    Raises:
        ColumnTypeError: with ``strict``, there is one; in any case, a column of the frame has a type that it
            cannot have. The sentence names column and type.
    """
    types = ReadTypes(snapshot)
    found: set[str] = set()
    for one in bound:
        shown = one.type.simpleString()
        arrow_type = MIXED if is_mixed(one.type) else _ARROW_TYPES.get(type(one.type))
        try:
            if arrow_type is None:
                group = "it is a struct, a group of properties: selectors read its fields"
                is_group = isinstance(one.type, StructType)
                mended = group if is_group else how_to_cast(one.column, one.type)
                raise ColumnTypeError(one.column, shown, mended)
            types.check(one.identifier, arrow_type)
        except ColumnTypeError as error:
            # The same sentence, with the names that the user of Spark knows.
            named = ColumnTypeError(one.column, shown, str(error).split(": ", 1)[1])
            if strict or one.identifier in (INVALID_NAMES, BODY):
                raise named from error
            binary = arrow_type is not None and types.is_binary(one.identifier, arrow_type)
            warnings.warn(
                unlike_sentence(str(named), snapshot, one.identifier, binary),
                stacklevel=6,
            )
            if not binary:
                found.add(one.identifier)
    return frozenset(found)
