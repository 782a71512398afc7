"""What a worker writes: deliveries, unrouted messages and dead letters, as Parquet.

The batch's number is no column of the files: it is the name of the folder, ``batch=<n>``, which every reader
of such folders turns into the column ``batch`` (and which most of them refuse to see a second time inside).
"""

from __future__ import annotations

import os
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from selectroute.index.extended import GROUP
from selectroute.match.match import Matches
from selectroute.spark.durable import DigestingFile
from selectroute.spark.explode import SLICE, ids_of, pairs
from selectroute.spark.readers import Dead, Messages

DELIVERIES, UNROUTED, DEAD_LETTERS = SINKS = ("deliveries", "unrouted", "dead-letters")

_TEXT = pa.dictionary(pa.int32(), pa.string())
_PLACE = [("source", _TEXT), ("partition", pa.int32()), ("offset", pa.int64())]
SCHEMAS: dict[str, pa.Schema] = {
    DELIVERIES: pa.schema(
        [("subscription", _TEXT), ("revision", pa.int64()), *_PLACE, ("message_id", _TEXT)]
    ),
    UNROUTED: pa.schema([("revision", pa.int64()), *_PLACE, ("message_id", pa.string())]),
    DEAD_LETTERS: pa.schema(
        [
            ("stage", _TEXT),
            ("reason", _TEXT),
            ("message", _TEXT),
            *_PLACE,
            ("revision", pa.int64()),
            ("subscription", _TEXT),
            ("raw", pa.binary()),
        ]
    ),
}
"""The columns of the files of each sink."""

_ROW_GROUP = 1 << 18
"""Rows collected before they are written: a row group for each batch of messages would be tiny where few
match."""

_RAW_BYTES_A_ROW = 256
"""A dead letter's raw bytes count as one more row for each so many of them, so that memory stays bounded."""


class _Writer:
    """One Parquet file, made when the first rows come."""

    def __init__(self, folder: Path, sink: str) -> None:
        self.sink = sink
        # The name is this attempt's alone: a task that runs twice never writes over itself.
        self.path = folder / f"{sink}-{uuid.uuid4().hex}.parquet"
        self.rows = 0
        self._file: DigestingFile | None = None
        self._parquet: Any = None

    def write(self, columns: dict[str, Any]) -> None:
        schema = SCHEMAS[self.sink]
        if self._parquet is None:
            self._file = DigestingFile(self.path)
            repeating = [field.name for field in schema if field.type == _TEXT]
            self._parquet = pq.ParquetWriter(
                pa.PythonFile(self._file, mode="w"),
                schema,
                compression="zstd",
                compression_level=1,
                use_dictionary=repeating,
                # Constant or rising numbers: the differences take next to nothing.
                column_encoding={
                    field.name: "DELTA_BINARY_PACKED" for field in schema if pa.types.is_integer(field.type)
                },
                # Without room for the message ids of a whole batch the encoding would be given up halfway.
                dictionary_pagesize_limit=1 << 26,
                write_statistics=["offset"],
            )
        table = pa.Table.from_arrays([columns[name] for name in schema.names], schema=schema)
        self._parquet.write_table(table)
        self.rows += table.num_rows

    def close(self) -> dict[str, Any] | None:
        """Flush the file and return what it is, or None if there were no rows."""
        if self._parquet is None or self._file is None:
            return None
        self._parquet.close()
        self._file.close()
        return {
            "sink": self.sink,
            "path": os.path.basename(self.path),
            "rows": self.rows,
            "size": self._file.size,
            "sha256": self._file.hexdigest(),
        }


@dataclass(slots=True)
class Counts:
    """What became of the messages of a task or a batch. Deliveries are not messages: one may have many.

    ``messages`` is ``routed + unrouted + dead_lettered``. ``deliveries`` went out; ``refused`` are deliveries
    that nobody could judge (see `refusal`), a dead letter each: neither ``dead_lettered`` nor ``reasons``,
    which are of messages, count them. A message of which every delivery was refused is unrouted.
    """

    messages: int = 0
    routed: int = 0
    unrouted: int = 0
    dead_lettered: int = 0
    deliveries: int = 0
    refused: int = 0
    reasons: dict[str, int] = field(default_factory=dict)

    def add(self, other: Counts) -> None:
        """Add another task's counts."""
        self.messages += other.messages
        self.routed += other.routed
        self.unrouted += other.unrouted
        self.dead_lettered += other.dead_lettered
        self.deliveries += other.deliveries
        self.refused += other.refused
        for reason, count in other.reasons.items():
            self.bury(reason, count)

    def bury(self, reason: str, count: int) -> None:
        """Count dead letters under their reason."""
        self.reasons[reason] = self.reasons.get(reason, 0) + count


class Sinks:
    """The files of one task, and the count of what went into them."""

    def __init__(self, folder: Path, ids: Any, revision: int, keep_unrouted: bool) -> None:
        self.counts = Counts()
        self._ids = ids
        self._revision = revision
        self._keep_unrouted = keep_unrouted
        self._writers = {sink: _Writer(folder, sink) for sink in SINKS}
        self._pending: dict[str, list[dict[str, Any]]] = {sink: [] for sink in SINKS}
        self._pending_rows = dict.fromkeys(SINKS, 0)

    def deliver(self, source: str, messages: Messages, matches: Matches) -> None:
        """Take messages with their matches (offsets and ordinals) and what was refused of them."""
        offsets, ordinals = matches.offsets, matches.ordinals
        routed = int(np.count_nonzero(np.diff(offsets)))
        unrouted = len(messages.rows) - routed
        self.counts.messages += len(messages.rows)
        self.counts.routed += routed
        self.counts.unrouted += unrouted
        self.counts.deliveries += len(ordinals)
        for part in pairs(offsets, ordinals, SLICE):
            # One entry for each message that has deliveries here, however many.
            starts = np.diff(part.rows, prepend=-1) != 0
            self._add(
                DELIVERIES,
                source,
                messages.rows[part.rows],
                ordinals=part.ordinals,
                ids=_taken(messages.ids, part.rows[starts]),
                codes=np.cumsum(starts, dtype=np.int32) - np.int32(1),
            )
        if unrouted and self._keep_unrouted:
            none = np.flatnonzero(np.diff(offsets) == 0)
            self._add(UNROUTED, source, messages.rows[none], ids=_taken(messages.ids, none))
        self.counts.refused += len(matches.refused)
        for start in range(0, len(matches.refused), SLICE):
            chosen = slice(start, start + SLICE)
            rows = messages.rows[matches.refused.rows[chosen]]
            self._add(
                DEAD_LETTERS, source, rows, dead=refusal(rows), ordinals=matches.refused.ordinals[chosen]
            )

    def bury(self, source: str, dead: Dead) -> None:
        """Take inputs that can't be read or judged."""
        if dead.count == 0:
            return
        self.counts.messages += dead.count
        self.counts.dead_lettered += dead.count
        self.counts.bury(dead.reason, dead.count)
        self._pending_rows[DEAD_LETTERS] += len(dead.raw or b"") // _RAW_BYTES_A_ROW
        self._add(DEAD_LETTERS, source, dead.rows, dead=dead)

    def close(self) -> list[dict[str, Any]]:
        """Write the rest, flush the files and return what they are: sink, path, rows, size, sha256."""
        for sink in SINKS:
            self._write(sink)
        files = [self._writers[sink].close() for sink in SINKS]
        return [file for file in files if file is not None]

    def _add(self, sink: str, source: str, rows: npt.NDArray[np.int64] | None, **more: Any) -> None:
        self._pending[sink].append({"source": source, "rows": rows, **more})
        self._pending_rows[sink] += 1 if rows is None else len(rows)
        if self._pending_rows[sink] >= _ROW_GROUP:
            self._write(sink)

    def _write(self, sink: str) -> None:
        parts, self._pending[sink] = self._pending[sink], []
        self._pending_rows[sink] = 0
        if not parts:
            return
        lengths = [1 if part["rows"] is None else len(part["rows"]) for part in parts]
        total = sum(lengths)
        columns: dict[str, Any] = {
            "source": _repeated([part["source"] for part in parts], lengths),
            "revision": pa.array(np.full(total, self._revision, dtype=np.int64)),
            "partition": pa.array(np.zeros(total, dtype=np.int32)),
            "offset": pa.chunked_array(
                [
                    pa.nulls(1, pa.int64()) if part["rows"] is None else pa.array(part["rows"], pa.int64())
                    for part in parts
                ]
            ).combine_chunks(),
        }
        if sink == DELIVERIES:
            columns["subscription"] = ids_of(np.concatenate([part["ordinals"] for part in parts]), self._ids)
            columns["message_id"] = _joined_ids(parts)
        elif sink == UNROUTED:
            columns["message_id"] = pa.chunked_array([part["ids"] for part in parts]).combine_chunks()
        else:
            for name in ("stage", "reason", "message"):
                columns[name] = _repeated([getattr(part["dead"], name) for part in parts], lengths)
            columns["subscription"] = _ids_or_null(parts, lengths, self._ids)
            raws = [part["dead"].raw for part in parts]
            columns["raw"] = pa.array(
                [raw for raw, length in zip(raws, lengths, strict=True) for _ in range(length)], pa.binary()
            )
        self._writers[sink].write(columns)


def refusal(rows: npt.NDArray[np.int64]) -> Dead:
    """Return the reason of deliveries, one for each of these rows, that nobody could judge."""
    message = (
        "MQRC_SELECTION_NOT_AVAILABLE (2551): the subscription is EXTENDED and no extended selection "
        f"provider could judge the message; install one, with an entry point {GROUP}, where the workers run; "
        "if there is one, it failed with this selector or message"
    )
    return Dead("judge", "selection-not-available", message, rows)


def _taken(ids: Any | None, rows: npt.NDArray[np.int64]) -> Any:
    return pa.nulls(len(rows), pa.string()) if ids is None else ids.take(pa.array(rows))


def _repeated(texts: list[str], lengths: list[int]) -> Any:
    """Return each text as often as its length says, dictionary-encoded."""
    encoded = pa.array(
        [text.encode("utf-8", "replace").decode() for text in texts], pa.string()
    ).dictionary_encode()
    codes = np.repeat(encoded.indices.to_numpy(), lengths)
    return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), encoded.dictionary)


def _ids_or_null(parts: list[dict[str, Any]], lengths: list[int], ids: Any) -> Any:
    """Return the subscription of each dead letter that is a delivery, NULL for those that are messages."""
    ordinals = np.concatenate(
        [
            part.get("ordinals", np.full(length, -1, dtype=np.int32))
            for part, length in zip(parts, lengths, strict=True)
        ]
    )
    known = ordinals >= 0
    encoded = ids_of(ordinals[known], ids)
    codes = np.zeros(len(ordinals), dtype=np.int32)
    codes[known] = encoded.indices.to_numpy()
    return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32(), mask=~known), encoded.dictionary)


def _joined_ids(parts: list[dict[str, Any]]) -> Any:
    """Join the message ids of several parts into one dictionary, each part's codes moved behind the last
    one's."""
    codes: list[npt.NDArray[np.int32]] = []
    before = 0
    for part in parts:
        codes.append(part["codes"] + np.int32(before))
        before += len(part["ids"])
    ids: Any = pa.chunked_array([part["ids"] for part in parts]).combine_chunks()
    joined = np.concatenate(codes)
    # Parquet takes no NULL in a dictionary: messages without an id have a NULL for a code.
    mask = ids.is_null().to_numpy(zero_copy_only=False)[joined] if ids.null_count else None
    indices = pa.array(joined, pa.int32(), mask=mask)
    return pa.DictionaryArray.from_arrays(indices, ids.fill_null("") if ids.null_count else ids)
