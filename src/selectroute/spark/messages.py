"""Messages on their way through a task, and inputs that cannot be messages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from selectroute.match.columns.batch import ColumnBatch, leaves
from selectroute.match.columns.columns import ColumnTypeError
from selectroute.match.columns.fields import Rows
from selectroute.match.columns.from_messages import BODY
from selectroute.selector.message import Message, MessageError
from selectroute.topics.filter import TOPIC

Ints: TypeAlias = npt.NDArray[np.int64]

_BLOCK = 4_096
"""Messages converted from columns at a time: bounds memory."""

_ID = "JMSMessageID"


class FullMessages(Protocol):
    """Full messages of one source, in any form."""

    def take(self, rows: Ints) -> FullMessages:
        """Return the messages at these rows."""

    def messages(self, rows: Ints) -> Iterator[Message | str]:
        """Yield the messages at these rows, in order; for an invalid one, the error text."""


class ParsedMessages:
    """Full messages that were parsed one by one."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self._messages = messages

    def take(self, rows: Ints) -> ParsedMessages:
        """Return the messages at these rows."""
        return ParsedMessages(list(self.messages(rows)))

    def messages(self, rows: Ints) -> Iterator[Message]:
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
            columns = columns.select(others).append_column(_ID, ids)
        self._columns = columns
        leaf_names = dict.fromkeys(name for name, _ in leaves(columns.schema))
        self._names = [name for name in leaf_names if not name.startswith("@") or name in (TOPIC, BODY)]

    def take(self, rows: Ints) -> ColumnMessages:
        """Return the messages at these rows."""
        return ColumnMessages(self._columns.take(pa.array(rows)))

    def messages(self, rows: Ints) -> Iterator[Message | str]:
        """Yield the messages at these rows; the error text if a column can't be a property."""
        for start in range(0, len(rows), _BLOCK):
            chosen = rows[start : start + _BLOCK]
            block = Rows(ColumnBatch(self._columns.take(pa.array(chosen))))
            for row in range(len(chosen)):
                try:
                    yield block.message(row, self._names)
                except (ColumnTypeError, MessageError) as error:
                    yield str(error)


RAW_BYTES = 65_536
"""Maximum bytes of an unreadable line in its dead letter."""


class SourcePartition(NamedTuple):
    """Origin of messages: a file and partition 0, or a topic of Kafka and one of its partitions."""

    source: str
    partition: int = 0


@dataclass(frozen=True, slots=True)
class MessageBatch:
    """Messages of one source partition: columns, rows in the file or offsets in the partition, and ids or
    None."""

    columns: pa.RecordBatch
    rows: Ints
    ids: Any | None
    full: FullMessages | None = None
    """Full messages, if requested."""
    numbers: Ints | None = None
    """Ascending numbers of the messages in the input of their task; None: ``rows`` ascend."""

    def take(self, indices: Ints) -> MessageBatch:
        """Return the messages at these indices."""
        chosen = pa.array(indices)
        return MessageBatch(
            self.columns.take(chosen),
            self.rows[indices],
            None if self.ids is None else self.ids.take(chosen),
            None if self.full is None else self.full.take(indices),
            None if self.numbers is None else self.numbers[indices],
        )

    @property
    def count(self) -> int:
        """Number of messages."""
        return len(self.rows)


@dataclass(frozen=True, slots=True)
class DeadLetterBatch:
    """Inputs of one source partition that can't be read or judged, for the same reason. ``rows`` None is the
    whole file. ``raw`` are the original bytes if all inputs have the same."""

    stage: str
    reason: str
    message: str
    rows: Ints | None
    raw: bytes | None = None

    @property
    def count(self) -> int:
        """Number of inputs."""
        return 1 if self.rows is None else len(self.rows)

    def take(self, indices: Ints) -> DeadLetterBatch:
        """Return the inputs at these indices."""
        return self if self.rows is None else replace(self, rows=self.rows[indices])


InputBatch: TypeAlias = MessageBatch | DeadLetterBatch
