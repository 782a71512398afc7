"""What is measured in this process: building, the kernel, the index on single messages, the reference
evaluator.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import selectroute as sr
from bench.oracle import Expected
from bench.workloads import rules, selectors


class Engine(Protocol):
    """One engine with one set of rules and its messages."""

    name: str
    messages: int

    def judge(self) -> Expected:
        """Match the first 2,000 messages of the workload; the answer is compared with the expected counts."""

    def run(self) -> int | None:
        """Match all messages: this is what is timed. Returns the matches where the engine knows them
        anyway.
        """


@dataclass(frozen=True, slots=True)
class Built:
    """A published snapshot, the index it was frozen from, and what building took."""

    snapshot: sr.Snapshot
    index: sr.Index
    seconds: dict[str, float]

    @property
    def bytes_a_rule(self) -> float:
        """Bytes of the arrays that matching reads, for each rule."""
        return self.snapshot.nbytes / len(self.snapshot)


def build(workload: str, count: int, folder: Path | None = None) -> Built:
    """Build the rules of a workload from their texts to a published snapshot, and time each step."""
    folder = folder or Path(tempfile.mkdtemp(prefix="selectroute-bench-"))
    texts = list(selectors(rules(workload, count)))
    times = [time.perf_counter()]
    index = sr.Index()
    index.add_many((f"r{number}", text, None) for number, text in enumerate(texts))
    times.append(time.perf_counter())
    snapshot = index.freeze()
    times.append(time.perf_counter())
    sr.publish(snapshot, folder)
    times.append(time.perf_counter())
    seconds = dict(zip(("index", "freeze", "publish"), np.diff(times).tolist(), strict=True))
    return Built(sr.Snapshot.open(folder), index, seconds)


def rule_numbers(snapshot: sr.Snapshot) -> npt.NDArray[np.int64]:
    """The rule's number for each ordinal; the ids are ``r`` and the number."""
    return np.array([int(id[1:]) for id in snapshot.ids.to_pylist()], np.int64)


class KernelEngine:
    """`Snapshot.match` on record batches, on one core. The first batch begins with the checked messages."""

    name = "kernel"

    def __init__(
        self, snapshot: sr.Snapshot, batches: Sequence[pa.RecordBatch], checked: int = 2_000
    ) -> None:
        self.messages = sum(batch.num_rows for batch in batches)
        self._snapshot = snapshot
        self._batches = batches
        self._checked = batches[0].slice(0, checked)

    def judge(self) -> Expected:
        """See `Engine`."""
        found = self._snapshot.match(self._checked)
        return Expected(len(found.ordinals), int(rule_numbers(self._snapshot)[found.ordinals].sum()))

    def run(self) -> int:
        """See `Engine`."""
        return sum(len(self._snapshot.match(batch).ordinals) for batch in self._batches)


class IndexEngine:
    """`Index.match`, one message after another."""

    name = "index"

    def __init__(self, index: sr.Index, sent: Sequence[sr.Message]) -> None:
        self.messages = len(sent)
        self._index = index
        self._sent = sent

    def judge(self) -> Expected:
        """See `Engine`."""
        found = [int(id[1:]) for message in self._sent for id in self._index.match(message)]
        return Expected(len(found), sum(found))

    def run(self) -> int:
        """See `Engine`."""
        return sum(len(self._index.match(message)) for message in self._sent)


class ReferenceEngine:
    """Every selector judged by the reference evaluator, for each message."""

    name = "reference"

    def __init__(self, texts: Sequence[str], sent: Sequence[sr.Message], count: int) -> None:
        self.messages = count
        self._selectors = [sr.Selector(text) for text in texts]
        self._all = sent
        self._sent = sent[:count]

    def judge(self) -> Expected:
        """See `Engine`. Slow: every pair of the checked messages."""
        pairs = (
            (number, one, message) for message in self._all for number, one in enumerate(self._selectors)
        )
        found = [number for number, one, message in pairs if one.matches(message)]
        return Expected(len(found), sum(found))

    def run(self) -> int:
        """See `Engine`."""
        return sum(one.matches(message) for message in self._sent for one in self._selectors)


def to_messages(batch: pa.RecordBatch) -> list[sr.Message]:
    """The messages of a batch as objects, with the types of its columns."""
    return [_message(row) for row in batch.to_pylist()]


def _message(row: dict[str, Any]) -> sr.Message:
    headers = {"JMSType": row["JMSType"], "JMSCorrelationID": row["JMSCorrelationID"]}
    properties = {"color": row["color"], "weight": sr.Int(row["weight"]), "qty": sr.Int(row["qty"])}
    properties |= {"region": row["region"], "urgent": row["urgent"]}
    return sr.Message({**headers, "JMSPriority": sr.Int(row["JMSPriority"])}, properties)
