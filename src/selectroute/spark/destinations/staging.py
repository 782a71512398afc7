"""Files in which a task stages the messages for queues: each message once, with its deliveries.

::

    outgoing-<kind>   source, partition, offset, [(destination, subscription, partition)], the number in this
                      file of the first of these deliveries, and the columns of the kind

The files are part of the batch: the commit names them with their digests, and after it the driver sends their
messages (see ``senders``). They are never published.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from selectroute.spark.destinations.outgoing import Block, DestinationFormat, Refused
from selectroute.spark.sinks.parquet_file import StagedFile
from selectroute.spark.sinks.schemas import DELIVERY_LIST, PLACE, as_written

PREFIX: Final = "outgoing-"
"""Prefix of a staged file's name, before the kind."""


class StagingWriter:
    """Writer of one staged file; see `OutgoingWriter`.

    Args:
        kind: the format of the kind.
        folder: the staging folder.
        names: the destinations, by code.
        ids: the snapshot's ids.
    """

    def __init__(self, kind: DestinationFormat, folder: Path, names: Sequence[str], ids: Any) -> None:
        self._names = pa.array(names, pa.string())
        self._ids = ids
        self._written = 0
        schema = pa.schema([*PLACE, *kind.columns, ("deliveries", DELIVERY_LIST), ("first", pa.int64())])
        self._file = StagedFile(folder, PREFIX + kind.name, schema, ["source"])

    def close(self) -> dict[str, Any] | None:
        """Flush the file and return its description; None if it is empty."""
        return self._file.close()

    def report(self) -> dict[str, Any]:
        """Return nothing."""
        return {}

    def write(self, block: Block) -> list[Refused]:
        """Write the messages of a block that have deliveries."""
        counts = np.bincount(block.rows, minlength=len(block.offsets))
        chosen = counts > 0
        total = int(np.count_nonzero(chosen))
        columns = block.contents
        if total < len(columns):
            columns = columns.filter(pa.array(chosen))
        ends = np.concatenate((np.zeros(1, np.int64), np.cumsum(counts[chosen])))
        deliveries = pa.ListArray.from_arrays(
            pa.array(ends, pa.int32()),
            pa.StructArray.from_arrays(
                [
                    self._names.take(pa.array(block.codes)),
                    self._ids.take(pa.array(block.ordinals)),
                    pa.nulls(len(block.codes), pa.int32()),
                ],
                fields=list(DELIVERY_LIST.value_type),
            ),
        )
        text = as_written(block.place.source)
        position = {
            "source": pa.array([text], pa.string())
            .dictionary_encode()
            .take(pa.array(np.zeros(total, np.int32))),
            "partition": pa.array(np.full(total, block.place.partition, np.int32)),
            "offset": pa.array(block.offsets[chosen]),
            "deliveries": deliveries,
            "first": pa.array(ends[:-1] + self._written),
        }
        self._written += len(block.ordinals)
        contained = dict(zip(columns.schema.names, columns.columns, strict=True))
        self._file.write(position | contained)
        return []
