"""Lines of Markdown tables, and figures as they are shown."""

from __future__ import annotations

from statistics import median

from bench.measure import Sample

Cells = dict[tuple[str, str, int], list[Sample]]
"""Samples by workload, engine and number of rules."""


def median_rate(cell: list[Sample]) -> float:
    """Return the median of the rates of some runs."""
    return median(sample.rate for sample in cell)


def multiple(ratio: float) -> str:
    """Return how many times as fast: ``0.62×``, ``3.1×``, or ``1/37``."""
    if ratio < 0.095:
        return f"1/{1 / ratio:.0f}"
    return f"{ratio:.2f}×" if ratio < 1 else f"{ratio:.1f}×" if ratio < 100 else f"{ratio:.0f}×"


def micro(time: float) -> str:
    """Return microseconds: ``12.3`` or ``1,234``."""
    return f"{time:.1f}" if time < 100 else f"{time:,.0f}"


def number(rate: float) -> str:
    """Return a rate: ``1.24M``, ``35.2k`` or ``811``."""
    if rate >= 1_000_000:
        return f"{rate / 1_000_000:.2f}M"
    return f"{rate / 1_000:.1f}k" if rate >= 1_000 else f"{rate:.0f}"


def head(titles: list[str]) -> list[str]:
    """Return the first two lines of a table: two columns of names, the others of figures."""
    return [line(titles), "|---|---|" + "---:|" * (len(titles) - 2)]


def line(cells: list[str]) -> str:
    """Return a line of a table."""
    return f"| {' | '.join(cells)} |"
