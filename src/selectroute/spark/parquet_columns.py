"""What to read of a Parquet file: of its columns those that selectors need, and how they are decoded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from selectroute.match.batch import leaves, properties
from selectroute.selector.names import INVALID_NAMES, breaches

_ID_COLUMNS = ("@id", "JMSMessageID")
_ENCODED_BYTES_A_VALUE = 3


@dataclass(frozen=True, slots=True)
class Selection:
    """What to read of a file, all by names as selectors have them.

    Attributes:
        columns: the columns to decode, nested ones by their path.
        repeating: those of them that are best left dictionary-encoded.
        id_name: the column of the message id, if there is one.
        ambiguous: a name that is needed and stands more than once.
    """

    columns: list[str]
    repeating: list[str]
    id_name: str | None
    ambiguous: str | None


def select(metadata: Any, row_groups: Sequence[int], names: Sequence[str], whole: bool = False) -> Selection:
    """Choose the columns: those that a snapshot reads, ``names``, or with ``whole`` all. O(columns).

    Where the rules on property names count, that is also every column that takes part in a breach of them.
    What the matcher refuses to read, such as a group of properties, is chosen too, for it to say so.
    """
    schema = metadata.schema.to_arrow_schema()
    types: dict[str, list[pa.DataType]] = {}
    for name, path in leaves(schema):
        types.setdefault(name, []).append(_type_at(schema, path))
    needed = list(names)
    if INVALID_NAMES in names and INVALID_NAMES not in types:
        needed += dict.fromkeys(name for breach in breaches(properties(list(types))) for name in breach)
    groups = set(_groups(schema))
    wanted = dict.fromkeys(name for name in needed if name in types or name in groups)
    ambiguous = next((name for name in wanted if len(types.get(name, ())) > 1), None)
    id_name = next((name for name in _ID_COLUMNS if len(types.get(name, ())) == 1), None)
    if id_name is not None:
        wanted[id_name] = None
    if whole:
        wanted.update(dict.fromkeys(types))
    strings = {
        name for name in wanted for type_ in types.get(name, ()) if type_ in (pa.string(), pa.large_string())
    }
    return Selection(list(wanted), _repeating(metadata, row_groups, strings), id_name, ambiguous)


def _type_at(schema: pa.Schema, path: Sequence[int]) -> pa.DataType:
    type_ = schema.field(path[0]).type
    for position in path[1:]:
        type_ = type_.field(position).type
    return type_


def _groups(schema: pa.Schema) -> Iterator[str]:
    """The names of all structs."""
    waiting = [(field.name, field.type) for field in schema]
    while waiting:
        name, type_ = waiting.pop()
        if pa.types.is_struct(type_):
            yield name
            waiting += [(f"{name}.{field.name}", field.type) for field in type_]


def _repeating(metadata: Any, row_groups: Sequence[int], strings: set[str]) -> list[str]:
    """Return the string columns whose values repeat so much that they are best left dictionary-encoded.

    Then only a code for each value is stored: few bytes a value. Where values hardly repeat, encoding them
    costs more than it saves.
    """
    if not row_groups or metadata.num_columns == 0:
        return []
    group = metadata.row_group(row_groups[0])
    return [
        column.path_in_schema
        for column in map(group.column, range(group.num_columns))
        if column.path_in_schema in strings
        and column.has_dictionary_page
        and column.total_uncompressed_size <= _ENCODED_BYTES_A_VALUE * column.num_values
    ]
