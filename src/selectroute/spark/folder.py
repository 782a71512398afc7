"""Output folder of a job: its ownership, and the repair of Spark's checkpoint.

The output folder, the checkpoint and the input belong together for good: batch numbers come from the
checkpoint, and a batch whose number is committed in the output folder is never routed again. With another
checkpoint the numbers would start again at 0, and new batches would be skipped. ``_job.json`` in the output
folder binds the three together; any other combination is refused before anything is changed.

Spark does not start from an empty file in its checkpoint::

    metadata         the query's id
    sources/<i>/<n>  the known input of each source
    offsets/<batch>  the part of the input that the batch takes: the batch is planned
    commits/<batch>  the batch is done

Spark writes each of these files, in this order, under another name and then renames it. An empty one can
remain for two reasons. If the disk has no room for the new name, Hadoop copies instead, into a file that
stays empty (``RawLocalFileSystem.rename``). And Spark does not flush to the disk, so a machine that loses
power keeps the name and loses the bytes. An empty file at the end of a log has no more information than a
missing one; but Spark continues only if it is missing: it plans again, or repeats a batch that is committed
here and so is skipped. The plan of a batch that has begun must not change, and a new one may differ, so the
plan is durable before anything is put, sent or committed for the batch (`keep`).
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from selectroute.durable import disk
from selectroute.spark.job import DELTA, Job, JobError, OtherJobError
from selectroute.spark.sources.checkpoint import (
    SourceError,
    done_batches,
    list_entries,
    log_files,
    planned_batches,
    source_logs,
)
from selectroute.spark.working_copy import keep, restore, working_copy
from selectroute.storage import Location
from selectroute.storage.lease import LEASE, LOCK, FolderOwner, LeaseLostError, OwnedError, owner_of
from selectroute.storage.location import PROBE, Where
from selectroute.storage.owned import begin


def repair(checkpoint: Path, is_committed: Callable[[int], bool]) -> list[Path]:
    """Remove the empty files at the end of each log; return their paths.

    Args:
        checkpoint: the folder. No query may run on it.
        is_committed: returns whether a batch that Spark has planned is committed.

    Raises:
        SourceError: the plan of a committed batch is empty.
    """
    removed = [
        *_without_end(checkpoint / "commits", lambda _: True),
        *_without_end(checkpoint / "offsets", lambda batch: not is_committed(batch)),
    ]
    planned = planned_batches(checkpoint)
    if planned and is_empty(path := checkpoint / "offsets" / str(planned[-1])):
        raise SourceError(
            f"Spark's checkpoint is damaged: {path} is empty, and its batch is committed: restore checkpoint "
            "and output folder from a copy, or choose a new output folder"
        )

    newest = planned[-1] if planned else None
    for number, folder in source_logs(checkpoint).items():
        removed += _without_end(folder, partial(_is_unused, checkpoint, newest, number))
    return removed


def _is_unused(checkpoint: Path, newest: int | None, number: int, entry: int) -> bool:
    """Return whether no plan, of which ``newest`` is the last, has this entry of the log of a source."""
    if newest is None:
        return True
    # The first entry is part of every plan. Only file sources have more.
    ends = list_entries(checkpoint, newest)
    end = ends[number] if number < len(ends) else None
    return entry > 0 and end is not None and entry > end


def remove_unfinished(checkpoint: Path) -> None:
    """Remove unfinished files if Spark was killed before its first batch, since Spark starts no first batch
    with files in its logs.
    """
    metadata = checkpoint / "metadata"
    if metadata.is_file() and is_empty(metadata):
        _remove(metadata)
    for log, batches in (("offsets", planned_batches(checkpoint)), ("commits", done_batches(checkpoint))):
        folder = checkpoint / log
        if not batches and folder.is_dir():
            for path in folder.iterdir():
                path.unlink()


def _without_end(folder: Path, may_go: Callable[[int], bool]) -> Iterator[Path]:
    """Remove the last files of a log while they are empty and ``may_go``; yield their paths."""
    for number, path in reversed(log_files(folder)):
        if not is_empty(path) or not may_go(number):
            return
        _remove(path)
        yield path


def is_empty(path: Path) -> bool:
    """Return whether a file is empty."""
    return path.stat().st_size == 0


def _remove(path: Path) -> None:
    """Remove a file and Hadoop's checksum of it, which would be compared with the next file of that name."""
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    path.unlink()


FORMAT: Final = 1
"""Format of the record of a job."""


class OutputFolder:
    """Output folder, owned from `claim` to `release` so that no other process can run a job on it: by a lock,
    in remote storage by a lease.

    Args:
        job: the job.
        lost: called in another thread when another process has taken the folder over.
        waiting: called while the lease of another process is watched; returns whether to give up.
    """

    def __init__(
        self,
        job: Job,
        lost: Callable[[OtherJobError], None] = lambda _: None,
        waiting: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self.job = job
        self._record = job.output / "_job.json"
        self._owners: list[FolderOwner] = []
        self._bound: str | None = None
        self._is_restored = False
        self._lost = lost
        self._waiting = waiting

    @property
    def checkpoint(self) -> Path:
        """Spark's checkpoint on this machine: a copy, if the job's is in remote storage."""
        return working_copy(self.job.checkpoint)

    def check(self) -> None:
        """Raise the errors that `claim` would raise, but change nothing; needs no Spark.

        Raises:
            OtherJobError: the folder belongs to another job or to none, or its checkpoint is gone or another.
            JobError: the path is not a folder, or the folder has an unknown format.
        """
        output = self.job.output
        if output.exists() and not output.is_folder():
            raise JobError(f"the output {output} is not a directory")
        record = self._record.read_json()
        if record is None:
            self._refuse_foreign()
        else:
            self._refuse_other(record)

    def claim(self) -> list[Path]:
        """Lock the folder for this job, or raise without a change. Return the empty files of Spark's
        checkpoint that were removed.

        Raises:
            JobError: as `check`.
            OtherJobError: another process runs a job on the folder.
            SourceError: Spark's checkpoint is damaged.
        """
        self.check()
        # The checkpoint first: if it is locked, no new output folder is left.
        self.job.checkpoint.make_folder()
        self._own_folder(Location.of(self.checkpoint), "checkpoint")
        self.job.output.make_folder()
        self._own_folder(self.job.output, "output folder")
        begin(self.job.output)
        restore(self.job.checkpoint, self._is_committed)
        self._is_restored = True
        repaired = self.repair_checkpoint()
        known = self._record.read_json() or {}
        if known.get("query") is None:
            # The id stays: tables may have been made with it.
            self._record.put_json(self._own(query=None) | {k: known[k] for k in ("id",) if k in known})
        return repaired

    def repair_checkpoint(self) -> list[Path]:
        """Remove what a query that was interrupted may have left in Spark's checkpoint; return the empty
        files among it. No query may run.

        Raises:
            SourceError: the checkpoint is damaged.
        """
        removed = repair(self.checkpoint, self._is_committed)
        if self.query() is None:
            remove_unfinished(self.checkpoint)
        return removed

    def check_owner(self) -> None:
        """Make sure that no other process has taken the folder over. Raises OtherJobError."""
        try:
            for owner in self._owners:
                owner.check()
        except LeaseLostError as error:
            raise self._taken_over() from error

    def query(self) -> str | None:
        """Return the query's id; None before the first batch."""
        record = self._record.read_json()
        return None if record is None else record["query"]

    def bind(self) -> str:
        """Bind the folder to the checkpoint before the first batch is routed; return the query's id."""
        query = self._checkpoint_query()
        if query is None:
            raise JobError(f"Spark made no checkpoint in {self.checkpoint}")
        if self._bound == query:
            return query
        record = self._record.read_json()
        if record is None:
            raise JobError(f"{self._record} is gone, so the job of this folder is unknown: restore the file")
        if record["query"] is None:
            self._keep()
            self._record.put_json(record | {"query": query})
        elif record["query"] != query:
            raise OtherJobError(self._other_checkpoint())
        self._bound = query
        return query

    def _keep(self) -> None:
        try:
            keep(self.job.checkpoint)
        except FileExistsError as error:
            self.check_owner()
            raise JobError(
                f"another process has begun the checkpoint {self.job.checkpoint}: start the job again"
            ) from error

    def bind_system(self, system: str | None) -> None:
        """Bind the folder to the system of the input, such as a Kafka cluster.

        Raises:
            OtherJobError: the folder is bound to another system, whose offsets are those of other records.
        """
        self.check_system(system)
        record = self._record.read_json()
        if system is not None and record is not None and record.get("system") is None:
            self._record.put_json(record | {"system": system})

    def check_system(self, system: str | None) -> None:
        """Check that the folder is not bound to another system, without writing. Raises OtherJobError."""
        bound = (self._record.read_json() or {}).get("system")
        if system is not None and bound not in (None, system):
            raise OtherJobError(
                f"the output folder {self.job.output} belongs to a job on the Kafka cluster {bound}, and "
                f"this cluster is {system}, with other offsets: choose a new output folder"
            )

    def identity(self) -> str:
        """Return the id of the job. See `identity`."""
        return identity(self.job.output)

    def has_tokens(self) -> bool:
        """Return whether the job has sent to Kafka in transactions."""
        return bool((self._record.read_json() or {}).get("tokens"))

    def tokens_id(self) -> str:
        """Return Kafka's id of the topic of the job's commit tokens; empty if it is not known."""
        return str((self._record.read_json() or {}).get("tokens_id", ""))

    def note_tokens(self, topic: str, id: str) -> None:
        """Record the topic of the job's commit tokens, with Kafka's id of it."""
        self._note({"tokens": topic, "tokens_id": id})

    def destination_ids(self) -> dict[str, list[str]]:
        """Return Kafka's ids of each topic that the job has delivered to, the present one last."""
        return dict((self._record.read_json() or {}).get("destinations", {}))

    def note_destinations(self, ids: Mapping[str, Sequence[str]]) -> None:
        """Record Kafka's ids of the topics that the job delivers to."""
        self._note({"destinations": ids})

    def _note(self, noted: dict[str, Any]) -> None:
        record = self._record.read_json() or {}
        if record | noted != record:
            self._record.put_json(record | noted)

    def note_binding(self, binding: Mapping[str, Any]) -> None:
        """Record the binding of Kafka records, for those who look at dead letters; a later start may bind
        otherwise.
        """
        self._note({"kafka_binding": dict(binding)})

    def release(self) -> None:
        """Unlock the folder for other processes."""
        while self._owners:
            self._owners.pop().close()

    def _own(self, query: str | None) -> dict[str, Any]:
        job = self.job
        return {
            "format": FORMAT,
            "input": job.source,
            "snapshots": str(job.snapshots),
            "checkpoint": str(job.checkpoint),
            "query": query,
            "table_format": job.table_format,
        }

    def _refuse_foreign(self) -> None:
        job = self.job
        # What a start and `claim` create before the record is allowed: they may have been killed in between.
        begun = {LOCK, f".{self._record.name}.tmp", LEASE}
        foreign = sorted(_names_in(job.output) - begun)
        if foreign == [job.checkpoint.name] and str(job.checkpoint.parent) == str(job.output):
            foreign = sorted(_names_in(job.checkpoint) - begun)
        if foreign:
            raise OtherJobError(
                f"the output folder {job.output} is not empty and not a job's (it contains {foreign[0]!r}): "
                "choose another"
            )
        if self._has("commits") or self._has("offsets"):
            raise OtherJobError(
                f"the checkpoint {job.checkpoint} has run batches, but the output folder {job.output} is new "
                "and would lack their deliveries: name the checkpoint's output folder, or a new checkpoint"
            )

    def _refuse_other(self, record: dict[str, Any]) -> None:
        job = self.job
        if record.get("format") != FORMAT:
            raise JobError(
                f"{self._record} has format {record.get('format')!r}; this release knows format {FORMAT}"
            )
        written = record["table_format"]
        if written != job.table_format and (record["query"] is not None or written == DELTA):
            raise OtherJobError(
                f"the output folder {job.output} has tables of the format {written}, not {job.table_format}: "
                f"start the job with --table-format {written}, or choose a new output folder"
            )
        for name, mine in (("input", job.source), ("snapshots", str(job.snapshots))):
            # A record without a batch may be corrected: an option may have been mistyped.
            if record["query"] is not None and record[name] != mine:
                raise OtherJobError(
                    f"the output folder {job.output} belongs to another job: its {name} is "
                    f"{record[name]}, not {mine}; choose another output folder"
                )
        query = self._checkpoint_query()
        if record["query"] is not None and query is None:
            raise OtherJobError(
                f"the checkpoint {job.checkpoint} of the output folder {job.output} is gone: batches would "
                "start at 0 again and be skipped as repeats; restore it, or choose a new output folder"
            )
        if query != record["query"] and (record["query"] is not None or self._has("commits")):
            raise OtherJobError(self._other_checkpoint())

    def _other_checkpoint(self) -> str:
        return (
            f"the checkpoint {self.job.checkpoint} is not that of the output folder {self.job.output}: name "
            "the right one, or choose a new output folder"
        )

    def _has(self, log: str) -> bool:
        return any(True for _ in (self.job.checkpoint / log).entries())

    def _is_committed(self, batch: int) -> bool:
        return (self.job.output / "_commits" / f"{batch}.json").exists()

    def _checkpoint_query(self) -> str | None:
        """Return the query's id in the checkpoint; None if its metadata is missing or empty."""
        path = (Location.of(self.checkpoint) if self._is_restored else self.job.checkpoint) / "metadata"
        try:
            data = path.read()
            return str(json.loads(data)["id"]) if data else None
        except FileNotFoundError:
            return None
        except (ValueError, TypeError, KeyError) as error:
            raise disk.DamagedFileError(f"{path} is damaged: restore the checkpoint from a copy") from error

    def _own_folder(self, folder: Location, noun: str) -> None:
        try:
            owner = owner_of(folder, lost=lambda _: self._lost(self._taken_over()), waiting=self._waiting)
        except OwnedError as error:
            self.release()
            by = "" if error.holder is None else f": {error.holder}"
            raise OtherJobError(f"another process runs a job on the {noun} {folder}{by}") from error
        self._owners.append(owner)

    def _taken_over(self) -> OtherJobError:
        return OtherJobError(
            f"another process has taken over the output folder {self.job.output}, because this one stood "
            "still; it goes on there, and this one ends"
        )


def _names_in(folder: Location) -> set[str]:
    """Return the names in a folder, but those of checks whether it can be written."""
    entries = (*folder.files(), *folder.folders())
    return {entry.name for entry in entries if not entry.name.startswith(PROBE)}


def identity(output: Where) -> str:
    """Return the id of the job of an output folder, for names in other systems; it is made when it is first
    asked for.

    Raises:
        JobError: the folder has no record of a job.
    """
    path = Location.of(output) / "_job.json"
    record = path.read_json()
    if record is None:
        raise JobError(f"{path} is gone, so the job of this folder is unknown: restore the file")
    if "id" not in record:
        record |= {"id": uuid.uuid4().hex[:16]}
        path.put_json(record)
    return str(record["id"])
