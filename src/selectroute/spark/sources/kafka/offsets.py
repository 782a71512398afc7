"""Positions in Kafka's partitions, in Spark's checkpoint and in commits.

An offset of Spark's log is the next one of each partition of each topic, and under ``@``, which no topic is
called, what these topics are::

    {"cars": {"0": 23, "1": 7}, "@": {"cars": {"id": "…", "history": 1, "epochs": {"0": 3, "1": 3},
                                              "begin": {"1": 4}, "skipped": {"1": 4}}}}

``id`` is Kafka's, ``epochs`` are those of the leaders. ``begin`` has the start of the batch where it is not
the end of the previous one: in new partitions whose first records are gone, of which ``skipped`` is the
number, and in a topic that was created again or lost records, with which another ``history`` begins.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from selectroute.durable import disk
from selectroute.kafka.record import Range
from selectroute.spark.sources.checkpoint import SourceError, log_lines

if TYPE_CHECKING:  # needs the extra `kafka`
    from selectroute.kafka.cluster import Wire

Positions: TypeAlias = Mapping[str, Mapping[str, int]]
"""The next offset of each partition of each topic."""

Offsets: TypeAlias = Mapping[str, Mapping[str, Any]]
"""An offset of Spark's log."""

IDENTITIES: Final = "@"
"""Key in an offset of what its topics are."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Identity of a topic in an offset, see above."""

    id: str = ""
    history: int = 1
    epochs: Mapping[str, int] = field(default_factory=dict)
    begin: Mapping[str, int] = field(default_factory=dict)
    skipped: Mapping[str, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the identity as JSON, without what is empty."""
        return {name: value for name, value in asdict(self).items() if value}

    def range(self, topic: str, partition: str, start: int, end: int) -> Range:
        """Return a range of a partition of the topic."""
        epoch, skipped = self.epochs.get(partition, -1), self.skipped.get(partition, 0)
        return Range(topic, int(partition), start, end, self.id, epoch, self.history, skipped)


def positions_of(offsets: Offsets) -> dict[str, dict[str, int]]:
    """Return the next offset of each partition of each topic."""
    return {topic: dict(of_topic) for topic, of_topic in offsets.items() if topic != IDENTITIES}


def identity_of(offsets: Offsets, topic: str) -> Identity:
    """Return what a topic is; one without an id if that is not known."""
    return Identity(**offsets.get(IDENTITIES, {}).get(topic, {}))


def offsets_with(positions: Positions, identities: Mapping[str, Identity]) -> dict[str, Any]:
    """Return the offset with these positions."""
    known = {topic: identity.to_json() for topic, identity in sorted(identities.items())}
    return {**{topic: dict(of_topic) for topic, of_topic in positions.items()}, IDENTITIES: known}


def batch_ranges(checkpoint: Path, batch: int) -> list[Range]:
    """Return the ranges of a batch, sorted, without those that are empty and skip nothing.

    Reads the offset log (``offsets/<batch>``: the end of the batch) and that of the previous batch, or the
    start of the first one (``sources/0/0``).

    Raises SourceError for a damaged or missing file.
    """
    ends = _logged(checkpoint / "offsets" / str(batch))
    starts = _logged(checkpoint / "offsets" / str(batch - 1)) if batch else first_offsets(checkpoint)
    return ranges_between(starts, ends)


def ranges_between(starts: Offsets, ends: Offsets) -> list[Range]:
    """Return the ranges between two offsets, see `batch_ranges`."""
    ranges = []
    for topic, partitions in positions_of(ends).items():
        identity, before = identity_of(ends, topic), starts.get(topic, {})
        for partition, end in partitions.items():
            start = identity.begin.get(partition, before.get(partition, 0))
            ranges.append(identity.range(topic, partition, start, end))
    return sorted(span for span in ranges if span.end > span.start or span.skipped)


def ranges_digest(ranges: Iterable[Range]) -> str:
    """Return the SHA-256 of a batch's ranges, which a repeat of the batch must have, too."""
    named = (f"{range_} {range_.id}" for range_ in sorted(ranges))
    return hashlib.sha256("\0".join(named).encode()).hexdigest()


def ranges_record(ranges: Iterable[Range]) -> dict[str, Any]:
    """Return the start and the end of ranges, in the format of Spark's options, and what their topics are: of
    several ranges of a partition the first start, and the last end.
    """
    start: dict[str, dict[str, int]] = {}
    end: dict[str, dict[str, int]] = {}
    topics: dict[str, dict[str, Any]] = {}
    for range_ in sorted(ranges):
        partition = str(range_.partition)
        start.setdefault(range_.topic, {}).setdefault(partition, range_.start)
        end.setdefault(range_.topic, {})[partition] = range_.end
        of_topic = topics.setdefault(range_.topic, {"id": range_.id, "history": range_.history, "epochs": {}})
        of_topic["epochs"][partition] = range_.epoch
        if range_.skipped:
            of_topic.setdefault("skipped", {})[partition] = range_.skipped
    return {"start": start, "end": end, "topics": topics}


def ranges_of(record: Mapping[str, Any]) -> list[Range]:
    """Return the ranges in the record of a commit; none of a commit whose inputs are not Kafka's records."""
    return [
        Identity(**record["topics"][topic]).range(topic, partition, start, record["end"][topic][partition])
        for topic, partitions in record.get("start", {}).items()
        for partition, start in partitions.items()
    ]


class TopicChange(NamedTuple):
    """Change of a topic that was read: the ``sentence`` about it, and the offsets from which on partitions
    have lost records; none if it is another topic.
    """

    sentence: str
    begin: Mapping[str, int]


def changed(
    wire: Wire,
    topic: str,
    positions: Mapping[str, int],
    was: Identity,
    ends: Mapping[str, int],
    checked: set[Range],
) -> TopicChange | None:
    """Return how a topic has changed since it was read up to these positions; None if it is the same.

    Args:
        wire: connections, which know what the topic was; its metadata must be new.
        topic: the name of the topic.
        positions: the next offset of each partition.
        was: what the topic was.
        ends: the present ends of its partitions, as far as they are known.
        checked: positions of which is known that their partitions have not lost them; new ones are added.

    Raises KafkaClientError.
    """
    from selectroute.kafka.reading import lost_from  # needs the extra `kafka`

    now = wire.ids.get(topic, "")
    if was.id and now and was.id != now:
        shown = ", ".join(f"{number}: {offset}" for number, offset in positions.items())
        return TopicChange(
            f"the topic {topic} was created again (its id was {was.id}, and is {now}) after the job had read "
            f"it up to these offsets: {shown}",
            {},
        )
    # What was read up to an offset, in a leader epoch; `start` is the epoch of the present leader.
    read = {
        Range(topic, int(number), wire.epochs.get((topic, int(number)), -1), offset, was.id, epoch)
        for number, offset in positions.items()
        if (epoch := was.epochs.get(number, -1)) >= 0
    }
    unsure = {
        range_
        for range_ in read - checked
        if range_.start != range_.epoch or ends.get(str(range_.partition), -1) < range_.end
    }
    begin = {str(range_.partition): offset for range_, offset in lost_from(wire, unsure).items()}
    if not begin:
        checked |= unsure
        return None
    number, offset = next(iter(begin.items()))
    return TopicChange(
        f"{topic}/{number} lost its records from offset {offset} on, and the job has read up to "
        f"{positions[number]}: a replica without them became its leader (unclean.leader.election.enable), or "
        "the cluster was restored from an older copy",
        begin,
    )


def first_offsets(checkpoint: Path) -> Offsets:
    """Return the start of the first batch."""
    return _logged(_first(checkpoint))


def write_first_offsets(checkpoint: Path, first: Offsets) -> None:
    """Write the start of the first batch durably."""
    path = _first(checkpoint)
    disk.make_folder(path.parent)
    disk.replace_bytes(path, f"v1\n{json.dumps(first)}".encode())


def has_first_offsets(checkpoint: Path) -> bool:
    """Return whether the start of the first batch was written."""
    return _first(checkpoint).is_file()


def _first(checkpoint: Path) -> Path:
    return checkpoint / "sources" / "0" / "0"


def _logged(path: Path) -> Offsets:
    try:
        offsets = json.loads(log_lines(path)[-1])
        positions = positions_of(offsets)
        if all(isinstance(n, int) for partitions in positions.values() for n in partitions.values()):
            for topic in offsets.get(IDENTITIES, {}):
                identity_of(offsets, topic)
            return offsets  # type: ignore[no-any-return]
    except (ValueError, AttributeError, TypeError):
        pass
    raise SourceError(f"{path} is damaged, or not in the format of this release of Spark")
