"""Full messages in a worker, as destinations need them: not only the columns that selectors read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from selectroute.match.columns.batch import Batch, leaves
from selectroute.match.columns.columns import ColumnTypeError
from selectroute.match.columns.fields import Rows
from selectroute.match.columns.from_messages import BODY
from selectroute.selector.message import Message, MessageError
from selectroute.topics.filter import TOPIC

_BLOCK = 4_096
"""Messages converted from columns at a time: bounds memory."""

_ID = "JMSMessageID"


class FullMessages(Protocol):
    """Full messages of one source, in any form."""

    def take(self, rows: npt.NDArray[np.int64]) -> FullMessages:
        """Return the messages at these rows."""

    def messages(self, rows: npt.NDArray[np.int64]) -> Iterator[Message | str]:
        """Yield the messages at these rows, in order; for an invalid one, the error text."""


class ParsedMessages:
    """Full messages that were parsed one by one."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self._messages = messages

    def take(self, rows: npt.NDArray[np.int64]) -> ParsedMessages:
        """Return the messages at these rows."""
        return ParsedMessages(list(self.messages(rows)))

    def messages(self, rows: npt.NDArray[np.int64]) -> Iterator[Message]:
        """Yield the messages at these rows."""
        return (self._messages[row] for row in rows.tolist())


class ColumnMessages:
    """Full messages as columns, named as headers and properties, ``@topic`` and ``@body``.

    ``ids`` are the message ids as strings, from a column of any name, or None. Other columns that begin with
    ``@`` are not part of the message.
    """

    def __init__(self, columns: pa.RecordBatch, ids: Any | None = None) -> None:
        if ids is not None:
            others = [index for index, column in enumerate(columns.schema) if column.name != _ID]
            arrays = [*(columns.column(index) for index in others), ids]
            names = [*(columns.schema.field(index).name for index in others), _ID]
            columns = pa.RecordBatch.from_arrays(arrays, names=names)
        self._columns = columns
        found = dict.fromkeys(name for name, _ in leaves(columns.schema))
        self._names = [name for name in found if not name.startswith("@") or name in (TOPIC, BODY)]

    def take(self, rows: npt.NDArray[np.int64]) -> ColumnMessages:
        """Return the messages at these rows."""
        return ColumnMessages(self._columns.take(pa.array(rows)))

    def messages(self, rows: npt.NDArray[np.int64]) -> Iterator[Message | str]:
        """Yield the messages at these rows; the error text if a column can't be a property."""
        for start in range(0, len(rows), _BLOCK):
            chosen = rows[start : start + _BLOCK]
            block = Rows(Batch(self._columns.take(pa.array(chosen))))
            for row in range(len(chosen)):
                try:
                    yield block.message(row, self._names)
                except (ColumnTypeError, MessageError) as error:
                    yield str(error)
