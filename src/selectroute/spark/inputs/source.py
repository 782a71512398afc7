"""Protocols of a source of messages, for files and Kafka alike.

A `Source` returns the inputs that Spark has planned for a batch, as a `BatchInput`, which routes them. Its
record in the commit identifies a repeat of the batch, and locates the messages that a backfill, a replay or a
rerun reads again (`ReplayableInput`).
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
    """Outcome of a batch's inputs: counts, the files written, as reported by tasks, additions to the inputs'
    record in the commit, the number of messages of each Kafka topic, the findings of `ReadTypes.unlike`, and
    warnings, of which each key is reported once in all batches.
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
        """Return the record for the commit: ``count``, the ``sha256`` that a repeat of the batch must have,
        and whatever else the source needs to read the input again.
        """

    def route(self, batch: int, settings: TaskSettings) -> Outcome:
        """Route the whole input. Raises `CommitError` if less was read than planned."""


@dataclass(frozen=True, slots=True)
class ReplayableInput:
    """Inputs of a committed batch: those that can be read again, and the names of those that are gone.

    ``sources`` has the deliveries' source of each entry of ``gone``, where it differs. ``unknown`` is the
    reason if the inputs are not known.
    """

    batch: int
    inputs: tuple[Any, ...]
    gone: tuple[str, ...] = ()
    unknown: str = ""
    noun: str = field(default="removed or changed", kw_only=True)
    sources: tuple[str, ...] = field(default=(), kw_only=True)

    @property
    def sentence(self) -> str:
        """Sentence about the missing inputs."""
        if self.unknown:
            return f"the inputs of batch {self.batch} are no longer known: {self.unknown}"
        shown = ", ".join(self.gone[:3]) + (f" and {len(self.gone) - 3} more" if len(self.gone) > 3 else "")
        return f"of batch {self.batch}, {self.noun} since it was routed: {shown}"


class Source(Protocol):
    """Source of a job's messages."""

    @property
    def limit(self) -> int | None:
        """Maximum number of inputs of a batch, in the unit of the source; None for any number."""

    def connect(self) -> str | None:
        """Check that the source is readable, before a stream is started; return the id of its system, such as
        a Kafka cluster, if there is one. Raises SourceError.
        """

    def stream(self) -> DataFrame:
        """Return the stream of the source."""

    def planned(self, checkpoint: Path, batch: int) -> Sequence[Any]:
        """Return the inputs of a batch from Spark's checkpoint."""

    def is_full(self, inputs: Sequence[Any]) -> bool:
        """Return whether a batch of these inputs is at the limit, so that more may be waiting."""

    def batch_input(self, inputs: Sequence[Any], frame: DataFrame | None = None) -> BatchInput:
        """Return the input of a batch; ``frame`` is the stream's, None for a committed batch."""

    def reread(self, commits: Iterable[Mapping[str, Any]], checkpoint: Path) -> list[ReplayableInput]:
        """Return those inputs of each of these committed batches that can be read again."""

    def narrow(self, inputs: Sequence[Any], letters: pa.Table) -> tuple[list[Any], npt.NDArray[np.bool_]]:
        """Return the parts of these inputs with the messages of dead letters (`LETTERS`), and a mask of the
        letters found there.
        """

    def weight(self, letters: pa.Table) -> int:
        """Return the number of inputs, in the unit of `limit`, to read for these dead letters."""
