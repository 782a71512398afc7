"""The columns of a batch by the names that selectors use, and which messages break the rules on names."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from selectroute.index import tables as t
from selectroute.match.columns import ColumnTypeError
from selectroute.match.mixed import is_mixed
from selectroute.selector.message import HEADER_TYPES
from selectroute.selector.names import INVALID_NAMES, breaches

Path = tuple[int, ...]
"""Where a column is: its position among the columns, then among the fields of the struct there, and so on."""


def leaves(schema: pa.Schema) -> Iterator[tuple[str, Path]]:
    """Yield every column that can be a property, by its name: field ``b`` of a struct ``a`` is ``a.b``.

    A struct of type `MIXED` is one property. The columns of the frame (``@…``) are none.
    """
    waiting: list[tuple[str, pa.DataType, Path]] = [
        (field.name, field.type, (position,)) for position, field in enumerate(schema)
    ]
    waiting.reverse()
    while waiting:
        name, type_, path = waiting.pop()
        if pa.types.is_struct(type_) and not is_mixed(type_) and not name.startswith("@"):
            fields = [(f"{name}.{field.name}", field.type, (*path, i)) for i, field in enumerate(type_)]
            waiting += reversed(fields)
        else:
            yield name, path


def properties(names: Iterator[str] | list[str]) -> list[str]:
    """Return the names that are property names: not those of the frame, nor of header fields."""
    return [name for name in names if not name.startswith("@") and name not in HEADER_TYPES]


class Batch:
    """A batch of messages, a column found by the name of its property. O(columns) to make."""

    def __init__(self, messages: pa.RecordBatch) -> None:
        self.rows: int = messages.num_rows
        self._messages = messages
        self._paths: dict[str, list[Path]] = {}
        for name, path in leaves(messages.schema):
            self._paths.setdefault(name, []).append(path)

    def column(self, name: str) -> pa.Array | None:
        """Return the column of this name, None if there is none; several are a `ColumnTypeError`."""
        paths = self._paths.get(name)
        if paths is None:
            position = self._messages.schema.get_field_index(name)
            if position >= 0:  # a group of properties, which is none itself
                raise ColumnTypeError(name, self._messages.schema.field(position).type)
            return None
        column = self._messages.column(paths[0][0])
        for position in paths[0][1:]:
            column = pc.struct_field(column, [position])
        if len(paths) > 1:
            raise ColumnTypeError(name, column.type, "there are several columns of this name")
        return column

    def invalid_names(self) -> t.Array:
        """Return for each message whether its property names break a rule of seed 003, bool[rows].

        From the column `INVALID_NAMES` where there is one, otherwise from the names of the columns that are
        not NULL in its row.
        """
        flags = self.column(INVALID_NAMES)
        if flags is not None:
            if not pa.types.is_boolean(flags.type):
                raise ColumnTypeError(INVALID_NAMES, flags.type, "it is a boolean")
            return np.asarray(pc.fill_null(flags, False).to_numpy(zero_copy_only=False))
        broken = np.zeros(self.rows, np.bool_)
        for names in breaches(properties(list(self._paths))):
            together = np.ones(self.rows, np.bool_)
            for name in names:
                together &= self._present(name)
            broken |= together
        return broken

    def _present(self, name: str) -> t.Array:
        column = self.column(name)
        present: t.Array = pc.is_valid(column).to_numpy(zero_copy_only=False)
        if column is not None and is_mixed(column.type):
            tags = pc.fill_null(column.flatten()[0], t.NULL).to_numpy(zero_copy_only=False)
            present = present & (tags != t.NULL)
        return present
