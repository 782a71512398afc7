"""Columns of a batch by the names that selectors use, and the messages that break the rules on names."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from selectroute.arrays import tables as t
from selectroute.match.columns.columns import ColumnTypeError
from selectroute.match.columns.from_messages import is_mixed
from selectroute.selector.message import HEADER_TYPES
from selectroute.selector.names import INVALID_NAMES, breaches

Path = tuple[int, ...]
"""Path of a column: its index among the columns, then among the fields of that struct, and so on."""


def leaves(schema: pa.Schema) -> Iterator[tuple[str, Path]]:
    """Yield name and path of every column that can be a property: field ``b`` of a struct ``a`` is ``a.b``.

    A struct of type `MIXED` is one property. The columns of the frame (``@…``) are not properties.
    """
    return ((name, path) for name, path, type_ in schema_columns(schema) if not is_group(name, type_))


def schema_columns(schema: pa.Schema) -> Iterator[tuple[str, Path, pa.DataType]]:
    """Yield every column and every field of a struct, at any depth."""
    waiting: list[tuple[str, Path, pa.DataType]] = [
        (field.name, (position,), field.type) for position, field in enumerate(schema)
    ]
    waiting.reverse()
    while waiting:
        name, path, type_ = waiting.pop()
        yield name, path, type_
        if is_group(name, type_):
            fields = [(f"{name}.{field.name}", (*path, i), field.type) for i, field in enumerate(type_)]
            waiting += reversed(fields)


def is_group(name: str, type_: pa.DataType) -> bool:
    """Return whether a column is a struct that groups properties."""
    return bool(pa.types.is_struct(type_)) and not is_mixed(type_) and not name.startswith("@")


def properties(names: Iterator[str] | list[str]) -> list[str]:
    """Return the property names among these: not the columns of the frame, nor header fields."""
    return [name for name in names if not name.startswith("@") and name not in HEADER_TYPES]


class ColumnBatch:
    """Batch of messages whose columns are found by the names of properties. O(columns) to make."""

    def __init__(self, messages: pa.RecordBatch) -> None:
        self.rows: int = messages.num_rows
        self._messages = messages
        self._paths: dict[str, list[Path]] = {}
        self._groups: dict[str, Path] = {}
        for name, path, type_ in schema_columns(messages.schema):
            if is_group(name, type_):
                self._groups.setdefault(name, path)
            else:
                self._paths.setdefault(name, []).append(path)

    @property
    def names(self) -> AbstractSet[str]:
        """Names of the columns, and of the groups of columns."""
        return self._paths.keys() | self._groups.keys() if self._groups else self._paths.keys()

    def column(self, name: str) -> pa.Array | None:
        """Return the column of this name, None if there is none. Raises `ColumnTypeError` for several.

        A group of properties is returned as its struct, a type that no property has.
        """
        paths = self._paths.get(name) or ([self._groups[name]] if name in self._groups else None)
        if paths is None:
            return None
        column = self._messages.column(paths[0][0])
        for position in paths[0][1:]:
            column = pc.struct_field(column, [position])
        if len(paths) > 1:
            raise ColumnTypeError(name, column.type, "there are several columns of this name")
        return column

    def invalid_names(self) -> t.Array:
        """Return for each message whether its property names break a rule of seed 003, bool[rows].

        From the column `INVALID_NAMES` if there is one, otherwise from the names of the columns that are not
        NULL in the row.
        """
        flags = self.column(INVALID_NAMES)
        if flags is not None:
            if not pa.types.is_boolean(flags.type):
                raise ColumnTypeError(INVALID_NAMES, flags.type, "it must be boolean")
            return np.asarray(pc.fill_null(flags, False).to_numpy(zero_copy_only=False))
        broken = np.zeros(self.rows, np.bool_)
        present: dict[str, t.Array] = {}
        for names in breaches(properties(list(self._paths))):
            for name in names:
                if name not in present:
                    present[name] = self._present(name)
            broken |= np.logical_and.reduce([present[name] for name in names])
        return broken

    def _present(self, name: str) -> t.Array:
        column = self.column(name)
        present: t.Array = pc.is_valid(column).to_numpy(zero_copy_only=False)
        if column is not None and is_mixed(column.type):
            tag, _, text = column.flatten()
            tags = pc.fill_null(tag, t.NULL).to_numpy(zero_copy_only=False)
            has_text = pc.is_valid(text).to_numpy(zero_copy_only=False)
            texts = (tags == t.STRING) | (tags == t.BYTES)
            present = present & (tags != t.NULL) & (~texts | has_text)
        return present
