"""Tables of what is measured of jobs from Kafka to Kafka.

``streams`` has a line for each engine, ``curve`` one for each rate and trigger with the engines side by side,
``growth`` one for each process.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import Final

import numpy as np
import numpy.typing as npt

from bench.definition import Benchmark, short
from bench.measure import Sample
from bench.tables import Cells, head, line, median_rate, multiple, number

_SETTLED_SECONDS: Final = 300
"""What a process takes in before is not growth: code is compiled, caches fill."""


def stream_table(benchmark: Benchmark, cells: Cells) -> str:
    """Messages a second of each engine, and processor time of a message, both also as multiples of those of
    the baseline and of each engine that shares are of.

    Multiples are medians of those of each repetition: the engines of one ran one after the other.
    """
    bases = _bases(benchmark, cells)
    of = [f"× `{base}`" for base in bases]
    lines = head(["workload", "engine", "messages/s", *of, "µs of processor a message", *of])
    for workload, rules in dict.fromkeys((of, count) for of, _, count in cells):
        for engine in benchmark.engines:
            cell = cells.get((workload, engine, rules), [])
            if not cell:
                continue
            others = [cells.get((workload, base, rules), []) if base != engine else [] for base in bases]
            shown = [number(median_rate(cell)), *(_times(cell, other, _rate) for other in others)]
            shown += [
                f"{median(map(_processor, cell)):.1f}",
                *(_times(cell, of, _processor) for of in others),
            ]
            lines.append(line([f"{workload} {short(rules)}", f"`{engine}`", *shown]))
    return "\n".join([*lines, "", "(median; × is a multiple in the same turn, median and range)"])


def curve_table(benchmark: Benchmark, cells: Cells) -> str:
    """p50 and p99 of each engine at each rate and trigger, and the multiples of p99 that are shares."""
    run = {engine.partition(" ")[0] for _, engine, _ in cells}
    engines = [engine for engine in benchmark.engines if engine in run]
    pairs = [(engine, base) for engine in benchmark.shared for base in _bases(benchmark, cells)]
    lines = head(
        [
            *("workload", "trigger", "messages/s"),
            *(f"`{engine}` {part}" for engine in engines for part in ("p50", "p99")),
            *(f"p99 `{engine}` × `{base}`" for engine, base in pairs),
        ]
    )
    points = dict.fromkeys((of, count, engine.partition(" ")[2]) for of, engine, count in cells)
    for workload, rules, point in points:
        rate, trigger = point.split()
        found = {engine: cells.get((workload, f"{engine} {point}", rules), []) for engine in engines}
        shown = [text for cell in found.values() for text in (_milli(cell, "p50_us"), _milli(cell, "p99_us"))]
        for engine, base in pairs:
            both = zip(found.get(engine, []), found[base], strict=False)
            times = [one.p99_us / of.p99_us for one, of in both]
            shown.append(multiple(median(times)) if times else "–")
        lines.append(line([f"{workload} {short(rules)}", f"{trigger} s", number(float(rate)), *shown]))
    return "\n".join([*lines, "", "(milliseconds, median)"])


def _bases(benchmark: Benchmark, cells: Cells) -> list[str]:
    """The engines that others are multiples of, of those that were run."""
    run = {engine.partition(" ")[0] for _, engine, _ in cells}
    return [base for base in (benchmark.baseline, *benchmark.shares) if base in run]


def growth_table(benchmark: Benchmark, cells: Cells) -> str:
    """What each process has in memory, to begin with and in the end, and how it grows."""
    lines = head(["workload", "memory of", "MiB after 5 minutes", "MiB at the end", "MiB an hour more"])
    for (workload, part, rules), cell in cells.items():
        settled = [one for one in cell if one.seconds >= _SETTLED_SECONDS] or cell
        at, found = np.array([(one.seconds, one.bytes_a_rule / 2**20) for one in settled]).T
        shown = [
            f"{np.median(found[:5]):,.0f}",
            f"{np.median(found[-5:]):,.0f}",
            f"{_slope(at, found):+,.0f}",
        ]
        lines.append(line([f"{workload} {short(rules)}", part, *shown]))
    some = next(iter(cells.values()))
    legend = (
        f"{number(some[0].messages)} messages/s for {max(one.seconds for one in some) / 60:.0f} minutes; "
        "medians of five readings, half a minute apart; growth is the median of that between any two of them "
        "after 5 minutes"
    )
    return "\n".join([*lines, "", f"({legend})"])


def _slope(seconds: npt.NDArray[np.float64], found: npt.NDArray[np.float64]) -> float:
    """What is more an hour: the median of all slopes (Theil and Sen), which single peaks do not move."""
    first, last = np.triu_indices(len(found), 1)
    if not len(first):
        return 0.0
    slopes = (found[last] - found[first]) / (seconds[last] - seconds[first])
    return float(np.median(slopes)) * 3_600


def _milli(cell: list[Sample], name: str) -> str:
    return f"{median(getattr(one, name) for one in cell) / 1_000:,.0f}" if cell else "–"


def _rate(sample: Sample) -> float:
    return float(sample.rate)


def _processor(sample: Sample) -> float:
    """Microseconds of processor a message."""
    return sample.processor_seconds / sample.messages * 1e6


def _times(cell: list[Sample], base: list[Sample], figure: Callable[[Sample], float]) -> str:
    """The multiples of a figure in each turn: median and range."""
    ratios = [figure(one) / figure(of) for one, of in zip(cell, base, strict=False)]
    return f"{multiple(median(ratios))} ({min(ratios):.2f}–{max(ratios):.2f})" if ratios else ""
