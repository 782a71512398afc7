"""Ownership of an output folder.

The output folder, the checkpoint and the input belong together for life: batch numbers come from the
checkpoint, and a number that the output folder has committed is never routed again. With another checkpoint
the numbers would start anew and new messages be taken for old ones. ``_job.json`` in the output folder holds
the three together; whatever does not fit is refused before anything is touched.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from selectroute.durable import disk
from selectroute.durable.lock import FileLock
from selectroute.spark.job.checkpoint import flush, is_empty, remove_unfinished, repair
from selectroute.spark.job.job import Job, JobError, OtherJobError

_FORMAT = 1


class OutputFolder:
    """Output folder in the hands of this process: from `claim` to `release` no other process may run a job on
    it.
    """

    def __init__(self, job: Job) -> None:
        self.job = job
        self._record = job.output / "_job.json"
        self._locks: list[FileLock] = []

    def check(self) -> None:
        """Refuse, touching nothing, what `claim` would refuse; needs no Spark.

        Raises:
            OtherJobError: it is another job's or no job's, or its checkpoint is gone or another's.
            JobError: it is not a folder, or of a release that this one does not know.
        """
        output = self.job.output
        if output.exists() and not output.is_dir():
            raise JobError(f"the output {output} is not a folder")
        record = disk.read_json(self._record) if output.is_dir() else None
        if record is None:
            self._refuse_foreign()
        else:
            self._refuse_other(record)

    def claim(self) -> list[Path]:
        """Take the folder for this job, or refuse without touching anything. Returns the files of Spark's
        checkpoint that were found empty and removed.

        Raises:
            JobError: as `check`.
            OtherJobError: another process runs a job on it.
            SourceError: Spark's checkpoint is damaged.
        """
        self.check()
        # The checkpoint first: whoever is refused that leaves no new output folder behind.
        for folder, noun in ((self.job.checkpoint, "checkpoint"), (self.job.output, "output folder")):
            disk.make_folder(folder)
            self._take_lock(folder, noun)
        repaired = repair(self.job.checkpoint, self._has_begun)
        if self.query() is None:
            remove_unfinished(self.job.checkpoint)
            disk.write_json(self._record, self._own(query=None))
        return repaired

    def query(self) -> str | None:
        """Return the query's id, None before the first batch."""
        record = disk.read_json(self._record)
        return None if record is None else record["query"]

    def bind(self) -> str:
        """Write down, before the first batch is routed, whose checkpoint this is; return the query's id."""
        query = self._checkpoint_query()
        if query is None:
            raise JobError(f"Spark made no checkpoint in {self.job.checkpoint}")
        record = disk.read_json(self._record)
        if record is None:
            raise JobError(f"{self._record} is gone: the job can't know whose folder this is")
        if record["query"] is None:
            flush(self.job.checkpoint / "metadata")
            disk.write_json(self._record, record | {"query": query})
        elif record["query"] != query:
            raise OtherJobError(self._other_checkpoint())
        return query

    def belong(self, system: str | None) -> None:
        """Write down from which system the input is, such as a Kafka cluster, or refuse another one.

        Raises:
            OtherJobError: it was another one before, whose offsets mean other records.
        """
        record = disk.read_json(self._record)
        if system is None or record is None:
            return
        if record.get("system") is None:
            disk.write_json(self._record, record | {"system": system})
        elif record["system"] != system:
            raise OtherJobError(
                f"the output folder {self.job.output} belongs to a job on the Kafka cluster "
                f"{record['system']}, and this is {system}: offsets there are of other records; choose a new "
                "output folder"
            )

    def release(self) -> None:
        """Let other processes use the folder."""
        while self._locks:
            self._locks.pop().close()

    def _own(self, query: str | None) -> dict[str, Any]:
        job = self.job
        return {
            "format": _FORMAT,
            "input": job.source,
            "snapshots": str(job.snapshots),
            "checkpoint": str(job.checkpoint),
            "query": query,
        }

    def _refuse_foreign(self) -> None:
        job = self.job
        # What `claim` makes before the record is no sign of somebody else: it may have been killed there.
        begun = {"_lock", f".{self._record.name}.tmp"}
        held = sorted(set(os.listdir(job.output)) - begun) if job.output.is_dir() else []
        if held == [job.checkpoint.name] and job.checkpoint.parent == job.output:
            held = sorted(set(os.listdir(job.checkpoint)) - begun)
        if held:
            raise OtherJobError(
                f"the output folder {job.output} is not empty and no job's (it holds {held[0]!r}): "
                "choose another"
            )
        if self._has("commits") or self._has("offsets"):
            raise OtherJobError(
                f"the checkpoint {job.checkpoint} has run batches, but the output folder {job.output} "
                "is new: what those "
                "batches delivered would be missing; name the output folder that belongs to it, or a "
                "new checkpoint"
            )

    def _refuse_other(self, record: dict[str, Any]) -> None:
        job = self.job
        if record.get("format") != _FORMAT:
            raise JobError(
                f"{self._record} has format {record.get('format')!r}; this release knows format {_FORMAT}"
            )
        for name, mine in (("input", job.source), ("snapshots", str(job.snapshots))):
            # One that never came to a batch may have had a slip in it.
            if record["query"] is not None and record[name] != mine:
                raise OtherJobError(
                    f"the output folder {job.output} belongs to another job: its {name} is "
                    f"{record[name]}, not "
                    f"{mine}; choose another output folder"
                )
        query = self._checkpoint_query()
        if record["query"] is not None and query is None:
            raise OtherJobError(
                f"the checkpoint {job.checkpoint} of the output folder {job.output} is gone: batches "
                "would be numbered from "
                "0 again and taken for repeats; put the checkpoint back, or choose a new output folder"
            )
        if query != record["query"] and (record["query"] is not None or self._has("commits")):
            raise OtherJobError(self._other_checkpoint())

    def _other_checkpoint(self) -> str:
        return (
            f"the checkpoint {self.job.checkpoint} is not the one that the output folder "
            f"{self.job.output} was written "
            "with: name that one, or choose a new output folder"
        )

    def _has(self, log: str) -> bool:
        folder = self.job.checkpoint / log
        return folder.is_dir() and any(folder.iterdir())

    def _has_begun(self, batch: int) -> bool:
        return any((self.job.output / folder / f"{batch}.json").exists() for folder in ("pins", "_commits"))

    def _checkpoint_query(self) -> str | None:
        """Return whose checkpoint it is; None if there is none, or nothing in it, see ``checkpoint``."""
        path = self.job.checkpoint / "metadata"
        metadata = None if path.is_file() and is_empty(path) else disk.read_json(path)
        return None if metadata is None else str(metadata["id"])

    def _take_lock(self, folder: Path, noun: str) -> None:
        try:
            self._locks.append(FileLock(folder / "_lock", wait=False, create=0o644))
        except BlockingIOError as error:
            self.release()
            raise OtherJobError(f"another process runs a job on the {noun} {folder}") from error
