"""Benchmarks as data: read from `definitions/`, nothing about them is in code."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench.workloads.oracle import Expected

FOLDER: Final = Path(__file__).with_name("definitions")
CHECKED: Final = 2_000
"""The messages that the expected counts of a size are for, unless it says another number."""

TEXTS: Final = "S"
"""The workload of texts that are only parsed: its rules are texts, its matches those that are selectors."""

MESSAGES: Final = "Q"
"""The workload of messages on a queue: its rules are messages."""

LOAD: Final = "load"
"""The benchmark of rules that need not fit memory, and are not built as a whole."""

KAFKA: Final = "kafka"
"""The group of what runs from topic to topic, and needs a broker."""

NAMES: Final = (
    "kernel",
    "growth",
    "shared",
    "adversarial",
    "peers",
    "spark",
    "partitions",
    "partitions-stream",
    "cores",
    "kafka-rates",
    "kafka-latency",
    "kafka-memory",
    "tables-files",
    "tables-kafka",
    "single",
    "churn",
    "change",
    "build",
    "load",
    "memory",
    "parse",
    "registry-start",
    "registry-register",
    "registry-batches",
    "registry-read",
    "registry-visible",
    "registry-callers",
    "registry-clients",
    "registry-services",
    "console",
    "queue-gets",
    "queue-selectors",
    "queue-puts",
    "queue-durable",
    "queue-memory",
)
"""The benchmarks, in the order of the tables."""


@dataclass(frozen=True, slots=True)
class Size:
    """A workload at a number of rules, and what must match in its first messages; of S see `TEXTS`."""

    workload: str
    rules: int
    check: Expected
    checked: int
    """How many messages the check is for."""

    @property
    def name(self) -> str:
        """Such as ``Z 100k``."""
        return f"{self.workload} {short(self.rules)}"


@dataclass(frozen=True, slots=True)
class Benchmark:
    """One definition file. `messages` says how many each engine is given, 0 for not at all."""

    name: str
    group: str
    """What it can be chosen by besides its name, together with others."""
    title: str
    analysis: str
    counted: str
    """What a rate counts: messages, selectors, rules, subscriptions."""
    layout: str
    """The form of its table: see `report`."""
    engines: tuple[str, ...]
    baseline: str | None
    """The engine of which the others' rates are shown as multiples."""
    spark: bool
    """Whether its engines are Spark's."""
    shares: tuple[str, ...]
    """Engines of which the figures of ``shared`` are shown as multiples too."""
    shared: tuple[str, ...]
    workloads: tuple[str, ...]
    long: bool
    """Whether it follows a job by the clock, for half an hour and more: it is run only when it is named."""
    repetitions: int
    quick_rules: tuple[int, ...]
    quick_without: tuple[str, ...]
    """Engines that the quick tour has no time for."""
    quick_repetitions: int
    quick_messages: int | None
    by_rules: dict[int, int]
    by_engine: dict[str, dict[int, int]]
    by_workload: dict[str, dict[int, int]]

    def covers(self, size: Size, quick: bool, named: bool = False) -> bool:
        """Whether this benchmark is run at a size; `named` says that its number of rules was asked for."""
        chosen = self.quick_rules if quick and not named else tuple(self.by_rules)
        left_out = self.by_workload.get(size.workload, {}).get(size.rules) == 0
        return size.workload in self.workloads and size.rules in chosen and not left_out

    def messages(self, engine: str, size: Size, quick: bool) -> int:
        """How many messages an engine is timed on."""
        if quick and engine in self.quick_without:
            return 0
        by_rules = {
            **self.by_rules,
            **self.by_workload.get(size.workload, {}),
            **self.by_engine.get(engine, {}),
        }
        count = by_rules[size.rules]
        return min(count, self.quick_messages) if quick and self.quick_messages is not None else count


def sizes() -> list[Size]:
    """Every size, in the order of the tables."""
    return [
        Size(
            entry["workload"],
            entry["rules"],
            Expected(entry["matches"], entry["rule_sum"]),
            entry.get("messages", CHECKED),
        )
        for entry in _read("sizes")["size"]
    ]


def benchmarks() -> list[Benchmark]:
    """Every benchmark, in the order of the tables."""
    return [_benchmark(name, _read(name)) for name in NAMES]


def short(rules: int) -> str:
    """Such as ``100k`` or ``1M``."""
    if rules >= 1_000_000:
        return f"{rules // 1_000_000}M"
    return f"{rules // 1_000}k" if rules >= 1_000 else str(rules)


def _benchmark(name: str, data: dict[str, Any]) -> Benchmark:
    return Benchmark(
        name=name,
        group=data.get("group", name),
        title=data["title"],
        analysis=data["analysis"].strip(),
        counted=data.get("counted", "messages"),
        layout=data.get("layout", "rates"),
        engines=tuple(data["engines"]),
        baseline=data.get("baseline"),
        spark=data.get("spark", False),
        shares=tuple(data.get("shares", {}).get("of", ())),
        shared=tuple(data.get("shares", {}).get("engines", ())),
        workloads=tuple(data.get("workloads", ("Z", "U"))),
        long=data.get("long", False),
        repetitions=data["repetitions"],
        quick_rules=tuple(data["quick_rules"]),
        quick_without=tuple(data.get("quick_without", ())),
        quick_repetitions=data.get("quick_repetitions", 1),
        quick_messages=data.get("quick_messages"),
        by_rules=_counts(data["messages"]),
        by_engine=_tables(data, "engine_messages"),
        by_workload=_tables(data, "workload_messages"),
    )


def _tables(data: dict[str, Any], name: str) -> dict[str, dict[int, int]]:
    return {key: _counts(counts) for key, counts in data.get(name, {}).items()}


def _counts(table: dict[str, int]) -> dict[int, int]:
    return {int(rules): count for rules, count in table.items()}  # int() reads 10_000 as TOML's key has it


def _read(name: str) -> dict[str, Any]:
    with (FOLDER / f"{name}.toml").open("rb") as file:
        return tomllib.load(file)
