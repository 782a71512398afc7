"""A registry for which `Publisher.load` is made: loaded part by part, changed, opened, matched, and routed by
a stream.

``python -m bench.spark.loaded load|match FOLDER RULES MESSAGES REPETITIONS`` is a process of its own, so that
its memory is that of these steps: it prints a line of JSON for each.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

import selectroute as sr
from bench import ROOT
from bench.definition import CHECKED, LOAD, Size
from bench.measure import Sample, WrongCountError, process_status
from bench.spark.engines import FILE_ROWS, write_files
from bench.workloads import replies
from bench.workloads.oracle import Expected
from selectroute.spark import BatchReport, Job, start_fanout

_PART: Final = 10_000_000
"""The rules of a part, which is built in memory."""

_BATCH: Final = 50_000
_FILES_A_BATCH: Final = 8


def measured(size: Size, messages: int, repetitions: int, folder: Path, spark: SparkSession) -> list[Sample]:
    """Return a sample for each step and repetition.

    Raises `WrongCountError`, or CalledProcessError where a process of a step fails.
    """
    snapshots = folder / "loaded"
    taken = []
    for step in ("load", "match"):
        given = [step, str(snapshots), str(size.rules), str(messages), str(repetitions)]
        done = subprocess.run(
            [sys.executable, "-m", "bench.spark.loaded", *given],
            stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT,
        )  # fmt: skip
        for line in done.stdout.splitlines():
            row: dict[str, Any] = json.loads(line)
            if "found" in row and (found := Expected(*row.pop("found"))) != size.check:
                raise WrongCountError(f"{LOAD} {size.name}: found {found}, expected {size.check}")
            taken.append(Sample(LOAD, row.pop("engine"), size.workload, size.rules, **row))
    return [*taken, *_streamed(size, messages, repetitions, folder, spark)]


def _streamed(
    size: Size, messages: int, repetitions: int, folder: Path, spark: SparkSession
) -> Iterator[Sample]:
    """Yield the time of a job for the messages, from the end of its first batch on: in this one each worker
    opens the snapshot.
    """
    count = messages + _FILES_A_BATCH * FILE_ROWS
    write_files(folder / "in", partial(replies.messages, size.rules), count)
    expected = replies.expected(size.rules, count).matches
    for repetition in range(repetitions):
        ended = _run(folder, folder / f"out-{repetition}", spark)
        found = sum(one.counts.deliveries for _, one in ended)
        if found != expected:
            raise WrongCountError(f"{LOAD} {size.name}: the job made {found} deliveries, not {expected}")
        timed = sum(one.counts.messages for _, one in ended[1:])
        seconds = ended[-1][0] - ended[0][0]
        yield Sample(LOAD, "stream", size.workload, size.rules, timed, repetition, seconds)


def _run(folder: Path, out: Path, spark: SparkSession) -> list[tuple[float, BatchReport]]:
    """Run the job on all that there is; return when each batch ended, with its report."""
    ended: list[tuple[float, BatchReport]] = []
    job = Job.of(folder / "in", folder / "loaded", out, max_files=_FILES_A_BATCH)

    def on_batch(report: BatchReport) -> None:
        ended.append((time.perf_counter(), report))

    start_fanout(spark, job, available_now=True, on_batch=on_batch).wait()
    return ended


def _load(folder: str, rules: int, repetitions: int) -> Iterator[dict[str, Any]]:
    """Load the rules, not timing how their texts are made; then add a rule and take it out again, each time
    with a look by a reader that opens what was published.
    """
    clock, making = time.perf_counter, 0.0

    def parts() -> Iterator[pa.Table]:
        nonlocal making
        for first in range(0, rules, _PART):
            began = clock()
            count = min(_PART, rules - first)
            part = pa.table(
                {
                    "id": [f"r{number}" for number in range(first, first + count)],
                    "selector": list(replies.selectors(count, first)),
                }
            )
            making += clock() - began
            yield part

    with sr.Publisher(folder) as publisher:
        began = clock()
        publisher.load(parts())
        seconds = clock() - began - making
        # The most that this process has had: `getrusage` counts that of the process it was forked from.
        peak = int(process_status("self", "VmHWM")) * 1024
        yield {
            "engine": "load",
            "messages": rules,
            "repetition": 0,
            "seconds": seconds,
            "bytes_a_rule": peak / rules,
        }
        sr.Snapshot.open(folder)  # the first time its files are checked, which is a step of its own
        new = np.arange(rules, rules + 10 * repetitions)
        asked = pa.RecordBatch.from_pydict({"JMSCorrelationID": replies.correlation_ids(new)})
        for place, text in enumerate(replies.selectors(len(new), rules)):
            for change, matches in ((sr.Add("new", text), 1), (sr.Remove("new"), 0)):
                began = clock()
                publisher.apply([change])
                found = len(sr.Snapshot.open(folder).match(asked.slice(place, 1)).ordinals)
                seconds = clock() - began
                if found != matches:
                    raise WrongCountError(f"{change} was seen {found} times, not {matches}")
                yield {"engine": "change", "messages": 1, "repetition": place, "seconds": seconds}


def _match(folder: str, rules: int, messages: int, repetitions: int) -> Iterator[dict[str, Any]]:
    """Open the snapshot, match the checked messages, and then others, in batches."""
    began = time.perf_counter()
    snapshot = sr.Snapshot.open(folder)
    yield {"engine": "open", "messages": rules, "repetition": 0, "seconds": time.perf_counter() - began}
    ordinals = snapshot.match(replies.messages(rules, CHECKED)).ordinals
    numbers = [int(id[1:]) for id in snapshot.ids.take(pa.array(ordinals)).to_pylist()]
    found = [len(numbers), sum(numbers)]
    for repetition in range(repetitions):
        first = repetition * messages  # others each time: those that were matched are in memory
        batches = [replies.messages(rules, _BATCH, first + start) for start in range(0, messages, _BATCH)]
        began = time.perf_counter()
        for batch in batches:
            snapshot.match(batch)
        seconds = time.perf_counter() - began
        yield {
            "engine": "match",
            "messages": messages,
            "repetition": repetition,
            "seconds": seconds,
            "found": found,
        }


if __name__ == "__main__":
    _step, _folder, *_numbers = sys.argv[1:]
    _rules, _messages, _repetitions = map(int, _numbers)
    _steps: dict[str, Callable[[], Iterator[dict[str, Any]]]] = {
        "load": lambda: _load(_folder, _rules, _repetitions),
        "match": lambda: _match(_folder, _rules, _messages, _repetitions),
    }
    for _row in _steps[_step]():
        print(json.dumps(_row), flush=True)
