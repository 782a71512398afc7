"""Which column of a DataFrame is which identifier of a selector.

By name: a column is the identifier of exactly its name, and a column whose name begins with ``@`` belongs to
the frame (`@topic`, `@id`, …). A `Binding` says otherwise where names differ. Names are compared here,
exactly, and columns
are then taken by their position: Spark itself, unless told otherwise, takes ``Color`` for ``color``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
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

from selectroute.match.columns import ColumnTypeError, check_column
from selectroute.match.mixed import MIXED
from selectroute.selector.errors import SelectRouteError

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


class BindingError(SelectRouteError):
    """A frame whose columns can't be bound: a column that is not there, stands twice, or is in the way."""


@dataclass(frozen=True, slots=True)
class Binding:
    """Data: the column that holds each identifier, where it is not the column of that name.

    >>> Binding({"JMSType": "kind"}).column("JMSType")
    'kind'
    >>> Binding({"JMSType": "kind"}).column("color")
    'color'
    """

    columns: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Binding:
        """Read ``{"columns": {identifier: column, …}}``, as it stands in a JSON or TOML file."""
        columns = data.get("columns", {})
        if set(data) - {"columns"} or not isinstance(columns, Mapping):
            raise BindingError('a binding is {"columns": {identifier: column, …}} and nothing else')
        for name, column in columns.items():
            if not isinstance(column, str):
                raise BindingError(f"the binding of {name!r} names no column: {column!r}")
        return cls(dict(columns))

    def column(self, identifier: str) -> str:
        """Return the name of the column that holds this identifier."""
        return self.columns.get(identifier, identifier)


BY_NAME = Binding()


@dataclass(frozen=True, slots=True)
class Bound:
    """One identifier and the position of its column in the frame."""

    identifier: str
    position: int


def bind(schema: StructType, identifiers: Iterable[str], binding: Binding | None) -> tuple[Bound, ...]:
    """Find the column of each identifier; one that has none is left out, and so is NULL.

    Raises:
        BindingError: the binding names a column that is not there, or a name stands twice in the frame.
    """
    binding = binding or BY_NAME
    names = schema.fieldNames()
    found: list[Bound] = []
    for identifier in identifiers:
        column = binding.column(identifier)
        positions = [i for i, name in enumerate(names) if name == column]
        if len(positions) > 1:
            raise BindingError(
                f"column {column!r} stands {len(positions)} times in the frame: rename all but one"
            )
        if positions:
            found.append(Bound(identifier, positions[0]))
        elif identifier in binding.columns:
            raise BindingError(
                f"the binding takes {identifier!r} from column {column!r}, and the frame has no such column "
                f"(it has {', '.join(names) or 'none'})"
            )
    return tuple(found)


def check_types(schema: StructType, bound: Iterable[Bound]) -> None:
    """Make sure, before any job runs, that each bound column has a type that its identifier can have.

    Raises:
        ColumnTypeError: one has not; the sentence names column and type.
    """
    for one in bound:
        spark_type = schema.fields[one.position].dataType
        column = schema.names[one.position]
        arrow_type = MIXED if _is_mixed(spark_type) else _ARROW_TYPES.get(type(spark_type))
        if arrow_type is None:
            raise ColumnTypeError(column, spark_type.simpleString())
        try:
            check_column(one.identifier, arrow_type)
        except ColumnTypeError as error:
            # The same sentence, with the names that the user of Spark knows.
            reason = str(error).split(": ", 1)[1]
            raise ColumnTypeError(column, spark_type.simpleString(), reason) from error


def _is_mixed(spark_type: DataType) -> bool:
    """The struct of a property whose type varies by message."""
    return isinstance(spark_type, StructType) and [
        (field.name, type(field.dataType)) for field in spark_type.fields
    ] == [("tag", ByteType), ("bits", LongType), ("text", StringType)]


def by_position(df: DataFrame) -> tuple[DataFrame, list[Column]]:
    """Return the frame with its columns renamed by position, and those columns: no name is ambiguous then."""
    renamed = df.toDF(*(f"c{i}" for i in range(len(df.columns))))
    return renamed, [F.col(name) for name in renamed.columns]
