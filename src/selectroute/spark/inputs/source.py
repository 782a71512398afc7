"""Protocols of a source: what a batch takes in, asked the same of files and of Kafka.

A `Source` knows what its stream has planned for a batch, and makes a `BatchInput` of it. That can be
routed, and the commit keeps a record of it: by this a batch that comes again is known to be the same, and its
messages are read again for those who missed them (`ReplayableInput`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame

from selectroute.spark.sinks.counts import Counts
from selectroute.spark.worker.task import TaskSettings


class Outcome(NamedTuple):
    """Outcome of a batch's inputs: counts, the files that were written as tasks report them, what the commit
    is to say of the inputs besides their record, how many messages came of each topic of Kafka, what
    `ReadTypes.unlike` found, and sentences to be said once in all batches for each key.
    """

    counts: Counts
    files: list[dict[str, Any]]
    found: dict[str, Any]
    topics: Mapping[str, int] = MappingProxyType({})
    unlike: Mapping[str, tuple[str, bool]] = MappingProxyType({})
    warnings: Mapping[str, str] = MappingProxyType({})


class BatchInput(Protocol):
    """Input of one batch."""

    def record(self) -> dict[str, Any]:
        """Return what the commit says of it: ``count``, and ``sha256`` of what must be the same when it comes
        again, with whatever else the source needs to read it again.
        """

    def route(self, batch: int, settings: TaskSettings) -> Outcome:
        """Route all of it. Raises `CommitError` if something that was planned did not come."""


@dataclass(frozen=True, slots=True)
class ReplayableInput:
    """Inputs of a committed batch: those that can be read again, and why the others can't.

    ``sources`` is the source of each thing that is ``gone``, as deliveries name it, if that is not its own
    name.
    """

    batch: int
    inputs: tuple[Any, ...]
    gone: tuple[str, ...] = ()
    unknown: str = ""
    noun: str = field(default="removed or changed", kw_only=True)
    sources: tuple[str, ...] = field(default=(), kw_only=True)

    @property
    def sentence(self) -> str:
        """Sentence that says what is missing."""
        if self.unknown:
            return f"what batch {self.batch} took in is not known any more: {self.unknown}"
        shown = ", ".join(self.gone[:3]) + (f" and {len(self.gone) - 3} more" if len(self.gone) > 3 else "")
        return f"of batch {self.batch}, {self.noun} since it was routed: {shown}"


class Source(Protocol):
    """Source of a job's messages."""

    @property
    def limit(self) -> int | None:
        """Limit of the inputs of a batch, in the unit of the source; None for any number."""

    def connect(self) -> str | None:
        """Make sure that it can be read, before a stream is started; return what tells its system from
        others of its kind, if something does. Raises SourceError.
        """

    def stream(self) -> DataFrame:
        """Return the stream whose batches these are."""

    def planned(self, checkpoint: Path, batch: int) -> Sequence[Any]:
        """Return what Spark's checkpoint has for a batch."""

    def is_full(self, inputs: Sequence[Any]) -> bool:
        """Return whether a batch of these inputs took as many as it may, so that more may be waiting."""

    def batch_input(self, inputs: Sequence[Any], frame: DataFrame | None = None) -> BatchInput:
        """Return these as a batch's; ``frame`` is the batch of the stream, None for one of old."""

    def reread(self, commits: Iterable[Mapping[str, Any]], checkpoint: Path) -> list[ReplayableInput]:
        """Return what each of these committed batches took in, as far as it is still there."""

    def narrow(self, inputs: Sequence[Any], letters: pa.Table) -> tuple[list[Any], npt.NDArray[np.bool_]]:
        """Return the parts of these inputs in which the messages of dead letters (`LETTERS`) are, and which
        of the letters these are.
        """

    def weight(self, letters: pa.Table) -> int:
        """Return how many inputs, as `limit` counts them, are read for these dead letters."""
