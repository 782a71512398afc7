"""Binding of a DataFrame's columns to the identifiers of selectors.

By default a column is the identifier of exactly its name, field ``b`` of a struct column ``a`` is ``a.b``,
and a column whose name begins with ``@`` belongs to the frame (`@topic`, `@id`, …). A `Binding` maps other
names, and casts columns whose type no property has (see ``casts``)::

    JMSType=kind                the column `kind`
    at:long=cast                the column `at`, cast to a long
    price:double=cast(amount)   the column `amount`, cast to a double

Names are compared here, exactly, and columns then selected by position, because Spark's names ignore case by
default.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ByteType, DataType, LongType, StringType, StructField, StructType

from selectroute.kafka.binding import fixed_type
from selectroute.selector.arguments import check_argument
from selectroute.selector.errors import SelectRouteError, did_you_mean, unknown_field
from selectroute.spark.columns.casts import CAST_TYPES, cast_column, casts_of, type_of

Path: TypeAlias = tuple[int, ...]
"""Position of a column in the frame, then of the field in that struct, and so on."""


class BindingError(SelectRouteError):
    """Invalid binding, a missing column, or a name that several columns have."""


_TEXT: Final = re.compile(r"(?P<name>[^:=]+)(:(?P<type>[^=]*))?=(?P<source>.+)", re.DOTALL)
_CAST: Final = re.compile(r"cast(\((?P<column>.+)\))?", re.DOTALL)
_KEYS: Final = ("type", "from")


@dataclass(frozen=True, slots=True)
class Cast:
    """Cast of a column to a type of properties, where no property has the type of the column.

    Attributes:
        type: ``byte``, ``short``, ``int``, ``long``, ``float``, ``double`` or ``string``.
        column: the column's name; None for the name of the identifier.
    """

    type: str
    column: str | None = None

    def __post_init__(self) -> None:
        if self.type not in CAST_TYPES:
            advice = did_you_mean(self.type, CAST_TYPES, "the types are")
            raise BindingError(f"no column can be cast to {self.type!r}: {advice}")


@dataclass(frozen=True, slots=True)
class Binding:
    """Mapping of identifiers to columns of other names, or of other types.

    A column is given by its name; field ``b`` of a struct column ``a`` is ``a.b``. A `Cast` also converts it.

    >>> Binding({"JMSType": "kind"}).column("JMSType")
    'kind'
    >>> Binding({"JMSType": "kind"}).column("color")
    'color'
    >>> Binding.of(["JMSType=kind", "at:long=cast", "price:double=cast(order.amount)"]).columns["price"]
    Cast(type='double', column='order.amount')

    Raises BindingError for a cast to a type that the identifier cannot have.
    """

    columns: Mapping[str, str | Cast] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_argument(self.columns, Mapping, "columns", "a dict such as {'JMSType': 'kind'}")
        for name, source in self.columns.items():
            if not isinstance(source, str | Cast):
                raise BindingError(
                    f"the binding of {name!r} must be a column's name or a Cast, not {source!r}"
                )
            fixed = "string" if name.startswith("@") else fixed_type(name)
            if isinstance(source, Cast) and fixed not in (None, source.type):
                raise BindingError(f"{name!r} is always of type {fixed}, not {source.type}")

    @classmethod
    def of(cls, texts: Iterable[str]) -> Binding:
        """Parse ``IDENTIFIER=COLUMN``, ``IDENTIFIER:TYPE=cast`` and ``IDENTIFIER:TYPE=cast(COLUMN)``.

        Raises:
            BindingError: a text is not valid, or an identifier is bound twice.
        """
        columns: dict[str, str | Cast] = {}
        for text in texts:
            parsed = _TEXT.fullmatch(text)
            if parsed is None:
                raise BindingError(
                    f"{text!r} is not a valid binding: write IDENTIFIER=COLUMN, or IDENTIFIER:TYPE=cast"
                )
            name, type_, source = parsed["name"], parsed["type"], parsed["source"]
            if name in columns:
                raise BindingError(f"{name!r} is bound twice")
            cast = _CAST.fullmatch(source)
            if type_ is not None and cast is None:
                raise BindingError(
                    f"{text!r} is not a valid binding: a column has a type of its own; to convert it, write "
                    f"{name}:{type_}=cast({source})"
                )
            columns[name] = source if type_ is None or cast is None else Cast(type_, cast["column"])
        return cls(columns)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Binding:
        """Read ``{"columns": {identifier: column, …}}`` from a parsed JSON or TOML file. Instead of a column,
        ``{"type": …, "from": column}`` is a cast; ``from`` may be left out.
        """
        check_argument(data, Mapping, "data", "a dict such as {'columns': {'JMSType': 'kind'}}")
        columns = data.get("columns", {})
        for name in data:
            if name != "columns":
                raise BindingError(unknown_field("a binding", name, ("columns",)))
        if not isinstance(columns, Mapping):
            raise BindingError('a binding must be {"columns": {identifier: column, …}}')
        return cls({name: _column_of(name, source) for name, source in columns.items()})

    def column(self, identifier: str) -> str:
        """Return the name of the column that holds this identifier."""
        source = self.columns.get(identifier, identifier)
        return source if isinstance(source, str) else source.column or identifier

    def cast(self, identifier: str) -> str | None:
        """Return the type that the column of an identifier is cast to; None for no cast."""
        source = self.columns.get(identifier)
        return source.type if isinstance(source, Cast) else None

    @property
    def names(self) -> frozenset[str]:
        """Names of all columns that are bound to an identifier."""
        return frozenset(map(self.column, self.columns))


def _column_of(name: str, source: Any) -> str | Cast:
    if not isinstance(source, Mapping):
        if not isinstance(source, str):
            raise BindingError(f"the binding of {name!r} must be a column's name, not {source!r}")
        return source
    for key in source:
        if key not in _KEYS:
            raise BindingError(unknown_field(f"the binding of {name!r}", key, _KEYS))
    if "type" not in source or not all(isinstance(value, str) for value in source.values()):
        raise BindingError(
            f'{name!r} must be bound to a column, or to {{"type": …, "from": …}}, both strings'
        )
    return Cast(source["type"], source.get("from"))


BY_NAME = Binding()


@dataclass(frozen=True, slots=True)
class FrameColumn:
    """Identifier with the name, the position and the type of its column.

    ``own`` is the type of the column, and ``type`` the type of the identifier's values, which differs if
    ``cast`` is not None.
    """

    identifier: str
    column: str
    path: Path
    type: DataType
    own: DataType
    cast: str | None = None

    def read(self, schema: StructType, columns: Sequence[Column]) -> Column:
        """Return the values of the identifier; ``columns`` are those of `by_position`."""
        column = column_at(schema, columns, self.path)
        return column if self.cast is None else cast_column(column, self.own, self.cast)


def bind(schema: StructType, identifiers: Iterable[str], binding: Binding | None) -> tuple[FrameColumn, ...]:
    """Find the column of each identifier; one without a column is left out, and so is NULL.

    Raises:
        BindingError: the binding names a missing column, or casts one of a type that has no such cast; or
            several columns have the same name.
    """
    binding = binding or BY_NAME
    columns, groups = columns_of(schema)
    bound: list[FrameColumn] = []
    for identifier in identifiers:
        column = binding.column(identifier)
        places = columns.get(column) or groups.get(column, [])
        if len(places) > 1:
            raise ambiguous(column, len(places))
        if places:
            path, own = places[0]
            cast = binding.cast(identifier)
            type_ = own if cast is None else _cast_type(identifier, column, own, cast)
            bound.append(FrameColumn(identifier, column, path, type_, own, cast))
        elif identifier in binding.columns:
            raise BindingError(
                f"{identifier!r} is bound to column {column!r}, but the frame has no such column "
                f"(its columns: {', '.join(schema.fieldNames()) or 'none'})"
            )
    return tuple(bound)


def _cast_type(identifier: str, column: str, own: DataType, cast: str) -> DataType:
    possible = casts_of(own)
    if cast in possible:
        return type_of(own, cast)
    advice = f"it can be cast to {', '.join(possible)}" if possible else "this type has no cast"
    raise BindingError(
        f"{identifier!r} is bound to column {column!r} with a cast to {cast}, but the column has type "
        f"{own.simpleString()}: {advice}"
    )


def ambiguous(column: str, times: int) -> BindingError:
    """Return the error of a name that several columns have."""
    return BindingError(f"the frame has {times} columns named {column!r}: rename all but one")


Places: TypeAlias = dict[str, list[tuple[Path, DataType]]]


def columns_of(schema: StructType) -> tuple[Places, Places]:
    """Return the columns that can be a property, and the structs that group properties, both by name."""
    columns: Places = {}
    groups: Places = {}
    for name, path, type_ in _walk(schema):
        places = groups if isinstance(type_, StructType) and not is_mixed(type_) else columns
        places.setdefault(name, []).append((path, type_))
    return columns, groups


def _walk(schema: StructType) -> Iterator[tuple[str, Path, DataType]]:
    waiting: list[tuple[str, Path, DataType]] = [("", (), schema)]
    while waiting:
        name, path, type_ = waiting.pop()
        if path:
            yield name, path, type_
        if isinstance(type_, StructType) and not is_mixed(type_) and not name.startswith("@"):
            prefix = f"{name}." if path else ""
            inner = [
                (prefix + inner_field.name, (*path, i), inner_field.dataType)
                for i, inner_field in enumerate(type_.fields)
            ]
            waiting += reversed(inner)


def is_mixed(type_: DataType) -> bool:
    """Return whether this is the struct type of a property whose type varies by message."""
    return isinstance(type_, StructType) and [(part.name, type(part.dataType)) for part in type_.fields] == [
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
            type_ = StructType([StructField(f"f{i}", part.dataType) for i, part in enumerate(type_.fields)])
            column = column.cast(type_)
        column, type_ = column.getField(type_.names[position]), type_.fields[position].dataType
    return column
