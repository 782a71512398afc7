"""Binding of a DataFrame's columns to the identifiers of selectors.

By default a column is the identifier of exactly its name, field ``b`` of a struct column ``a`` is ``a.b``,
and a column whose name begins with ``@`` belongs to the frame (`@topic`, `@id`, …). A `Binding` maps other
names. Names are compared here, exactly, and columns then selected by position, because Spark's names ignore
case by default.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ByteType, DataType, LongType, StringType, StructField, StructType

from selectroute.selector.arguments import check_argument
from selectroute.selector.errors import SelectRouteError
from selectroute.selector.suggestion import unknown_field

Path: TypeAlias = tuple[int, ...]
"""Position of a column in the frame, then of the field in that struct, and so on."""


class BindingError(SelectRouteError):
    """Invalid binding, a missing column, or a name that several columns have."""


@dataclass(frozen=True, slots=True)
class Binding:
    """Mapping of identifiers to columns of other names.

    A column is given by its name; field ``b`` of a struct column ``a`` is ``a.b``.

    >>> Binding({"JMSType": "kind"}).column("JMSType")
    'kind'
    >>> Binding({"JMSType": "kind"}).column("color")
    'color'
    """

    columns: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_argument(self.columns, Mapping, "columns", "a dict such as {'JMSType': 'kind'}")

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Binding:
        """Read ``{"columns": {identifier: column, …}}`` from a parsed JSON or TOML file."""
        check_argument(data, Mapping, "data", "a dict such as {'columns': {'JMSType': 'kind'}}")
        columns = data.get("columns", {})
        for name in data:
            if name != "columns":
                raise BindingError(unknown_field("a binding", name, ("columns",)))
        if not isinstance(columns, Mapping):
            raise BindingError('a binding must be {"columns": {identifier: column, …}}')
        for name, column in columns.items():
            if not isinstance(column, str):
                raise BindingError(f"the binding of {name!r} must be a column's name, not {column!r}")
        return cls(dict(columns))

    def column(self, identifier: str) -> str:
        """Return the name of the column that holds this identifier."""
        return self.columns.get(identifier, identifier)


BY_NAME = Binding()


@dataclass(frozen=True, slots=True)
class Bound:
    """Identifier with the name, the position and the type of its column."""

    identifier: str
    column: str
    path: Path
    type: DataType


def bind(schema: StructType, identifiers: Iterable[str], binding: Binding | None) -> tuple[Bound, ...]:
    """Find the column of each identifier; one without a column is left out, and so is NULL.

    Raises:
        BindingError: the binding names a missing column, or several columns have the same name.
    """
    binding = binding or BY_NAME
    columns, groups = columns_of(schema)
    found: list[Bound] = []
    for identifier in identifiers:
        column = binding.column(identifier)
        places = columns.get(column) or groups.get(column, [])
        if len(places) > 1:
            raise ambiguous(column, len(places))
        if places:
            found.append(Bound(identifier, column, *places[0]))
        elif identifier in binding.columns:
            raise BindingError(
                f"{identifier!r} is bound to column {column!r}, but the frame has no such column "
                f"(its columns: {', '.join(schema.fieldNames()) or 'none'})"
            )
    return tuple(found)


def ambiguous(column: str, times: int) -> BindingError:
    """Return the error of a name that several columns have."""
    return BindingError(f"the frame has {times} columns named {column!r}: rename all but one")


Places: TypeAlias = dict[str, list[tuple[Path, DataType]]]


def columns_of(schema: StructType) -> tuple[Places, Places]:
    """Return the columns that can be a property, and the structs that group properties, both by name."""
    columns: Places = {}
    groups: Places = {}
    for name, path, type_ in _walk(schema):
        found = groups if isinstance(type_, StructType) and not is_mixed(type_) else columns
        found.setdefault(name, []).append((path, type_))
    return columns, groups


def _walk(schema: StructType) -> Iterator[tuple[str, Path, DataType]]:
    waiting: list[tuple[str, Path, DataType]] = [("", (), schema)]
    while waiting:
        name, path, type_ = waiting.pop()
        if path:
            yield name, path, type_
        if isinstance(type_, StructType) and not is_mixed(type_) and not name.startswith("@"):
            prefix = f"{name}." if path else ""
            inner = [(prefix + one.name, (*path, i), one.dataType) for i, one in enumerate(type_.fields)]
            waiting += reversed(inner)


def is_mixed(type_: DataType) -> bool:
    """Return whether this is the struct type of a property whose type varies by message."""
    return isinstance(type_, StructType) and [(one.name, type(one.dataType)) for one in type_.fields] == [
        ("tag", ByteType),
        ("bits", LongType),
        ("text", StringType),
    ]


def by_position(df: DataFrame) -> tuple[DataFrame, list[Column]]:
    """Return the frame with names that Spark can tell apart, and its columns by their position.

    The frame is unchanged unless Spark would confuse names, such as ``color`` and ``Color``.
    """
    names = df.columns
    if len({name.lower() for name in names}) == len(names) and all(names):
        return df, [F.col("`" + name.replace("`", "``") + "`") for name in names]
    renamed = df.toDF(*(f"c{i}" for i in range(len(names))))
    return renamed, [F.col(name) for name in renamed.columns]


def column_at(schema: StructType, columns: Sequence[Column], path: Path) -> Column:
    """Return a column of the frame or the field of a struct in it; ``columns`` are those of `by_position`."""
    column, type_ = columns[path[0]], schema.fields[path[0]].dataType
    for position in path[1:]:
        assert isinstance(type_, StructType)
        names = [name.lower() for name in type_.names]
        if names.count(names[position]) > 1:
            # Spark ignores case in the names of fields, too.
            type_ = StructType([StructField(f"f{i}", one.dataType) for i, one in enumerate(type_.fields)])
            column = column.cast(type_)
        column, type_ = column.getField(type_.names[position]), type_.fields[position].dataType
    return column
