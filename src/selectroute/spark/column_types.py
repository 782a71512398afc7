"""Which types the columns that selectors read can have: Arrow's in a worker, Spark's before any job runs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    NullType,
    ShortType,
    StringType,
    StructType,
)

from selectroute.index.snapshot import Snapshot
from selectroute.match.columns import ColumnTypeError, check_column
from selectroute.match.mixed import BODY, MIXED
from selectroute.selector.fields import PREFIX
from selectroute.selector.names import INVALID_NAMES
from selectroute.spark.binding import Bound, is_mixed

if TYPE_CHECKING:
    from selectroute.spark.partition import PartitionedSnapshot

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


def can_be_property(type_: DataType) -> bool:
    """Return whether a property can have this type."""
    return type(type_) in _ARROW_TYPES or is_mixed(type_)


_BODIES = (pa.string(), pa.large_string(), pa.binary(), pa.large_binary(), pa.null(), MIXED)


class ReadTypes:
    """The types that the columns a snapshot reads can have. ``no_bytes`` are those that can't be bytes."""

    def __init__(self, snapshot: Snapshot | PartitionedSnapshot) -> None:
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


def check_types(snapshot: Snapshot | PartitionedSnapshot, bound: Iterable[Bound]) -> None:
    """Make sure, before any job runs, that each bound column has a type that its identifier can have.

    Raises:
        ColumnTypeError: one has not; the sentence names column and type.
    """
    types = ReadTypes(snapshot)
    for one in bound:
        shown = one.type.simpleString()
        arrow_type = MIXED if is_mixed(one.type) else _ARROW_TYPES.get(type(one.type))
        if arrow_type is None:
            group = "it is a group of properties, which is none itself: a selector reads its fields"
            raise ColumnTypeError(one.column, shown, group if isinstance(one.type, StructType) else None)
        try:
            types.check(one.identifier, arrow_type)
        except ColumnTypeError as error:
            # The same sentence, with the names that the user of Spark knows.
            reason = str(error).split(": ", 1)[1]
            raise ColumnTypeError(one.column, shown, reason) from error
