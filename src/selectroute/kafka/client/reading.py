"""Reading of ranges of offsets: the records of partitions as Arrow columns, without an object for each."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from selectroute.kafka.batches.decode import decode
from selectroute.kafka.client.errors import KafkaClientError, UnreachableError
from selectroute.kafka.client.wire import EARLIEST, LATEST, Answers, Fetched, Partition, Wire
from selectroute.kafka.ranges import Part, Range
from selectroute.kafka.record import Record

MOST_BYTES: Final = 8 << 20
_LEAST_BYTES: Final = 1 << 20
"""Limits of the bytes of one answer, and of what of them is for one partition, unless a batch is longer."""

_WAIT_MS: Final = 500
_LOOKUP_BYTES: Final = 1 << 16


class LostRecordsError(KafkaClientError):
    """Records that Kafka dropped before they were read."""


def read(
    wire: Wire,
    ranges: Sequence[Range],
    *,
    committed: bool = False,
    may_lack: bool = False,
    most_bytes: int = MOST_BYTES,
) -> Iterator[Part]:
    """Yield the records of ranges, those of each partition by offset. O(bytes).

    Markers of transactions and compacted records leave gaps. Partitions are read side by side, the ranges of
    one partition one after the other.

    Args:
        wire: the connections.
        ranges: the ranges, which must not overlap.
        committed: leave out records of transactions that were aborted.
        may_lack: leave out what Kafka no longer has.
        most_bytes: limit of the bytes of an answer, but one record batch is read whole.

    Raises:
        LostRecordsError: Kafka no longer has an offset, or its topic is another one.
        RecordBatchError: bytes are damaged, or of a format before Kafka 0.11.
        UnreachableError: no broker answers.
    """
    waiting: dict[Partition, list[Range]] = {}
    for one in sorted(ranges, reverse=True):
        if one.start < one.end:
            waiting.setdefault((one.topic, one.partition), []).append(one)
    left = {partition: of_partition.pop() for partition, of_partition in waiting.items()}
    share = {partition: max(_LEAST_BYTES, most_bytes // max(1, len(left))) for partition in left}
    progress = time.monotonic()

    def ask() -> tuple[list[Partition], Answers[Fetched]]:
        asked = _next(left, share, most_bytes)
        limit = max(share[one] for one in asked)
        starts = {one: left[one].start for one in asked}
        return asked, wire.fetching(starts, committed=committed, most_bytes=limit, wait_ms=_WAIT_MS)

    def parts(asked: list[Partition], answers: Mapping[Partition, Fetched]) -> Iterator[Part]:
        """Yield the records of answers, and find out what is left."""
        nonlocal progress
        for partition in asked:
            one, answer = left[partition], answers[partition]
            if answer.is_out_of_range:
                start = _first_kept(wire, one, may_lack)
            else:
                start, lacks = one.start, 0
                for part in decode(answer.records, *partition, one.start, one.end, answer.aborted):
                    start, lacks = part.next_offset, part.lacks
                    if len(part.records):
                        yield Part(*partition, part.records)
                share[partition] = max(share[partition], lacks)
            if start > one.start:
                progress = time.monotonic()
            if start < one.end:
                left[partition] = one._replace(start=start)
            elif waiting[partition]:
                left[partition] = waiting[partition].pop()
            else:
                del left[partition]

    next_asked = ask() if left else None
    while next_asked is not None:
        asked, answers = next_asked
        last = None
        for part in parts(asked, answers()):
            if last is not None:
                yield last
            last = part
        if left and time.monotonic() > progress + wire.seconds:
            raise UnreachableError(f"Kafka at {wire.servers} does not give {next(iter(left.values()))}")
        # Brokers answer while the last part is used.
        next_asked = ask() if left else None
        if last is not None:
            yield last
            progress = time.monotonic()


def _next(left: dict[Partition, Range], share: dict[Partition, int], most_bytes: int) -> list[Partition]:
    """Return the partitions to ask for together. A batch that was cut off is asked for alone."""
    found: list[Partition] = []
    size = 0
    for partition in left:
        size += share[partition]
        if found and size > most_bytes:
            break
        found.append(partition)
    return found


def _first_kept(wire: Wire, one: Range, may_lack: bool) -> int:
    """Return the offset from which Kafka has the records of a range."""
    partition = (one.topic, one.partition)
    first = wire.offsets([partition], EARLIEST)[partition]
    if first <= one.start:
        after = wire.offsets([partition], LATEST)[partition]
        raise LostRecordsError(
            f"{one} are not in Kafka, which ends at offset {after}: the topic was created again, or lost them"
        )
    if may_lack:
        return min(first, one.end)
    raise LostRecordsError(
        f"Kafka no longer has {one}: its records begin at offset {first}. They were dropped before they were "
        "read: retention must be longer than the job may be down"
    )


def kept(wire: Wire, partitions: Iterable[Partition]) -> dict[Partition, tuple[int, int]]:
    """Return the first and the next offset of each of these partitions that exists."""
    wanted = set(partitions)
    counts = wire.partitions(topic for topic, _ in wanted)
    existing = {one for one in wanted if one[1] < counts.get(one[0], 0)}
    first, after = wire.offsets(existing, EARLIEST), wire.offsets(existing, LATEST)
    return {one: (first[one], after[one]) for one in existing}


def records_at(wire: Wire, places: Iterable[tuple[str, int, int]]) -> dict[tuple[str, int, int], Record]:
    """Fetch the records at these topics, partitions and offsets one by one; return those that Kafka has."""
    wanted = sorted(set(places))
    there = kept(wire, {(topic, partition) for topic, partition, _ in wanted})
    found: dict[tuple[str, int, int], Record] = {}
    for topic, partition, offset in wanted:
        first, after = there.get((topic, partition), (0, 0))
        if not first <= offset < after:
            continue
        one = Range(topic, partition, offset, offset + 1)
        for part in read(wire, [one], may_lack=True, most_bytes=_LOOKUP_BYTES):
            (row,) = part.records.to_pylist()
            headers = tuple((header["key"], header["value"]) for header in row["headers"])
            found[topic, partition, offset] = Record(
                topic, partition, offset, row["timestamp"], row["key"], row["value"], headers
            )
    return found
