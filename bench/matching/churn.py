"""Change: rules that come into the mutable index and go, and changes of a snapshot that is being read."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

import selectroute as sr
from bench.engine import Timed
from bench.matching.engines import Built, IndexEngine, KernelEngine

ENGINES: Final = ("add", "remove", "one-message")


class ChurnEngine(IndexEngine):
    """Rules beyond those of the index, in one of three ways; after each run the index is what it was.

    ``add`` and ``remove`` are timed on all of the new rules, the other of the two not being timed.
    ``one-message`` adds a rule, matches a message, and removes the rule again.
    """

    def __init__(self, name: str, index: sr.Index, sent: Sequence[sr.Message], texts: Sequence[str]) -> None:
        super().__init__(index, sent, 0)
        self.name = name
        self.messages = len(texts)
        self._new = [(f"new-{number}", text) for number, text in enumerate(texts)]

    def run(self) -> Timed:
        """See `bench.engine.Engine`. Returns how many rules are left, which must not change."""
        index, clock = self._index, time.perf_counter
        if self.name == "one-message":
            started = clock()
            for number, (name, text) in enumerate(self._new):
                index.add(name, text)
                index.match(self._all[number % len(self._all)])
                index.remove(name)
            return Timed(len(index), clock() - started)
        times = [clock()]
        for name, text in self._new:
            index.add(name, text)
        times.append(clock())
        for name, _ in self._new:
            index.remove(name)
        times.append(clock())
        first = ENGINES.index(self.name)
        return Timed(len(index), times[first + 1] - times[first])


class PublishedEngine(KernelEngine):
    """Changes of one rule each, every second one taking back the one before: published, opened and matched.

    ``asked`` has a message for each new rule, which it matches and no other rule does.
    """

    name = "change"

    def __init__(
        self,
        built: Built,
        batch: pa.RecordBatch,
        checked: int,
        asked: pa.RecordBatch,
        texts: Sequence[str],
        folder: Path,
    ) -> None:
        super().__init__(built, [batch], checked)
        self.messages = 2 * len(texts)
        self.bytes_a_rule = 0.0
        self._asked = asked
        self._texts = texts
        self._folder = folder
        sr.publish(built.snapshot, folder)
        self._publisher = sr.Publisher(folder)

    def run(self) -> Timed:
        """See `bench.engine.Engine`. Half of the messages are matched: those after a rule was added."""
        clock, matches = time.perf_counter_ns, 0
        times = [clock()]
        for number, text in enumerate(self._texts):
            for change in (sr.Add(f"new-{number}", text), sr.Remove(f"new-{number}")):
                self._publisher.apply([change])
                found = sr.Snapshot.open(self._folder).match(self._asked.slice(number, 1))
                matches += len(found.ordinals)
                times.append(clock())
        return Timed(matches, (times[-1] - times[0]) / 1e9, np.diff(times))

    def close(self) -> None:
        """Wait for a merge that is under way."""
        self._publisher.close()
