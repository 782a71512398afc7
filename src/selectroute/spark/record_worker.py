"""What one Spark task does with records of Kafka: match, write, and report. See `worker` for files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from selectroute.kafka.binding import KafkaBinding
from selectroute.spark.kafka_reader import KafkaReader, Records
from selectroute.spark.readers import RAW_BYTES, Dead, Place
from selectroute.spark.recall import recalled, settle
from selectroute.spark.sinks import RAW, Sinks
from selectroute.spark.snapshots import open_once
from selectroute.spark.whole_records import WholeRecords
from selectroute.spark.worker import Batches, Work, judge, outgoing_of


def route_records(work: Work, binding: KafkaBinding) -> Batches:
    """Return the function for ``mapInArrow`` over rows of Spark's Kafka source; it yields one report a task,
    as JSON: counts, files, and for each partition how many records came, the first and the last offset.
    """

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        snapshot = open_once(work.snapshot)
        folder = Path(work.staging)
        outgoing = outgoing_of(snapshot, work, folder)
        sinks = Sinks(folder, snapshot.ids, work.snapshot.revision, work.unrouted, outgoing)
        reader = KafkaReader((*snapshot.reads, *work.unrouted.reads), binding, work.max_message_bytes)
        recall = work.recall(snapshot)
        came: dict[Place, tuple[int, int, int]] = {}
        for batch in batches:
            for records in reader.read(batch):
                place = Place(records.topic, records.partition)
                came[place] = _added(came.get(place), records)
                for part, limit in chain.from_iterable(
                    recalled(recall, place, part) for part in records.parts
                ):
                    if outgoing and not isinstance(part, Dead):
                        part = replace(part, whole=WholeRecords(records.of(part.rows), binding))
                    for judged in judge(snapshot, part):
                        raw = as_it_came(records, judged) if isinstance(judged, Dead) else None
                        settle(sinks, place, judged, limit, raw)
        files = sinks.close()
        report: dict[str, Any] = {"counts": asdict(sinks.counts), "files": files}
        report["unlike"] = reader.unlike
        report["came"] = [[*place, *rows] for place, rows in came.items()]
        yield pa.RecordBatch.from_pylist([{"report": json.dumps(report)}])

    return run


def as_it_came(records: Records, dead: Dead) -> pa.RecordBatch:
    """Return the records that are dead letters, in the columns of `RAW`: of one that was too large to be read
    the beginning of its value and key, and no headers.
    """
    assert dead.rows is not None
    rows = records.of(dead.rows)
    value, key, headers = (rows.column(name) for name in ("value", "key", "headers"))
    if dead.reason == "too-large":
        value, key = (pc.binary_slice(column, 0, RAW_BYTES) for column in (value, key))
        headers = pa.nulls(len(rows), RAW.field("headers").type)
    return pa.RecordBatch.from_arrays([value, key, headers], names=["value", "key", "headers"])


def _added(before: tuple[int, int, int] | None, records: Records) -> tuple[int, int, int]:
    offsets = records.rows.column("offset").to_numpy(zero_copy_only=False)
    rows, first, last = len(offsets), int(np.min(offsets)), int(np.max(offsets))
    if before is None:
        return rows, first, last
    return before[0] + rows, min(before[1], first), max(before[2], last)
