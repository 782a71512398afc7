"""Dead letters of committed deliveries that their destination then refused.

The refused deliveries are decided durably beforehand, so writing the file is idempotent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from selectroute.durable import disk
from selectroute.index.destination import QUEUE
from selectroute.spark.job.unrouted import Unrouted
from selectroute.spark.sinks.output_files import OutputFiles
from selectroute.spark.sinks.schemas import DEAD_LETTERS
from selectroute.spark.sources.files.readers import DeadLetterBatch, SourcePartition
from selectroute.spark.worker.sink_writer import Sinks

_CHUNK: Final = 50_000


class LateDelivery(NamedTuple):
    """Refused delivery, with a reason and an error text."""

    place: SourcePartition
    offset: int
    subscription: str
    reason: str
    message: str


def write_late_letters(
    kind: str, batch: int, revision: int, staging: Path, found: Callable[[], Iterator[LateDelivery]]
) -> list[dict[str, Any]]:
    """Write dead letters of deliveries to destinations of one kind to the staged dead letters of the batch;
    return their file in the format of a commit, nothing if there are none.

    ``found`` is called twice, and must yield the same both times.
    """
    ids = sorted({one.subscription for one in found()})
    if not ids:
        return []
    ordinals = {subscription: ordinal for ordinal, subscription in enumerate(ids)}
    folder = staging / "publish" / DEAD_LETTERS / f"batch={batch}"
    disk.make_folder(folder)
    sinks = Sinks(OutputFiles.staged(str(staging)), pa.array(ids, pa.string()), revision, Unrouted())
    rest = found()
    while chunk := list(islice(rest, _CHUNK)):
        of_each: dict[tuple[SourcePartition, str, str], list[LateDelivery]] = {}
        for one in chunk:
            of_each.setdefault((one.place, one.reason, one.message), []).append(one)
        for (place, reason, message), rows in of_each.items():
            dead = DeadLetterBatch(
                "deliver", reason, message, np.array([one.offset for one in rows], np.int64)
            )
            sinks.refuse(place, dead, np.array([ordinals[one.subscription] for one in rows], np.int32))
    (file,) = sinks.close()
    # Queues keep the name of earlier releases, one of which may have written the file before a crash.
    of_kind = "" if kind == QUEUE else f"{kind}-"
    name = f"part-late-{of_kind}{staging.name[-8:]}.parquet"
    disk.rename(staging / file.pop("path"), folder / name)
    of_file = {key: file[key] for key in ("rows", "size", "sha256")}
    return [{"path": f"{DEAD_LETTERS}/{folder.name}/{name}", **of_file}]
