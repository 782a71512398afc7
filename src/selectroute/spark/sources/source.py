"""Protocols of a source of messages, for files, Kafka and DataFrames alike.

A `Source` returns the inputs that Spark has planned for a batch, as a `BatchInput`, which routes them. Its
record in the commit identifies a repeat of the batch, and locates the messages that a backfill, a replay or a
rerun reads again (`ReplayableInput`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame

from selectroute.selector.message import Message
from selectroute.spark.job import Commit
from selectroute.spark.session import Runner
from selectroute.spark.tables.schemas import Counts, busiest_of
from selectroute.spark.task.task import TaskSettings

Mask: TypeAlias = npt.NDArray[np.bool_]

OfTasks = TypeVar("OfTasks")
"""Work of the tasks of a batch, in the form that a source runs."""


class Outcome(NamedTuple):
    """Outcome of a batch's inputs: counts, the files written, as reported by tasks, additions to the inputs'
    record in the commit, the number of messages of each Kafka topic, the findings of `ReadTypes.unlike`,
    warnings, of which each key is reported once in all batches, and the deliveries of the busiest
    subscriptions, if they are counted.
    """

    counts: Counts
    files: list[dict[str, Any]]
    additions: Mapping[str, Any] = MappingProxyType({})
    topics: Mapping[str, int] = MappingProxyType({})
    unlike: Mapping[str, tuple[str, bool]] = MappingProxyType({})
    warnings: Mapping[str, str] = MappingProxyType({})
    busiest: Mapping[str, int] = MappingProxyType({})

    @classmethod
    def of(cls, reports: Sequence[Mapping[str, Any]], **more: Any) -> Outcome:
        """Return the outcome of tasks by their reports; ``more`` are the fields that the source adds."""
        counts = Counts()
        for report in reports:
            counts.add(Counts(**report["counts"]))
        files = [file for report in reports for file in report["files"]]
        return cls(counts, files, busiest=busiest_of(report["busiest"] for report in reports), **more)


class TaskAttempts(Protocol):
    """Runs the tasks of a batch until each is done; see ``batch/attempts.py``."""

    def complete(
        self,
        run: Callable[[OfTasks, Sequence[int]], list[dict[str, Any]]],
        work_of: Callable[[TaskSettings], OfTasks],
        settings: TaskSettings,
        count: int,
    ) -> list[dict[str, Any]]:
        """Run the tasks from 0 to below ``count``; return their reports in order."""


class BatchInput(Protocol):
    """Input of one batch."""

    def record(self) -> dict[str, Any]:
        """Return the record for the commit: ``count``, the ``sha256`` that a repeat of the batch must have,
        and whatever else the source needs to read the input again.
        """

    def plan(self, tasks: int) -> dict[str, Any]:
        """Return the plan of the input in at most this number of tasks, as JSON, for `by` and `follows`."""

    def follows(self, plan: Mapping[str, Any]) -> bool:
        """Return whether the input can be routed by a plan that `plan` returned before."""

    def by(self, plan: Mapping[str, Any]) -> BatchInput:
        """Return the input to be routed by this plan. A little of it may be read now, while the plan is
        written, so that no task waits for it later.
        """

    @property
    def remedy(self) -> str:
        """Remedy for an input that has changed since it was planned, as a clause."""

    def route(self, batch: int, settings: TaskSettings, attempts: TaskAttempts) -> Outcome:
        """Route the whole input. Raises `CommitError` if less was read than planned."""


@dataclass(frozen=True, slots=True)
class ReplayableInput:
    """Inputs of a committed batch: the ones that can be read again, and the names of the ones that are gone.

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

    @property
    def run(self) -> Runner:
        """Function that runs tasks in the workers that batches have."""

    @property
    def tasks(self) -> int:
        """Maximum number of tasks of a batch, unless the source is asked for more."""

    def stream(self, checkpoint: Path) -> DataFrame:
        """Return the stream of the source, which plans the batches."""

    def planned(self, checkpoint: Path, batch: int, frame: DataFrame) -> Sequence[Any]:
        """Return the inputs of a batch from Spark's checkpoint; ``frame`` has the rows of its stream."""

    def batch_input(self, inputs: Sequence[Any], again: bool = False) -> BatchInput:
        """Return the input of a batch; ``again`` if it was read before, and some of it may be gone."""

    def reread(self, commits: Iterable[Commit]) -> list[ReplayableInput]:
        """Return the inputs of each committed batch that can be read again."""

    def narrow(self, inputs: Sequence[Any], letters: pa.Table) -> tuple[list[Any], Mask]:
        """Return the parts of these inputs with the messages of dead letters (`LETTERS`), and a mask of the
        letters found there.
        """

    def weight(self, letters: pa.Table) -> int:
        """Return the number of inputs, in the unit of `limit`, to read for these dead letters."""

    def sample(self, inputs: Sequence[Any], count: int) -> list[Message]:
        """Return up to ``count`` messages, all from one input. Raises the errors of reading."""
