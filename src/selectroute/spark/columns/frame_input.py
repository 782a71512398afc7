"""Streaming DataFrame as the input of a job: its name, its binding, and the columns that identify a row."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql.types import ByteType, DataType, IntegerType, LongType, ShortType, StringType, StructType

from selectroute.match.columns.from_messages import BODY
from selectroute.selector.arguments import check_argument
from selectroute.selector.names import INVALID_NAMES
from selectroute.spark.columns.binding import (
    BY_NAME,
    Binding,
    BindingError,
    FrameColumn,
    ambiguous,
    bind,
    columns_of,
)
from selectroute.spark.columns.column_types import unlike_types
from selectroute.spark.sources.checkpoint import FRAME

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")

_WHOLE: Final = (ByteType, ShortType, IntegerType)
_TYPES: Final[dict[str, tuple[tuple[type[DataType], ...], str]]] = {
    "source": ((StringType,), "a string"),
    "partition": (_WHOLE, "an int, a smallint or a tinyint"),
    "offset": ((*_WHOLE, LongType), "a bigint, or a smaller integer"),
}
"""Types of the columns of a position, and the same in words."""


@dataclass(frozen=True, slots=True)
class Position:
    """Columns that identify a row: they are the source, partition and offset of its deliveries.

    Without ``offset``, a row is identified by where Spark has read it: the source ends with ``/batch=<n>``,
    the partition is Spark's, and the offset is the row's number in it, from 0. With ``offset``, no two rows
    may have the same three values: to a consumer they would be one message.

    Attributes:
        source: a column of strings, with few distinct values; None: the name of the input.
        partition: a column of integers of at most 32 bits; None, with ``offset``: 0.
        offset: a column of integers of at most 64 bits.

    Raises BindingError for a partition without an offset.
    """

    source: str | None = None
    partition: str | None = None
    offset: str | None = None

    def __post_init__(self) -> None:
        for part in fields(self):
            value = getattr(self, part.name)
            if value is not None:
                check_argument(value, str, part.name, "the name of a column, or None")
        if self.partition is not None and self.offset is None:
            raise BindingError(
                f"the position has a partition, {self.partition!r}, but no offset: name the column of the "
                "row's number in it, too"
            )


NO_POSITION: Final = Position()


@dataclass(frozen=True, slots=True)
class FrameInput:
    """Streaming DataFrame as the input of a job: each row is a message.

    A column is the identifier of exactly its name, as in `selectroute.spark.route`; ``@topic``, ``@body`` and
    ``@id`` are topic, body and message id.

    Attributes:
        frame: the DataFrame; its batches are appended rows. It must be deterministic: a repeat of a batch
            must have the same rows, so no random numbers, no present time.
        name: name of the input, which the output folder is bound to: letters, digits, ``.``, ``_``, ``-``.
        binding: columns of identifiers whose names or types differ.
        position: columns that identify a row.

    Raises:
        BindingError: the frame is not a streaming one, the name is not valid, a column that binding or
            position names is missing or has the wrong type, or several columns have the same name.
        ColumnTypeError: the column of the body, or of invalid names, has the wrong type.
    """

    frame: DataFrame = field(repr=False, compare=False)
    name: str = "frame"
    binding: Binding = BY_NAME
    position: Position = NO_POSITION

    def __post_init__(self) -> None:
        check_argument(self.frame, DataFrame, "frame", "a streaming DataFrame: spark.readStream…load()")
        check_argument(self.binding, Binding, "binding", "a Binding, such as Binding.of(['at:long=cast'])")
        check_argument(self.position, Position, "position", "a Position, such as Position(offset='id')")
        check_argument(self.name, str, "name", "the name of the input")
        if not self.frame.isStreaming:
            raise BindingError("the frame is not a streaming DataFrame: it must come from spark.readStream")
        if not _NAME.fullmatch(self.name):
            raise BindingError(
                f"{self.name!r} is not a valid name of an input: use 1 to 100 of A-Z a-z 0-9 . _ -"
            )
        schema = self.frame.schema
        columns, _ = columns_of(schema)
        for column, places in columns.items():
            if len(places) > 1:
                raise ambiguous(column, len(places))
        bind(schema, self.binding.columns, self.binding)
        unlike_types(_NoReads(), bind(schema, (BODY, INVALID_NAMES), self.binding))
        self.places(schema)

    @property
    def source(self) -> str:
        """Name that distinguishes this input from others."""
        return FRAME + self.name

    def places(self, schema: StructType) -> dict[str, FrameColumn]:
        """Return the columns of the position, by ``source``, ``partition`` and ``offset``.

        Raises:
            BindingError: a column is missing, ambiguous or of the wrong type.
        """
        places: dict[str, FrameColumn] = {}
        for part, (types, wanted) in _TYPES.items():
            column = getattr(self.position, part)
            if column is None:
                continue
            bound = bind(schema, (column,), None)
            if not bound:
                raise BindingError(
                    f"the position's {part} is column {column!r}, but the frame has no such column (its "
                    f"columns: {', '.join(schema.fieldNames()) or 'none'})"
                )
            if not isinstance(bound[0].own, types):
                raise BindingError(
                    f"the position's {part} is column {column!r} of type {bound[0].own.simpleString()}: it "
                    f"must be {wanted}"
                )
            places[part] = bound[0]
        return places


class _NoReads:
    """Snapshot whose selectors read nothing; see `Reads`."""

    reads: tuple[str, ...] = ()
    no_bytes: frozenset[str] = frozenset()
