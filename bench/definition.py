"""Benchmarks as data: read from `definitions/`, nothing about them is in code."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench.oracle import Expected

FOLDER: Final = Path(__file__).with_name("definitions")
CHECKED: Final = 2_000
"""The messages that the expected counts of a size are for."""

TEXTS: Final = "S"
"""The workload of texts that are only parsed: its rules are texts, its matches those that are selectors."""


@dataclass(frozen=True, slots=True)
class Size:
    """A workload at a number of rules, and what must match in its first 2,000 messages; of S see `TEXTS`."""

    workload: str
    rules: int
    check: Expected

    @property
    def name(self) -> str:
        """Such as ``Z 100k``."""
        return f"{self.workload} {short(self.rules)}"


@dataclass(frozen=True, slots=True)
class Benchmark:
    """One definition file. `messages` says how many each engine is given, 0 for not at all."""

    name: str
    title: str
    analysis: str
    counted: str
    """What a rate counts: messages or selectors."""
    engines: tuple[str, ...]
    baseline: str | None
    """The engine of which the others' rates are shown as multiples."""
    workloads: tuple[str, ...]
    repetitions: int
    quick_rules: tuple[int, ...]
    quick_repetitions: int
    quick_messages: int | None
    by_rules: dict[int, int]
    by_engine: dict[str, dict[int, int]]

    def covers(self, size: Size, quick: bool) -> bool:
        """Whether this benchmark is run at a size."""
        chosen = self.quick_rules if quick else tuple(self.by_rules)
        return size.workload in self.workloads and size.rules in chosen

    def messages(self, engine: str, rules: int, quick: bool) -> int:
        """How many messages an engine is timed on."""
        count = self.by_engine.get(engine, self.by_rules)[rules]
        return min(count, self.quick_messages) if quick and self.quick_messages is not None else count


def sizes() -> list[Size]:
    """Every size, in the order of the tables."""
    return [
        Size(entry["workload"], entry["rules"], Expected(entry["matches"], entry["rule_sum"]))
        for entry in _read("sizes")["size"]
    ]


def benchmarks() -> list[Benchmark]:
    """Every benchmark, in the order of the tables."""
    return [_benchmark(name, _read(name)) for name in ("kernel", "spark", "single", "build", "parse")]


def short(rules: int) -> str:
    """Such as ``100k`` or ``1M``."""
    return f"{rules // 1_000_000}M" if rules >= 1_000_000 else f"{rules // 1_000}k"


def _benchmark(name: str, data: dict[str, Any]) -> Benchmark:
    return Benchmark(
        name=name,
        title=data["title"],
        analysis=data["analysis"].strip(),
        counted=data.get("counted", "messages"),
        engines=tuple(data["engines"]),
        baseline=data.get("baseline"),
        workloads=tuple(data.get("workloads", ("Z", "U"))),
        repetitions=data["repetitions"],
        quick_rules=tuple(data["quick_rules"]),
        quick_repetitions=data.get("quick_repetitions", 1),
        quick_messages=data.get("quick_messages"),
        by_rules=_counts(data["messages"]),
        by_engine={engine: _counts(counts) for engine, counts in data.get("engine_messages", {}).items()},
    )


def _counts(table: dict[str, int]) -> dict[int, int]:
    return {int(rules): count for rules, count in table.items()}  # int() reads 10_000 as TOML's key has it


def _read(name: str) -> dict[str, Any]:
    with (FOLDER / f"{name}.toml").open("rb") as file:
        return tomllib.load(file)
