"""Single messages of a batch, for callers that need complete messages."""

from __future__ import annotations

from collections.abc import Iterable

from selectroute.match.columns.batch import Batch
from selectroute.match.columns.columns import check_column, lane
from selectroute.match.columns.fields import values_of_rows
from selectroute.match.columns.from_messages import BODY, is_mixed
from selectroute.selector.message import HEADER_TYPES, Message
from selectroute.selector.values.values import Unsupported, Value
from selectroute.topics.filter import TOPIC


class Rows:
    """Messages of a batch, one by one; each column is read once, at its first use."""

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self._columns: dict[str, list[Value | Unsupported | None] | None] = {}

    def message(self, row: int, names: Iterable[str]) -> Message:
        """Return the message of a row with the values of these columns; a missing one is NULL.

        Raises `ColumnTypeError` for a column of a type that no property has, MessageError for invalid values.
        """
        found = {name: column[row] for name in names if (column := self._column(name)) is not None}
        topic, body = found.pop(TOPIC, None), found.pop(BODY, None)
        headers = {name: value for name, value in found.items() if name in HEADER_TYPES}
        properties = {name: value for name, value in found.items() if name not in HEADER_TYPES}
        return Message(headers, properties, topic, body)  # type: ignore[arg-type]  # checked there

    def _column(self, name: str) -> list[Value | Unsupported | None] | None:
        if name not in self._columns:
            self._columns[name] = self._read(name)
        return self._columns[name]

    def _read(self, name: str) -> list[Value | Unsupported | None] | None:
        array = self._batch.column(name)
        if array is None:
            return None
        if name.startswith("@") and not is_mixed(array.type):
            plain: list[Value | Unsupported | None] = array.to_pylist()
            return plain
        name = name.removeprefix("@")
        check_column(name, array.type, byte_strings=True)  # no messages with parts left out
        return values_of_rows(lane(name, array))
