"""Columns that selectors read, their valid types, and one boolean for the rules on property names.

Types are Arrow's in a worker, Spark's before any job runs. The rules (seed 003) concern all property names
of a message, including those that no selector reads. For them only one boolean crosses to Python: the names
that break a rule are known from the schema, and a row breaks the rule if they are not NULL.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import reduce
from operator import and_
from types import MappingProxyType
from typing import Protocol

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DayTimeIntervalType,
    MapType,
    StructType,
    TimestampNTZType,
    TimestampType,
    VariantType,
    YearMonthIntervalType,
)

from selectroute.arrays import tables as t
from selectroute.index.snapshot import Snapshot
from selectroute.kafka.binding import fixed_type
from selectroute.match.columns.batch import ColumnBatch, properties
from selectroute.match.columns.columns import ColumnTypeError, check_column
from selectroute.match.columns.from_messages import BODY, MIXED
from selectroute.match.columns.missing import unlike_constants, unlike_sentence
from selectroute.selector.names import INVALID_NAMES, breaches
from selectroute.spark.columns.arrow_casts import casts_of as arrow_casts_of
from selectroute.spark.columns.binding import (
    BY_NAME,
    Binding,
    FrameColumn,
    Places,
    ambiguous,
    bind,
    column_at,
    columns_of,
    is_mixed,
)
from selectroute.spark.columns.casts import PROPERTY_TYPES, casts_of, unlike_values


class Reads(Protocol):
    """Facts on columns from a `Snapshot`, or a `PartitionedSnapshot`, which is never loaded whole."""

    @property
    def reads(self) -> tuple[str, ...]:
        """Identifiers that selectors read."""

    @property
    def no_bytes(self) -> frozenset[str]:
        """Identifiers among them that can't be bytes."""


_MEANINGS: dict[type[DataType], str] = {
    TimestampType: " (milliseconds since 1970)",
    TimestampNTZType: " (milliseconds since 1970)",
}
"""Meaning of the most useful cast of a type; see ``casts``."""

_CONVERSIONS: dict[type[DataType], str] = {
    DayTimeIntervalType: "F.col({0}).cast('string')",
    YearMonthIntervalType: "F.col({0}).cast('string')",
    ArrayType: "F.try_element_at({0}, F.lit(1)) for one element, or F.array_join({0}, ',') for a string",
    MapType: "F.col({0}).getItem('key') for one key, a column each",
    VariantType: "F.try_variant_get({0}, '$.path', 'string') for one value",
}
"""Conversions of columns of types without a cast; ``{0}`` is the column's name."""


def how_to_cast(identifier: str, column: str, type_: DataType) -> str | None:
    """Return advice on how to convert a column to a property; None if its type has no known conversion."""
    binds = binds_of(identifier, column, casts_of(type_))
    if binds:
        first = f"{binds[0]!r}{_MEANINGS.get(type(type_), '')}"
        more = f" or {binds[1]!r}" if len(binds) > 1 else ""
        return f"no property has this type: bind it with a cast, {first}{more}; or leave the column out"
    conversion = _CONVERSIONS.get(type(type_))
    if conversion is None:
        return None
    # Field ``b`` of a struct column ``a`` becomes an additional column ``a.b``.
    return (
        f"no property has this type: route df.withColumn({column!r}, …) with "
        f"{conversion.format(repr(column))}; or leave the column out"
    )


def binds_of(identifier: str, column: str, casts: Iterable[str]) -> list[str]:
    """Return the texts of `Binding.of` that cast a column for this identifier, the most useful ones of these
    casts: a number and a string, or only the type of a header field.
    """
    fixed = "string" if identifier.startswith("@") else fixed_type(identifier)
    possible = [cast for cast in casts if fixed in (None, cast)]
    first, text = possible[:1], [cast for cast in possible[1:] if cast == "string"]
    source = "cast" if column == identifier else f"cast({column})"
    return [f"{identifier}:{cast}={source}" for cast in (*first, *text)]


def can_be_property(type_: DataType) -> bool:
    """Return whether a property can have this type."""
    return type(type_) in PROPERTY_TYPES or is_mixed(type_)


_BODIES = (pa.string(), pa.large_string(), pa.binary(), pa.large_binary(), pa.null(), MIXED)


class ReadTypes:
    """Valid types of the columns that a snapshot reads."""

    def __init__(self, snapshot: Reads) -> None:
        self.no_bytes = snapshot.no_bytes

    def check(self, name: str, type_: pa.DataType) -> None:
        """Raise `ColumnTypeError` if the column that is read as ``name`` cannot have this type."""
        if name == INVALID_NAMES:
            if not pa.types.is_boolean(type_):
                raise ColumnTypeError(name, type_, "it must be a boolean")
        elif name == BODY:
            if type_ not in _BODIES:
                raise ColumnTypeError(name, type_, "the body must be a string or binary")
        else:
            check_column(name, type_, name not in self.no_bytes)

    def unlike(
        self, columns: pa.RecordBatch, names: Iterable[str], origins: Mapping[str, str] = MappingProxyType({})
    ) -> dict[str, tuple[str, bool]]:
        """Return the columns whose type no property has, each with its error text, and whether it is bytes,
        which a property of another dialect may have. ``origins`` has the names of columns in their file,
        where they differ.
        """
        batch = ColumnBatch(columns)
        problems: dict[str, tuple[str, bool]] = {}
        for name in names:
            if name in (INVALID_NAMES, BODY):
                continue
            try:
                column = batch.column(name)
            except ColumnTypeError:  # two columns of a name: matching raises the error
                continue
            if column is not None:
                try:
                    self.check(name, column.type)
                except ColumnTypeError as error:
                    binds = binds_of(name, origins.get(name, name), arrow_casts_of(column.type))
                    advice = f"; bind it as {binds[0]!r}" if binds else ""
                    problems[name] = f"{error}{advice}", self.is_binary(name, column.type)
        return problems

    def is_binary(self, name: str, type_: pa.DataType) -> bool:
        """Return whether a column is invalid only because some dialects that read it lack byte strings."""
        try:
            check_column(name, type_, byte_strings=True)
        except ColumnTypeError:
            return False
        return name in self.no_bytes


def check_types(snapshot: Reads, bound: Collection[FrameColumn], strict: bool = False) -> frozenset[str]:
    """Return the identifiers whose columns have a type that no property has, before any job runs.

    Each is a warning with the number of subscriptions affected. Bytes are not returned, because dialects with
    byte strings read them. A column that is compared with constants of another type is a warning, too.

    Raises:
        ColumnTypeError: ``strict`` and there is such a column; or the body, or the column of invalid names,
            has a wrong type.
    """
    problems = unlike_types(snapshot, bound)
    for name, (error, binary) in problems.items():
        if strict:
            raise error
        readers = snapshot.readers(name, byte_strings=not binary) if isinstance(snapshot, Snapshot) else None
        warnings.warn(unlike_sentence(str(error), readers), stacklevel=6)
    for sentence in constants_unlike(snapshot, bound):
        warnings.warn(sentence, stacklevel=6)
    return frozenset(name for name, (_, binary) in problems.items() if not binary)


def constants_unlike(snapshot: Reads, bound: Iterable[FrameColumn]) -> list[str]:
    """Return the warnings of `unlike_constants` about the columns of a frame."""
    types = {
        column.identifier: arrow_type
        for column in bound
        if (arrow_type := PROPERTY_TYPES.get(type(column.type)))
    }
    return [*unlike_constants(snapshot.segments, types)] if isinstance(snapshot, Snapshot) else []


def unlike_types(snapshot: Reads, bound: Iterable[FrameColumn]) -> dict[str, tuple[ColumnTypeError, bool]]:
    """Return the identifiers whose columns have a type that no property has, each with its error, and whether
    it is bytes, which a property of another dialect may have.

    Raises:
        ColumnTypeError: the body, or the column of invalid names, has a wrong type.
    """
    types = ReadTypes(snapshot)
    problems: dict[str, tuple[ColumnTypeError, bool]] = {}
    for column in bound:
        shown = column.type.simpleString()
        arrow_type = MIXED if is_mixed(column.type) else PROPERTY_TYPES.get(type(column.type))
        try:
            if arrow_type is None:
                group = "it is a struct, a group of properties: selectors read its fields"
                is_group = isinstance(column.type, StructType)
                mended = group if is_group else how_to_cast(column.identifier, column.column, column.type)
                raise ColumnTypeError(column.column, shown, mended)
            types.check(column.identifier, arrow_type)
        except ColumnTypeError as error:
            # The same text with Spark's names of column and type.
            text = str(error).split(": ", 1)[1]
            if arrow_type is not None and (
                binds := binds_of(column.identifier, column.column, casts_of(column.type))
            ):
                text += f"; bind it as {binds[0]!r}"
            named = ColumnTypeError(column.column, shown, text)
            if column.identifier in (INVALID_NAMES, BODY):
                raise named from error
            binary = arrow_type is not None and types.is_binary(column.identifier, arrow_type)
            problems[column.identifier] = named, binary
    return problems


def read_columns(
    schema: StructType,
    columns: Sequence[Column],
    snapshot: Reads,
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
    read = [(column.identifier, column.read(schema, columns)) for column in bound]
    read = [(name, unlike_values(column) if name in unlike else column) for name, column in read]
    if INVALID_NAMES in snapshot.reads and INVALID_NAMES not in (column.identifier for column in bound):
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
    own = {
        name: places
        for name, places in columns.items()
        if name not in renamed and name not in binding.columns
    }
    return own | {
        identifier: columns[column]
        for identifier in binding.columns
        if (column := binding.column(identifier)) in columns
    }


def _present(column: Column, type_: DataType) -> Column:
    if is_mixed(type_):  # as in `ColumnBatch`: strings and byte strings are NULL if their text is
        tag = F.coalesce(column.getField("tag"), F.lit(t.NULL))
        texts = (tag == t.STRING) | (tag == t.BYTES)
        return (tag != t.NULL) & (~texts | column.getField("text").isNotNull())
    return column.isNotNull()
