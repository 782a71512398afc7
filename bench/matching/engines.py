"""Engines of ours in this process: building, the kernel, the index on single messages, the reference
evaluator.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

import selectroute as sr
from bench.engine import Engine, Timed
from bench.workloads.oracle import Expected

DEFAULT_LENGTH: Final = sr.Limits().length
UNLIMITED: Final = sr.Limits(length=2**31, nesting=2**31, items=2**31)
"""An OR of 1,000 branches is longer than what is accepted by default."""


@dataclass(frozen=True)
class Built:
    """A published snapshot, and what building it took."""

    snapshot: sr.Snapshot
    seconds: dict[str, float]
    texts: Callable[[], Iterable[str]]

    @property
    def bytes_a_rule(self) -> float:
        """Bytes of the arrays that matching reads, for each rule: those of the files, and its own."""
        own = sum(int(segment.leaf_groups.nbytes) for segment in self.snapshot.segments)
        return (self.snapshot.nbytes + own) / len(self.snapshot)

    @cached_property
    def index(self) -> sr.Index:
        """The same rules in a mutable index, made when it is first asked for."""
        return indexed(self.texts())

    @cached_property
    def rule_numbers(self) -> npt.NDArray[np.int64]:
        """The rule's number for each ordinal; the ids are ``r`` and the number."""
        return np.array([int(id[1:]) for id in self.snapshot.ids.to_pylist()], np.int64)


def build(texts: Callable[[], Iterable[str]], folder: Path) -> Built:
    """Build rules from their texts to a published snapshot in a folder, and time each step."""
    made = pa.array(list(texts()), pa.string())
    ids = pc.binary_join_element_wise("r", pa.array(range(len(made))).cast(pa.string()), "")
    given = pa.table({"id": ids, "selector": made})
    too_long = pc.max(pc.utf8_length(made)).as_py() > DEFAULT_LENGTH
    times = [time.perf_counter()]
    snapshot = indexed(made.to_pylist()).freeze() if too_long else sr.build_snapshot(given)
    times.append(time.perf_counter())
    sr.publish(snapshot, folder)
    times.append(time.perf_counter())
    seconds = dict(zip(("build", "publish"), np.diff(times).tolist(), strict=True))
    return Built(sr.Snapshot.open(folder), seconds, texts)


def indexed(texts: Iterable[str]) -> sr.Index:
    """Return a mutable index of rules, named ``r`` and their number."""
    index = sr.Index()
    index.add_many((f"r{number}", within_limits(text), None) for number, text in enumerate(texts))
    return index


def within_limits(text: str) -> sr.Selector | str:
    """Return a text as `Index.add` takes it: parsed already if it is longer than what is accepted there."""
    return text if len(text) <= DEFAULT_LENGTH else sr.Selector(text, limits=UNLIMITED)


class KernelEngine(Engine):
    """`Snapshot.match` on record batches, on one core. The first batch begins with the checked messages."""

    name = "kernel"

    def __init__(self, built: Built, batches: Sequence[pa.RecordBatch], checked: int = 2_000) -> None:
        self.messages = sum(batch.num_rows for batch in batches)
        self.bytes_a_rule = built.bytes_a_rule
        self._built = built
        self._snapshot = built.snapshot
        self._batches = batches
        self._checked = batches[0].slice(0, checked)

    def judge(self) -> Expected:
        """See `Engine`."""
        found = self._snapshot.match(self._checked)
        return Expected(len(found.ordinals), int(self._built.rule_numbers[found.ordinals].sum()))

    def run(self) -> int | Timed:
        """See `Engine`."""
        return sum(len(self._snapshot.match(batch).ordinals) for batch in self._batches)


class KernelOneEngine(KernelEngine):
    """`Snapshot.match` on batches of one message: what a batch costs, and the latency of a message."""

    name = "kernel-1"

    def __init__(self, built: Built, batch: pa.RecordBatch, checked: int, count: int) -> None:
        super().__init__(built, [batch], checked)
        self.bytes_a_rule = 0.0  # the kernel's own are known
        self.messages = count
        self._rows = [batch.slice(row, 1) for row in range(count)]

    def run(self) -> Timed:
        """See `Engine`."""
        match = self._snapshot.match
        return _one_by_one(self._rows, lambda one: len(match(one).ordinals))


class MatchOneEngine(Engine):
    """`Snapshot.match_one`, one message after another."""

    name = "match-one"

    def __init__(
        self, built: Built, sent: Sequence[sr.Message], count: int, checked: int | None = None
    ) -> None:
        self._built = built
        self._all = sent[:checked]
        self._sent = sent[:count]
        self.messages = len(self._sent)

    def judge(self) -> Expected:
        """See `Engine`."""
        found = [self._built.snapshot.match_one(message).ordinals for message in self._all]
        return Expected(sum(map(len, found)), sum(int(self._built.rule_numbers[one].sum()) for one in found))

    def run(self) -> Timed:
        """See `Engine`."""
        match = self._built.snapshot.match_one
        return _one_by_one(self._sent, lambda message: len(match(message).ordinals))


class IndexEngine(Engine):
    """`Index.match`, one message after another."""

    name = "index"

    def __init__(
        self, index: sr.Index, sent: Sequence[sr.Message], count: int, checked: int | None = None
    ) -> None:
        self._index = index
        self._all = sent[:checked]
        self._sent = sent[:count]
        self.messages = len(self._sent)

    def judge(self) -> Expected:
        """See `Engine`."""
        found = [int(id[1:]) for message in self._all for id in self._index.match(message)]
        return Expected(len(found), sum(found))

    def run(self) -> Timed:
        """See `Engine`."""
        match = self._index.match
        return _one_by_one(self._sent, lambda message: len(match(message)))


class ReferenceEngine(Engine):
    """Every selector judged by the reference evaluator, for each message."""

    name = "reference"

    def __init__(self, texts: Sequence[str], sent: Sequence[sr.Message], count: int) -> None:
        self.messages = min(count, len(sent))
        self._selectors = [sr.Selector(text, limits=UNLIMITED) for text in texts]
        self._all = sent
        self._sent = sent[:count]

    def judge(self) -> Expected:
        """See `Engine`. Slow: every pair of the checked messages."""
        pairs = (
            (number, one, message) for message in self._all for number, one in enumerate(self._selectors)
        )
        found = [number for number, one, message in pairs if one.matches(message)]
        return Expected(len(found), sum(found))

    def run(self) -> Timed:
        """See `Engine`."""
        return _one_by_one(self._sent, lambda message: sum(one.matches(message) for one in self._selectors))


def to_messages(batch: pa.RecordBatch) -> list[sr.Message]:
    """The messages of a batch as objects, with the types of its columns."""
    wrap = {field.name: _WRAPPERS.get(str(field.type), _same) for field in batch.schema}
    made = []
    for row in batch.to_pylist():
        values = {name: wrap[name](value) for name, value in row.items() if value is not None}
        headers = {name: value for name, value in values.items() if name in _HEADERS}
        made.append(sr.Message(headers, {n: value for n, value in values.items() if n not in _HEADERS}))
    return made


def _one_by_one(items: Sequence[Any], match: Callable[[Any], int]) -> Timed:
    clock = time.perf_counter_ns
    matches, times = 0, np.empty(len(items) + 1, np.int64)
    times[0] = clock()
    for place, item in enumerate(items, 1):
        matches += match(item)
        times[place] = clock()
    return Timed(matches, (times[-1] - times[0]) / 1e9, np.diff(times))


def _same(value: Any) -> Any:
    return value


_HEADERS: Final = ("JMSType", "JMSCorrelationID", "JMSPriority")
_WRAPPERS: Final[dict[str, Callable[[Any], Any]]] = {
    "int8": sr.Byte,
    "int16": sr.Short,
    "int32": sr.Int,
    "int64": sr.Long,
    "float": sr.Float,
    "double": sr.Double,
}
"""By Arrow's names of types; strings and booleans are what they are in Python."""
