"""Engines on queues: messages are taken by an id or a selector, and put; see `bench.queues.queued`.

An engine takes messages by the chunk and puts them back, and the clock stands still meanwhile. What a chunk
is asked for by is made just before, as in a program that has just received it.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Final

import numpy as np

import selectroute as sr
from bench.definition import Size
from bench.engine import Engine, Timed
from bench.queues.queued import GROUP, DictHolder, Holder, QueueHolder, SortedHolder, TableHolder, asked
from bench.workloads.oracle import Expected
from bench.workloads.plain import Ints


class QueueEngine(Engine):
    """Messages of one holder."""

    chunk = 500
    """How many are taken or put before the clock stands still again."""

    taken_by: str | None = None
    """By what messages are taken, if not by what the engine is named after."""

    def __init__(self, name: str, holder: Holder, size: Size, count: int, clock: Callable[[], int]) -> None:
        self.name = name
        self._holder = holder
        self._size = size
        self._clock = clock
        self._chunk = min(self.chunk, size.rules // 2, count)
        self.messages = self.must_find = count // self._chunk * self._chunk

    @abstractmethod
    def run(self) -> Timed:
        """See `Engine`."""

    def judge(self) -> Expected:
        """Take the checked messages; what is found are their numbers. See `Engine`."""
        numbers = asked(self._size.rules, 0, self._size.checked)
        right = self._taken(numbers)[0]
        return Expected(int(right.sum()), int(numbers[right].sum()))

    def _taken(self, numbers: Ints) -> tuple[Ints, int]:
        """Which messages were those asked for, and nanoseconds of taking them; they are there again then."""
        kind = self.taken_by or self.name
        wanted = self._holder.wanted(kind, numbers)
        started = self._clock()
        found = self._holder.take(wanted)
        elapsed = self._clock() - started
        got = np.array([int(body) for body in found])
        self._holder.put(self._holder.prepared(got))
        # Of a group that is asked for without a number, any message is right.
        of = GROUP if kind == "group-id" else 1
        return got // of == numbers // of, elapsed


class TakeEngine(QueueEngine):
    """Messages are taken."""

    def run(self) -> Timed:
        """See `Engine`."""
        right = elapsed = 0
        for _ in range(self.messages // self._chunk):
            here, time_of_it = self._taken(self._holder.next(self._chunk))
            right, elapsed = right + int(here.sum()), elapsed + time_of_it
        return Timed(right, elapsed / 1e9)


class SelectEngine(QueueEngine):
    """The same few messages are taken again and again, by selectors that were compiled before."""

    def run(self) -> Timed:
        """See `Engine`."""
        right = elapsed = 0
        numbers = asked(self._size.rules, 0, self._chunk)
        for _ in range(self.messages // self._chunk):
            here, time_of_it = self._taken(numbers)
            right, elapsed = right + int(here.sum()), elapsed + time_of_it
        return Timed(right, elapsed / 1e9)


class PutEngine(QueueEngine):
    """Further messages are put, and then taken out again."""

    taken_by = "correl-id"

    def run(self) -> Timed:
        """See `Engine`."""
        right = elapsed = 0
        for first in range(self._size.rules, self._size.rules + self.messages, self._chunk):
            numbers = np.arange(first, first + self._chunk)
            prepared = self._holder.prepared(numbers)
            started = self._clock()
            self._holder.put(prepared)
            elapsed += self._clock() - started
            found = self._holder.take(self._holder.wanted(self.taken_by, numbers))
            right += sum(int(body) == number for body, number in zip(found, numbers.tolist(), strict=True))
        return Timed(right, elapsed / 1e9)


class DepthEngine(QueueEngine):
    """The depth of the queue is asked for."""

    taken_by = "correl-id"

    def run(self) -> Timed:
        """See `Engine`."""
        holder = self._holder
        assert isinstance(holder, QueueHolder)
        started = self._clock()
        right = sum(holder.queue.depth == holder.size for _ in range(self.messages))
        return Timed(right, (self._clock() - started) / 1e9)


class Queues:
    """The holders of one size, each made when an engine first needs it."""

    def __init__(self, size: Size, scratch: Path) -> None:
        self._size = size
        self._scratch = scratch
        self._made: list[Holder] = []
        self.holder = cache(self._make)

    def _make(self, kind: str) -> Holder:
        """A holder by its kind."""
        size, path = self._size.rules, self._scratch / f"{kind}.db"
        holder: Holder
        if kind == "dict":
            holder = DictHolder(size)
        elif kind == "sorted-dicts":
            holder = SortedHolder(size)
        elif kind == "sqlite":
            holder = TableHolder(size)
        elif kind == "sqlite-file":
            holder = TableHolder(size, path)
        elif kind == "sql-queue":
            holder = QueueHolder(size, sr.SqlQueue.create(f"sqlite:///{path}", "BENCH"))
        else:
            holder = QueueHolder(size, sr.MemoryQueue(), properties=kind == "queue-of-properties")
        self._made.append(holder)
        return holder

    def close(self) -> None:
        """Close them all."""
        for holder in self._made:
            holder.close()
        self.holder.cache_clear()


_Maker = tuple[type[QueueEngine], str]

ENGINES: Final[dict[str, dict[str, _Maker]]] = {
    "queue-gets": {
        "dict": (TakeEngine, "dict"),
        "sorted-dicts": (TakeEngine, "sorted-dicts"),
        "sqlite": (TakeEngine, "sqlite"),
        **{
            name: (TakeEngine, "queue")
            for name in ("msg-id", "correl-id", "group-id", "group-number", "all-ids")
        },
    },
    "queue-selectors": {
        "correl-id": (SelectEngine, "queue-of-properties"),
        "id-selector": (SelectEngine, "queue-of-properties"),
        "equality": (SelectEngine, "queue-of-properties"),
        "equality-range": (SelectEngine, "queue-of-properties"),
    },
    "queue-puts": {
        "dict": (PutEngine, "dict"),
        "sorted-dicts": (PutEngine, "sorted-dicts"),
        "sqlite": (PutEngine, "sqlite"),
        "put": (PutEngine, "queue"),
    },
    "queue-durable": {
        "sqlite-take": (TakeEngine, "sqlite-file"),
        "correl-id": (TakeEngine, "sql-queue"),
        "sqlite-insert": (PutEngine, "sqlite-file"),
        "put": (PutEngine, "sql-queue"),
        "depth": (DepthEngine, "sql-queue"),
    },
}
"""By benchmark and name: what it is, and what holds the messages."""


def makers(benchmark: str, size: Size, queues: Queues) -> Mapping[str, Callable[[int], Engine]]:
    """Return how to make each engine of a benchmark of queues."""
    # A flush is waited for; all else is time of the processor.
    clock = time.perf_counter_ns if benchmark == "queue-durable" else time.thread_time_ns

    def made(name: str, count: int) -> Engine:
        kind, holder = ENGINES[benchmark][name]
        return kind(name, queues.holder(holder), size, count, clock)

    return {name: partial(made, name) for name in ENGINES[benchmark]}
