"""Reruns of committed batches: routed again with their pins, and compared with the published output.

The batches are written to another folder like a job's: with commits, published folders and accounting. The
job's output folder is only read, nothing is sent to queues or topics, and the job may run at the same time.
The decisions of selectors must be the same. A delivery that a queue or topic refused counts as made, since
that depended on the destination.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from selectroute.index.errors import SnapshotError
from selectroute.selector.arguments import check_argument, check_path
from selectroute.selector.sentences import counted
from selectroute.spark.batch.commits import Commits
from selectroute.spark.batch.pins import Pin, PinError
from selectroute.spark.batch.router import Router
from selectroute.spark.folder import OutputFolder
from selectroute.spark.job import Commit, Job, JobError, formats_in, job_record
from selectroute.spark.sources.open_source import source_of
from selectroute.spark.sources.source import Source
from selectroute.spark.tables.schemas import DEAD_LETTERS, DELIVERIES, SCHEMAS, SINKS, UNROUTED, decoded
from selectroute.storage import Location
from selectroute.storage.location import Where

Verdict: TypeAlias = Literal["same files", "same rows", "other rows", "gone"]

_MESSAGE: Final = ["source", "partition", "offset"]
_KEYS: Final = {
    DELIVERIES: [*_MESSAGE, "subscription"],
    UNROUTED: _MESSAGE,
    DEAD_LETTERS: [*_MESSAGE, "subscription", "stage", "reason"],
}


@dataclass(frozen=True, slots=True)
class Rerun:
    """Result of a batch that was routed again.

    ``verdict``: ``same files``, with the SHA-256 of the commit; ``same rows``, in other files, such as those
    of another number of tasks; ``other rows``; or ``gone`` if inputs, the revision or published files that
    are needed do not exist any more. ``why`` is a sentence about the latter two.
    """

    batch: int
    revision: int
    verdict: Verdict
    why: str = ""

    @property
    def held(self) -> bool:
        """True if the rows are the same."""
        return self.verdict in ("same files", "same rows")


def rerun(
    spark: SparkSession,
    job: Job,
    into: Where,
    first: int = 0,
    last: int | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> Iterator[Rerun]:
    """Route the committed batches of a job from ``first`` to ``last`` (the newest, unless given) again.

    Yield a `Rerun` for each batch when it is done; the output of all batches is left in ``into``.

    Args:
        spark: the session.
        job: the job, with its original options: binding, formats, policies.
        into: a new or empty folder.
        should_stop: called before each batch.

    Raises:
        JobError: ``into`` is not empty, or in another folder of the job, or in remote storage and the job's
            tables are not Delta tables; the output folder is not this job's; or none of these batches is
            committed.
        SourceError: Kafka does not answer.
        StorageError: remote storage does not answer.
        CommitError: a commit is damaged.
    """
    check_argument(spark, SparkSession, "spark", "the SparkSession")
    check_argument(job, Job, "job", "a Job: Job.of(input, snapshots, output)")
    check_path(into, "into", "the path of a folder that is new or empty")
    folder, source = OutputFolder(job), source_of(spark, job)
    folder.check()
    reruns = Reruns(job, source, into)
    folder.check_system(source.connect())
    return reruns.run(first, last, should_stop)


class Reruns:
    """Reruns of batches of a job. See `rerun`."""

    def __init__(self, job: Job, source: Source, into: Where) -> None:
        self._job = job
        self._into = Location.of(into)
        self._check()
        self._done = Commits(job.output)
        self._source = source
        # In the job's format, in which its files are the same, and with its id: this folder has no record.
        id = job_record(job.output).get("id", "rerun")
        self._router = Router(replace(job, output=self._into), source, destinations=(), id=id)
        self._router.commits.prepare()
        self._pins = self._into / "pins"
        self._pins.make_folder()

    def run(
        self, first: int = 0, last: int | None = None, should_stop: Callable[[], bool] = lambda: False
    ) -> Iterator[Rerun]:
        """Route these batches. See `rerun`."""
        batches = [
            batch for batch in self._done.batches() if first <= batch and (last is None or batch <= last)
        ]
        if not batches:
            raise JobError(f"no batch of {self._job.output} from {first} on is committed")
        return self._each(batches, should_stop)

    def _each(self, batches: Sequence[int], should_stop: Callable[[], bool]) -> Iterator[Rerun]:
        try:
            for batch in takewhile(lambda _: not should_stop(), batches):
                yield self._routed_again(batch)
        finally:
            self._router.close()

    def _routed_again(self, batch: int) -> Rerun:
        commit = self._done.read(batch) or {}
        revision = commit["revision"]
        [replayable] = self._source.reread([commit])
        if replayable.gone or replayable.unknown:
            return Rerun(batch, revision, "gone", replayable.sentence)
        (self._pins / f"{batch}.json").put_json(Pin(batch, revision, commit["digest"]).to_json())
        try:
            self._router.route(batch, replayable.inputs, "rerun")
        except (PinError, SnapshotError) as error:
            return Rerun(batch, revision, "gone", str(error))
        new = self._router.commits.read(batch) or {}
        self._router.commits.finish()
        self._router.commits.tables.maintain(lambda: False)
        if _digests(new["files"]) == _digests(commit["files"]):
            return Rerun(batch, revision, "same files")
        lost = self._done.tables.lost(batch, commit["files"])
        if lost:
            why = f"the new files differ, and {lost[0]} does not exist any more to compare rows"
            return Rerun(batch, revision, "gone", why)
        differences = _differences(_rows_of(self._done, commit), _rows_of(self._router.commits, new))
        return Rerun(batch, revision, "other rows" if differences else "same rows", "; ".join(differences))

    def _check(self) -> None:
        job, into = self._job, self._into
        if (job.output / "_job.json").read_json() is None:
            raise JobError(f"{job.output} is not the output folder of a job: there is nothing to route again")
        for name, folder in (("output", job.output), ("input", job.input), ("snapshots", job.snapshots)):
            if isinstance(folder, Location) and into.is_in(folder):
                raise JobError(f"{into} is in the {name} folder {folder} of the job: choose another")
        if job.table_format not in formats_in(into):
            raise JobError(
                f"{into} is in remote storage, where outcomes are Delta tables, and those of the job are "
                "Parquet files: choose a folder on a mounted file system"
            )
        if into.exists() or any(True for _ in into.entries(deep=True)):
            raise JobError(f"{into} is not an empty folder: choose another")


def _digests(files: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Return the sink and SHA-256 of each file, in the order of tasks."""
    return [(file["path"].split("/")[0], file["sha256"]) for file in files]


def _rows_of(commits: Commits, commit: Commit) -> dict[str, pa.Table]:
    """Return all rows of a batch by sink, sorted, with dictionaries decoded."""
    tables = {}
    for sink in SINKS:
        plain = decoded(SCHEMAS[sink])
        rows = commits.tables.rows(sink, commit["batch"], plain.names, commit["files"])
        parts = [pa.Table.from_batches([batch]).cast(plain) for batch in rows]
        table = pa.concat_tables([plain.empty_table(), *parts])
        tables[sink] = table.sort_by([(name, "ascending") for name in _KEYS[sink]]).combine_chunks()
    return tables


def _differences(published: Mapping[str, pa.Table], rerouted: Mapping[str, pa.Table]) -> list[str]:
    """Return the differences, a clause for each sink."""
    letters = published[DEAD_LETTERS]
    is_refused = pc.equal(letters["stage"], "deliver")
    refused = letters.filter(is_refused).select(_KEYS[DELIVERIES])
    expected = {
        DELIVERIES: published[DELIVERIES],
        UNROUTED: _without(published[UNROUTED], refused, _MESSAGE),
        DEAD_LETTERS: letters.filter(pc.invert(is_refused)),
    }
    key = _KEYS[DELIVERIES]
    actual = dict(rerouted) | {DELIVERIES: _without(rerouted[DELIVERIES], refused, key)}
    differences = [
        f"{sink}: {clause}" for sink in SINKS if (clause := _difference(sink, expected[sink], actual[sink]))
    ]
    missing = _without(refused, rerouted[DELIVERIES], key)
    if len(missing):
        differences.append(f"{len(missing):,} refused deliveries were not made, the first {_place(missing)}")
    return differences


def _difference(sink: str, expected: pa.Table, actual: pa.Table) -> str:
    if actual.equals(expected):
        return ""
    missing, more = _without(expected, actual, _KEYS[sink]), _without(actual, expected, _KEYS[sink])
    clauses = [
        f"{counted(len(rows), 'row')} {what[len(rows) > 1]}, the first {_place(rows)}"
        for rows, what in (
            (missing, ("is missing", "are missing")),
            (more, ("was not published", "were not published")),
        )
        if len(rows)
    ]
    return " and ".join(clauses) or "rows have other values"


def _without(rows: pa.Table, others: pa.Table, keys: list[str]) -> pa.Table:
    """Return the rows whose key is not among the others, in order."""
    numbered = _comparable(rows, keys).append_column("row", pa.array(np.arange(len(rows))))
    left = numbered.join(_comparable(others, keys), keys, join_type="left anti")
    return rows.take(left["row"].sort())


def _comparable(rows: pa.Table, keys: list[str]) -> pa.Table:
    """Return the keys with NULLs replaced, because a join does not match NULLs."""
    return pa.table(
        {name: pc.fill_null(rows[name], "" if pa.types.is_string(rows[name].type) else -1) for name in keys}
    )


def _place(rows: pa.Table) -> str:
    first = rows.slice(0, 1).to_pylist()[0]
    return "/".join(str(first[name]) for name in _KEYS[DELIVERIES] if first.get(name) is not None)
