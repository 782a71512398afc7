"""Conversion of Kafka records in a worker: Arrow batches to messages and dead letters.

A batch of rows has the columns `COLUMNS`. The identifiers that selectors read become the columns of a
`MessageBatch`, by the binding; `kafka/record.py` is the reference, one record at a time, and tests compare
the two. Nothing else is converted: bodies are parsed only if selectors read one of their fields.

Every row is yielded once, in the `Records` of its partition: as a message or as a dead letter.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from selectroute.arrays import tables as t
from selectroute.kafka.binding import ID, BoundProperty, KafkaBinding, Kind
from selectroute.kafka.errors import RecordError
from selectroute.kafka.record import PartitionRecords, Record, message_of, too_large, too_many_headers
from selectroute.kafka.schemas.bodies import Bodies, Decisions
from selectroute.kafka.schemas.framing import HEADER, PREFIX_BYTES
from selectroute.kafka.schemas.registry import Schemas
from selectroute.kafka.texts import TextError
from selectroute.match.columns.columns import bounded_topics
from selectroute.match.columns.from_messages import ARROW_TYPES, BODY, is_mixed, with_unlike
from selectroute.selector.message import MAX_PROPERTIES, TOO_LONG_TOPIC, Message, longest_name
from selectroute.selector.names import INVALID_NAMES
from selectroute.spark.messages import DeadLetterBatch, InputBatch, MessageBatch
from selectroute.spark.sources.files.reader import id_text
from selectroute.spark.sources.kafka.columns import (
    Column,
    Headers,
    Integers,
    Mask,
    column_of_json,
    column_of_texts,
    lengths,
)
from selectroute.topics.filter import TOPIC

COLUMNS: Final = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
"""Columns of a batch, named as those of Spark's own source."""


def rows_of(part: PartitionRecords) -> pa.RecordBatch:
    """Return the records of a partition with the columns `COLUMNS`."""
    count = len(part.records)
    topic = pa.DictionaryArray.from_arrays(
        pa.array(np.zeros(count, np.int32)), pa.array([part.topic], pa.string())
    )
    partition = pa.array(np.full(count, part.partition, np.int32))
    own = (part.records.column(name) for name in COLUMNS[2:])
    return pa.RecordBatch.from_arrays([topic, partition, *own], names=list(COLUMNS))


Errors = dict[int, RecordError]
"""Errors of the rows of a batch that are not messages."""


class Unlike(NamedTuple):
    """Number of values of an identifier that are not of its bound type, and the error of the first."""

    records: int
    problem: str

    def plus(self, other: Unlike) -> Unlike:
        """Return the sum, with the error of this one."""
        return self._replace(records=self.records + other.records)

    def sentence(self, name: str, bound: BoundProperty) -> str:
        """Return the warning, beginning with the part that is the same in every batch."""
        article = "an" if bound.type == "int" else "a"
        source = f"{bound.source}, which is bound to {name!r} as {article} {bound.type}"
        records = "record has" if self.records == 1 else "records have"
        return f"{source}: {self.records:,} {records} another value, the first because {self.problem}"


@dataclass(frozen=True, slots=True)
class Records:
    """Rows of one partition of a topic, in the order of their offsets.

    Attributes:
        topic, partition: the partition of the rows.
        rows: the unconverted rows.
        parts: every row as a message or a dead letter; ``rows`` of a part are offsets.
    """

    topic: str
    partition: int
    rows: pa.RecordBatch
    parts: tuple[InputBatch, ...]

    def of(self, offsets: Integers) -> pa.RecordBatch:
        """Return the rows with these ascending offsets. O(offsets log rows)."""
        if len(offsets) == len(self.rows):
            return self.rows
        own = self.rows.column("offset").to_numpy(zero_copy_only=False)
        return self.rows.take(pa.array(np.searchsorted(own, offsets)))


class RecordConverter:
    """Reader of batches for one snapshot: ``names`` are the columns that its selectors read, and ``schemas``
    has the schemas of bodies; None: they are JSON. For ``decisions`` see `Bodies`.
    """

    def __init__(
        self,
        names: Sequence[str],
        binding: KafkaBinding,
        max_message_bytes: int,
        schemas: Schemas | None = None,
        decisions: Decisions | None = None,
    ) -> None:
        self._binding = binding
        self._names = frozenset(names)
        self._most = max_message_bytes
        self._id = ID if ID in binding.bound else "JMSMessageID"
        self._fields = {
            name: binding.field(name) for name in (*names, self._id) if name not in (BODY, INVALID_NAMES)
        }
        self._in_body = self._from("body")
        self._bodies = Bodies([self._fields[name].source.path for name in self._in_body], schemas, decisions)
        self._has_schemas = schemas is not None and bool(self._in_body)
        by_header: dict[str, list[str]] = {}
        for name in self._from("header"):
            header = self._fields[name].source.name
            if name in binding.bound or binding.is_property(header):
                by_header.setdefault(header, []).append(name)
        self._of_header = list(by_header.values())
        self._headers = pa.array(list(by_header), pa.string())
        self.unlike: dict[str, Unlike] = {}
        """Values so far that selectors read and that are not of their bound type."""

    def read(self, batch: pa.RecordBatch) -> Iterator[Records]:
        """Yield the rows of a batch, one partition at a time.

        Raises:
            SchemaUnavailableError: before the first row, if the schema of a body is not available and the
                registry's policy is to wait; the batch can be read again.
        """
        errors = self._unreadable(batch)
        if self._has_schemas:
            errors = self._without_schema(batch) | errors
        rows, columns, ids = self._valid(batch, errors)
        long = _long_topics(columns)
        if len(long):
            error = RecordError("judge", "not-a-message", f"topic: {TOO_LONG_TOPIC}")
            errors |= dict.fromkeys(rows[long].tolist(), error)
            rows, columns, ids = self._valid(batch, errors)
        offsets: Integers = batch.column("offset").to_numpy(zero_copy_only=False)
        for start, stop in _partitions(batch, offsets):
            first, last = np.searchsorted(rows, (start, stop))
            length = int(last - first)
            parts: list[InputBatch] = _dead(errors, offsets, start, stop) if errors else []
            if length:
                own = offsets[rows[first:last]]
                parts.append(MessageBatch(columns.slice(first, length), own, ids.slice(first, length)))
            yield Records(
                str(batch.column("topic")[start]),
                batch.column("partition")[start].as_py(),
                batch.slice(start, stop - start),
                tuple(parts),
            )

    def _valid(self, batch: pa.RecordBatch, errors: Errors) -> tuple[Integers, pa.RecordBatch, Any]:
        """Return the rows without errors, their columns and message ids."""
        rows = np.delete(np.arange(batch.num_rows), list(errors))
        return rows, *self._columns(batch.take(pa.array(rows)) if errors else batch)

    def _from(self, *kinds: Kind) -> list[str]:
        return [name for name, bound in self._fields.items() if bound.source.kind in kinds]

    def _unreadable(self, batch: pa.RecordBatch) -> Errors:
        """Return the errors of rows that are too large, or have too many headers."""
        headers = Headers(batch.column("headers"))
        errors = dict.fromkeys(np.flatnonzero(headers.counts > MAX_PROPERTIES).tolist(), too_many_headers())
        if batch.nbytes > self._most:
            sizes = headers.sizes + lengths(batch.column("key")) + lengths(batch.column("value"))
            for row in np.flatnonzero(sizes > self._most):
                errors[int(row)] = too_large(int(sizes[row]), self._most)
        return errors

    def _without_schema(self, batch: pa.RecordBatch) -> Errors:
        """Fetch the schemas of bodies; return the errors of rows whose schema is not available."""
        prefixes = pc.binary_slice(batch.column("value"), 0, PREFIX_BYTES).to_pylist()
        return self._bodies.missing(prefixes, _schema_headers(Headers(batch.column("headers"))))

    def _columns(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Any]:
        """Return the columns that selectors read, and the message ids."""
        columns: dict[str, Any] = {}
        headers = Headers(batch.column("headers"))
        for position, texts in headers.find(self._headers):
            for name in self._of_header[position]:
                columns[name] = self._kept(name, column_of_texts(texts, self._fields[name].type, name))
        for name in self._from("key"):
            column = column_of_texts(batch.column("key"), self._fields[name].type, name)
            columns[name] = self._kept(name, column)
        for name in self._from("timestamp", "topic", "partition", "offset"):
            columns[name] = self._of_record(batch, self._fields[name])
        if self._in_body:
            columns |= self._of_bodies(batch.column("value"), headers)
        ids = id_text(columns[self._id]) if self._id in columns else None
        if INVALID_NAMES in self._names:
            elsewhere = self._bound_elsewhere(batch, headers, columns)
            columns[INVALID_NAMES] = pa.array(
                headers.break_rules(self._binding.is_property, elsewhere, longest_name(self._names))
            )
        if BODY in self._names:
            columns[BODY] = batch.column("value")
        read = {name: column for name, column in columns.items() if name in self._names}
        # A batch without columns would have no number of rows.
        selected = pa.RecordBatch.from_pydict(read or {"@none": pa.nulls(batch.num_rows)})
        return selected, pa.nulls(batch.num_rows, pa.string()) if ids is None else ids

    def _kept(self, name: str, column: Column) -> Any:
        """Return the column; if selectors read it, invalid values are of an unlike type to them."""
        values, wrong = column
        if not wrong or name not in self._names:
            return values
        unlike = Unlike(len(wrong), str(next(iter(wrong.values()))))
        self.unlike[name] = self.unlike[name].plus(unlike) if name in self.unlike else unlike
        return values if name == TOPIC else with_unlike(values, list(wrong))

    def _of_record(self, batch: pa.RecordBatch, bound: BoundProperty) -> Any:
        column = batch.column(bound.source.kind)
        if bound.source.kind != "topic":
            return pc.cast(column, ARROW_TYPES[bound.type])
        encoded = column.dictionary_encode()
        topics = [self._binding.topic(topic) for topic in encoded.dictionary.to_pylist()]
        return pa.DictionaryArray.from_arrays(encoded.indices, pa.array(topics, pa.string()))

    def _of_bodies(self, values: Any, headers: Headers) -> dict[str, Any]:
        names = self._in_body
        columns: list[list[Any]] = [[] for _ in names]
        own: dict[int, TextError] = {}
        ids = _schema_headers(headers) if self._has_schemas else [None] * len(values)
        nothing = [None] * len(names)
        for row, (value, id) in enumerate(zip(values.to_pylist(), ids, strict=True)):
            body = nothing
            try:
                body = self._bodies.values(value, id)
            except RecordError as error:
                own[row] = TextError(error.reason, error.problem)
            for column, value_of_field in zip(columns, body, strict=True):
                column.append(value_of_field)
        converted = {
            name: column_of_json(column, self._fields[name].type, name)
            for name, column in zip(names, columns, strict=True)
        }
        return {name: self._kept(name, (column, own | wrong)) for name, (column, wrong) in converted.items()}

    def _bound_elsewhere(
        self, batch: pa.RecordBatch, headers: Headers, columns: dict[str, Any]
    ) -> dict[str, Mask]:
        """Return which rows have each property whose source is not the header of its name."""
        present: dict[str, Mask] = {}
        for name, bound in self._binding.bound.items():
            if name.startswith("@") or self._binding.is_property(name):
                continue
            kind = bound.source.kind
            if kind == "header":
                present[name] = headers.has(bound.source.name)
            elif kind != "body":
                present[name] = np.asarray(pc.is_valid(batch.column(kind)))
            elif name in self._names:
                present[name] = _present(columns[name])
        return present


def _long_topics(columns: pa.RecordBatch) -> Integers:
    """Return the rows whose topic is longer than a message may have."""
    if TOPIC not in columns.schema.names:
        return np.empty(0, np.int64)
    topics = columns.column(TOPIC)
    return np.flatnonzero(pc.and_(pc.is_valid(topics), pc.is_null(bounded_topics(topics))))


def _schema_headers(headers: Headers) -> list[bytes | None]:
    """Return the header with the schema id of each record."""
    for _, ids in headers.find(pa.array([HEADER])):
        return list(ids.to_pylist())
    return [None] * headers.records


def _present(column: Any) -> Mask:
    if is_mixed(column.type):  # byte strings, and columns with values of unlike types
        return np.asarray(pc.greater(pc.struct_field(column, "tag"), t.NULL))
    return np.asarray(pc.is_valid(column))


def _partitions(batch: pa.RecordBatch, offsets: Integers) -> Iterator[tuple[int, int]]:
    """Yield start and stop of each run of rows of one partition with ascending offsets."""
    topics = batch.column("topic").dictionary_encode().indices.to_numpy(zero_copy_only=False)
    partitions = batch.column("partition").to_numpy(zero_copy_only=False)
    others = (topics[1:] != topics[:-1]) | (partitions[1:] != partitions[:-1]) | (offsets[1:] <= offsets[:-1])
    borders = [0, *(np.flatnonzero(others) + 1).tolist(), batch.num_rows]
    return ((start, stop) for start, stop in pairwise(borders) if stop > start)


def _dead(errors: Errors, offsets: Integers, start: int, stop: int) -> list[InputBatch]:
    """Return the dead letters of a range of rows, grouped by reason and error text."""
    alike: dict[tuple[str, str, str], list[int]] = {}
    for row in sorted(errors):
        if start <= row < stop:
            error = errors[row]
            alike.setdefault((error.stage, error.reason, error.problem), []).append(row)
    return [DeadLetterBatch(*error, offsets[rows]) for error, rows in alike.items()]


class FullRecords:
    """Full messages from rows of records, one row per message."""

    def __init__(self, rows: pa.RecordBatch, binding: KafkaBinding, schemas: Schemas | None = None) -> None:
        self.rows = rows
        self._binding = binding
        self._schemas = schemas

    def take(self, rows: npt.NDArray[np.int64]) -> FullRecords:
        """Return the messages at these rows."""
        return FullRecords(self.rows.take(pa.array(rows)), self._binding, self._schemas)

    def messages(self, rows: npt.NDArray[np.int64]) -> Iterator[Message | str]:
        """Yield the messages at these rows; for an invalid one, the error text."""
        for row in self.rows.take(pa.array(rows)).to_pylist():
            headers = tuple((header["key"], header["value"]) for header in row.pop("headers") or ())
            record = Record(**row, headers=headers)
            try:
                yield message_of(record, self._binding, None, self._schemas)
            except RecordError as error:
                yield str(error)
