"""Makers of a benchmark's engines at a size: for a number of messages, none before it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import islice
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Final

import numpy as np
import pyarrow as pa

import selectroute as sr
from bench.definition import Size
from bench.engine import Engine
from bench.jvm import PEERS, JvmEngine
from bench.matching.brute import BruteEngine
from bench.matching.ceiling import Ceiling, CeilingEngine, library
from bench.matching.churn import ENGINES as CHANGES
from bench.matching.churn import ChurnEngine, PublishedEngine
from bench.matching.engines import (
    Built,
    IndexEngine,
    KernelEngine,
    KernelOneEngine,
    MatchOneEngine,
    ReferenceEngine,
    to_messages,
)
from bench.matching.expanded import ExpandedEngine
from bench.workloads import replies
from bench.workloads.catalogue import WORKLOADS

KERNEL_BATCH: Final = 50_000

Makers = Mapping[str, Callable[[int], Engine]]


class Batches:
    """The messages of one size as batches, made once: engines side by side are given the same."""

    def __init__(self, size: Size) -> None:
        self._size = size
        self._messages = WORKLOADS[size.workload].messages
        self._made: dict[int, Any] = {}

    def first(self, count: int) -> list[Any]:
        """Return the first messages, at least those that are checked, in batches of 50,000."""
        count = max(count, self._size.checked)
        starts = range(0, count, KERNEL_BATCH)
        return [self._batch(start).slice(0, min(KERNEL_BATCH, count - start)) for start in starts]

    def _batch(self, start: int) -> Any:
        if start not in self._made:
            self._made[start] = self._messages(self._size.rules, KERNEL_BATCH, start)
        return self._made[start]


def makers(benchmark: str, size: Size, built: Built, scratch: Path, fetch: bool) -> Makers:
    """Return how to make each engine that needs no Spark. Making one may raise `SkippedError`."""
    workload, checked = WORKLOADS[size.workload], size.checked
    batches = Batches(size)
    if benchmark == "single":

        def first(count: int) -> list[sr.Message]:
            return to_messages(batches.first(count)[0].slice(0, max(count, checked)))

        return {
            "kernel-1": lambda count: KernelOneEngine(built, batches.first(count)[0], checked, count),
            "match-one": lambda count: MatchOneEngine(built, first(count), count, checked),
            "index": lambda count: IndexEngine(built.index, first(count), count, checked),
            "reference": lambda count: ReferenceEngine(
                list(workload.texts(size.rules)), first(checked), count
            ),
        }
    if benchmark == "change":

        def change(count: int) -> Engine:
            new = np.arange(size.rules, size.rules + count // 2)
            asked = pa.RecordBatch.from_pydict({"JMSCorrelationID": replies.correlation_ids(new)})
            texts = list(replies.selectors(len(new), size.rules))
            folder = Path(mkdtemp(dir=scratch))
            return PublishedEngine(built, batches.first(checked)[0], checked, asked, texts, folder)

        return {"change": change}
    if benchmark == "churn":
        sent = to_messages(batches.first(checked)[0].slice(0, checked))

        def changes(name: str) -> Callable[[int], Engine]:
            def make(count: int) -> Engine:
                more = islice(workload.texts(size.rules + count), size.rules, None)
                return ChurnEngine(name, built.index, sent, list(more))

            return make

        return {name: changes(name) for name in CHANGES}

    def ceiling(name: str) -> Callable[[int], Engine]:
        def make(count: int) -> Engine:
            assert workload.triples is not None
            compiled = library(scratch / "ceiling")
            return CeilingEngine(
                name, Ceiling(compiled, workload.triples(size.rules)), batches.first(count), checked
            )

        return make

    def peer(name: str) -> Callable[[int], Engine]:
        return lambda count: JvmEngine(name, size.workload, size.rules, count, fetch)

    made: dict[str, Callable[[int], Engine]] = {
        "kernel": lambda count: KernelEngine(built, batches.first(count), checked),
        "expanded": lambda count: ExpandedEngine(workload.texts, size.rules, batches.first(count), checked),
        "numpy": lambda count: BruteEngine(
            list(workload.conditions(size.rules)), batches.first(count), checked
        ),
        **{name: peer(name) for name in PEERS},
    }
    if workload.triples is not None:
        made |= {name: ceiling(name) for name in ("c", "c-codes")}
    return made
