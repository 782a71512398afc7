"""Sender of records that an earlier release staged for Kafka, and did not send before it ended.

Earlier releases committed a batch first, and sent its staged files afterwards. Such a batch is sent here, at
least once, as it would have been then: ``sent-kafka.json`` in its staging folder says that it was, and which
topics refused.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from selectroute.durable import disk
from selectroute.index.destination import KAFKA
from selectroute.kafka.headers import BATCH, DELIVERY_ID, REVISION, SUBSCRIPTION, delivery_id
from selectroute.spark.destinations.kafka_writer import REFUSED
from selectroute.spark.job.job import JobError
from selectroute.spark.senders.kafka import KafkaTopics
from selectroute.spark.senders.late_dead_letters import LateDelivery, write_late_letters
from selectroute.spark.senders.sender import staged_file
from selectroute.spark.sources.files.readers import SourcePartition

if TYPE_CHECKING:  # needs the extra `kafka`
    from selectroute.kafka.client.transactions import Transactions

_ROWS: Final = 4_096
_PLACE: Final = ("source", "partition", "offset")


class StagedRecords:
    """Sender of an earlier release's staged records; see `Sender`."""

    def __init__(self, kafka: KafkaTopics) -> None:
        self._kafka = kafka

    def send(
        self, batch: int, revision: int, outgoing: Mapping[str, Any], staging: Path
    ) -> list[dict[str, Any]]:
        """Write the staged deliveries of a batch, each at least once. See `Sender.send`."""
        sent = staging / "sent-kafka.json"
        done = disk.read_json(sent)
        if done is None:
            cluster = self._kafka.patient_name()
            if outgoing["cluster"] != cluster:
                raise JobError(
                    f"batch {batch} is committed for the Kafka cluster {outgoing['cluster']}, not for "
                    f"{cluster}: start the job with the former once more, to send it"
                )
            refused = self._kafka.patient(lambda: self._send(batch, revision, outgoing, staging))
            done = {"batch": batch, "deliveries": outgoing["deliveries"], "refused": refused}
            disk.write_json(sent, done)
        refused = done.get("refused", {})
        if not refused:
            return []
        return write_late_letters(KAFKA, batch, revision, staging, partial(_late, outgoing, staging, refused))

    def _send(
        self, batch: int, revision: int, outgoing: Mapping[str, Any], staging: Path
    ) -> dict[str, list[str]]:
        """Write the staged deliveries; return the topics that refused, with reason and error text."""
        from selectroute.kafka.client.errors import RefusedError  # needs the extra `kafka`
        from selectroute.kafka.client.transactions import Transactions

        refused: dict[str, list[str]] = {}
        transactions = Transactions(self._kafka.wire(), None)
        transactions.begin()
        for file in outgoing["files"]:
            task = int(Path(file["path"]).name.split("-")[1])
            for rows in _rows(staged_file(staging, file)):
                by_target: dict[tuple[str, int], list[tuple[int, int, str]]] = {}
                for row, (first, deliveries) in enumerate(
                    zip(rows["first"].to_pylist(), rows["deliveries"].to_pylist(), strict=True)
                ):
                    for nth, one in enumerate(deliveries):
                        target = one["destination"], one["partition"]
                        by_target.setdefault(target, []).append((row, first + nth, one["subscription"]))
                for target, records in by_target.items():
                    if target[0] in refused:
                        continue
                    try:
                        place = f"{outgoing['job']}/{batch}/{task}"
                        _produce(transactions, target, rows, records, place, revision)
                    except RefusedError as error:
                        if error.topic != target[0]:
                            raise
                        text = f"the topic {target[0]} refused records after the batch was committed"
                        refused[target[0]] = [REFUSED, f"{text}: {error.name}"]
        return refused


def _produce(
    transactions: Transactions,
    target: tuple[str, int],
    rows: pa.RecordBatch,
    records: Sequence[tuple[int, int, str]],
    place: str,
    revision: int,
) -> None:
    """Write the deliveries of some rows to one partition: row, number and subscription of each."""
    from selectroute.kafka.batches.encode import encode  # compiles

    sources, partitions, offsets = (rows[name].to_pylist() for name in _PLACE)
    ids = [
        delivery_id(sources[row], partitions[row], offsets[row], subscription)
        for row, _, subscription in records
    ]
    batches = encode(
        rows.select(["key", "value", "headers"]),
        np.array([row for row, *_ in records], np.int64),
        round(time.time() * 1_000),
        {
            SUBSCRIPTION: pa.array([subscription for *_, subscription in records]),
            DELIVERY_ID: pa.array(ids),
            REVISION: str(revision).encode(),
            BATCH: pa.array([f"{place}/{number}" for _, number, _ in records]),
        },
        sequences=transactions.sequences([target]),
        producer=transactions.producer,
        most_bytes=1 << 30,
    )
    transactions.produce({target: [one.data for one in batches]}, {target: len(records)})
    transactions.flush()  # a refusal is of this topic


def _rows(path: Path) -> Iterator[pa.RecordBatch]:
    with pq.ParquetFile(path) as parquet:
        yield from parquet.iter_batches(_ROWS, use_threads=False)


def _late(
    outgoing: Mapping[str, Any], staging: Path, refused: Mapping[str, Sequence[str]]
) -> Iterator[LateDelivery]:
    """Yield the deliveries to topics that refused."""
    for file in outgoing["files"]:
        for rows in _rows(staged_file(staging, file)):
            columns = (rows[name].to_pylist() for name in (*_PLACE, "deliveries"))
            for source, partition, offset, deliveries in zip(*columns, strict=True):
                for one in deliveries:
                    if one["destination"] in refused:
                        reason, text = refused[one["destination"]]
                        place = SourcePartition(source, partition)
                        yield LateDelivery(place, offset, one["subscription"], reason, text)
