"""Audit of a job's output: consistent with itself and its source, with nothing lost, added or duplicated.

The checks:

- counts of each commit: messages = routed + unrouted + dead-lettered, and equal to the rows of its files;
- published files: present, with the size, rows and SHA-256 of the commit, and no other file; where files of
  several batches were merged, as many rows of each batch as its commit says;
- batches: numbered without a gap, each batch that Spark has done is committed;
- inputs: every file that Spark has ever planned is in exactly one commit;
- ``accounting.jsonl``: one line per commit;
- on request the inputs, read again: as many messages as were counted;
- on request the topics in Kafka: the same as were read and written, and with what was read.

An audit only reads, needs no Spark and may run while the job does: batches committed later are ignored.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from selectroute.selector.errors import SelectRouteError
from selectroute.selector.explain.sentences import counted
from selectroute.spark.audit.report import Audit, listed_briefly
from selectroute.spark.audit.source_check import check_source, check_system, check_topics
from selectroute.spark.batch.changed_inputs import changed_files
from selectroute.spark.batch.commits import BACKFILL, REPLAY, Commits, kind_of
from selectroute.spark.inputs.read_files import read_files
from selectroute.spark.job.job import job_record
from selectroute.spark.job.unrouted import KEEP
from selectroute.spark.sinks.counts import Counts
from selectroute.spark.sinks.schemas import DEAD_LETTERS, DELIVERIES, SINKS, UNROUTED
from selectroute.spark.sources.files.readers import DeadLetterBatch, read
from selectroute.spark.sources.files.splits import plan_in
from selectroute.spark.sources.kafka.config import KafkaCluster
from selectroute.spark.tables.tables import Checker
from selectroute.storage import Location
from selectroute.storage.location import Where

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
    found = Audit()
    commits = Commits(output)
    read_commits = list(_read_commits(commits, found))
    checker = commits.tables.checker(digests)
    for done, commit in enumerate(read_commits):
        _check_counts(commit, found)
        _check_files(checker, commits, commit, found)
        if recount:
            _recount(record["input"], commit, file_format, found)
        advance(done + 1)
    for batch, sentence in checker.strays(commits.is_committed):
        found.find(batch, sentence)
    _check_inputs(commits, record["input"], found)
    check_source(record, read_commits, found)
    for topic, ids in sorted(record.get("destinations", {}).items()):
        if len(ids) > 1:
            found.find(
                None,
                f"the topic {topic} was created again, {counted(len(ids) - 1, 'time')}, after subscriptions "
                "had been delivered to it: what was delivered before is not in it",
            )
    if kafka is not None:
        with kafka.wire() as wire:
            check_system(record, wire)
            check_topics(wire, record, read_commits, found)
    _check_accounting(commits, read_commits, found)
    return found


def _read_commits(commits: Commits, found: Audit) -> Iterator[dict[str, Any]]:
    batches, side_batches = commits.batches(), commits.side_batches()
    missing = sorted(set(range(batches[-1] + 1)) - set(batches)) if batches else []
    if missing:
        found.find(None, f"no commit of {listed_briefly('batch', missing)}, but of later batches")
    for batch in (*batches, *side_batches):
        try:
            commit = commits.read(batch)
        except SelectRouteError as error:
            found.find(batch, str(error))
            continue
        if commit is None:  # removed during the audit
            found.find(batch, "its commit was removed")
            continue
        kind = kind_of(commit)
        found.batches += batch >= 0
        found.backfills += kind == BACKFILL
        found.replays += kind == REPLAY
        counted = {BACKFILL: found.backfilled, REPLAY: found.replayed}.get(kind, found.counts)
        counted.add(Counts(**commit["counts"]))
        yield commit


def _check_inputs(commits: Commits, input: str, found: Audit) -> None:
    """Find the files that were changed after they were read: the new content is in no batch."""
    try:
        for one in changed_files(commits, input):
            found.find(one.batch, one.sentence)
    except SelectRouteError:  # a damaged commit, which is another finding
        return


def _check_counts(commit: Mapping[str, Any], found: Audit) -> None:
    """Compare the counts of a batch with each other and with the rows of its files."""
    batch, counts = commit["batch"], Counts(**commit["counts"])
    accounted = counts.routed + counts.unrouted + counts.dead_lettered
    if counts.messages != accounted:
        found.find(batch, f"it read {counted(counts.messages, 'message')} but accounts for {accounted:,}")
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
        found.find(
            batch,
            f"it counts {counted(counts.unrouted, 'unrouted message')}, but {of_policies:,} by their policy",
        )
    for sink, expected in wanted.items():
        if rows[sink] != expected:
            found.find(
                batch, f"it counts {expected:,} {sink}, but its files have {counted(rows[sink], 'row')}"
            )


def _check_files(checker: Checker, commits: Commits, commit: Mapping[str, Any], found: Audit) -> None:
    """Compare the published files of a batch with its commit."""
    batch = commit["batch"]
    # Checked first: what is published afterwards is found in place.
    pending = commits.is_pending(commit)
    if pending:
        found.pending.append(batch)  # committed; the job publishes it, or its next start
    checked = checker.check(batch, commit["files"], pending)
    found.absent.extend(checked.absent)
    found.files += checked.files
    found.bytes += checked.bytes
    for sentence in checked.found:
        found.find(batch, sentence)


def _check_accounting(commits: Commits, known: Iterable[Mapping[str, Any]], found: Audit) -> None:
    """Compare ``accounting.jsonl`` with the commits. Later batches have lines, too, and one that is not yet
    published may have none.
    """
    done = [commit for commit in known if not commits.is_pending(commit)]
    # In remote storage the file is written once in a while.
    wanted = {commit["batch"]: commits.line(commit) for commit in done}
    path = commits.output / "accounting.jsonl"
    try:
        lines = path.read().decode().splitlines()
        written = {json.loads(line)["batch"]: line for line in lines}
    except (OSError, ValueError, KeyError, TypeError) as error:
        found.find(None, f"{path} can't be read ({error}); the next start rebuilds it")
        return
    if not path.is_local:
        wanted = {batch: line for batch, line in wanted.items() if batch in written}
    wrong = [batch for batch, line in wanted.items() if written.get(batch) != line]
    wrong += [batch for batch in written if batch not in wanted and not commits.is_committed(batch)]
    if wrong or len(written) != len(lines):
        found.find(
            wrong[0] if wrong else None,
            f"{path.name} differs from the commits of {listed_briefly('batch', wrong or written)}; "
            "the next start rebuilds it",
        )


def _recount(input: str, commit: Mapping[str, Any], file_format: str, found: Audit) -> None:
    """Read the inputs of a batch again, if none was changed, and count their messages."""
    batch, inputs = commit["batch"], read_files(commit)
    if batch < 0 or "sizes" not in commit["inputs"]:
        return
    folder = Location.of(input)
    if not all(one.is_same((folder / one.source).entry()) for one in inputs):
        return
    files = {folder / one.source: one.size or 0 for one in inputs}
    messages = 0
    for splits in plan_in(folder, files.items(), file_format, 1):
        for split in splits:
            for one in read(split, (), _BLOCK):
                messages += one.count if isinstance(one, DeadLetterBatch) else len(one.rows)
    found.recounted += 1
    expected = commit["counts"]["messages"]
    if messages != expected:
        found.find(batch, f"its inputs have {counted(messages, 'message')}, but it counts {expected:,}")
