"""The tables of README.md, made from the raw record and put between its markers."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

from bench.definition import Benchmark, benchmarks, short
from bench.measure import PARTS, Sample

README: Final = Path(__file__).with_name("README.md")
BEGIN: Final = "<!-- record: made by `python -m bench --report`, do not edit -->"
END: Final = "<!-- end of record -->"

_Cells = dict[tuple[str, str, int], list[Sample]]  # (workload, engine, rules)


def render(samples: Sequence[Sample], machine: dict[str, Any]) -> str:
    """Return all tables in Markdown: for each benchmark its analysis, medians, and their spread."""
    parts = [_machine(machine)]
    for benchmark in benchmarks():
        cells: _Cells = defaultdict(list)
        for sample in samples:
            if sample.benchmark == benchmark.name:
                cells[sample.workload, sample.engine, sample.rules].append(sample)
        if cells:
            table = _build_table(cells) if benchmark.name == "build" else _rate_table(benchmark, cells)
            parts.append(f"### {benchmark.title}\n\n{table}\n\n{benchmark.analysis}")
    return "\n\n".join(parts)


def update_readme(text: str) -> None:
    """Put the tables between the markers of README.md."""
    page = README.read_text(encoding="utf-8")
    before, rest = page.split(BEGIN, 1)
    _, after = rest.split(END, 1)
    README.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}", encoding="utf-8")


def read_machine(path: Path) -> dict[str, Any]:
    """Read the machine's description of a record."""
    data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return data


def _rate_table(benchmark: Benchmark, cells: _Cells) -> str:
    """A rate for each workload and engine, in a column for each number of rules."""
    columns = sorted({rules for _, _, rules in cells})
    lines = _head(["workload", "engine", *map(short, columns)])
    for workload in benchmark.workloads:
        for engine in benchmark.engines:
            row = [cells.get((workload, engine, rules), []) for rules in columns]
            if any(row):
                base = [cells.get((workload, benchmark.baseline or "", rules), []) for rules in columns]
                shown = [_rate(cell, of) for cell, of in zip(row, base, strict=True)]
                lines.append(_line([workload, f"`{engine}`", *shown]))
    spread = max(_spread(cell) for cell in cells.values())
    counted = f"{benchmark.counted}/s, median"
    if benchmark.baseline:
        counted += f"; × is the multiple of `{benchmark.baseline}`"
    return "\n".join([*lines, "", f"({counted}; largest spread of one cell ±{spread:.0%})"])


def _build_table(cells: _Cells) -> str:
    columns = sorted({rules for _, _, rules in cells})
    steps = list(dict.fromkeys(engine for _, engine, _ in cells))
    workloads = list(dict.fromkeys(workload for workload, _, _ in cells))
    lines = _head(["workload", "", *map(short, columns)])
    for workload in workloads:
        for step in steps:
            row = [cells.get((workload, step, rules), []) for rules in columns]
            lines.append(_line([workload, f"{step}, s", *[_seconds(cell) for cell in row]]))
        total = [[s for step in steps for s in cells.get((workload, step, rules), [])] for rules in columns]
        lines.append(_line([workload, "**text to snapshot, s**", *[_total(cell) for cell in total]]))
        sized = [f"{cell[0].bytes_a_rule:.1f}" if cell else "" for cell in total]
        lines.append(_line([workload, "bytes a selector", *sized]))
    return "\n".join(lines)


def _rate(cell: list[Sample], base: list[Sample]) -> str:
    if not cell:
        return "–"
    rate = median(sample.rate for sample in cell)
    text = _number(rate)
    if base and cell[0].engine != base[0].engine:
        text += f" ({rate / median(sample.rate for sample in base):.1f}×)"
    return text


def _number(rate: float) -> str:
    if rate >= 1_000_000:
        return f"{rate / 1_000_000:.2f}M"
    return f"{rate / 1_000:.1f}k" if rate >= 1_000 else f"{rate:.0f}"


def _spread(cell: list[Sample]) -> float:
    rates = sorted(sample.rate for sample in cell)
    return (rates[-1] - rates[0]) / 2 / median(rates)


def _seconds(cell: list[Sample]) -> str:
    return f"{median(sample.seconds for sample in cell):.2f}" if cell else ""


def _total(cell: list[Sample]) -> str:
    return f"**{sum(sample.seconds for sample in cell):.2f}**" if cell else ""


def _head(titles: list[str]) -> list[str]:
    return [_line(titles), "|---|---|" + "---:|" * (len(titles) - 2)]


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _machine(machine: dict[str, Any]) -> str:
    parts = ", ".join(f"{name} {machine[name]}" for name in ("python", *PARTS) if name in machine)
    return (
        f"Measured on {machine['date']}: {machine['cpu']}, {machine['cores']} cores, {machine['memory_gib']} "
        f"GiB, {machine['system']}; {parts}; load average at the start {machine['load_average_at_start']}; "
        f"sources {machine['source'][:12]}. "
        "Raw: [`record/samples.csv`](record/samples.csv), [`record/machine.json`](record/machine.json)."
    )
