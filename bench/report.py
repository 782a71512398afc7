"""Tables of README.md, made from the raw record and put between its markers.

A benchmark's `layout` is the form of its table: ``rates`` and ``latency`` have a column for each number of
rules, ``rows`` a column for each engine, ``cores`` one for each master of Spark, ``steps`` seconds that add
up, ``starts`` seconds and the memory of a process, ``loads`` rates and times of one registry, ``bytes`` what
all benchmarks know of memory; ``streams``, ``curve`` and ``growth`` are those of `bench.kafka.report`.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

from bench import ROOT
from bench.definition import Benchmark, benchmarks, short
from bench.kafka.report import curve_table, growth_table, stream_table
from bench.measure import PARTS, Sample
from bench.summary import summary_table
from bench.tables import Cells, head, line, median_rate, micro, multiple, number

README: Final = Path(__file__).with_name("README.md")
SCALE_PAGE: Final = ROOT / "docs" / "explanation" / "scale.md"
SCALE: Final = ("cores", "partitions", "load")
"""The benchmarks that the page on scale shows."""
SUMMARIES: Final = (ROOT / "README.md", ROOT / "docs" / "explanation" / "performance.md")
"""The pages that show the summary."""
SHARES_BESIDE: Final = ("streams", "curve")
"""The layouts whose tables have the multiples of shares in columns; the others have a table of these."""
BEGIN: Final = "<!-- record: made by `python -m bench --report`, do not edit -->"
END: Final = "<!-- end of record -->"


def render(samples: Sequence[Sample], machine: dict[str, Any]) -> str:
    """Return all tables in Markdown: for each benchmark its analysis, medians, and their spread."""
    parts = [_machine(samples, machine)]
    # What a process holds is not what a rule weighs.
    processes = {one.name for one in benchmarks() if one.layout in ("starts", "loads", "growth")}
    for benchmark in benchmarks():
        # What a rule weighs is known to many benchmarks; of the same engine any of them will do.
        own = [one for one in samples if one.benchmark == benchmark.name]
        weighed = [one for one in samples if one.bytes_a_rule and one.benchmark not in processes]
        known = [one for one in weighed if one.workload in benchmark.workloads]
        cells: Cells = defaultdict(list)
        for sample in known if benchmark.layout == "bytes" else own:
            cells[sample.workload, sample.engine, sample.rules].append(sample)
        if own:
            table = _TABLES[benchmark.layout](benchmark, cells)
            left_out = _skipped(benchmark, machine.get("skipped", {}))
            apart = benchmark.shares and benchmark.layout not in SHARES_BESIDE
            shares = _share_table(benchmark, cells) if apart else ""
            parts.append(f"### {benchmark.title}\n\n{table}{left_out}{shares}\n\n{benchmark.analysis}")
    return "\n\n".join(parts)


def update_pages(samples: Sequence[Sample], machine: dict[str, Any]) -> None:
    """Put the tables between the markers of README.md, those of `SCALE` also in the page on scale, and the
    summary in the pages of `SUMMARIES`.

    A record without any of `SCALE` leaves that page as it is.
    """
    _update(README, render(samples, machine))
    for page in SUMMARIES:
        _update(page, summary_table(samples))
    if any(one.benchmark in SCALE for one in samples):
        _update(SCALE_PAGE, render([one for one in samples if one.benchmark in SCALE], machine))


def _update(path: Path, text: str) -> None:
    page = path.read_text(encoding="utf-8")
    before, rest = page.split(BEGIN, 1)
    _, after = rest.split(END, 1)
    # The page on scale lies elsewhere.
    text = text if path == README else text.replace("](record/", "](../../bench/record/")
    path.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}", encoding="utf-8")


def read_machine(path: Path) -> dict[str, Any]:
    """Read the machine's description of a record."""
    data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return data


def _rate_table(benchmark: Benchmark, cells: Cells) -> str:
    """A rate for each workload and engine, in a column for each number of rules."""
    columns = sorted({rules for _, _, rules in cells})
    lines = head(["workload", "engine", *map(short, columns)])
    for workload in benchmark.workloads:
        for engine in benchmark.engines:
            row = [cells.get((workload, engine, rules), []) for rules in columns]
            if any(row):
                base = [cells.get((workload, benchmark.baseline or "", rules), []) for rules in columns]
                shown = [_rate(cell, of) for cell, of in zip(row, base, strict=True)]
                lines.append(line([workload, f"`{engine}`", *shown]))
    return "\n".join([*lines, "", _legend(benchmark, cells)])


def _share_table(benchmark: Benchmark, cells: Cells) -> str:
    """How many times as fast as some engines others are, in a column for each number of rules."""
    columns = sorted({rules for _, _, rules in cells})
    lines = ["", "", *head(["workload", "as a multiple", *map(short, columns)])]
    for workload in benchmark.workloads:
        for engine, base in ((one, of) for one in benchmark.shared for of in benchmark.shares):
            rows = [
                (cells.get((workload, engine, rules)), cells.get((workload, base, rules)))
                for rules in columns
            ]
            shown = [multiple(median_rate(one) / median_rate(of)) if one and of else "–" for one, of in rows]
            if any(one and of for one, of in rows):
                lines.append(line([workload, f"`{engine}` of `{base}`", *shown]))
    return "\n".join(lines)


def _row_table(benchmark: Benchmark, cells: Cells) -> str:
    """A line for each workload and number of rules, with the engines side by side."""
    lines = head(["workload", "rules", *[f"`{engine}`" for engine in benchmark.engines]])
    for workload in benchmark.workloads:
        for rules in sorted({rules for of, _, rules in cells if of == workload}):
            base = cells.get((workload, benchmark.baseline or "", rules), [])
            row = [cells.get((workload, engine, rules), []) for engine in benchmark.engines]
            lines.append(line([f"`{workload}`", short(rules), *[_rate(cell, base) for cell in row]]))
    return "\n".join([*lines, "", _legend(benchmark, cells)])


def _step_table(benchmark: Benchmark, cells: Cells) -> str:
    """Seconds of each step, and of all."""
    columns = sorted({rules for _, _, rules in cells})
    steps = list(dict.fromkeys(engine for _, engine, _ in cells))
    lines = head(["workload", "", *map(short, columns)])
    for workload in (one for one in benchmark.workloads if any(key[0] == one for key in cells)):
        for step in steps:
            row = [cells.get((workload, step, rules), []) for rules in columns]
            lines.append(line([workload, f"{step}, s", *[_seconds(cell) for cell in row]]))
        total = [[s for step in steps for s in cells.get((workload, step, rules), [])] for rules in columns]
        lines.append(line([workload, "**text to snapshot, s**", *[_total(cell) for cell in total]]))
        each = [f"{cell[0].rules / sum(s.seconds for s in cell):,.0f}" if cell else "" for cell in total]
        lines.append(line([workload, "selectors a second", *each]))
    return "\n".join(lines)


def _start_table(benchmark: Benchmark, cells: Cells) -> str:
    """Seconds, and what of the process is in memory then, all of it and divided by the rules."""
    columns = sorted({rules for _, _, rules in cells})
    lines = head(["engine", "", *map(short, columns)])
    for workload, engine in ((of, one) for of in benchmark.workloads for one in benchmark.engines):
        row = [cells.get((workload, engine, rules), []) for rules in columns]
        lines.append(line([f"`{engine}`", "s", *map(_seconds, row)]))
        if any(cell and cell[0].bytes_a_rule for cell in row):
            each = [median(sample.bytes_a_rule for sample in cell) if cell else 0.0 for cell in row]
            whole = [f"{of * rules / 2**20:,.0f}" for of, rules in zip(each, columns, strict=True)]
            lines.append(line(["", "MiB in memory", *whole]))
            lines.append(line(["", f"bytes, of {benchmark.counted} each", *[f"{of:,.0f}" for of in each]]))
    return "\n".join([*lines, "", "(median)"])


def _load_table(benchmark: Benchmark, cells: Cells) -> str:
    """Rates, and the time of what is done once, of one registry after another."""
    columns = sorted({rules for _, _, rules in cells})
    lines = head(["engine", "", *map(short, columns)])
    for workload, engine in ((of, one) for of in benchmark.workloads for one in benchmark.engines):
        row = [cells.get((workload, engine, rules), []) for rules in columns]
        if engine in ("change", "open"):
            lines.append(line([f"`{engine}`", "s", *map(_seconds, row)]))
            continue
        counted = benchmark.counted if engine == "load" else "messages"
        rates = [number(median_rate(cell)) if cell else "" for cell in row]
        lines.append(line([f"`{engine}`", f"{counted}/s", *rates]))
        if engine == "load":
            most = [max((one.bytes_a_rule * one.rules for one in cell), default=0.0) for cell in row]
            lines.append(line(["", "MiB in memory, at most", *[f"{bytes / 2**20:,.0f}" for bytes in most]]))
    return "\n".join([*lines, "", "(median)"])


def _byte_table(benchmark: Benchmark, cells: Cells) -> str:
    """Bytes of a rule, of every engine that knows them."""
    columns = sorted({rules for _, _, rules in cells})
    lines = head(["workload", "engine", *map(short, columns)])
    for workload in benchmark.workloads:
        for engine in dict.fromkeys(engine for of, engine, _ in cells if of == workload):
            row = [cells.get((workload, engine, rules), []) for rules in columns]
            sized = [f"{median(sample.bytes_a_rule for sample in cell):,.0f}" if cell else "" for cell in row]
            lines.append(line([workload, f"`{engine}`", *sized]))
    return "\n".join([*lines, "", "(bytes, median)"])


def _core_table(benchmark: Benchmark, cells: Cells) -> str:
    """Processor time of a message, in a column for each master of Spark."""
    masters = list(dict.fromkeys(engine.partition(" ")[2] for _, engine, _ in cells))
    lines = head(["workload", "engine", *[f"`{master}`" for master in masters]])
    for workload, rules in dict.fromkeys((of, count) for of, _, count in cells):
        for engine in benchmark.engines:
            row = [cells.get((workload, f"{engine} {master}", rules), []) for master in masters]
            lines.append(line([f"{workload} {short(rules)}", f"`{engine}`", *map(_processor, row)]))
    shown = "µs of processor a message, median; in parentheses messages/s of wall time"
    return "\n".join([*lines, "", f"({shown})"])


def _processor(cell: list[Sample]) -> str:
    if not cell:
        return "–"
    each = median(sample.processor_seconds / sample.messages for sample in cell)
    return f"{each * 1e6:.1f} ({number(median_rate(cell))})"


_TABLES: Final = {
    "rates": _rate_table,
    "latency": _rate_table,
    "rows": _row_table,
    "starts": _start_table,
    "loads": _load_table,
    "steps": _step_table,
    "bytes": _byte_table,
    "cores": _core_table,
    "streams": stream_table,
    "curve": curve_table,
    "growth": growth_table,
}


def _legend(benchmark: Benchmark, cells: Cells) -> str:
    counted = f"{benchmark.counted}/s, median"
    if benchmark.layout == "latency":
        counted += "; p50 / p99 of one in µs"
    if benchmark.baseline:
        counted += f"; × is the multiple of `{benchmark.baseline}`, 1/n one n-th of it"
    if max(map(len, cells.values())) > 1:
        counted += f"; largest spread of one cell ±{max(map(_spread, cells.values())):.0%}"
    return f"({counted})"


def _skipped(benchmark: Benchmark, reasons: dict[str, str]) -> str:
    here = [
        f"`{engine}` was skipped: {reasons[engine]}." for engine in benchmark.engines if engine in reasons
    ]
    return f"\n\n{' '.join(here)}" if here else ""


def _rate(cell: list[Sample], base: list[Sample]) -> str:
    if not cell:
        return "–"
    rate = median_rate(cell)
    text = number(rate)
    if cell[0].p50_us:
        text += f" ({micro(median(s.p50_us for s in cell))} / {micro(median(s.p99_us for s in cell))})"
    if base and cell[0].engine != base[0].engine:
        text += f" ({multiple(rate / median_rate(base))})"
    return text


def _spread(cell: list[Sample]) -> float:
    rates = sorted(sample.rate for sample in cell)
    return (rates[-1] - rates[0]) / 2 / median(rates)


def _seconds(cell: list[Sample]) -> str:
    return f"{median(sample.seconds for sample in cell):.2f}" if cell else ""


def _total(cell: list[Sample]) -> str:
    return f"**{sum(sample.seconds for sample in cell):.2f}**" if cell else ""


def _machine(samples: Sequence[Sample], machine: dict[str, Any]) -> str:
    named = [name for name in ("python", *PARTS, "sqlite", "java") if machine.get(name)]
    parts = ", ".join(f"{name} {machine[name]}" for name in named)
    remark = f"{machine['remark']}; " if machine.get("remark") else ""
    return (
        f"Measured on {machine['date']}: {machine['cpu']}, {machine['cores']} cores, {machine['memory_gib']} "
        f"GiB, {machine['system']}; {parts}; load average at the start {machine['load_average_at_start']}; "
        f"{remark}sources {machine['source'][:12]}. "
        "Raw: [`record/samples.csv`](record/samples.csv), [`record/machine.json`](record/machine.json)."
        f"{_later_runs({one.benchmark for one in samples}, machine)}"
    )


def _later_runs(shown: set[str], machine: Mapping[str, Any]) -> str:
    """Say which of these benchmarks were measured in other runs, and on what if that was something else."""
    rows = []
    for run in machine.get("later", ()):
        names = [f"`{name}`" for name in run["benchmarks"] if name in shown]
        cpu = run.get("cpu", machine["cpu"])
        date = run["date"] if cpu == machine["cpu"] else f"{run['date']}, {cpu}"
        if names:
            sizes = f" ({', '.join(run['sizes'])})" if "sizes" in run else ""
            what = f"{', '.join(names)}{sizes}"
            rows.append(line([what, date, f"{run['load_average_at_start']}", run["source"][:12]]))
    if not rows:
        return ""
    of_rows = ["measured in a run of its own", "on", "load average at its start", "sources"]
    return "\n\n" + "\n".join([*head(of_rows), *rows])
