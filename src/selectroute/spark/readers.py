"""Read one split in a worker: messages as columns, and what can't be read as dead letters.

Only the columns that selectors read, and the message id, are decoded; all of them where messages are handed
on whole. Every row of the split comes out once, as a message or as a dead letter.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from selectroute.match.mixed import from_messages, is_mixed
from selectroute.selector.message import Message, MessageError, longest_name
from selectroute.spark.parquet_columns import Selection, select
from selectroute.spark.plan import Split
from selectroute.spark.whole import Columns, Parsed, Whole

BATCH_ROWS = 65_536
_BATCH_BYTES = 64 << 20
"""Of whole messages in Parquet, about so much is decoded at a time."""

_JSON_BATCH_ROWS = 16_384
RAW_BYTES = 65_536
"""As much of a line that can't be read as its dead letter keeps."""

_READ_ERRORS = (pa.ArrowException, OSError)


class Place(NamedTuple):
    """Where messages come from: a file and partition 0, or a topic of Kafka and one of its partitions."""

    source: str
    partition: int = 0


@dataclass(frozen=True, slots=True)
class Messages:
    """Messages of one place: their columns, each one's row in the file or offset in the partition, and their
    ids where they have any."""

    columns: pa.RecordBatch
    rows: npt.NDArray[np.int64]
    ids: Any | None
    whole: Whole | None = None
    """Everything that the messages are, where that was asked for."""

    def slice(self, start: int, length: int) -> Messages:
        """Return some of them."""
        return Messages(
            self.columns.slice(start, length),
            self.rows[start : start + length],
            None if self.ids is None else self.ids.slice(start, length),
            None if self.whole is None else self.whole.slice(start, length),
        )

    def take(self, places: npt.NDArray[np.int64]) -> Messages:
        """Return those in these places."""
        chosen = pa.array(places)
        return Messages(
            self.columns.take(chosen),
            self.rows[places],
            None if self.ids is None else self.ids.take(chosen),
            None if self.whole is None else self.whole.take(places),
        )

    @property
    def count(self) -> int:
        """How many messages these are."""
        return len(self.rows)


@dataclass(frozen=True, slots=True)
class Dead:
    """Inputs of one place that can't be read or judged, all for one reason. ``rows`` None is the file
    itself. ``raw`` is what stood there, where all of them have the same."""

    stage: str
    reason: str
    message: str
    rows: npt.NDArray[np.int64] | None
    raw: bytes | None = None

    @property
    def count(self) -> int:
        """How many inputs these are."""
        return 1 if self.rows is None else len(self.rows)

    def take(self, places: npt.NDArray[np.int64]) -> Dead:
        """Return those in these places."""
        return self if self.rows is None else replace(self, rows=self.rows[places])


def read(
    split: Split, names: Sequence[str], max_message_bytes: int, whole: bool = False
) -> Iterator[Messages | Dead]:
    """Yield everything in a split: ``names`` are the columns that selectors read; with ``whole`` the messages
    have everything.
    """
    if split.kind == "parquet":
        return _read_parquet(split, names, max_message_bytes, whole)
    if split.kind == "json":
        return _read_json(split, names, max_message_bytes, whole)
    return iter([Dead("read", split.reason, split.message, None)])


def _read_parquet(
    split: Split, names: Sequence[str], max_message_bytes: int, whole: bool
) -> Iterator[Messages | Dead]:
    row = split.first_row
    end = row + split.rows
    try:
        with pa.OSFile(split.path, "rb") as file:
            metadata = pq.read_metadata(file)
            selection = select(metadata, split.row_groups, names, whole)
            if selection.ambiguous is not None:
                message = f"column {selection.ambiguous!r} stands more than once in the file"
                yield Dead("judge", "ambiguous-column", message, np.arange(row, end))
                return
            file.seek(0)
            parquet = pq.ParquetFile(
                file,
                metadata=metadata,
                read_dictionary=selection.repeating,
                pre_buffer=False,
                page_checksum_verification=True,
            )
            for group in split.row_groups:
                group_end = row + metadata.row_group(group).num_rows
                most = max_message_bytes * (group_end - row)
                if _decoded_bytes(metadata.row_group(group), selection) > most:
                    # A few kilobytes of file can be gigabytes of text: that is not decoded.
                    yield _too_large(np.arange(row, group_end), max_message_bytes)
                    row = group_end
                    continue
                try:
                    # Spark runs a task a core: no threads in here.
                    for batch in parquet.iter_batches(
                        _batch_rows(metadata.row_group(group)) if whole else BATCH_ROWS,
                        row_groups=[group],
                        columns=selection.columns,
                        use_threads=False,
                    ):
                        rows = np.arange(row, row + batch.num_rows)
                        yield from _checked(batch, rows, selection.id_name, max_message_bytes, whole)
                        row += batch.num_rows
                except _READ_ERRORS as error:
                    # From the first rows on that don't decode: what came before was whole.
                    yield Dead("read", "corrupt-row-group", str(error), np.arange(row, group_end))
                row = group_end
    except _READ_ERRORS as error:
        # The footer was whole when the batch was planned.
        yield Dead("read", "unreadable-file", str(error), np.arange(row, end))


def _batch_rows(group: Any) -> int:
    """How many whole messages of a row group to decode at a time."""
    return int(min(BATCH_ROWS, max(64, _BATCH_BYTES * group.num_rows // max(1, group.total_byte_size))))


def _decoded_bytes(group: Any, selection: Selection) -> int:
    """Return the bytes of the chosen columns of a row group, decompressed, each dictionary counted once."""
    chosen = tuple(selection.columns)
    within = tuple(f"{name}." for name in chosen)
    columns = map(group.column, range(group.num_columns))
    return sum(
        column.total_uncompressed_size
        for column in columns
        if column.path_in_schema in chosen or column.path_in_schema.startswith(within)
    )


def _too_large(rows: npt.NDArray[np.int64], max_message_bytes: int) -> Dead:
    return Dead("read", "too-large", f"the row is longer than {max_message_bytes} bytes", rows)


def _row_bytes(batch: Any) -> npt.NDArray[np.int64]:
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


def _checked(
    batch: Any, rows: npt.NDArray[np.int64], id_name: str | None, max_message_bytes: int, whole: bool
) -> Iterator[Messages | Dead]:
    """Take out the rows that are too large, and those whose strings are not UTF-8: Parquet does not look, and
    no one could compare them.
    """
    if batch.nbytes > max_message_bytes:  # else no row can be
        large = _row_bytes(batch) > max_message_bytes
        if large.any():
            yield _too_large(rows[large], max_message_bytes)
            batch, rows = batch.filter(pa.array(~large)), rows[~large]
    bad = np.zeros(batch.num_rows, dtype=np.bool_)
    for column in batch.columns:
        try:
            (column.dictionary if pa.types.is_dictionary(column.type) else column).validate(full=True)
        except pa.ArrowInvalid:
            bad |= np.fromiter((not _is_text(value) for value in column), np.bool_, len(column))
    if bad.any():
        yield Dead("read", "not-utf-8", "a string column holds bytes that are not UTF-8", rows[bad])
        batch, rows = batch.filter(pa.array(~bad)), rows[~bad]
    if len(rows):
        ids = None if id_name is None else id_text(batch.column(id_name))
        columns = _with_a_column(batch, len(rows))
        yield Messages(columns, rows, ids, Columns(columns, ids) if whole else None)


def _is_text(value: Any) -> bool:
    try:
        value.as_py()
    except UnicodeDecodeError:
        return False
    return True


def _with_a_column(batch: pa.RecordBatch, rows: int) -> pa.RecordBatch:
    """A batch without columns would not know how many rows it has."""
    if batch.num_columns:
        return batch
    return pa.RecordBatch.from_arrays([pa.nulls(rows)], names=["@none"])


def id_text(column: Any) -> Any | None:
    """Return message ids as strings; 24 bytes become ``ID:`` and their hex. None if the type can be no id."""
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


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text[:40]} is out of a double's range")
    return number


_DECODE = json.JSONDecoder(parse_constant=_no_constant, parse_float=_finite).decode


def _read_json(
    split: Split, names: Sequence[str], max_message_bytes: int, whole: bool
) -> Iterator[Messages | Dead]:
    name_length = longest_name(names)
    messages: list[Message] = []
    rows: list[int] = []
    try:
        with open(split.path, "rb") as file:
            file.seek(split.start)
            row = split.first_row - 1
            while file.tell() < split.stop:
                row += 1
                line = file.readline(max_message_bytes + 1)
                if not line:
                    yield Dead("read", "unreadable-file", f"it ends before byte {split.stop}", None)
                    break
                if len(line) > max_message_bytes and not line.endswith(b"\n"):
                    while (rest := file.readline(1 << 20)) and not rest.endswith(b"\n"):
                        pass
                    text = f"the line is longer than {max_message_bytes} bytes"
                    yield Dead("read", "too-large", text, np.array([row]), line[:RAW_BYTES])
                    continue
                if row == 0:
                    line = line.removeprefix(b"\xef\xbb\xbf")
                if not line.strip():
                    continue
                parsed = _parse(line, row, name_length)
                if isinstance(parsed, Dead):
                    yield parsed
                    continue
                messages.append(parsed)
                rows.append(row)
                if len(messages) >= _JSON_BATCH_ROWS:
                    yield from _as_columns(messages, rows, names, whole)
                    messages, rows = [], []
    except OSError as error:
        yield Dead("read", "unreadable-file", str(error), None)
    yield from _as_columns(messages, rows, names, whole)


def _parse(line: bytes, row: int, name_length: int) -> Message | Dead:
    try:
        return Message.from_json(_DECODE(line.decode("utf-8").strip()), name_length=name_length)
    except UnicodeDecodeError as error:
        stage, reason, message = "read", "not-utf-8", f"byte {error.start} of the line is not UTF-8"
    except RecursionError:
        stage, reason, message = "parse", "too-deep", "the line is nested too deeply"
    except MessageError as error:
        stage, reason, message = "parse", "not-a-message", str(error)
    except ValueError as error:
        stage, reason, message = "parse", "not-json", str(error)
    return Dead(stage, reason, message, np.array([row]), line.rstrip(b"\r\n")[:RAW_BYTES])


def _as_columns(
    messages: list[Message], rows: list[int], names: Sequence[str], whole: bool
) -> Iterator[Messages]:
    if messages:
        batch = _with_a_column(from_messages(messages, names), len(messages))
        ids = pa.array([message.value("JMSMessageID") for message in messages], pa.string())
        yield Messages(batch, np.array(rows, dtype=np.int64), ids, Parsed(messages) if whole else None)
