"""Whole messages in a worker: what a destination hands on, and not only what selectors read of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from selectroute.match.batch import Batch, leaves
from selectroute.match.columns import ColumnTypeError
from selectroute.match.from_messages import BODY
from selectroute.match.to_messages import Rows
from selectroute.selector.message import Message, MessageError
from selectroute.topics.levels import TOPIC

_BLOCK = 4_096
"""Messages made of columns at a time: bounds memory."""

_ID = "JMSMessageID"


class FullMessages(Protocol):
    """Messages of one source with everything that they have, however they came."""

    def slice(self, start: int, length: int) -> FullMessages:
        """Return a slice of them."""

    def take(self, rows: npt.NDArray[np.int64]) -> FullMessages:
        """Return those in these places."""

    def messages(self, rows: npt.NDArray[np.int64]) -> Iterator[Message | str]:
        """Yield the messages in these places, in order; for one that can't be one, the reason as text."""


class ParsedMessages:
    """Messages that were parsed one by one."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self._messages = messages

    def slice(self, start: int, length: int) -> ParsedMessages:
        """Return a slice of them."""
        return ParsedMessages(self._messages[start : start + length])

    def take(self, rows: npt.NDArray[np.int64]) -> ParsedMessages:
        """Return those in these places."""
        return ParsedMessages(list(self.messages(rows)))

    def messages(self, rows: npt.NDArray[np.int64]) -> Iterator[Message]:
        """Yield the messages in these places."""
        return (self._messages[row] for row in rows.tolist())


class ColumnMessages:
    """Messages as columns, each named as the header or property that it is, ``@topic`` and ``@body``.

    ``ids`` are their message ids as strings, where they have any, under whatever name. Other columns of the
    frame are none of the message.
    """

    def __init__(self, columns: pa.RecordBatch, ids: Any | None = None) -> None:
        if ids is not None:
            others = [place for place, column in enumerate(columns.schema) if column.name != _ID]
            arrays = [*(columns.column(place) for place in others), ids]
            names = [*(columns.schema.field(place).name for place in others), _ID]
            columns = pa.RecordBatch.from_arrays(arrays, names=names)
        self._columns = columns
        found = dict.fromkeys(name for name, _ in leaves(columns.schema))
        self._names = [name for name in found if not name.startswith("@") or name in (TOPIC, BODY)]

    def slice(self, start: int, length: int) -> ColumnMessages:
        """Return a slice of them."""
        return ColumnMessages(self._columns.slice(start, length))

    def take(self, rows: npt.NDArray[np.int64]) -> ColumnMessages:
        """Return those in these places."""
        return ColumnMessages(self._columns.take(pa.array(rows)))

    def messages(self, rows: npt.NDArray[np.int64]) -> Iterator[Message | str]:
        """Yield the messages in these places; where a column is no property, the sentence that says so."""
        for start in range(0, len(rows), _BLOCK):
            chosen = rows[start : start + _BLOCK]
            block = Rows(Batch(self._columns.take(pa.array(chosen))))
            for row in range(len(chosen)):
                try:
                    yield block.message(row, self._names)
                except (ColumnTypeError, MessageError) as error:
                    yield str(error)
