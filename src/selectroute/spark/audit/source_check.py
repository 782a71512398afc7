"""Hold a job's commits against its source: each input that Spark planned in exactly one batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from selectroute.selector.errors import SelectRouteError
from selectroute.selector.explain.sentences import counted
from selectroute.spark.audit.report import Audit, listed_briefly
from selectroute.spark.sources.files.splits import source_name
from selectroute.spark.sources.files.stream import done_batches, listed_files, planned_batches
from selectroute.spark.sources.kafka.config import PREFIX
from selectroute.spark.sources.kafka.offsets import batch_ranges, first_offsets, ranges_of


def check_source(record: Mapping[str, Any], commits: Sequence[Mapping[str, Any]], found: Audit) -> None:
    """Hold commits against what Spark's checkpoint has planned and done.

    Args:
        record: what the job is (``_job.json``).
        commits: all that are whole, those of the stream in their order.
        found: takes what is found.
    """
    checkpoint = Path(record["checkpoint"])
    live = [commit for commit in commits if commit["batch"] >= 0]
    found.inputs = sum(commit["inputs"]["count"] for commit in live)
    last = max((commit["batch"] for commit in live), default=-1)
    try:
        planned, done = planned_batches(checkpoint), done_batches(checkpoint)
        found.pending += [batch for batch in planned if batch > last]
        for batch in done:
            if batch > last:
                found.find(batch, "Spark has done it, and nothing of it is committed")
        if last not in planned:
            if live:
                found.find(
                    last, f"the checkpoint {checkpoint} has no plan of it: it is not this output's newest"
                )
            return
        if record["input"].startswith(PREFIX):
            _check_records(checkpoint, planned, live, found)
        else:
            _check_names(Path(record["input"]), checkpoint, last, live, found)
    except SelectRouteError as error:
        found.find(None, str(error))


def _check_names(
    folder: Path, checkpoint: Path, last: int, live: Sequence[Mapping[str, Any]], found: Audit
) -> None:
    """Hold the files of the commits against the list of all that Spark has handed over."""
    taken = Counter(name for commit in live for name in commit["inputs"].get("sizes", ()))
    listed = Counter(source_name(path, folder) for path in listed_files(checkpoint, last))
    twice = sorted(name for name, times in taken.items() if times > 1)
    if twice:
        found.find(None, f"in more than one commit: {listed_briefly('input', twice)}")
    if any("sizes" not in commit["inputs"] for commit in live):
        return  # commits of earlier releases have the number of their inputs and no names
    lost = sorted((listed - taken).keys() - set(twice))
    if lost:
        found.find(None, f"Spark has handed over, and no commit has, {listed_briefly('input', lost)}")
    unknown = sorted((taken - listed).keys() - set(twice))
    if unknown:
        found.find(None, f"in a commit, and Spark knows nothing of it: {listed_briefly('input', unknown)}")


def _check_records(
    checkpoint: Path, planned: Sequence[int], live: Sequence[Mapping[str, Any]], found: Audit
) -> None:
    """Hold the offsets of the commits against each other, against Spark's plan and against their counts."""
    reached: dict[tuple[str, int], int] = {}
    for topic, partitions in first_offsets(checkpoint).items():
        reached |= {(topic, int(partition)): offset for partition, offset in partitions.items()}
    for commit in live:
        batch, ranges = commit["batch"], ranges_of(commit["inputs"])
        known = batch in planned and (not batch or batch - 1 in planned)
        if known and ranges != batch_ranges(checkpoint, batch):
            found.find(batch, "it took in other offsets than Spark has planned for it")
        for one in ranges:
            before = reached.get(one[:2], 0)
            if one.start != before:
                what = "leaves out" if one.start > before else "takes once more"
                between = one._replace(start=min(before, one.start), end=max(before, one.start))
                found.find(batch, f"it {what} {between}")
            reached[one[:2]] = one.end
        gaps = sum(commit["inputs"].get("gaps", {}).values())
        found.gaps += gaps
        offsets, messages = commit["inputs"]["count"], commit["counts"]["messages"]
        if offsets - gaps != messages:
            found.find(
                batch,
                f"it has {counted(offsets, 'offset')}, {gaps:,} of them without a record, and "
                f"{counted(messages, 'message')}",
            )
