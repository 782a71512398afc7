"""Comparison of a job's commits with its source: each planned input is in exactly one batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from selectroute.kafka.ranges import Range
from selectroute.selector.errors import SelectRouteError
from selectroute.selector.explain.sentences import counted
from selectroute.spark.audit.report import Audit, listed_briefly
from selectroute.spark.job.job import OtherJobError
from selectroute.spark.job.working_copy import read_only_copy
from selectroute.spark.sources.files.planner import planned_files
from selectroute.spark.sources.files.stream import done_batches, planned_batches
from selectroute.spark.sources.kafka.config import PREFIX
from selectroute.spark.sources.kafka.offsets import (
    Identity,
    batch_ranges,
    changed,
    first_offsets,
    identity_of,
    positions_of,
    ranges_of,
)
from selectroute.spark.sources.offset_log import FRAME, batch_offsets

if TYPE_CHECKING:  # needs the extra `kafka`
    from selectroute.kafka.cluster import Wire


def check_source(record: Mapping[str, Any], commits: Sequence[Mapping[str, Any]], found: Audit) -> None:
    """Compare commits with the planned and finished batches in Spark's checkpoint.

    Args:
        record: the record of the job (``_job.json``).
        commits: all undamaged commits, those of the stream in order.
        found: the report to add findings to.
    """
    checkpoint = read_only_copy(record["checkpoint"])
    live = [commit for commit in commits if commit["batch"] >= 0]
    found.inputs = sum(commit["inputs"]["count"] for commit in live)
    last = max((commit["batch"] for commit in live), default=-1)
    try:
        planned, done = planned_batches(checkpoint), done_batches(checkpoint)
        found.pending += [batch for batch in planned if batch > last]
        for batch in done:
            if batch > last:
                found.find(batch, "it is done in Spark's checkpoint, but not committed")
        if last not in planned:
            if live:
                found.find(
                    last,
                    f"the checkpoint {record['checkpoint']} has no plan of it: it is older than this output",
                )
            return
        if record["input"].startswith(PREFIX):
            _check_records(checkpoint, planned, live, found)
        elif record["input"].startswith(FRAME):
            _check_offsets(checkpoint, planned, live, found)
        else:
            _check_names(checkpoint, planned, last, live, found)
    except SelectRouteError as error:
        found.find(None, str(error))


def _check_names(
    checkpoint: Path, planned: Sequence[int], last: int, live: Sequence[Mapping[str, Any]], found: Audit
) -> None:
    """Compare the files of the commits with each other, and with the plans that Spark still has."""
    taken = Counter(name for commit in live for name in commit["inputs"]["sizes"])
    twice = sorted(name for name, times in taken.items() if times > 1)
    if twice:
        found.find(None, f"in more than one commit: {listed_briefly('input', twice)}")
    plans = {
        batch: {one.name for one in planned_files(checkpoint, batch)} for batch in planned if batch <= last
    }
    lost = sorted(set().union(*plans.values()) - taken.keys())
    if lost:
        found.find(None, f"planned, but in no commit: {listed_briefly('input', lost)}")
    read = {commit["batch"]: commit["inputs"]["sizes"].keys() for commit in live}
    unknown = sorted(set().union(*(names - plans[batch] for batch, names in read.items() if batch in plans)))
    if unknown := [name for name in unknown if name not in twice]:
        found.find(None, f"in a commit, but not planned: {listed_briefly('input', unknown)}")


def _check_offsets(
    checkpoint: Path, planned: Sequence[int], live: Sequence[Mapping[str, Any]], found: Audit
) -> None:
    """Compare the offsets of the commits, in the sources of a DataFrame, with Spark's plan."""
    for commit in live:
        batch = commit["batch"]
        if batch in planned and commit["inputs"]["offsets"] != batch_offsets(checkpoint, batch):
            found.find(batch, "it read other offsets than Spark planned")


def _check_records(
    checkpoint: Path, planned: Sequence[int], live: Sequence[Mapping[str, Any]], found: Audit
) -> None:
    """Compare the offsets of the commits with each other, with Spark's plan and with their counts."""
    first = first_offsets(checkpoint)
    reached: dict[tuple[str, int], Range] = {}
    for topic, partitions in positions_of(first).items():
        id = identity_of(first, topic).id
        reached |= {
            (topic, int(number)): Range(topic, int(number), 0, at, id) for number, at in partitions.items()
        }
    another: set[str] = set()
    for commit in live:
        batch, ranges = commit["batch"], ranges_of(commit["inputs"])
        known = batch in planned and (not batch or batch - 1 in planned)
        if known and ranges != batch_ranges(checkpoint, batch):
            found.find(batch, "it read other offsets than Spark planned")
        for one in ranges:
            last = reached.get(one[:2], one._replace(end=0))
            before = last.end
            if last.id not in ("", one.id):
                before = 0
                if one.source not in another:
                    another.add(one.source)
                    found.find(
                        batch,
                        f"it begins the topic {one.topic} anew, as {one.source}, which was created again: "
                        "records of the one before may not have been read",
                    )
            elif last.history < one.history and one.start < before:
                found.find(
                    batch,
                    f"{one.topic}/{one.partition} had lost its records from offset {one.start} on, of which "
                    f"{before - one.start:,} had been read: what is there since is {one.source}",
                )
                before = one.start
            found.skipped += one.skipped
            if one.start - one.skipped != before:
                what = "skips" if one.start > before else "repeats"
                between = one._replace(start=min(before, one.start), end=max(before, one.start))
                found.find(batch, f"it {what} {between}")
            reached[one[:2]] = one
        gaps = sum(commit["inputs"].get("gaps", {}).values())
        found.gaps += gaps
        offsets, messages = commit["inputs"]["count"], commit["counts"]["messages"]
        if offsets - gaps != messages:
            found.find(
                batch,
                f"it has {counted(offsets, 'offset')}, {gaps:,} of them without a record, but "
                f"{counted(messages, 'message')}",
            )


def check_system(record: Mapping[str, Any], wire: Wire) -> None:
    """Raise OtherJobError if this is not the cluster that a job reads."""
    cluster, system = wire.cluster_id(), record.get("system")
    if system not in (None, cluster):
        raise OtherJobError(
            f"the job reads the Kafka cluster {system}, but {wire.servers} is {cluster}: its offsets are "
            "those of other records"
        )


def check_topics(
    wire: Wire, record: Mapping[str, Any], commits: Sequence[Mapping[str, Any]], found: Audit
) -> None:
    """Compare the topics that a job has read, delivers to and keeps commit tokens in with those of Kafka.

    Args:
        wire: connections to the cluster.
        record: the record of the job (``_job.json``).
        commits: all undamaged commits, those of the stream in order.
        found: the report to add findings to.

    Raises KafkaClientError.
    """
    read: dict[str, dict[str, Range]] = {}
    ids: dict[str, str] = {}
    for one in (one for commit in commits if commit["batch"] >= 0 for one in ranges_of(commit["inputs"])):
        if ids.setdefault(one.topic, one.id) != one.id:
            ids[one.topic], read[one.topic] = one.id, {}
        read.setdefault(one.topic, {})[str(one.partition)] = one
    sent = {topic: of_topic[-1] for topic, of_topic in record.get("destinations", {}).items()}
    sent |= {record["tokens"]: record["tokens_id"]} if "tokens" in record else {}
    there = wire.partitions([*read, *sent])
    for topic in sorted({*read, *sent}):
        change = None
        if topic not in there:
            found.find(None, f"the topic {topic} is no longer in Kafka")
        elif topic in read:
            last = read[topic]
            was = Identity(ids[topic], epochs={number: one.epoch for number, one in last.items()})
            change = changed(wire, topic, {number: one.end for number, one in last.items()}, was, {}, set())
        elif (now := wire.ids.get(topic, "")) not in ("", sent[topic]):
            found.find(
                None,
                f"the topic {topic}, which the job writes, was created again (its id was {sent[topic]}, and "
                f"is {now}): what was written before is not in it",
            )
        if change is not None:
            found.find(None, change.sentence)
