"""The dead letters of a job: read off its output folder, in the order of its batches."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from selectroute.spark.job import JobError, job_record
from selectroute.spark.sinks import DEAD_LETTERS

_FOLDER = re.compile(r"batch=(-?\d+)")
_BATCH_ROWS = 4_096


REASONS: Final[Mapping[str, frozenset[str]]] = {
    "read": frozenset(
        {
            "unreadable-file",
            "unknown-format",
            "link-outside",
            "corrupt-row-group",
            "not-utf-8",
            "too-large",
            "too-many-headers",
        }
    ),
    "parse": frozenset({"not-json", "too-deep", "not-a-message"}),
    "judge": frozenset({"not-of-its-type", "column-type", "ambiguous-column", "selection-not-available"}),
    "deliver": frozenset(
        {
            "unknown-topic",
            "input-topic",
            "unknown-queue",
            "destination-full",
            "destination-refused",
            "too-large",
            "not-for-queues",
            "not-for-kafka",
        }
    ),
}
"""The reasons of dead letters by their stages, those of earlier releases included."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One input, or one delivery, that could not be read, judged or delivered.

    Attributes:
        batch: in which it came up; below 0 in a backfill.
        stage, reason, message: where, why, and in a sentence.
        source, partition, offset: where it stands; ``offset`` is None where it is a whole file.
        revision: that of its batch.
        subscription: of a delivery that was refused; the message went on to others.
        raw: the bytes as they came, as far as they were kept; None where the source still has them. Of a
            record of Kafka they are its value, and ``key`` and ``headers`` are the record's too.
    """

    batch: int
    stage: str
    reason: str
    message: str
    source: str
    partition: int
    offset: int | None
    revision: int
    subscription: str | None
    raw: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] | None = None


def dead_letters(
    output: Path,
    *,
    batches: Collection[int] = (),
    stages: Collection[str] = (),
    reasons: Collection[str] = (),
    subscriptions: Collection[str] = (),
) -> Iterator[DeadLetter]:
    """Yield a job's dead letters: of these batches, stages, reasons and subscriptions; all if none is named.

    Holds some thousands of rows at a time. A file that is cleared up meanwhile is passed over.

    Raises:
        JobError: the folder is no job's, or a file in it can't be read.
    """
    job_record(output)
    found = []
    for folder in (output / DEAD_LETTERS).glob("batch=*"):
        named = _FOLDER.fullmatch(folder.name)
        if named is not None and (not batches or int(named[1]) in batches):
            found.append((int(named[1]), folder))
    wanted = {"stage": stages, "reason": reasons, "subscription": subscriptions}
    for batch, folder in sorted(found):
        for path in sorted(folder.glob("*.parquet")):
            yield from _of_file(batch, path, wanted)


def _of_file(batch: int, path: Path, wanted: dict[str, Collection[str]]) -> Iterator[DeadLetter]:
    try:
        # Opened as a file: under its path, Arrow would make a column of the folder's name.
        with pa.OSFile(str(path), "rb") as file:
            for rows in pq.ParquetFile(file).iter_batches(_BATCH_ROWS):
                for row in rows.to_pylist():
                    if all(not names or row[column] in names for column, names in wanted.items()):
                        yield _letter(batch, row)
    except FileNotFoundError:
        return
    except (pa.ArrowException, OSError) as error:
        raise JobError(f"{path} can't be read: {error}") from error


def _letter(batch: int, row: dict[str, Any]) -> DeadLetter:
    headers = row.pop("headers", None)
    pairs = None if headers is None else tuple((one["key"], one["value"]) for one in headers)
    return DeadLetter(batch, **row, headers=pairs)
