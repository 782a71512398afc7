"""``python -m bench``: the quick tour. ``--full`` measures the record, ``--report`` makes the tables from
it again.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench import report
from bench.definition import CHECKED, TEXTS, Benchmark, Size, benchmarks, sizes
from bench.engines import Built, Engine, IndexEngine, KernelEngine, ReferenceEngine, build, to_messages
from bench.measure import Sample, WrongCountError, machine, measure, read_csv, source_digest, write_csv
from bench.texts import texts
from bench.workloads import messages, rules, selectors

RECORD = Path(__file__).with_name("record")
KERNEL_BATCH = 50_000


class Tour:
    """One run over sizes and benchmarks. Rules are built once for each size, Spark starts once."""

    def __init__(
        self, quick: bool, cores: int, only: Sequence[str], sizes: Sequence[Size], scratch: Path
    ) -> None:
        self.samples: list[Sample] = []
        self._quick = quick
        self._cores = cores
        self._sizes = sizes
        self._scratch = scratch
        self._benchmarks = [one for one in benchmarks() if not only or one.name in only]
        self._spark: Any = None
        self._files: list[Path] = []

    def run(self) -> None:
        """Measure everything. Raises `WrongCountError` at the first wrong count."""
        for size in self._sizes:
            chosen = [one for one in self._benchmarks if one.covers(size, self._quick)]
            if chosen and size.workload == TEXTS:
                self._texts(size, chosen)
            elif chosen:
                self._size(size, chosen)

    def _texts(self, size: Size, chosen: list[Benchmark]) -> None:
        """What is measured of a size whose rules are texts: nothing is built of them."""
        # lark is imported only when a benchmark needs it.
        from bench import parsers

        make = parsers.makers(texts(size.rules))
        say(f"{size.name}: texts")
        for benchmark in chosen:
            self._measure(benchmark, size, make)

    def _size(self, size: Size, chosen: list[Benchmark]) -> None:
        folder = self._scratch / size.name.replace(" ", "-")
        built = build(size.workload, size.rules, folder)
        say(f"{size.name}: built in {sum(built.seconds.values()):.1f} s")
        for benchmark in chosen:
            if benchmark.name == "build":
                self._take(benchmark, _built_samples(size, built))
            else:
                self._measure(benchmark, size, self._makers(benchmark, size, built))
        shutil.rmtree(folder)

    def _measure(self, benchmark: Benchmark, size: Size, make: Mapping[str, Callable[[int], Engine]]) -> None:
        repetitions = benchmark.quick_repetitions if self._quick else benchmark.repetitions
        counts = {name: benchmark.messages(name, size.rules, self._quick) for name in benchmark.engines}
        engines = [make[name](count) for name, count in counts.items() if count]
        taken = measure(benchmark.name, size.workload, size.rules, engines, size.check, repetitions)
        self._take(benchmark, taken)

    def _take(self, benchmark: Benchmark, taken: list[Sample]) -> None:
        self.samples += taken
        for sample in sorted(taken, key=lambda one: (one.engine, one.repetition)):
            rate = f"{sample.rate:14,.0f} {benchmark.counted}/s" if sample.messages else ""
            say(f"  {benchmark.name:8} {sample.engine:11} {sample.seconds:8.3f} s {rate}")

    def _makers(self, benchmark: Benchmark, size: Size, built: Built) -> dict[str, Callable[[int], Engine]]:
        """How to make each engine of a benchmark for a number of messages."""
        triples = rules(size.workload, size.rules)
        if benchmark.name == "kernel":
            return {"kernel": lambda count: KernelEngine(built.snapshot, _batches(count), CHECKED)}
        if benchmark.name == "single":
            sent = to_messages(messages(CHECKED)[1])
            return {
                "index": lambda count: IndexEngine(built.index, sent[:count]),
                "reference": lambda count: ReferenceEngine(list(selectors(triples)), sent, count),
            }
        # Spark is imported and started only when a benchmark needs it.
        from bench import spark_engines

        if self._spark is None:
            self._spark = spark_engines.start(self._cores)
            most = max(
                one.messages(engine, rules, self._quick)
                for one in self._benchmarks
                if one.name == "spark"
                for engine in one.engines
                for rules in one.by_rules
            )
            self._files = spark_engines.write_files(self._scratch / "messages", most)
        made: dict[str, Callable[[int], Engine]] = {}
        made.update(spark_engines.engines(self._spark, self._files, triples, built.snapshot, size.check))
        return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; return the exit code: 1 if a count was wrong."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "--full", action="store_true", help="all sizes to 1M; writes bench/record and the README"
    )
    parser.add_argument(
        "--report", action="store_true", help="make the README's tables from bench/record again"
    )
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="only this benchmark")
    parser.add_argument("--rules", action="append", default=[], type=int, metavar="N", help="only this size")
    parser.add_argument("--cores", type=int, default=2, help="Spark's cores (default 2)")
    given = parser.parse_args(arguments)
    if given.report:
        report.update_readme(_recorded())
        return 0
    described = machine(given.cores)
    chosen = [size for size in sizes() if not given.rules or size.rules in given.rules]
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="selectroute-bench-") as scratch:
        tour = Tour(not given.full, given.cores, given.only, chosen, Path(scratch))
        try:
            tour.run()
        except WrongCountError as error:
            print(f"bench: {error}", file=sys.stderr)
            return 1
    say(f"{time.perf_counter() - started:.0f} s in all")
    print(report.render(tour.samples, described))
    if source_digest() != described["source"]:
        print("bench: sources changed while they were measured: these figures are no record", file=sys.stderr)
        return 1
    if given.full and not given.only and not given.rules:
        RECORD.mkdir(exist_ok=True)
        write_csv(RECORD / "samples.csv", tour.samples)
        (RECORD / "machine.json").write_text(json.dumps(described, indent=2) + "\n", encoding="utf-8")
        report.update_readme(_recorded())
    return 0


def say(line: str) -> None:
    """Progress, on standard error."""
    print(line, file=sys.stderr, flush=True)


def _recorded() -> str:
    return report.render(read_csv(RECORD / "samples.csv"), report.read_machine(RECORD / "machine.json"))


def _batches(count: int) -> list[Any]:
    starts = range(0, count, KERNEL_BATCH)
    return [messages(min(KERNEL_BATCH, count - start), start)[1] for start in starts]


def _built_samples(size: Size, built: Built) -> list[Sample]:
    return [
        Sample("build", step, size.workload, size.rules, 0, 0, seconds, built.bytes_a_rule)
        for step, seconds in built.seconds.items()
    ]


if __name__ == "__main__":
    sys.exit(main())
