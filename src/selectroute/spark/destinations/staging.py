"""Staging of messages for destinations outside the output folder: each message once, with its deliveries.

::

    outgoing-<kind>   source, partition, offset, [(destination, subscription, partition)], the number in this
                      file of the first of these deliveries, and the columns of the kind

The files are part of the batch: the commit names them with their digests, and after it the driver sends their
messages (see ``senders``). They are never published. A delivery that its destination cannot accept is a dead
letter, and not counted among the batch's deliveries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from selectroute.match.match import Matches
from selectroute.selector.message import Message
from selectroute.spark.destinations.codes import Destinations
from selectroute.spark.sinks.parquet_file import StagedFile
from selectroute.spark.sinks.schemas import DELIVERY_LIST, PLACE, as_written
from selectroute.spark.sources.files.readers import DeadLetterBatch, Messages, SourcePartition

Ints = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int32]
Mask = npt.NDArray[np.bool_]

_Converted = TypeVar("_Converted")

PREFIX = "outgoing-"
"""Prefix of a staged file's name, before the kind."""


@dataclass(frozen=True, slots=True)
class Contents:
    """Messages in the columns of a kind of destination: a row for each message that fits.

    ``fit`` is a mask of these messages, and ``reasons`` has an error text for each of the others.
    """

    columns: pa.RecordBatch
    fit: Mask
    reasons: list[str]


def converted(
    messages: Messages, places: Ints, convert: Callable[[Message], _Converted | str]
) -> tuple[list[_Converted], Mask, list[str]]:
    """Convert the messages at these rows one by one; return the results, and mask and reasons of `Contents`.

    ``convert`` returns an error text for a message that does not fit.
    """
    assert messages.full is not None
    found: list[_Converted] = []
    fit = np.ones(len(places), np.bool_)
    reasons: list[str] = []
    for index, message in enumerate(messages.full.messages(places)):
        one = message if isinstance(message, str) else convert(message)
        if isinstance(one, str):
            fit[index] = False
            reasons.append(one)
        else:
            found.append(one)
    return found, fit, reasons


class DestinationFormat(Protocol):
    """Staging format for one kind of destination."""

    @property
    def name(self) -> str:
        """Name of the kind."""

    @property
    def unfit(self) -> str:
        """Reason of dead letters for messages that no destination of the kind can hold."""

    @property
    def columns(self) -> pa.Schema:
        """Columns of `contents`."""

    def block(self, messages: Messages) -> int:
        """Return the number of messages to convert at a time, the maximum of a row group: bounds the memory
        of writer and reader.
        """

    def contents(self, messages: Messages, places: Ints) -> Contents:
        """Return the columns of the kind for the messages at these rows."""

    def partitions(self, contents: Contents, rows: Ints, offsets: Ints, codes: Codes) -> Codes | None:
        """Return the destination's partition for each delivery, the same for each attempt; None for a kind
        without partitions. ``offsets`` are those of the messages at their source.
        """

    def refused(self, contents: Contents, rows: Ints, codes: Codes) -> Iterator[tuple[Mask, str, str]]:
        """Yield a mask of the deliveries (a row of the contents and a destination each) that are not
        accepted, for each reason and error text.
        """


class Outgoing:
    """File that one task stages for one kind of destination.

    Args:
        kind: the kind.
        folder: the staging folder.
        to: the destinations of the snapshot's subscriptions.
        ids: the snapshot's ids.
    """

    def __init__(self, kind: DestinationFormat, folder: Path, to: Destinations, ids: Any) -> None:
        self.deliveries = 0
        self.kind = kind.name
        self._kind = kind
        self._to = to
        self._names = pa.array(to.names, pa.string())
        self._ids = ids
        self._schema = pa.schema(
            [*PLACE, *kind.columns, ("deliveries", DELIVERY_LIST), ("first", pa.int64())]
        )
        self._file = StagedFile(folder, PREFIX + kind.name, self._schema, ["source"])

    def stage(
        self, place: SourcePartition, messages: Messages, matches: Matches
    ) -> tuple[Matches, list[tuple[DeadLetterBatch, Codes]]]:
        """Write the messages for destinations of the kind. Return the matches without the refused deliveries,
        and the refused ones with their ordinals.
        """
        codes = self._to.codes[matches.ordinals]
        pairs = np.flatnonzero(codes >= 0)
        if not len(pairs):
            return matches, []
        rows = np.repeat(np.arange(len(matches), dtype=np.int64), np.diff(matches.offsets))
        places, firsts = np.unique(rows[pairs], return_index=True)
        firsts = np.append(firsts, len(pairs))
        refused: list[tuple[DeadLetterBatch, Codes]] = []
        keep = np.ones(len(matches.ordinals), np.bool_)
        most = self._kind.block(messages)
        for start in range(0, len(places), most):
            block = places[start : start + most]
            own = pairs[firsts[start] : firsts[start + len(block)]]
            positions = np.searchsorted(block, rows[own])
            contents = self._kind.contents(messages, block)
            left = np.ones(len(own), np.bool_)
            for without, reason, sentence in self._refused(contents, positions, codes[own]):
                left &= ~without
                dead = DeadLetterBatch("deliver", reason, sentence, messages.rows[rows[own[without]]])
                refused.append((dead, matches.ordinals[own[without]]))
            keep[own[~left]] = False
            self._write(place, messages.rows[block], contents, positions[left], matches.ordinals[own[left]])
        kept = np.concatenate((np.zeros(1, np.int64), np.cumsum(keep, dtype=np.int64)))[matches.offsets]
        return replace(matches, offsets=kept, ordinals=matches.ordinals[keep]), refused

    def close(self) -> dict[str, Any] | None:
        """Flush the file and return its description; None if it is empty."""
        return self._file.close()

    def _refused(self, contents: Contents, positions: Ints, codes: Codes) -> Iterator[tuple[Mask, str, str]]:
        """Yield a mask of a block's deliveries that are not accepted, for each reason and error text."""
        unfit = np.flatnonzero(~contents.fit)
        for position, sentence in zip(unfit.tolist(), contents.reasons, strict=True):
            yield positions == position, self._kind.unfit, sentence
        fitting = contents.fit[positions]
        row = np.cumsum(contents.fit) - 1
        for without, reason, sentence in self._kind.refused(
            contents, row[positions[fitting]], codes[fitting]
        ):
            whole = np.zeros(len(positions), np.bool_)
            whole[np.flatnonzero(fitting)[without]] = True
            yield whole, reason, sentence

    def _write(
        self, place: SourcePartition, offsets: Ints, contents: Contents, positions: Ints, ordinals: Codes
    ) -> None:
        """Write the messages of a block that have deliveries left."""
        counts = np.bincount(positions, minlength=len(offsets))
        chosen = counts > 0
        total = int(np.count_nonzero(chosen))
        if not total:
            return
        columns = contents.columns
        if total < len(columns):
            columns = columns.filter(pa.array(chosen[contents.fit]))
        ends = np.concatenate((np.zeros(1, np.int64), np.cumsum(counts[chosen])))
        codes = self._to.codes[ordinals]
        to = self._names.take(pa.array(codes))
        rows = (np.cumsum(contents.fit) - 1)[positions]
        found = self._kind.partitions(contents, rows, offsets[positions], codes)
        partitions = pa.nulls(len(codes), pa.int32()) if found is None else pa.array(found, pa.int32())
        deliveries = pa.ListArray.from_arrays(
            pa.array(ends, pa.int32()),
            pa.StructArray.from_arrays(
                [to, self._ids.take(pa.array(ordinals)), partitions],
                fields=list(DELIVERY_LIST.value_type),
            ),
        )
        text = as_written(place.source)
        position = {
            "source": pa.array([text], pa.string())
            .dictionary_encode()
            .take(pa.array(np.zeros(total, np.int32))),
            "partition": pa.array(np.full(total, place.partition, np.int32)),
            "offset": pa.array(offsets[chosen]),
            "deliveries": deliveries,
            "first": pa.array(ends[:-1] + self.deliveries),
        }
        self.deliveries += len(ordinals)
        contained = dict(zip(columns.schema.names, columns.columns, strict=True))
        self._file.write(position | contained)
