"""Columns of a DataFrame that the matcher reads, and one boolean for the rules on property names.

The rules (seed 003) concern all property names of a message, including those that no selector reads. For them
only one boolean crosses to Python: the names that break a rule are known from the schema, and a row breaks
the rule if they are not NULL.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import and_

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructType

from selectroute.arrays import tables as t
from selectroute.index.snapshot import Snapshot
from selectroute.match.columns.batch import properties
from selectroute.selector.names import INVALID_NAMES, breaches
from selectroute.spark.columns.binding import (
    BY_NAME,
    Binding,
    Places,
    ambiguous,
    bind,
    column_at,
    columns_of,
    is_mixed,
)
from selectroute.spark.columns.casts import unlike_values
from selectroute.spark.columns.column_types import Reads, check_types


def read_columns(
    schema: StructType,
    columns: Sequence[Column],
    snapshot: Snapshot | Reads,
    binding: Binding | None,
    strict: bool = False,
) -> list[tuple[str, Column]]:
    """Return the columns to match, with their identifiers; ``columns`` are those of `by_position`.

    A column whose type no property has is replaced by values that are of an unlike type where it is not NULL.

    Raises:
        ColumnTypeError, BindingError: as `route`.
    """
    bound = bind(schema, snapshot.reads, binding)
    unlike = check_types(snapshot, bound, strict)
    read = [(one.identifier, one.read(schema, columns)) for one in bound]
    read = [(name, unlike_values(column) if name in unlike else column) for name, column in read]
    if INVALID_NAMES in snapshot.reads and INVALID_NAMES not in (one.identifier for one in bound):
        read.append((INVALID_NAMES, invalid_names(schema, columns, binding or BY_NAME)))
    return read


def invalid_names(schema: StructType, columns: Sequence[Column], binding: Binding) -> Column:
    """Return whether the property names of a row break a rule: FALSE for the names of most frames."""
    places = by_identifier(schema, binding)
    broken: list[Column] = []
    for names in breaches(properties(list(places))):
        together: list[Column] = []
        for name in names:
            if len(places[name]) > 1:
                raise ambiguous(name, len(places[name]))
            path, type_ = places[name][0]
            together.append(_present(column_at(schema, columns, path), type_))
        broken.append(reduce(and_, together))
    # TRUE if any is TRUE; a chain of OR would be as deep as the number of names.
    return F.greatest(*broken) if len(broken) > 1 else broken[0] if broken else F.lit(False)


def by_identifier(schema: StructType, binding: Binding) -> Places:
    """Return the columns of the frame by their identifiers."""
    columns, _ = columns_of(schema)
    renamed = binding.names
    found = {
        name: places
        for name, places in columns.items()
        if name not in renamed and name not in binding.columns
    }
    found |= {
        identifier: columns[column]
        for identifier in binding.columns
        if (column := binding.column(identifier)) in columns
    }
    return found


def _present(column: Column, type_: DataType) -> Column:
    if is_mixed(type_):  # as in `Batch`: strings and byte strings are NULL if their text is
        tag = F.coalesce(column.getField("tag"), F.lit(t.NULL))
        texts = (tag == t.STRING) | (tag == t.BYTES)
        return (tag != t.NULL) & (~texts | column.getField("text").isNotNull())
    return column.isNotNull()
