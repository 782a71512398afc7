"""Rows of Spark's Kafka source, as Arrow hands them to a worker, to messages and dead letters.

A batch of rows has the columns `COLUMNS`. What selectors read of them becomes the columns of `Messages`, as
the binding says; `kafka/record.py` says the same of one record at a time, and tests hold this to it. Only
what selectors read is looked at: bodies are parsed if one of their fields is.

Every row comes out once, in the `Records` of its partition: as a message or as a dead letter.
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
from selectroute.kafka.binding import ID, Bound, KafkaBinding, Kind
from selectroute.kafka.record import (
    Record,
    RecordError,
    at_path,
    message_of,
    parsed,
    too_large,
    too_many_headers,
)
from selectroute.kafka.texts import TextError
from selectroute.match.from_messages import BODY, is_mixed, with_unlike
from selectroute.selector.message import MAX_PROPERTIES, Message, longest_name
from selectroute.selector.names import INVALID_NAMES
from selectroute.spark.sources.files.readers import DeadLetterBatch, Messages, id_text
from selectroute.spark.sources.kafka.columns import (
    ARROW_TYPES,
    Column,
    Headers,
    Mask,
    column_of_json,
    column_of_texts,
)
from selectroute.topics.levels import TOPIC

COLUMNS: Final = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
"""The columns that are read, of those that Spark's source has."""

Integers = npt.NDArray[np.int64]
Errors = dict[int, RecordError]
"""Why rows of a batch are no messages."""


class Unlike(NamedTuple):
    """Number of values of an identifier that are not of the type to which it is bound, and why the first is
    not.
    """

    records: int
    problem: str

    def plus(self, other: Unlike) -> Unlike:
        """Return both together."""
        return self._replace(records=self.records + other.records)

    def sentence(self, name: str, bound: Bound) -> str:
        """Return what is said of them, beginning with what is the same in every batch."""
        source = f"{bound.source}, which is bound to {name!r} as {_article(bound.type)}"
        records = "record has" if self.records == 1 else "records have"
        return f"{source}: {self.records:,} {records} another value, the first because {self.problem}"


@dataclass(frozen=True, slots=True)
class Records:
    """Rows of one partition of a topic, in the order of their offsets.

    Attributes:
        topic, partition: which.
        rows: the rows as they came.
        parts: every one of them as a message or a dead letter; ``rows`` of a part are their offsets.
    """

    topic: str
    partition: int
    rows: pa.RecordBatch
    parts: tuple[Messages | DeadLetterBatch, ...]

    def of(self, offsets: Integers) -> pa.RecordBatch:
        """Return the rows with these offsets, which are in order. O(offsets log rows)."""
        if len(offsets) == len(self.rows):
            return self.rows
        own = self.rows.column("offset").to_numpy(zero_copy_only=False)
        return self.rows.take(pa.array(np.searchsorted(own, offsets)))


class KafkaReader:
    """Reads batch after batch for one snapshot: ``names`` are the columns that its selectors read."""

    def __init__(self, names: Sequence[str], binding: KafkaBinding, max_message_bytes: int) -> None:
        self._binding = binding
        self._names = frozenset(names)
        self._most = max_message_bytes
        self._id = ID if ID in binding.bound else "JMSMessageID"
        self._fields = {
            name: binding.field(name) for name in (*names, self._id) if name not in (BODY, INVALID_NAMES)
        }
        by_header: dict[str, list[str]] = {}
        for name in self._from("header"):
            header = self._fields[name].source.name
            if name in binding.bound or binding.is_property(header):
                by_header.setdefault(header, []).append(name)
        self._of_header = list(by_header.values())
        self._headers = pa.array(list(by_header), pa.string())
        self.unlike: dict[str, Unlike] = {}
        """What selectors read and was not of its type, so far."""

    def read(self, batch: pa.RecordBatch) -> Iterator[Records]:
        """Yield every row of a batch, a partition at a time."""
        errors = self._unreadable(batch)
        rows = _others(np.arange(batch.num_rows), errors)
        columns, ids = self._columns(batch.take(pa.array(rows)) if errors else batch)
        offsets: Integers = batch.column("offset").to_numpy(zero_copy_only=False)
        for start, stop in _partitions(batch, offsets):
            first, last = np.searchsorted(rows, (start, stop))
            length = int(last - first)
            parts: list[Messages | DeadLetterBatch] = _dead(errors, offsets, start, stop) if errors else []
            if length:
                own = offsets[rows[first:last]]
                parts.append(Messages(columns.slice(first, length), own, ids.slice(first, length)))
            yield Records(
                str(batch.column("topic")[start]),
                batch.column("partition")[start].as_py(),
                batch.slice(start, stop - start),
                tuple(parts),
            )

    def _from(self, *kinds: Kind) -> list[str]:
        return [name for name, one in self._fields.items() if one.source.kind in kinds]

    def _unreadable(self, batch: pa.RecordBatch) -> Errors:
        """Return the rows that are too large, or have too many headers, to be looked at any further."""
        headers = Headers(batch.column("headers"))
        errors = {
            int(row): too_many_headers(int(headers.counts[row]))
            for row in np.flatnonzero(headers.counts > MAX_PROPERTIES)
        }
        if batch.nbytes > self._most:
            sizes = headers.sizes + _sizes(batch.column("key")) + _sizes(batch.column("value"))
            for row in np.flatnonzero(sizes > self._most):
                errors[int(row)] = too_large(int(sizes[row]), self._most)
        return errors

    def _columns(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Any]:
        """Return what selectors read of these rows, and their message ids."""
        found: dict[str, Any] = {}
        headers = Headers(batch.column("headers"))
        for position, texts in headers.find(self._headers):
            for name in self._of_header[position]:
                found[name] = self._kept(name, column_of_texts(texts, self._fields[name].type, name))
        for name in self._from("key"):
            column = column_of_texts(batch.column("key"), self._fields[name].type, name)
            found[name] = self._kept(name, column)
        for name in self._from("timestamp", "topic", "partition", "offset"):
            found[name] = self._of_record(batch, self._fields[name])
        bodies = self._from("body")
        if bodies:
            found |= self._of_bodies(batch.column("value"), bodies)
        ids = id_text(found[self._id]) if self._id in found else None
        if INVALID_NAMES in self._names:
            elsewhere = self._bound_elsewhere(batch, headers, found)
            found[INVALID_NAMES] = pa.array(
                headers.break_rules(self._binding.is_property, elsewhere, longest_name(self._names))
            )
        if BODY in self._names:
            found[BODY] = batch.column("value")
        read = {name: column for name, column in found.items() if name in self._names}
        # A batch without columns would not know how many rows it has.
        columns = pa.RecordBatch.from_pydict(read or {"@none": pa.nulls(batch.num_rows)})
        return columns, pa.nulls(batch.num_rows, pa.string()) if ids is None else ids

    def _kept(self, name: str, column: Column) -> Any:
        """Return the column; where it is read, what is not of its type is of an unlike type to whoever reads
        it.
        """
        values, wrong = column
        if not wrong or name not in self._names:
            return values
        found = Unlike(len(wrong), str(next(iter(wrong.values()))))
        self.unlike[name] = self.unlike[name].plus(found) if name in self.unlike else found
        return values if name == TOPIC else with_unlike(values, list(wrong))

    def _of_record(self, batch: pa.RecordBatch, bound: Bound) -> Any:
        column = batch.column(bound.source.kind)
        if bound.source.kind == "timestamp":
            return pc.cast(pc.cast(column, pa.timestamp("ms", column.type.tz), safe=False), pa.int64())
        if bound.source.kind != "topic":
            return pc.cast(column, ARROW_TYPES[bound.type])
        encoded = column.dictionary_encode()
        topics = [self._binding.topic(topic) for topic in encoded.dictionary.to_pylist()]
        return pa.DictionaryArray.from_arrays(encoded.indices, pa.array(topics, pa.string()))

    def _of_bodies(self, values: Any, names: Sequence[str]) -> dict[str, Any]:
        paths = [self._fields[name].source.path for name in names]
        found: list[list[Any]] = [[] for _ in names]
        own: dict[int, TextError] = {}
        for row, value in enumerate(values.to_pylist()):
            body = None
            if value is not None:
                try:
                    body = parsed(value)
                except RecordError as error:
                    own[row] = TextError(error.reason, error.problem)
            for column, path in zip(found, paths, strict=True):
                column.append(at_path(body, path))
        made = {
            name: column_of_json(column, self._fields[name].type, name)
            for name, column in zip(names, found, strict=True)
        }
        return {name: self._kept(name, (column, own | wrong)) for name, (column, wrong) in made.items()}

    def _bound_elsewhere(
        self, batch: pa.RecordBatch, headers: Headers, found: dict[str, Any]
    ) -> dict[str, Mask]:
        """Return which rows have the properties that are not headers of their own names."""
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
                present[name] = _present(found[name])
        return present


def _article(type_: str) -> str:
    return f"{'an' if type_ == 'int' else 'a'} {type_}"


def _others(rows: Integers, errors: Errors) -> Integers:
    mask = np.ones(len(rows), np.bool_)
    mask[list(errors)] = False
    return rows[mask]


def _present(column: Any) -> Mask:
    if is_mixed(column.type):  # byte strings, and what has values of unlike types
        return np.asarray(pc.greater(pc.struct_field(column, "tag"), t.NULL))
    return np.asarray(pc.is_valid(column))


def _sizes(column: Any) -> Integers:
    sizes: Integers = pc.fill_null(pc.binary_length(column), 0).to_numpy(zero_copy_only=False)
    return sizes.astype(np.int64)


def _partitions(batch: pa.RecordBatch, offsets: Integers) -> Iterator[tuple[int, int]]:
    """Yield the first and the last but one row of each run of one partition's rows in order."""
    topics = batch.column("topic").dictionary_encode().indices.to_numpy(zero_copy_only=False)
    partitions = batch.column("partition").to_numpy(zero_copy_only=False)
    others = (topics[1:] != topics[:-1]) | (partitions[1:] != partitions[:-1]) | (offsets[1:] <= offsets[:-1])
    borders = [0, *(np.flatnonzero(others) + 1).tolist(), batch.num_rows]
    return ((start, stop) for start, stop in pairwise(borders) if stop > start)


def _dead(errors: Errors, offsets: Integers, start: int, stop: int) -> list[Messages | DeadLetterBatch]:
    """Return the dead letters of some rows, those of one reason and sentence together."""
    alike: dict[tuple[str, str, str], list[int]] = {}
    for row in sorted(errors):
        if start <= row < stop:
            error = errors[row]
            alike.setdefault((error.stage, error.reason, error.problem), []).append(row)
    return [DeadLetterBatch(*said, offsets[rows]) for said, rows in alike.items()]


class FullRecords:
    """Full messages from rows as Spark's Kafka source has them, one for each message."""

    def __init__(self, rows: pa.RecordBatch, binding: KafkaBinding) -> None:
        self.rows = rows
        self._binding = binding

    def slice(self, start: int, length: int) -> FullRecords:
        """Return a slice of them."""
        return FullRecords(self.rows.slice(start, length), self._binding)

    def take(self, rows: npt.NDArray[np.int64]) -> FullRecords:
        """Return those in these places."""
        return FullRecords(self.rows.take(pa.array(rows)), self._binding)

    def messages(self, rows: npt.NDArray[np.int64]) -> Iterator[Message | str]:
        """Yield the messages in these places; of one that can't be one as a whole, the sentence that says
        why.
        """
        for row in self.rows.take(pa.array(rows)).to_pylist():
            timestamp = row.pop("timestamp")
            row.pop("timestampType", None)
            headers = tuple((one["key"], one["value"]) for one in row.pop("headers") or ())
            since = None if timestamp is None else round(timestamp.timestamp() * 1000)
            try:
                yield message_of(Record(**row, timestamp=since, headers=headers), self._binding)
            except RecordError as error:
                yield str(error)
