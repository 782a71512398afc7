"""What a batch takes in, asked the same of every source.

A `Source` knows what its stream has planned for a batch, and makes an `Intake` of that: something that can be
routed, and of which the commit keeps a record, so that a batch that comes again is known to be the same, and
can be read again for whoever missed it.
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

from selectroute.spark.sinks import Counts
from selectroute.spark.worker import Work


class Outcome(NamedTuple):
    """What became of an intake: counts, the files that were written as tasks report them, what the commit
    is to say of the inputs besides their record, how many messages came of each topic of Kafka, what
    `ReadTypes.unlike` found, and sentences to be said once in all batches for each key.
    """

    counts: Counts
    files: list[dict[str, Any]]
    found: dict[str, Any]
    topics: Mapping[str, int] = MappingProxyType({})
    unlike: Mapping[str, tuple[str, bool]] = MappingProxyType({})
    warnings: Mapping[str, str] = MappingProxyType({})


class Intake(Protocol):
    """What one batch takes in."""

    def record(self) -> dict[str, Any]:
        """What the commit says of it: ``count``, and ``sha256`` of what must be the same when it comes again,
        with whatever else the source needs to read it again.
        """

    def route(self, batch: int, work: Work) -> Outcome:
        """Route all of it. Raises `CommitError` if something that was planned did not come."""


@dataclass(frozen=True, slots=True)
class Again:
    """What a committed batch took in: what can be read again, and why the rest can't be.

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
        """What is missing."""
        if self.unknown:
            return f"what batch {self.batch} took in is not known any more: {self.unknown}"
        shown = ", ".join(self.gone[:3]) + (f" and {len(self.gone) - 3} more" if len(self.gone) > 3 else "")
        return f"of batch {self.batch}, {self.noun} since it was routed: {shown}"


class Source(Protocol):
    """Where the messages of a job come from."""

    @property
    def limit(self) -> int | None:
        """The most inputs of a batch, in whatever they are counted; None for any number."""

    def connect(self) -> str | None:
        """Make sure that it can be read, before a stream is started; return what tells its system from
        others of its kind, if something does. Raises SourceError.
        """

    def stream(self) -> DataFrame:
        """The stream whose batches these are."""

    def planned(self, checkpoint: Path, batch: int) -> Sequence[Any]:
        """What Spark's checkpoint has for a batch."""

    def is_full(self, inputs: Sequence[Any]) -> bool:
        """Whether a batch of these inputs took as many as it may, so that more may be waiting."""

    def intake(self, inputs: Sequence[Any], frame: DataFrame | None = None) -> Intake:
        """What these inputs are for a batch; ``frame`` is the batch of the stream, None for one of old."""

    def again(self, commits: Iterable[Mapping[str, Any]], checkpoint: Path) -> list[Again]:
        """What each of these committed batches took in, as far as it is still there."""

    def narrow(self, inputs: Sequence[Any], letters: pa.Table) -> tuple[list[Any], npt.NDArray[np.bool_]]:
        """Return the parts of these inputs in which the messages of dead letters (`LETTERS`) are, and which
        of the letters these are.
        """

    def weight(self, letters: pa.Table) -> int:
        """How many inputs, as `limit` counts them, are read for these dead letters."""
