"""The files of a committed batch, to be read again: those that are still what they were."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from selectroute.spark.batches import file_size
from selectroute.spark.commits import inputs_digest
from selectroute.spark.job import Job
from selectroute.spark.plan import source_name
from selectroute.spark.sources import SourceError, batch_files


@dataclass(frozen=True, slots=True)
class Again:
    """The files of a committed batch: those to read again, and why others can't be."""

    batch: int
    paths: tuple[Path, ...]
    gone: tuple[str, ...] = ()
    unknown: str = ""

    @property
    def sentence(self) -> str:
        """What is missing."""
        if self.unknown:
            return f"the files of batch {self.batch} are not known any more: {self.unknown}"
        shown = ", ".join(self.gone[:3]) + (f" and {len(self.gone) - 3} more" if len(self.gone) > 3 else "")
        return f"of batch {self.batch}, removed or changed since it was routed: {shown}"


def files_again(job: Job, commit: Mapping[str, Any]) -> Again:
    """Return the files that were the batch's, as far as they are still the same."""
    batch, inputs = commit["batch"], commit["inputs"]
    if "sizes" not in inputs:
        return _files_of_old(job, batch, inputs["sha256"])
    paths = {name: job.input / name for name in inputs["sizes"]}
    same = {
        name for name, size in inputs["sizes"].items() if size is not None and file_size(paths[name]) == size
    }
    gone = tuple(name for name in paths if name not in same)
    return Again(batch, tuple(paths[name] for name in paths if name in same), gone)


def _files_of_old(job: Job, batch: int, digest: str) -> Again:
    """Return the files of a batch that an earlier release committed: Spark knows those of its newest
    batches.
    """
    try:
        paths = batch_files(job.checkpoint, batch)
    except SourceError as error:
        return Again(batch, (), unknown=str(error))
    names = [source_name(path, job.input) for path in paths]
    if inputs_digest(names) != digest:
        return Again(batch, (), unknown=f"the checkpoint {job.checkpoint} names others")
    gone = tuple(name for name, path in zip(names, paths, strict=True) if not path.is_file())
    return Again(batch, tuple(path for path in paths if path.is_file()), gone)
