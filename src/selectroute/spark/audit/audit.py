"""Audit of a job's output: consistent with itself and its source, with nothing lost, added or duplicated.

The checks:

- counts of each commit: messages = routed + unrouted + dead-lettered, and equal to the rows of its files;
- published files: present, with the size, rows and SHA-256 of the commit, and no other file; where files of
  several batches were merged, as many rows of each batch as its commit says;
- batches: numbered without a gap, each batch that Spark has done is committed;
- inputs: every file that Spark has ever planned is in exactly one commit;
- ``accounting.jsonl``: one line per commit;
- on request the inputs, read again: as many messages as were counted;
- on request the topics in Kafka: not created again since, and still with the records that were read.

An audit only reads, needs no Spark and may run while the job does: batches committed later are ignored.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from selectroute.job_output import Finding
from selectroute.kafka.record import Range
from selectroute.selector.errors import SelectRouteError
from selectroute.selector.sentences import counted
from selectroute.spark.batch.changed_inputs import changed_files
from selectroute.spark.batch.commits import BACKFILL, REPLAY, Commits, kind_of
from selectroute.spark.cluster import KafkaCluster
from selectroute.spark.job import KEEP, Commit, OtherJobError, job_record
from selectroute.spark.messages import DeadLetterBatch
from selectroute.spark.sources.checkpoint import FRAME, batch_offsets, done_batches, planned_batches
from selectroute.spark.sources.files.lister import planned_files
from selectroute.spark.sources.files.reader import read
from selectroute.spark.sources.files.source import read_files
from selectroute.spark.sources.files.splits import plan_in
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
from selectroute.spark.tables.schemas import DEAD_LETTERS, DELIVERIES, SINKS, UNROUTED, Counts
from selectroute.spark.tables.tables import Checker
from selectroute.spark.working_copy import read_only_copy
from selectroute.storage import Location
from selectroute.storage.location import Where

if TYPE_CHECKING:
    from selectroute.kafka.cluster import Wire

_SHOWN = 3
"""Maximum number of names in a sentence."""


@dataclass(slots=True)
class Audit:
    """Report of an audit: totals and findings.

    ``counts`` are those of the stream's batches, ``backfilled`` and ``replayed`` those of backfills and
    replays, which count messages again. ``absent`` are published folders that were moved or removed by
    readers, which is allowed. ``inputs`` are files, or Kafka offsets, of which ``gaps`` have no record:
    transaction markers and compacted records. ``skipped`` are offsets before the first ones of partitions
    that were met later, whose records were gone by then. ``pending`` are batches that are planned and not
    committed, or committed and not published: the job or its next start finishes them.
    """

    batches: int = 0
    backfills: int = 0
    replays: int = 0
    counts: Counts = field(default_factory=Counts)
    backfilled: Counts = field(default_factory=Counts)
    replayed: Counts = field(default_factory=Counts)
    inputs: int = 0
    gaps: int = 0
    skipped: int = 0
    recounted: int = 0
    files: int = 0
    bytes: int = 0
    absent: list[str] = field(default_factory=list)
    pending: list[int] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    def find(self, batch: int | None, sentence: str) -> None:
        """Add a finding."""
        self.findings.append(Finding(batch, sentence))


def listed_briefly(noun: str, names: Iterable[object]) -> str:
    """Return a few names and the number of the others."""
    every = list(names)
    more = f" and {len(every) - _SHOWN:,} more" if len(every) > _SHOWN else ""
    return f"{noun} {', '.join(str(name) for name in every[:_SHOWN])}{more}"


_BLOCK = 1 << 20


def audit(
    output: Where,
    *,
    digests: bool = True,
    recount: bool = False,
    file_format: str = "auto",
    kafka: KafkaCluster | None = None,
    advance: Callable[[int], None] = lambda _: None,
) -> Audit:
    """Check a job's output folder; return the totals and the findings.

    Args:
        output: the folder.
        digests: read every published file and check its SHA-256; otherwise only sizes and rows.
        recount: read the existing inputs again and count their messages.
        file_format: the format of the inputs, as in the job's options.
        kafka: the cluster of the job's topics, to see whether they are still the same.
        advance: called with the number of batches done, after each.

    Raises:
        JobError: the folder is not a job's, or the cluster is another one. Damage inside is a finding.
        KafkaClientError: the cluster does not answer.
    """
    record = job_record(output)
    report = Audit()
    commits = Commits(output)
    read_commits = list(_read_commits(commits, report))
    checker = commits.tables.checker(digests)
    for done, commit in enumerate(read_commits):
        _check_counts(commit, report)
        _check_files(checker, commits, commit, report)
        if recount:
            _recount(record["input"], commit, file_format, report)
        advance(done + 1)
    for batch, sentence in checker.strays(commits.is_committed):
        report.find(batch, sentence)
    _check_inputs(commits, record["input"], report)
    check_source(record, read_commits, report)
    for topic, ids in sorted(record.get("destinations", {}).items()):
        if len(ids) > 1:
            report.find(
                None,
                f"the topic {topic} was created again, {counted(len(ids) - 1, 'time')}, after subscriptions "
                "had been delivered to it: what was delivered before is not in it",
            )
    if kafka is not None:
        with kafka.wire() as wire:
            check_system(record, wire)
            check_topics(wire, record, read_commits, report)
    _check_accounting(commits, read_commits, report)
    return report


def _read_commits(commits: Commits, report: Audit) -> Iterator[dict[str, Any]]:
    batches, side_batches = commits.batches(), commits.side_batches()
    missing = sorted(set(range(batches[-1] + 1)) - set(batches)) if batches else []
    if missing:
        report.find(None, f"no commit of {listed_briefly('batch', missing)}, but of later batches")
    for batch in (*batches, *side_batches):
        try:
            commit = commits.read(batch)
        except SelectRouteError as error:
            report.find(batch, str(error))
            continue
        if commit is None:  # removed during the audit
            report.find(batch, "its commit was removed")
            continue
        kind = kind_of(commit)
        report.batches += batch >= 0
        report.backfills += kind == BACKFILL
        report.replays += kind == REPLAY
        counted = {BACKFILL: report.backfilled, REPLAY: report.replayed}.get(kind, report.counts)
        counted.add(Counts(**commit["counts"]))
        yield commit


def _check_inputs(commits: Commits, input: str, report: Audit) -> None:
    """Find the files that were changed after they were read: the new content is in no batch."""
    try:
        for file in changed_files(commits, input):
            report.find(file.batch, file.sentence)
    except SelectRouteError:  # a damaged commit, which is another finding
        return


def _check_counts(commit: Commit, report: Audit) -> None:
    """Compare the counts of a batch with each other and with the rows of its files."""
    batch, counts = commit["batch"], Counts(**commit["counts"])
    accounted = counts.routed + counts.unrouted + counts.dead_lettered
    if counts.messages != accounted:
        report.find(batch, f"it read {counted(counts.messages, 'message')} but accounts for {accounted:,}")
    rows = dict.fromkeys(SINKS, 0)
    for file in commit["files"]:
        sink = file["path"].split("/", 1)[0]
        rows[sink] = rows.get(sink, 0) + file["rows"]
    wanted = {
        DELIVERIES: counts.deliveries,
        DEAD_LETTERS: counts.dead_lettered + counts.refused,
        UNROUTED: counts.policies.get(KEEP, 0),
    }
    if sum(counts.policies.values()) != counts.unrouted:
        of_policies = sum(counts.policies.values())
        report.find(
            batch,
            f"it counts {counted(counts.unrouted, 'unrouted message')}, but {of_policies:,} by their policy",
        )
    for sink, expected in wanted.items():
        if rows[sink] != expected:
            report.find(
                batch, f"it counts {expected:,} {sink}, but its files have {counted(rows[sink], 'row')}"
            )


def _check_files(checker: Checker, commits: Commits, commit: Commit, report: Audit) -> None:
    """Compare the published files of a batch with its commit."""
    batch = commit["batch"]
    # Checked first: files that are published afterwards are in place.
    pending = commits.is_pending(batch)
    if pending:
        report.pending.append(batch)  # committed; the job publishes it, or its next start
    checked = checker.check(batch, commit["files"], pending)
    report.absent.extend(checked.absent)
    report.files += checked.files
    report.bytes += checked.bytes
    for sentence in checked.problems:
        report.find(batch, sentence)


def _check_accounting(commits: Commits, known: Iterable[Commit], report: Audit) -> None:
    """Compare ``accounting.jsonl`` with the commits. Later batches have lines, too, and one that is not yet
    published may have none.
    """
    done = [commit for commit in known if not commits.is_pending(commit["batch"])]
    # In remote storage the file is written once in a while.
    wanted = {commit["batch"]: commits.line(commit) for commit in done}
    path = commits.output / "accounting.jsonl"
    try:
        lines = path.read().decode().splitlines()
        written = {json.loads(line)["batch"]: line for line in lines}
    except (OSError, ValueError, KeyError, TypeError) as error:
        report.find(None, f"{path} can't be read ({error}); the next start rebuilds it")
        return
    if not path.is_local:
        wanted = {batch: line for batch, line in wanted.items() if batch in written}
    wrong = [batch for batch, line in wanted.items() if written.get(batch) != line]
    wrong += [batch for batch in written if batch not in wanted and not commits.is_committed(batch)]
    if wrong or len(written) != len(lines):
        report.find(
            wrong[0] if wrong else None,
            f"{path.name} differs from the commits of {listed_briefly('batch', wrong or written)}; "
            "the next start rebuilds it",
        )


def _recount(input: str, commit: Commit, file_format: str, report: Audit) -> None:
    """Read the inputs of a batch again, if none was changed, and count their messages."""
    batch, inputs = commit["batch"], read_files(commit)
    if batch < 0 or "sizes" not in commit["inputs"]:
        return
    folder = Location.of(input)
    if not all(file.is_same((folder / file.source).entry()) for file in inputs):
        return
    files = {folder / file.source: file.size or 0 for file in inputs}
    messages = 0
    for splits in plan_in(folder, files.items(), file_format, 1):
        for split in splits:
            for part in read(split, (), _BLOCK):
                messages += part.count if isinstance(part, DeadLetterBatch) else len(part.rows)
    report.recounted += 1
    expected = commit["counts"]["messages"]
    if messages != expected:
        report.find(batch, f"its inputs have {counted(messages, 'message')}, but it counts {expected:,}")


def check_source(record: Mapping[str, Any], commits: Sequence[Commit], report: Audit) -> None:
    """Compare commits with the planned and finished batches in Spark's checkpoint.

    Args:
        record: the record of the job (``_job.json``).
        commits: all undamaged commits, those of the stream in order.
        found: the report to add findings to.
    """
    checkpoint = read_only_copy(record["checkpoint"])
    live = [commit for commit in commits if commit["batch"] >= 0]
    report.inputs = sum(commit["inputs"]["count"] for commit in live)
    last = max((commit["batch"] for commit in live), default=-1)
    try:
        planned, done = planned_batches(checkpoint), done_batches(checkpoint)
        report.pending += [batch for batch in planned if batch > last]
        for batch in done:
            if batch > last:
                report.find(batch, "it is done in Spark's checkpoint, but not committed")
        if last not in planned:
            if live:
                report.find(
                    last,
                    f"the checkpoint {record['checkpoint']} has no plan of it: it is older than this output",
                )
            return
        if record["input"].startswith(PREFIX):
            _check_records(checkpoint, planned, live, report)
        elif record["input"].startswith(FRAME):
            _check_offsets(checkpoint, planned, live, report)
        else:
            _check_names(checkpoint, planned, last, live, report)
    except SelectRouteError as error:
        report.find(None, str(error))


def _check_names(
    checkpoint: Path, planned: Sequence[int], last: int, live: Sequence[Commit], report: Audit
) -> None:
    """Compare the files of the commits with each other, and with the plans that Spark still has."""
    taken = Counter(name for commit in live for name in commit["inputs"]["sizes"])
    twice = sorted(name for name, times in taken.items() if times > 1)
    if twice:
        report.find(None, f"in more than one commit: {listed_briefly('input', twice)}")
    plans = {
        batch: {file.name for file in planned_files(checkpoint, batch)} for batch in planned if batch <= last
    }
    lost = sorted(set().union(*plans.values()) - taken.keys())
    if lost:
        report.find(None, f"planned, but in no commit: {listed_briefly('input', lost)}")
    read = {commit["batch"]: commit["inputs"]["sizes"].keys() for commit in live}
    unknown = sorted(set().union(*(names - plans[batch] for batch, names in read.items() if batch in plans)))
    if unknown := [name for name in unknown if name not in twice]:
        report.find(None, f"in a commit, but not planned: {listed_briefly('input', unknown)}")


def _check_offsets(checkpoint: Path, planned: Sequence[int], live: Sequence[Commit], report: Audit) -> None:
    """Compare the offsets of the commits, in the sources of a DataFrame, with Spark's plan."""
    for commit in live:
        batch = commit["batch"]
        if batch in planned and commit["inputs"]["offsets"] != batch_offsets(checkpoint, batch):
            report.find(batch, "it read other offsets than Spark planned")


def _check_records(checkpoint: Path, planned: Sequence[int], live: Sequence[Commit], report: Audit) -> None:
    """Compare the offsets of the commits with each other, with Spark's plan and with their counts."""
    first = first_offsets(checkpoint)
    reached: dict[tuple[str, int], Range] = {}
    for topic, partitions in positions_of(first).items():
        id = identity_of(first, topic).id
        for number, at in partitions.items():
            reached[topic, int(number)] = Range(topic, int(number), 0, at, id)
    another: set[str] = set()
    for commit in live:
        batch, ranges = commit["batch"], ranges_of(commit["inputs"])
        known = batch in planned and (not batch or batch - 1 in planned)
        if known and ranges != batch_ranges(checkpoint, batch):
            report.find(batch, "it read other offsets than Spark planned")
        for span in ranges:
            last = reached.get(span[:2], span._replace(end=0))
            before = last.end
            if last.id not in ("", span.id):
                before = 0
                if span.source not in another:
                    another.add(span.source)
                    report.find(
                        batch,
                        f"it begins the topic {span.topic} anew, as {span.source}, which was created again: "
                        "records of the one before may not have been read",
                    )
            elif last.history < span.history and span.start < before:
                report.find(
                    batch,
                    f"{span.topic}/{span.partition} had lost its records from offset {span.start} on, "
                    f"of which {before - span.start:,} had been read: what is there since is {span.source}",
                )
                before = span.start
            report.skipped += span.skipped
            if span.start - span.skipped != before:
                what = "skips" if span.start > before else "repeats"
                between = span._replace(start=min(before, span.start), end=max(before, span.start))
                report.find(batch, f"it {what} {between}")
            reached[span[:2]] = span
        gaps = sum(commit["inputs"].get("gaps", {}).values())
        report.gaps += gaps
        offsets, messages = commit["inputs"]["count"], commit["counts"]["messages"]
        if offsets - gaps != messages:
            report.find(
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


def check_topics(wire: Wire, record: Mapping[str, Any], commits: Sequence[Commit], report: Audit) -> None:
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
    for span in (span for commit in commits if commit["batch"] >= 0 for span in ranges_of(commit["inputs"])):
        if ids.setdefault(span.topic, span.id) != span.id:
            ids[span.topic], read[span.topic] = span.id, {}
        read.setdefault(span.topic, {})[str(span.partition)] = span
    sent = {topic: of_topic[-1] for topic, of_topic in record.get("destinations", {}).items()}
    sent |= {record["tokens"]: record["tokens_id"]} if "tokens" in record else {}
    there = wire.partitions([*read, *sent])
    for topic in sorted({*read, *sent}):
        change = None
        if topic not in there:
            report.find(None, f"the topic {topic} is no longer in Kafka")
        elif topic in read:
            last = read[topic]
            was = Identity(ids[topic], epochs={number: span.epoch for number, span in last.items()})
            change = changed(wire, topic, {number: span.end for number, span in last.items()}, was, {}, set())
        elif (now := wire.ids.get(topic, "")) not in ("", sent[topic]):
            report.find(
                None,
                f"the topic {topic}, which the job writes, was created again (its id was {sent[topic]}, and "
                f"is {now}): what was written before is not in it",
            )
        if change is not None:
            report.find(None, change.sentence)
