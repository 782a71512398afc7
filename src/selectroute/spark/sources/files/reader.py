"""Readers of one split in a worker: messages as columns, and unreadable input as dead letters.

Only the columns that selectors read, and the message id, are decoded (`select` chooses them); all columns if
full messages are needed. Every row of the split is yielded once, as a message or as a dead letter. Columns of
Parquet may have other names, or be cast to a type of properties, as a binding says; the casts are those of
``spark/columns/casts.py``, in Arrow instead of Spark, and tests compare the two.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from selectroute.match.columns.batch import ColumnBatch, is_group, properties, schema_columns
from selectroute.match.columns.columns import ColumnTypeError
from selectroute.match.columns.from_messages import from_messages, is_mixed
from selectroute.selector.message import Message, MessageError, longest_name
from selectroute.selector.names import INVALID_NAMES, breaches
from selectroute.selector.strict_json import JsonError, parse_json
from selectroute.spark.columns.arrow_casts import cast_array, casts_of
from selectroute.spark.messages import (
    RAW_BYTES,
    ColumnMessages,
    DeadLetterBatch,
    InputBatch,
    Ints,
    MessageBatch,
    ParsedMessages,
)
from selectroute.spark.sources.files.splits import READ_ERRORS, Split, opened, opened_by_arrow
from selectroute.storage.patient import WAITED_FOR


class BoundColumn(NamedTuple):
    """Column of an identifier, and the type that it is cast to; None for no cast."""

    column: str
    cast: str | None = None


Bound: TypeAlias = Mapping[str, BoundColumn]
"""Columns of the identifiers that are bound to one."""

UNBOUND: Final[Bound] = {}


def identifiers_of(column: str, bound: Bound) -> list[str]:
    """Return the identifiers that a column holds: those bound to it, or else the one of its own name, unless
    that is bound to another column.
    """
    names = [name for name, source in bound.items() if source.column == column]
    return names or ([] if column in bound else [column])


def with_bound(batch: pa.RecordBatch, bound: Bound) -> pa.RecordBatch:
    """Return the rows with a column for each bound identifier in place of its own column."""
    if not bound:
        return batch
    taken = {source.column for source in bound.values()} | bound.keys()
    columns = ColumnBatch(batch)
    converted: dict[str, Any] = {}
    others: list[tuple[str, Any]] = []
    for position, field in enumerate(batch.schema):
        own = schema_columns(pa.schema([field]))
        leaves = [name for name, _, type_ in own if not is_group(name, type_)]
        if taken.isdisjoint(leaves):
            others.append((field.name, batch.column(position)))
        else:
            others += [(name, columns.column(name)) for name in leaves if name not in taken]
    for name, source in bound.items():
        column = columns.column(source.column)
        if column is not None:
            converted[name] = column if source.cast is None else cast_array(column, source.cast)
    every = [*others, *converted.items()]
    return pa.RecordBatch.from_arrays([column for _, column in every], names=[name for name, _ in every])


def not_cast(schema: pa.Schema, bound: Bound) -> dict[str, str]:
    """Return a sentence for each identifier whose column, in a file of this schema, has no such cast. Its
    values are of an unlike type.
    """
    types = {name: type_ for name, _, type_ in schema_columns(schema)}
    sentences: dict[str, str] = {}
    for name, source in bound.items():
        type_ = types.get(source.column)
        if type_ is None or source.cast is None or source.cast in casts_of(type_):
            continue
        possible = casts_of(type_)
        advice = f"it can be cast to {', '.join(possible)}" if possible else "this type has no cast"
        sentences[name] = str(
            ColumnTypeError(source.column, type_, f"it has no cast to {source.cast}: {advice}")
        )
    return sentences


_ID_COLUMNS = ("@id", "JMSMessageID")
_ENCODED_BYTES_A_VALUE = 3


@dataclass(frozen=True, slots=True)
class SelectedColumns:
    """Columns to read from a file.

    Attributes:
        columns: the columns to decode, nested ones by their path.
        repeating: the columns to leave dictionary-encoded.
        id_name: the identifier of the message id, if there is one.
        ambiguous: an identifier that is needed and that several columns have.
    """

    columns: list[str]
    repeating: list[str]
    id_name: str | None
    ambiguous: str | None


def select(
    metadata: Any, row_groups: Sequence[int], names: Sequence[str], full: bool = False, bound: Bound = UNBOUND
) -> SelectedColumns:
    """Choose the columns: those of the identifiers that a snapshot reads, ``names``, or with ``full`` all.
    O(columns).

    If ``names`` has the rules on property names, all columns in a breach of them are chosen as well. Columns
    that the matcher refuses, such as groups of properties, are chosen so that it reports them.
    """
    types: dict[str, list[pa.DataType]] = {}
    groups: set[str] = set()
    for column, _, type_ in schema_columns(metadata.schema.to_arrow_schema()):
        for name in identifiers_of(column, bound):
            if is_group(column, type_):
                groups.add(name)
            else:
                types.setdefault(name, []).append(type_)
    needed = list(names)
    if INVALID_NAMES in names and INVALID_NAMES not in types:
        needed += dict.fromkeys(name for breach in breaches(properties(list(types))) for name in breach)
    wanted = dict.fromkeys(name for name in needed if name in types or name in groups)
    ambiguous = next((name for name in wanted if len(types.get(name, ())) > 1), None)
    id_name = next((name for name in _ID_COLUMNS if len(types.get(name, ())) == 1), None)
    if id_name is not None:
        wanted[id_name] = None
    if full:
        wanted.update(dict.fromkeys(types))
    columns = {name: bound[name].column if name in bound else name for name in wanted}
    strings = {
        columns[name]
        for name in wanted
        for type_ in types.get(name, ())
        if type_ in (pa.string(), pa.large_string())
    }
    chosen = list(dict.fromkeys(columns.values()))
    return SelectedColumns(chosen, _repeating(metadata, row_groups, strings), id_name, ambiguous)


def _repeating(metadata: Any, row_groups: Sequence[int], strings: set[str]) -> list[str]:
    """Return the string columns to leave dictionary-encoded: those with few stored bytes per value.

    Where values hardly repeat, encoding them costs more than it saves.
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


BATCH_ROWS = 65_536
_BATCH_BYTES = 64 << 20
"""Approximate bytes of full messages in Parquet to decode at a time."""

_JSON_BATCH_ROWS = 16_384


def read(
    split: Split, names: Sequence[str], max_message_bytes: int, full: bool = False, bound: Bound = UNBOUND
) -> Iterator[InputBatch]:
    """Yield all rows of a split: ``names`` are the identifiers that selectors read, ``full`` asks for all;
    ``bound`` has the columns of identifiers in Parquet.
    """
    if split.kind == "parquet":
        return _read_parquet(split, names, max_message_bytes, full, bound)
    if split.kind == "json":
        return _read_json(split, names, max_message_bytes, full)
    return iter([DeadLetterBatch("read", split.reason, split.message, None)])


def _read_parquet(
    split: Split, names: Sequence[str], max_message_bytes: int, full: bool, bound: Bound
) -> Iterator[InputBatch]:
    row = split.first_row
    end = row + split.rows
    try:
        with opened_by_arrow(split) as file:
            metadata = pq.read_metadata(file)
            row_groups = split.row_groups
            if split.rows < 0:  # of a remote file, whose footer was not read by the plan
                end, row_groups = row + metadata.num_rows, tuple(range(metadata.num_row_groups))
            selection = select(metadata, row_groups, names, full, bound)
            if selection.ambiguous is not None:
                message = f"the file has several columns named {selection.ambiguous!r}"
                yield DeadLetterBatch("judge", "ambiguous-column", message, np.arange(row, end))
                return
            file.seek(0)
            parquet = pq.ParquetFile(
                file,
                metadata=metadata,
                read_dictionary=selection.repeating,
                pre_buffer=False,
                page_checksum_verification=True,
            )
            for group in row_groups:
                group_end = row + metadata.row_group(group).num_rows
                most = max_message_bytes * (group_end - row)
                if _decoded_bytes(metadata.row_group(group), selection) > most:
                    # Not decoded: a few kilobytes of file can be gigabytes of text.
                    yield _too_large(np.arange(row, group_end), max_message_bytes)
                    row = group_end
                    continue
                try:
                    # No threads: Spark already runs one task per core.
                    for batch in parquet.iter_batches(
                        _batch_rows(metadata.row_group(group)) if full else BATCH_ROWS,
                        row_groups=[group],
                        columns=selection.columns,
                        use_threads=False,
                    ):
                        rows = np.arange(row, row + batch.num_rows)
                        batch = with_bound(batch, bound)
                        yield from checked_rows(batch, rows, selection.id_name, max_message_bytes, full)
                        row += len(rows)
                except WAITED_FOR:
                    raise
                except READ_ERRORS as error:
                    # From the first rows that don't decode; those before were yielded.
                    yield DeadLetterBatch("read", "corrupt-row-group", str(error), np.arange(row, group_end))
                row = group_end
    except WAITED_FOR:  # the task is run again; a file that is damaged is a dead letter
        raise
    except READ_ERRORS as error:
        # The footer of a local file was readable when the batch was planned.
        unread = np.arange(row, end) if end >= row else None
        yield DeadLetterBatch("read", "unreadable-file", str(error), unread)


def _batch_rows(group: Any) -> int:
    """Return the number of full messages of a row group to decode at a time."""
    return int(min(BATCH_ROWS, max(64, _BATCH_BYTES * group.num_rows // max(1, group.total_byte_size))))


def _decoded_bytes(group: Any, selection: SelectedColumns) -> int:
    """Return the decompressed bytes of the chosen columns of a row group, counting each dictionary once."""
    chosen = tuple(selection.columns)
    within = tuple(f"{name}." for name in chosen)
    columns = map(group.column, range(group.num_columns))
    return sum(
        column.total_uncompressed_size
        for column in columns
        if column.path_in_schema in chosen or column.path_in_schema.startswith(within)
    )


def _too_large(rows: Ints, max_message_bytes: int) -> DeadLetterBatch:
    return DeadLetterBatch("read", "too-large", f"the row is longer than {max_message_bytes} bytes", rows)


def _row_bytes(batch: Any) -> Ints:
    """Return the bytes of all texts and byte strings of each row, int64[rows]."""
    total = np.zeros(batch.num_rows, np.int64)
    for column in batch.columns:
        values = column.dictionary if pa.types.is_dictionary(column.type) else column
        if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
            values = values.cast(pa.large_binary())
        elif not (pa.types.is_binary(values.type) or pa.types.is_large_binary(values.type)):
            continue
        sizes = pc.binary_length(values)
        if values is not column and pa.types.is_dictionary(column.type):
            sizes = sizes.take(column.indices)
        total += pc.fill_null(sizes, 0).to_numpy(zero_copy_only=False)
    return total


def checked_rows(
    batch: Any,
    rows: Ints,
    id_name: str | None,
    max_message_bytes: int,
    full: bool,
    numbers: Ints | None = None,
) -> Iterator[InputBatch]:
    """Yield the rows of a batch; those that are too large, or not UTF-8, which neither Parquet nor Spark
    checks, as dead letters. For ``numbers`` see `MessageBatch`.
    """
    if batch.nbytes > max_message_bytes:  # otherwise no row is too large
        large = _row_bytes(batch) > max_message_bytes
        if large.any():
            yield _too_large(rows[large], max_message_bytes)
            batch, rows = batch.filter(pa.array(~large)), rows[~large]
            numbers = None if numbers is None else numbers[~large]
    bad = np.zeros(batch.num_rows, dtype=np.bool_)
    for column in batch.columns:
        try:
            (column.dictionary if pa.types.is_dictionary(column.type) else column).validate(full=True)
        except pa.ArrowInvalid:
            bad |= np.fromiter((not _is_text(value) for value in column), np.bool_, len(column))
    if bad.any():
        yield DeadLetterBatch("read", "not-utf-8", "a string column has bytes that are not UTF-8", rows[bad])
        batch, rows = batch.filter(pa.array(~bad)), rows[~bad]
        numbers = None if numbers is None else numbers[~bad]
    if len(rows):
        ids = None if id_name is None else id_text(batch.column(id_name))
        columns = _with_a_column(batch, len(rows))
        yield MessageBatch(columns, rows, ids, ColumnMessages(columns, ids) if full else None, numbers)


def _is_text(value: Any) -> bool:
    try:
        value.as_py()
    except UnicodeDecodeError:
        return False
    return True


def _with_a_column(batch: pa.RecordBatch, rows: int) -> pa.RecordBatch:
    """Return the batch with at least one column: without any it would have no number of rows."""
    if batch.num_columns:
        return batch
    return pa.RecordBatch.from_arrays([pa.nulls(rows)], names=["@none"])


def id_text(column: Any) -> Any | None:
    """Return message ids as strings; bytes become ``ID:`` and their hex. None if the type can't be an id."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if is_mixed(column.type):
        column = pc.struct_field(column, "text")
    kind = column.type
    if pa.types.is_string(kind):
        return column
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return pa.array(
            [None if v is None else f"ID:{v.hex().upper()}" for v in column.to_pylist()], pa.string()
        )
    try:
        return pc.cast(column, pa.string())
    except pa.ArrowException:
        return None


def _read_json(
    split: Split, names: Sequence[str], max_message_bytes: int, full: bool
) -> Iterator[InputBatch]:
    name_length = longest_name(names)
    messages: list[Message] = []
    rows: list[int] = []
    try:
        with opened(split) as file:
            file.seek(split.start)
            row = split.first_row - 1
            while file.tell() < split.stop:
                row += 1
                line = file.readline(max_message_bytes + 1)
                if not line:
                    yield DeadLetterBatch(
                        "read", "unreadable-file", f"the file ends before byte {split.stop}", None
                    )
                    break
                if len(line) > max_message_bytes and not line.endswith(b"\n"):
                    while (rest := file.readline(1 << 20)) and not rest.endswith(b"\n"):
                        pass
                    text = f"the line is longer than {max_message_bytes} bytes"
                    yield DeadLetterBatch("read", "too-large", text, np.array([row]), line[:RAW_BYTES])
                    continue
                if not line.strip():
                    continue
                parsed = _parse(line, row, name_length)
                if isinstance(parsed, DeadLetterBatch):
                    yield parsed
                    continue
                messages.append(parsed)
                rows.append(row)
                if len(messages) >= _JSON_BATCH_ROWS:
                    yield from _as_columns(messages, rows, names, full)
                    messages, rows = [], []
    except WAITED_FOR:
        raise
    except OSError as error:
        yield DeadLetterBatch("read", "unreadable-file", str(error), None)
    yield from _as_columns(messages, rows, names, full)


def _parse(line: bytes, row: int, name_length: int) -> Message | DeadLetterBatch:
    try:
        return Message.from_json(parse_json(line), name_length=name_length)
    except JsonError as error:
        dead = "read" if error.kind == "not-utf-8" else "parse", str(error.kind), f"the line is {error}"
    except MessageError as error:
        dead = "parse", "not-a-message", str(error)
    return DeadLetterBatch(*dead, np.array([row]), line.rstrip(b"\r\n")[:RAW_BYTES])


def _as_columns(
    messages: list[Message], rows: list[int], names: Sequence[str], full: bool
) -> Iterator[MessageBatch]:
    if messages:
        batch = _with_a_column(from_messages(messages, names), len(messages))
        ids = pa.array([message.value("JMSMessageID") for message in messages], pa.string())
        yield MessageBatch(batch, np.array(rows, np.int64), ids, ParsedMessages(messages) if full else None)
