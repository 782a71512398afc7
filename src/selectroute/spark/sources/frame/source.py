"""Rows of a streaming DataFrame as the input of a batch: Spark plans them, its partitions are the tasks.

``foreachBatch`` gives the frame of a batch. Each job on it computes its rows from the source once more, so an
attempt of a batch is one job, which reads, matches and writes. Afterwards only Spark's query could read them
again, so backfills, replays and reruns have no rows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from selectroute.index.destination import KAFKA, QUEUE
from selectroute.index.snapshot import Snapshot
from selectroute.match.columns.from_messages import BODY
from selectroute.match.columns.missing import MissingColumnError, missing_columns
from selectroute.selector.message import Message
from selectroute.selector.names import INVALID_NAMES
from selectroute.spark.columns.binding import bind, by_position, columns_of
from selectroute.spark.columns.casts import unlike_values
from selectroute.spark.columns.column_types import (
    by_identifier,
    can_be_property,
    constants_unlike,
    invalid_names,
    unlike_types,
)
from selectroute.spark.columns.frame_input import FrameInput
from selectroute.spark.columns.snapshot_ref import open_once
from selectroute.spark.destinations.destination import destinations
from selectroute.spark.job import Commit, CommitError
from selectroute.spark.session import Runner
from selectroute.spark.sources.checkpoint import batch_offsets, offsets_digest
from selectroute.spark.sources.frame.reader import HASH, LETTER, PLACE, RowLayout, RowReader
from selectroute.spark.sources.source import Mask, Outcome, ReplayableInput, TaskAttempts
from selectroute.spark.task.task import Reader, TaskSettings, run_once
from selectroute.topics.filter import TOPIC

_IDS: Final = ("@id", "JMSMessageID")
_REPORT: Final = "report string"
_NO_OFFSET: Final = (
    "deliveries of the frame {0!r} are put to queues or sent to Kafka, and its rows have no position with an "
    "offset: if the job ends in the middle of a batch, and Spark then plans its partitions in another order, "
    "as some sources do, the job stops with an error; name the columns of the position"
)
_GONE: Final = "the rows of a DataFrame can be read only while their batch is routed"


class FrameBatch(NamedTuple):
    """Batch of a frame: its rows, and its end in each source of the frame."""

    rows: DataFrame
    offsets: list[str]


class FrameSource:
    """Source of the rows of a streaming DataFrame; see `Source`.

    Args:
        input: the frame.
        run: runs tasks in the workers that batches have.
        tasks: number of concurrent tasks.
    """

    limit = None

    def __init__(self, input: FrameInput, run: Runner, tasks: int) -> None:
        self.input = input
        self.run = run
        self.tasks = tasks

    def connect(self) -> None:
        """Do nothing: Spark has opened the sources of the frame."""

    def stream(self, checkpoint: Path) -> DataFrame:
        """Return the frame."""
        return self.input.frame

    def planned(self, checkpoint: Path, batch: int, frame: DataFrame | None = None) -> list[FrameBatch]:
        """Return the batch of this frame."""
        assert frame is not None, "rows come with their batch"
        return [FrameBatch(frame, batch_offsets(checkpoint, batch))]

    def batch_input(self, inputs: Sequence[FrameBatch], again: bool = False) -> FrameBatchInput:
        """Return this batch as an input; without one, an input of no rows."""
        return FrameBatchInput(inputs[0] if inputs else None, self)

    def reread(self, commits: Iterable[Commit]) -> list[ReplayableInput]:
        """Return that no batch can be read again."""
        return [ReplayableInput(commit["batch"], (), unknown=_GONE) for commit in commits]

    def narrow(self, inputs: Sequence[FrameBatch], letters: pa.Table) -> tuple[list[FrameBatch], Mask]:
        """Return nothing."""
        return [], np.zeros(len(letters), np.bool_)

    def weight(self, letters: pa.Table) -> int:
        """Return 0: nothing is read."""
        return 0

    def sample(self, inputs: Sequence[Any], count: int) -> list[Message]:
        """Return none: the rows are gone."""
        return []


class FrameBatchInput:
    """Rows of one batch; see `BatchInput`."""

    remedy = (
        "rows without an offset must come in the partitions that they had; make the frame as it was, or name "
        "an offset in the position, with a new output folder"
    )

    def __init__(self, batch: FrameBatch | None, source: FrameSource, tasks: int | None = None) -> None:
        self._batch = batch
        self._source = source
        self._tasks = tasks

    def record(self) -> dict[str, Any]:
        """Return the number of the frame's sources, the end of the batch in each, and the digest of these."""
        offsets = [] if self._batch is None else self._batch.offsets
        return {"count": len(offsets), "sha256": offsets_digest(offsets), "offsets": offsets}

    def plan(self, tasks: int) -> dict[str, Any]:
        """Return the number of tasks over which rows are spread by their positions; of rows without an offset
        the number of the frame's partitions, each of which is a task.
        """
        if self._batch is None or self._source.input.position.offset is None:
            return {"partitions": self._partitions()}
        return {"tasks": tasks}

    def follows(self, plan: Mapping[str, Any]) -> bool:
        """Return whether rows are spread as in this plan, or the frame has its partitions."""
        if self._source.input.position.offset is not None:
            return "tasks" in plan
        return bool(plan.get("partitions") == self._partitions())

    def by(self, plan: Mapping[str, Any]) -> FrameBatchInput:
        """Return the input in the tasks of this plan."""
        return FrameBatchInput(self._batch, self._source, plan.get("tasks"))

    def route(self, batch: int, settings: TaskSettings, attempts: TaskAttempts) -> Outcome:
        """Route the rows, in tasks. Raises `CommitError`."""
        if self._batch is None:
            return Outcome.of([])
        selected = _selected(self._source.input, self._batch.rows, batch, settings, self._tasks)
        run = _runner(selected.rows, selected.layout)
        tasks = self._partitions() if self._tasks is None else self._tasks
        reports = attempts.complete(run, lambda settings: settings, settings, tasks)
        return Outcome.of(reports, unlike=selected.unlike, warnings=selected.warnings)

    def _partitions(self) -> int:
        # It plans the rows, and computes none.
        return 0 if self._batch is None else self._batch.rows.rdd.getNumPartitions()


class _Selected(NamedTuple):
    """Rows with the columns to send to the workers, and the warnings about these columns."""

    rows: DataFrame
    layout: RowLayout
    unlike: dict[str, tuple[str, bool]]
    warnings: dict[str, str]


def _selected(
    input: FrameInput, rows: DataFrame, batch: int, settings: TaskSettings, tasks: int | None
) -> _Selected:
    schema, binding = rows.schema, input.binding
    exact, columns = by_position(rows)
    snapshot = open_once(settings.snapshot)
    is_full = any(
        kind in settings.destinations and destinations(snapshot, kind) is not None for kind in (QUEUE, KAFKA)
    )
    bound = bind(schema, settings.names(snapshot), binding)
    unlike = unlike_types(snapshot, bound)
    wrong = {name for name, (_, is_binary) in unlike.items() if not is_binary}
    chosen = {
        column.identifier: unlike_values(column.read(schema, columns))
        if column.identifier in wrong
        else column.read(schema, columns)
        for column in bound
    }
    if INVALID_NAMES in snapshot.reads and INVALID_NAMES not in chosen:
        chosen[INVALID_NAMES] = invalid_names(schema, columns, binding)
    ids = bind(schema, _IDS, binding)[:1]
    parts = by_identifier(schema, binding) if is_full else ()
    others = [name for name in parts if not name.startswith("@") or name in (TOPIC, BODY)]
    for other in (*ids, *bind(schema, others, binding)):
        if other.identifier not in chosen:
            values = other.read(schema, columns)
            chosen[other.identifier] = values if can_be_property(other.type) else unlike_values(values)
    if not chosen:
        chosen["@none"] = F.lit(False)
    more = _more(input, exact, schema, columns)
    if settings.row_digests is not None:
        more[HASH] = F.xxhash64(*chosen.values(), *more.values())
    every = (*chosen.values(), *more.values())
    narrow = exact.select(*(column.alias(f"c{number}") for number, column in enumerate(every)))
    warnings = _missing(input, schema, snapshot)
    warnings |= {sentence: sentence for sentence in constants_unlike(snapshot, bound)}
    if tasks is not None:
        narrow = _spread(narrow, tasks, len(chosen), list(more))
    elif settings.row_digests is not None:
        warnings |= {_NO_OFFSET: _NO_OFFSET.format(input.name)}
    id_name = ids[0].identifier if ids else None
    layout = RowLayout(input.name, batch, tuple(chosen), tuple(more), id_name, is_full)
    sentences = {name: (str(error), is_binary) for name, (error, is_binary) in unlike.items()}
    return _Selected(narrow, layout, sentences, warnings)


def _spread(rows: DataFrame, tasks: int, first: int, more: Sequence[str]) -> DataFrame:
    """Return the rows partitioned and sorted by their positions.

    A source may plan its partitions in another order after a restart, and rows that come through a shuffle
    are in another order each time. Rows of one source and partition stay together, in their order.

    Args:
        first: the number of the first of the columns ``more``.
    """
    columns = {name: f"c{first + number}" for number, name in enumerate(more)}
    keys = [columns[name] for name in PLACE if name in columns]
    return rows.repartition(tasks, *(keys[:-1] or keys)).sortWithinPartitions(*keys, columns[HASH])


def _more(
    input: FrameInput, exact: DataFrame, schema: StructType, columns: Sequence[Column]
) -> dict[str, Column]:
    """Return the additional columns: the position, and the row as JSON where a part of it is NULL."""
    types = dict(zip(PLACE, ("string", "int", "bigint"), strict=True))
    places = input.places(schema).items()
    more = {part: column.read(schema, columns).cast(types[part]) for part, column in places}
    if more:
        whole = F.to_json(
            F.struct(*(column.alias(name) for column, name in zip(columns, schema.names, strict=True)))
        )
        try:
            exact.select(whole.alias("whole"))
        except AnalysisException:  # a type that JSON does not have
            whole = F.lit("{}")
        is_null = F.lit(False)
        for column in more.values():
            is_null = is_null | column.isNull()
        more[LETTER] = F.when(is_null, whole)
    return more


def _missing(input: FrameInput, schema: StructType, snapshot: Snapshot) -> dict[str, str]:
    """Return the warning about columns that selectors read and the frame lacks."""
    columns, groups = columns_of(schema)
    present = {*columns, *groups, *input.binding.columns}
    missing = missing_columns(snapshot.reads, present)
    if not missing:
        return {}
    sentence = str(MissingColumnError(missing, present, f"the frame {input.name!r}"))
    return {", ".join(["missing", *missing]): sentence}


def _runner(
    rows: DataFrame, layout: RowLayout
) -> Callable[[TaskSettings, Sequence[int]], list[dict[str, Any]]]:
    """Return the function that runs tasks of a batch, as one Spark job."""

    def run(settings: TaskSettings, numbers: Sequence[int]) -> list[dict[str, Any]]:
        done: list[dict[str, Any]] = []
        held: dict[int, dict[str, str]] = {}
        left = set(numbers)
        while left:
            routed = rows.mapInArrow(_task(layout, settings, held, frozenset(left)), _REPORT)
            reports = [json.loads(row.report) for row in routed.collect()]
            if sorted(report["task"] for report in reports) != sorted(left):
                raise CommitError(f"{len(left)} tasks were run, and {len(reports)} reported")
            for report in reports:
                if "refuses" in report:
                    held.setdefault(report["task"], {}).update(report["refuses"])
                else:
                    left.remove(report["task"])
                    done.append(report)
        return done

    return run


def _task(
    layout: RowLayout, settings: TaskSettings, held: Mapping[int, Mapping[str, str]], numbers: Collection[int]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function that routes a partition, if its task is one of these numbers."""

    def route(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        task = context.partitionId()
        if task not in numbers:
            return

        def reader_of(snapshot: Snapshot, settings: TaskSettings, full: bool) -> Reader:
            return RowReader(batches, layout, task, settings, full)

        report = run_once(reader_of, settings, task, held.get(task, {}))
        yield pa.RecordBatch.from_pydict({"report": [json.dumps(report)]})

    return route
