"""What a worker stages for destinations outside the output folder: each message once, with where it goes.

::

    outgoing-<kind>   source, partition, offset, [(destination, subscription)], the number in this file of
                      the first of these, and of the message what the kind needs

The files are part of the batch: the commit names them with their digests, and the driver hands on what is in
them after it (see `sender`). They are never published. Deliveries that their destination cannot take are dead
letters of these deliveries, and no part of the batch's deliveries.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from selectroute.match.match import Matches
from selectroute.spark.destinations import Destinations
from selectroute.spark.readers import Dead, Messages, Place
from selectroute.spark.staged_file import StagedFile

Ints = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int32]
Mask = npt.NDArray[np.bool_]

PREFIX = "outgoing-"
"""Before the kind in the name of what a task reports."""

PLACE = [
    ("source", pa.dictionary(pa.int32(), pa.string())),
    ("partition", pa.int32()),
    ("offset", pa.int64()),
]
DELIVERIES = pa.list_(
    pa.struct([("destination", pa.string()), ("subscription", pa.string()), ("partition", pa.int32())])
)
"""Of one message; ``partition`` of the destination, where that has any."""


@dataclass(frozen=True, slots=True)
class Contents:
    """What a kind of destination needs of some messages: a row for each that it can take.

    ``fit`` says which of the messages these are, and ``reasons`` has a sentence for each of the others.
    """

    columns: pa.RecordBatch
    fit: Mask
    reasons: list[str]


class Kind(Protocol):
    """One kind of destination, as far as a worker is concerned."""

    @property
    def name(self) -> str:
        """The kind."""

    @property
    def unfit(self) -> str:
        """The reason of a delivery that no destination of the kind can hold."""

    @property
    def columns(self) -> pa.Schema:
        """The columns of `contents`."""

    def block(self, messages: Messages) -> int:
        """How many messages are made ready at a time, and are in a row group at most: bounds memory, also
        where the file is read.
        """

    def contents(self, messages: Messages, places: Ints) -> Contents:
        """What it needs of the messages in these places."""

    def partitions(self, contents: Contents, rows: Ints, offsets: Ints, codes: Codes) -> Codes | None:
        """Which partition of its destination each delivery goes to, the same however often it is sent; None
        for a kind that has none. ``offsets`` are those of the messages at their source.
        """

    def refused(self, contents: Contents, rows: Ints, codes: Codes) -> Iterator[tuple[Mask, str, str]]:
        """Yield which deliveries (a row of the contents and a destination each) it does not take, by their
        reason and a sentence.
        """


class Outgoing:
    """What one task stages for one kind of destination.

    Args:
        kind: the kind.
        folder: where the file is made.
        to: where the subscriptions of the snapshot are delivered.
        ids: the snapshot's ids.
    """

    def __init__(self, kind: Kind, folder: Path, to: Destinations, ids: Any) -> None:
        self.deliveries = 0
        self.kind = kind.name
        self._kind = kind
        self._to = to
        self._names = pa.array(to.names, pa.string())
        self._ids = ids
        self._schema = pa.schema([*PLACE, *kind.columns, ("deliveries", DELIVERIES), ("first", pa.int64())])
        self._file = StagedFile(folder, PREFIX + kind.name, self._schema, ["source"])

    def stage(
        self, place: Place, messages: Messages, matches: Matches
    ) -> tuple[Matches, list[tuple[Dead, Codes]]]:
        """Write what goes to destinations of the kind. Returns the matches without the deliveries that these
        do not take, and these with their ordinals.
        """
        codes = self._to.codes[matches.ordinals]
        pairs = np.flatnonzero(codes >= 0)
        if not len(pairs):
            return matches, []
        rows = np.repeat(np.arange(len(matches), dtype=np.int64), np.diff(matches.offsets))
        places, firsts = np.unique(rows[pairs], return_index=True)
        firsts = np.append(firsts, len(pairs))
        refused: list[tuple[Dead, Codes]] = []
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
                dead = Dead("deliver", reason, sentence, messages.rows[rows[own[without]]])
                refused.append((dead, matches.ordinals[own[without]]))
            keep[own[~left]] = False
            self._write(place, messages.rows[block], contents, positions[left], matches.ordinals[own[left]])
        kept = np.concatenate((np.zeros(1, np.int64), np.cumsum(keep, dtype=np.int64)))[matches.offsets]
        return replace(matches, offsets=kept, ordinals=matches.ordinals[keep]), refused

    def close(self) -> dict[str, Any] | None:
        """Flush the file and return what it is, None if nothing goes there."""
        return self._file.close()

    def _refused(self, contents: Contents, positions: Ints, codes: Codes) -> Iterator[tuple[Mask, str, str]]:
        """Which of a block's deliveries are not taken: of messages that are not, and for other reasons."""
        unfit = np.flatnonzero(~contents.fit)
        for place, sentence in zip(unfit.tolist(), contents.reasons, strict=True):
            yield positions == place, self._kind.unfit, sentence
        fitting = contents.fit[positions]
        row = np.cumsum(contents.fit) - 1
        for without, reason, sentence in self._kind.refused(
            contents, row[positions[fitting]], codes[fitting]
        ):
            whole = np.zeros(len(positions), np.bool_)
            whole[np.flatnonzero(fitting)[without]] = True
            yield whole, reason, sentence

    def _partitions(self, contents: Contents, offsets: Ints, positions: Ints, codes: Codes) -> Any:
        rows = (np.cumsum(contents.fit) - 1)[positions]
        found = self._kind.partitions(contents, rows, offsets[positions], codes)
        return pa.nulls(len(codes), pa.int32()) if found is None else pa.array(found, pa.int32())

    def _write(
        self, place: Place, offsets: Ints, contents: Contents, positions: Ints, ordinals: Codes
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
        partitions = self._partitions(contents, offsets, positions, codes)
        deliveries = pa.ListArray.from_arrays(
            pa.array(ends, pa.int32()),
            pa.StructArray.from_arrays(
                [to, self._ids.take(pa.array(ordinals)), partitions],
                fields=list(DELIVERIES.value_type),
            ),
        )
        text = place.source.encode("utf-8", "replace").decode()
        stands = {
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
        self._file.write(stands | contained)
