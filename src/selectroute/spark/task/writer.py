"""Sinks of a worker, as Parquet: deliveries, unrouted messages, dead letters; and those for queues, Kafka."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from selectroute.match.match import Matches
from selectroute.selector.extended import GROUP
from selectroute.spark.columns.matches import SLICE, ids_of, pairs
from selectroute.spark.destinations.destination import Outgoing
from selectroute.spark.job import DROP, KEEP, Unrouted
from selectroute.spark.messages import DeadLetterBatch, MessageBatch, SourcePartition
from selectroute.spark.tables.parquet_file import OutputFiles, ParquetFile
from selectroute.spark.tables.schemas import (
    DEAD_LETTERS,
    DELIVERIES,
    RAW,
    SCHEMAS,
    SINKS,
    UNROUTED,
    WITH_BATCH,
    Counts,
    DeliveryCounts,
    as_written,
)

Ints = npt.NDArray[np.int64]
Ordinals = npt.NDArray[np.int32]

_ROW_GROUP = 1 << 18
"""Rows collected before they are written: one row group per batch of messages would be tiny if few match."""

_RAW_BYTES_A_ROW = 256
"""Raw bytes of a dead letter that count as one more row, so that memory stays bounded."""


class Sinks:
    """Files of one task, and the counts of their rows."""

    def __init__(
        self,
        files: OutputFiles,
        ids: Any,
        revision: int,
        policy: Unrouted,
        outgoing: Sequence[Outgoing] = (),
        counts_busiest: bool = False,
    ) -> None:
        self.counts = Counts()
        self._of_subscriptions = DeliveryCounts(ids) if counts_busiest else None
        self._outgoing = outgoing
        self._ids = ids
        self._revision = revision
        self._policy = policy
        self._batch = files.batch
        schemas = SCHEMAS if files.batch is None else WITH_BATCH
        self._writers = {sink: ParquetFile(files.file(sink), sink, schemas[sink]) for sink in SINKS}
        self._pending: dict[str, list[dict[str, Any]]] = {sink: [] for sink in SINKS}
        self._pending_rows = dict.fromkeys(SINKS, 0)

    def deliver(
        self, place: SourcePartition, messages: MessageBatch, matches: Matches, *, listed: bool = True
    ) -> None:
        """Write messages with their matches (offsets and ordinals) and refused deliveries.

        Without ``listed``, unrouted messages are only counted.
        """
        for outgoing in self._outgoing:
            matches, refused = outgoing.deliver(place, messages, matches)
            for dead, of_subscriptions in refused:
                self.refuse(place, dead, of_subscriptions)
        offsets, ordinals = matches.offsets, matches.ordinals
        routed = int(np.count_nonzero(np.diff(offsets)))
        unrouted = len(messages.rows) - routed
        self.counts.messages += len(messages.rows)
        self.counts.routed += routed
        self.counts.unrouted += unrouted
        self.counts.deliveries += len(ordinals)
        for part in pairs(offsets, ordinals, SLICE):
            # One id for each message with deliveries in this block.
            starts = np.diff(part.rows, prepend=-1) != 0
            self._add(
                DELIVERIES,
                place,
                messages.rows[part.rows],
                ordinals=part.ordinals,
                ids=_taken(messages.ids, part.rows[starts]),
                codes=np.cumsum(starts, dtype=np.int32) - np.int32(1),
            )
        if unrouted:
            none = np.flatnonzero(np.diff(offsets) == 0)
            by_topic = self._policy if listed else Unrouted(DROP)
            for policy, rows in by_topic.sort(messages.columns, none):
                self.counts.count_unrouted(policy, len(rows))
                if policy == KEEP:
                    self._add(UNROUTED, place, messages.rows[rows], ids=_taken(messages.ids, rows))
        if len(matches.refused):
            self.refuse(place, refusal(messages.rows[matches.refused.rows]), matches.refused.ordinals)

    def refuse(self, place: SourcePartition, dead: DeadLetterBatch, ordinals: Ordinals) -> None:
        """Write deliveries that are dead letters: a row and an ordinal each."""
        assert dead.rows is not None
        self.counts.refused += len(ordinals)
        for start in range(0, len(ordinals), SLICE):
            rows = dead.rows[start : start + SLICE]
            self._add(DEAD_LETTERS, place, rows, dead=dead, ordinals=ordinals[start : start + SLICE])

    def deny(
        self,
        place: SourcePartition,
        dead: DeadLetterBatch,
        of_each: DeadLetterBatch,
        ordinals: Ordinals,
    ) -> None:
        """Write messages that can't be judged, of which a replay was to make certain deliveries only.

        Each such delivery is a row of the dead letters, from ``of_each``; the messages are counted as
        unrouted, and not listed.
        """
        self.counts.messages += dead.count
        self.counts.unrouted += dead.count
        self.counts.count_unrouted(DROP, dead.count)
        if len(ordinals):
            self.refuse(place, of_each, ordinals)

    def bury(
        self, place: SourcePartition, dead: DeadLetterBatch, records: pa.RecordBatch | None = None
    ) -> None:
        """Write inputs that can't be read or judged as dead letters, with their Kafka records, if any."""
        if dead.count == 0:
            return
        self.counts.messages += dead.count
        self.counts.dead_lettered += dead.count
        self.counts.count_dead_letters(dead.reason, dead.count)
        size = len(dead.raw or b"") if records is None else records.nbytes
        self._pending_rows[DEAD_LETTERS] += size // _RAW_BYTES_A_ROW
        self._add(DEAD_LETTERS, place, dead.rows, dead=dead, records=records)

    def close(self) -> list[dict[str, Any]]:
        """Write the remaining rows, flush the files and return the reports of `ParquetFile.close`."""
        for sink in SINKS:
            self._write(sink)
        # One after the other: Arrow writes other bytes for a column of NULL in another thread.
        files = [writer.close() for writer in self._writers.values()]
        with ThreadPoolExecutor(len(SINKS)) as threads:  # each may take a round trip
            for _ in threads.map(ParquetFile.upload, self._writers.values()):
                pass
        for outgoing in self._outgoing:
            outgoing.close()
            self.counts.count_sent(outgoing.kind, outgoing.deliveries)
        return [file for file in files if file is not None]

    def busiest(self) -> dict[str, int]:
        """Return the deliveries of the busiest subscriptions, after `close`; none if they are not counted."""
        return {} if self._of_subscriptions is None else self._of_subscriptions.busiest()

    def discard(self) -> None:
        """Remove the files of an attempt that failed."""
        for writer in self._writers.values():
            writer.discard()

    def _add(self, sink: str, place: SourcePartition, rows: Ints | None, **more: Any) -> None:
        self._pending[sink].append({"place": place, "rows": rows, **more})
        self._pending_rows[sink] += 1 if rows is None else len(rows)
        if self._pending_rows[sink] >= _ROW_GROUP:
            self._write(sink)

    def _write(self, sink: str) -> None:
        parts, self._pending[sink] = self._pending[sink], []
        self._pending_rows[sink] = 0
        if not parts:
            return
        places = [part["place"] for part in parts]
        lengths = [1 if part["rows"] is None else len(part["rows"]) for part in parts]
        total = sum(lengths)
        columns: dict[str, Any] = {
            "source": _repeated([place.source for place in places], lengths),
            "revision": pa.array(np.full(total, self._revision, dtype=np.int64)),
            "partition": pa.array(np.repeat([place.partition for place in places], lengths), pa.int32()),
            "offset": pa.chunked_array(
                [
                    pa.nulls(1, pa.int64()) if part["rows"] is None else pa.array(part["rows"], pa.int64())
                    for part in parts
                ]
            ).combine_chunks(),
        }
        if self._batch is not None:
            columns["batch"] = pa.array(np.full(total, self._batch, dtype=np.int64))
        if sink == DELIVERIES:
            ordinals = np.concatenate([part["ordinals"] for part in parts])
            if self._of_subscriptions is not None:
                self._of_subscriptions.add(ordinals)
            columns["subscription"] = ids_of(ordinals, self._ids)
            columns["message_id"] = _joined_ids(parts)
        elif sink == UNROUTED:
            columns["message_id"] = pa.chunked_array([part["ids"] for part in parts]).combine_chunks()
        else:
            for name in ("stage", "reason", "message"):
                columns[name] = _repeated([getattr(part["dead"], name) for part in parts], lengths)
            columns["subscription"] = _ids_or_null(parts, lengths, self._ids)
            for name in RAW.names:
                chunks = [_raw(part, length, name) for part, length in zip(parts, lengths, strict=True)]
                columns[name] = pa.chunked_array(chunks).combine_chunks()
        self._writers[sink].write(columns)


def refusal(rows: Ints) -> DeadLetterBatch:
    """Return the dead letters of deliveries, one for each of these rows, that no provider could judge."""
    message = (
        "MQRC_SELECTION_NOT_AVAILABLE (2551): the subscription is EXTENDED and no extended selection "
        f"provider could judge the message; install one, with an entry point {GROUP}, where the workers run; "
        "if there is one, it failed with this selector or message"
    )
    return DeadLetterBatch("judge", "selection-not-available", message, rows)


def _raw(part: Mapping[str, Any], length: int, name: str) -> Any:
    """Return one of the columns of `RAW` for some dead letters."""
    records = part.get("records")
    if records is not None:
        return records.column("value" if name == "raw" else name).cast(RAW.field(name).type)
    raw = part["dead"].raw
    if name != "raw" or raw is None:
        return pa.nulls(length, RAW.field(name).type)
    return pa.array([raw] * length, pa.binary())


def _taken(ids: Any | None, rows: Ints) -> Any:
    return pa.nulls(len(rows), pa.string()) if ids is None else ids.take(pa.array(rows))


def _repeated(texts: list[str], lengths: list[int]) -> Any:
    """Return each text as often as its length says, dictionary-encoded."""
    encoded = pa.array([as_written(text) for text in texts], pa.string()).dictionary_encode()
    codes = np.repeat(encoded.indices.to_numpy(), lengths)
    return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), encoded.dictionary)


def _ids_or_null(parts: list[dict[str, Any]], lengths: list[int], ids: Any) -> Any:
    """Return the subscription of each dead letter: NULL for messages, not NULL for deliveries."""
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
    """Join the message ids of several parts into one dictionary, shifting the codes of each part."""
    codes: list[Ordinals] = []
    before = 0
    for part in parts:
        codes.append(part["codes"] + np.int32(before))
        before += len(part["ids"])
    ids: Any = pa.chunked_array([part["ids"] for part in parts]).combine_chunks()
    joined = np.concatenate(codes)
    # Parquet allows no NULL in a dictionary: messages without an id have a NULL code.
    mask = ids.is_null().to_numpy(zero_copy_only=False)[joined] if ids.null_count else None
    indices = pa.array(joined, pa.int32(), mask=mask)
    return pa.DictionaryArray.from_arrays(indices, ids.fill_null("") if ids.null_count else ids)
