"""The tables of what is measured of jobs from Kafka to Kafka.

``streams`` has a line for each engine, ``curve`` one for each rate and trigger with the engines side by side,
``growth`` one for each process.
"""

from __future__ import annotations

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
    """Messages a second of each engine, and processor time of a message, both as multiples of the baseline.

    Multiples are medians of those of each repetition: the engines of one ran one after the other.
    """
    lines = head(["workload", "engine", "messages/s", "", "µs of processor a message", ""])
    for workload, rules in dict.fromkeys((of, count) for of, _, count in cells):
        base = cells.get((workload, benchmark.baseline or "", rules), [])
        for engine in benchmark.engines:
            cell = cells.get((workload, engine, rules), [])
            if not cell:
                continue
            pairs = list(zip(cell, base, strict=False))
            each = median(sample.processor_seconds / sample.messages for sample in cell) * 1e6
            shown = [number(median_rate(cell)), "", f"{each:.1f}", ""]
            if engine != benchmark.baseline and pairs:
                shown[1] = _spread([one.rate / of.rate for one, of in pairs])
                shown[3] = _spread([one.processor_seconds / of.processor_seconds for one, of in pairs])
            lines.append(line([f"{workload} {short(rules)}", f"`{engine}`", *shown]))
    legend = f"median; × is the multiple of `{benchmark.baseline}` in the same turn, median and range"
    return "\n".join([*lines, "", f"({legend})"])


def curve_table(benchmark: Benchmark, cells: Cells) -> str:
    """p50 and p99 of each engine at each rate and trigger."""
    titles = [f"`{engine}` {part}" for engine in benchmark.engines for part in ("p50", "p99")]
    lines = head(["workload", "trigger", "messages/s", *titles, "p99"])
    points = dict.fromkeys((of, count, engine.partition(" ")[2]) for of, engine, count in cells)
    for workload, rules, point in points:
        rate, trigger = point.split()
        found = [cells.get((workload, f"{engine} {point}", rules), []) for engine in benchmark.engines]
        shown = [text for cell in found for text in (_milli(cell, "p50_us"), _milli(cell, "p99_us"))]
        base, last = found[0], found[-1]
        times = [one.p99_us / of.p99_us for one, of in zip(last, base, strict=False)]
        ratio = multiple(median(times)) if times else "–"
        lines.append(line([f"{workload} {short(rules)}", f"{trigger} s", number(float(rate)), *shown, ratio]))
    first, last_name = benchmark.engines[0], benchmark.engines[-1]
    return "\n".join([*lines, "", f"(milliseconds, median; the last column is `{last_name}` of `{first}`)"])


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


def _spread(ratios: list[float]) -> str:
    return f"{multiple(median(ratios))} ({min(ratios):.2f}–{max(ratios):.2f})"
