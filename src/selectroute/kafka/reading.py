"""Reading of ranges of offsets: the records of partitions as Arrow columns, without an object for each."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from selectroute.kafka.batches.decode import decode
from selectroute.kafka.cluster import EARLIEST, LATEST, Answers, Fetched, Partition, Wire
from selectroute.kafka.errors import BrokerUnreachableError, LostRecordsError, TopicChangedError
from selectroute.kafka.record import PartitionRecords, Range, Record

MOST_BYTES: Final = 8 << 20
_LEAST_BYTES: Final = 1 << 20
"""Limits of the bytes of one answer, and of what of them is for one partition, unless a batch is longer."""

_WAIT_MS: Final = 500
_RETRY_SECONDS: Final = 0.1
_LOOKUP_BYTES: Final = 1 << 16


def read(
    wire: Wire,
    ranges: Sequence[Range],
    *,
    committed: bool = False,
    may_lack: bool = False,
    may_change: bool = False,
    most_bytes: int = MOST_BYTES,
) -> Iterator[PartitionRecords]:
    """Yield the records of ranges, those of each partition by offset. O(bytes).

    Markers of transactions and compacted records leave gaps. Partitions are read side by side, the ranges of
    one partition one after the other.

    Args:
        wire: the connections.
        ranges: the ranges, which must not overlap.
        committed: leave out records of transactions that were aborted.
        may_lack: leave out what Kafka no longer has.
        may_change: leave out what is lost because its topic was created again, or lost records.
        most_bytes: limit of the bytes of an answer, but one record batch is read whole.

    Raises:
        LostRecordsError: Kafka no longer has an offset.
        TopicChangedError: the topic was created again.
        RecordBatchError: bytes are damaged, or of a format before Kafka 0.11.
        BrokerUnreachableError: no broker answers.
    """
    waiting: dict[Partition, list[Range]] = {}
    for range_ in sorted(ranges, reverse=True):
        if range_.start < range_.end:
            waiting.setdefault((range_.topic, range_.partition), []).append(range_)
            wire.identify(range_.topic, range_.id, {range_.partition: range_.epoch})
    left = {partition: of_partition.pop() for partition, of_partition in waiting.items()}
    share = {partition: max(_LEAST_BYTES, most_bytes // max(1, len(left))) for partition in left}
    progress, was_above = time.monotonic(), False

    def ask() -> tuple[list[Partition], Answers[Fetched]] | None:
        while left:
            asked = _next(left, share, most_bytes)
            limit = max(share[partition] for partition in asked)
            starts = {partition: left[partition].start for partition in asked}
            with leaving_out():
                return asked, wire.fetching(starts, committed=committed, most_bytes=limit, wait_ms=_WAIT_MS)
        return None

    @contextmanager
    def leaving_out() -> Iterator[None]:
        """Leave out a topic that was created again."""
        try:
            yield
        except TopicChangedError as error:
            if not may_change:
                raise
            for partition in [partition for partition in left if partition[0] == error.topic]:
                del left[partition]

    def parts(asked: list[Partition], answers: Mapping[Partition, Fetched]) -> Iterator[PartitionRecords]:
        """Yield the records of answers, and find out what is left."""
        nonlocal progress, was_above
        was_above = False
        for partition in asked:
            range_, answer = left[partition], answers[partition]
            if answer.is_out_of_range:
                # A leader of the epoch in which the range was planned, or of a later one, knows its end.
                is_sure = range_.epoch >= 0 or time.monotonic() > progress + wire.seconds
                start = _first_kept(wire, range_, may_lack, may_change, is_sure)
                was_above = start == range_.start
            else:
                start, lacks = range_.start, 0
                for part in decode(answer.records, *partition, range_.start, range_.end, answer.aborted):
                    start, lacks = part.next_offset, part.lacks
                    if len(part.records):
                        yield PartitionRecords(*partition, part.records)
                share[partition] = max(share[partition], lacks)
            if start > range_.start:
                progress = time.monotonic()
            elif answer.after <= start:
                # There are records up to the end of the range, and this leader does not know of them.
                wire.forget([partition], doubt=True)
            if start < range_.end:
                left[partition] = range_._replace(start=start)
            elif waiting[partition]:
                left[partition] = waiting[partition].pop()
            else:
                del left[partition]

    next_asked = ask()
    while next_asked is not None:
        asked, answers = next_asked
        last, answered = None, dict[Partition, Fetched]()
        with leaving_out():
            answered = answers()
        for part in parts(
            [partition for partition in asked if partition in answered and partition in left], answered
        ):
            if last is not None:
                yield last
            last = part
        if left and not was_above and time.monotonic() > progress + wire.seconds:
            raise BrokerUnreachableError(f"Kafka at {wire.servers} does not give {next(iter(left.values()))}")
        # Brokers answer while the last part is used.
        next_asked = ask()
        if last is not None:
            yield last
            progress = time.monotonic()


def _next(left: dict[Partition, Range], share: dict[Partition, int], most_bytes: int) -> list[Partition]:
    """Return the partitions to ask for together. A truncated batch is fetched by itself."""
    chosen: list[Partition] = []
    size = 0
    for partition in left:
        size += share[partition]
        if chosen and size > most_bytes:
            break
        chosen.append(partition)
    return chosen


def _first_kept(wire: Wire, range_: Range, may_lack: bool, may_change: bool, is_sure: bool) -> int:
    """Return the first offset of a range that Kafka still has.

    It is the start of the range if the leader does not know its end: the leader may be one that was
    deposed.
    """
    partition = (range_.topic, range_.partition)
    first = wire.offsets([partition], EARLIEST)[partition]
    if first <= range_.start:
        if not is_sure:
            time.sleep(_RETRY_SECONDS)
            return range_.start
        if may_change:
            return range_.end
        after = wire.offsets([partition], LATEST)[partition]
        raise LostRecordsError(
            f"{range_} are not in Kafka, which ends at offset {after}: the topic lost them"
        )
    if may_lack:
        return min(first, range_.end)
    raise LostRecordsError(
        f"Kafka no longer has {range_}: its records begin at offset {first}. They were dropped before they "
        "were read: retention must be longer than the job may be down"
    )


def lost_from(wire: Wire, ranges: Iterable[Range]) -> dict[Range, int]:
    """Return the ranges of which records are lost, each with the offset from which on they are.

    From there on Kafka has no records, or other ones. A range without an epoch is taken as it is. Raises
    KafkaClientError.
    """
    of_epochs: dict[int, list[Range]] = {}
    for range_ in ranges:
        if range_.epoch >= 0:
            of_epochs.setdefault(range_.epoch, []).append(range_)
    lost: dict[Range, int] = {}
    for epoch, of_epoch in of_epochs.items():
        ends = wire.epoch_ends({(range_.topic, range_.partition): epoch for range_ in of_epoch})
        for range_ in of_epoch:
            if (end := ends[range_.topic, range_.partition]) < range_.end:
                lost[range_] = max(0, end)
    return lost


def kept(wire: Wire, ranges: Iterable[Range]) -> dict[Range, Range]:
    """Return the part of each range that Kafka still has; it is empty if the range is gone.

    Records are gone if they were dropped or lost, or if the topic of this name is another one.
    """
    wanted = set(ranges)
    for range_ in wanted:
        wire.identify(range_.topic, "")
    counts = wire.partitions(range_.topic for range_ in wanted)
    existing = [
        range_
        for range_ in wanted
        if range_.partition < counts.get(range_.topic, 0)
        and range_.id in ("", wire.ids.get(range_.topic, ""))
    ]
    for range_ in existing:
        wire.identify(range_.topic, range_.id, {range_.partition: range_.epoch}, must_stay=False)
    places = {(range_.topic, range_.partition) for range_ in existing}
    first, after = wire.offsets(places, EARLIEST), wire.offsets(places, LATEST)
    lost = lost_from(wire, existing)
    remaining = {range_: range_._replace(start=range_.end) for range_ in wanted}
    for range_ in existing:
        place = range_.topic, range_.partition
        end = min(range_.end, after[place], lost.get(range_, range_.end))
        if (start := max(range_.start, first[place])) < end:
            remaining[range_] = range_._replace(start=start, end=end)
    return remaining


def records_at(wire: Wire, places: Iterable[Range]) -> dict[Range, Record]:
    """Fetch the records of these ranges of one offset each; return those that Kafka has."""
    records: dict[Range, Record] = {}
    for place, range_ in kept(wire, places).items():
        if range_.start == range_.end:
            continue
        for part in read(wire, [range_], may_lack=True, most_bytes=_LOOKUP_BYTES):
            (row,) = part.records.to_pylist()
            headers = tuple((header["key"], header["value"]) for header in row["headers"])
            records[place] = Record(
                range_.topic,
                range_.partition,
                range_.start,
                row["timestamp"],
                row["key"],
                row["value"],
                headers,
            )
    return records
