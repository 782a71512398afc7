"""Comparison of a job's commits with its source: each planned input is in exactly one batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from selectroute.selector.errors import SelectRouteError
from selectroute.selector.explain.sentences import counted
from selectroute.spark.audit.report import Audit, listed_briefly
from selectroute.spark.job.working_copy import read_only_copy
from selectroute.spark.sources.files.planner import planned_files
from selectroute.spark.sources.files.stream import done_batches, planned_batches
from selectroute.spark.sources.kafka.config import PREFIX
from selectroute.spark.sources.kafka.offsets import batch_ranges, first_offsets, ranges_of
from selectroute.spark.sources.offset_log import FRAME, batch_offsets


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
            _check_names(checkpoint, planned, live, found)
    except SelectRouteError as error:
        found.find(None, str(error))


def _check_names(
    checkpoint: Path, planned: Sequence[int], live: Sequence[Mapping[str, Any]], found: Audit
) -> None:
    """Compare the files of the commits with each other, and with the plans that Spark still has."""
    taken = Counter(name for commit in live for name in commit["inputs"]["sizes"])
    if twice := sorted(name for name, times in taken.items() if times > 1):
        found.find(None, f"in more than one commit: {listed_briefly('input', twice)}")
    for commit in live:
        batch = commit["batch"]
        if batch in planned and dict(planned_files(checkpoint, batch)) != commit["inputs"]["sizes"]:
            found.find(batch, "it read other files than Spark planned")


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
    reached: dict[tuple[str, int], int] = {}
    for topic, partitions in first_offsets(checkpoint).items():
        reached |= {(topic, int(partition)): offset for partition, offset in partitions.items()}
    for commit in live:
        batch, ranges = commit["batch"], ranges_of(commit["inputs"])
        known = batch in planned and (not batch or batch - 1 in planned)
        if known and ranges != batch_ranges(checkpoint, batch):
            found.find(batch, "it read other offsets than Spark planned")
        for one in ranges:
            before = reached.get(one[:2], 0)
            if one.start != before:
                what = "skips" if one.start > before else "repeats"
                between = one._replace(start=min(before, one.start), end=max(before, one.start))
                found.find(batch, f"it {what} {between}")
            reached[one[:2]] = one.end
        gaps = sum(commit["inputs"].get("gaps", {}).values())
        found.gaps += gaps
        offsets, messages = commit["inputs"]["count"], commit["counts"]["messages"]
        if offsets - gaps != messages:
            found.find(
                batch,
                f"it has {counted(offsets, 'offset')}, {gaps:,} of them without a record, but "
                f"{counted(messages, 'message')}",
            )
