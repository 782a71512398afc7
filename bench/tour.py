"""Runs over sizes and benchmarks."""

from __future__ import annotations

import shutil
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import pyarrow.parquet as pq

from bench.definition import KAFKA, LOAD, MESSAGES, TEXTS, Benchmark, Size, benchmarks
from bench.engine import Engine, SkippedError
from bench.kafka.paced import CYCLE
from bench.kafka.streamed import Streamed
from bench.matching.engines import Built, build
from bench.matching.makers import makers
from bench.matching.memory import index_bytes
from bench.measure import Sample, WrongCountError, measure
from bench.queues import engines as queue_engines
from bench.queues import memory as queue_memory
from bench.registry import engines as registry_engines
from bench.registry.registered import Registered
from bench.workloads.catalogue import WORKLOADS, Messages
from bench.workloads.texts import texts

AnyEngine = TypeVar("AnyEngine", bound=Engine)


@dataclass(frozen=True, slots=True)
class Choice:
    """What is run: the quick tour or all of it, of some benchmarks and sizes."""

    quick: bool
    cores: int
    only: Sequence[str]
    rules: Sequence[int]
    """Only these numbers of rules, and then of every benchmark that has them; all if it is empty."""


class Tour:
    """Rules are built once for each size, Spark starts once."""

    def __init__(self, choice: Choice, sizes: Sequence[Size], scratch: Path) -> None:
        self.samples: list[Sample] = []
        self.skipped: dict[str, str] = {}
        """Why an engine was left out."""
        self.failed: list[str] = []
        """The benchmarks that ended with an error, each with its size."""
        self._choice = choice
        self._quick = choice.quick
        self._sizes = [one for one in sizes if one.rules in choice.rules or not choice.rules]
        self._scratch = scratch
        self._benchmarks = [
            one
            for one in benchmarks()
            if ({one.name, one.group} & set(choice.only) if choice.only else not one.long)
        ]
        self._spark: Any = None
        self._files: dict[Messages, list[Path]] = {}
        """The messages that Spark reads, which are those of several sizes."""

    def run(self, finished: Callable[[int, int], None] = lambda done, of: None) -> None:
        """Measure everything; ``finished`` is called after each size with how many are done, and of how many.

        Raises `WrongCountError` at the first wrong count.
        """
        named, started = bool(self._choice.rules), time.monotonic()
        # What is imported at the first use is not the first size's to pay for.
        build(partial(WORKLOADS["Z"].texts, 1), self._scratch / "warm")
        for place, size in enumerate(self._sizes, 1):
            chosen = [one for one in self._benchmarks if one.covers(size, self._quick, named)]
            if chosen:
                minutes = (time.monotonic() - started) / 60
                names = ", ".join(one.name for one in chosen)
                say(f"[{place}/{len(self._sizes)}] {size.name}, after {minutes:.0f} min: {names}")
            if chosen and size.workload == TEXTS:
                self._texts(size, chosen)
            elif chosen and size.workload == MESSAGES:
                self._queues(size, chosen)
            elif chosen:
                self._size(size, chosen)
            finished(place, len(self._sizes))

    def _texts(self, size: Size, chosen: list[Benchmark]) -> None:
        """What is measured of a size whose rules are texts: nothing is built of them."""
        # lark is imported only when a benchmark needs it.
        from bench.matching import parsers

        make = parsers.makers(texts(size.rules))
        for benchmark in chosen:
            with self._noting(benchmark, size):
                self._measure(benchmark, size, make)

    def _queues(self, size: Size, chosen: list[Benchmark]) -> None:
        """What is measured of messages on a queue: there are no rules."""
        for benchmark in chosen:
            with self._noting(benchmark, size):
                if benchmark.name == queue_memory.NAME:
                    self._take(benchmark, queue_memory.measured(benchmark.engines, size))
                    continue
                # Messages that another benchmark holds would cost this one's garbage collections time.
                with (
                    TemporaryDirectory(dir=self._scratch) as folder,
                    closing(queue_engines.Queues(size, Path(folder))) as queues,
                ):
                    self._measure(benchmark, size, queue_engines.makers(benchmark.name, size, queues))

    def _size(self, size: Size, chosen: list[Benchmark]) -> None:
        for benchmark in (one for one in chosen if one.name == LOAD):
            with self._noting(benchmark, size):
                self._load(benchmark, size)
        chosen = [one for one in chosen if one.name != LOAD]
        if not chosen:
            return
        folder = self._scratch / size.name.replace(" ", "-")
        built = build(partial(WORKLOADS[size.workload].texts, size.rules), folder)
        say(f"  built in {sum(built.seconds.values()):.1f} s")
        with Registered(size, self._scratch) as registered, Streamed(size, self._scratch) as streamed:
            for benchmark in chosen:
                with self._noting(benchmark, size):
                    if benchmark.group == KAFKA:
                        self._kafka(benchmark, size, streamed)
                    else:
                        self._one(benchmark, size, built, folder, registered)
        shutil.rmtree(folder)

    @contextmanager
    def _noting(self, benchmark: Benchmark, size: Size) -> Iterator[None]:
        """Let the run, which takes hours, go on after an error in one benchmark; a wrong count ends it."""
        started = time.monotonic()
        try:
            yield
        except WrongCountError:
            raise
        except Exception:
            self.failed.append(f"`{benchmark.name}` at {size.name}")
            say(f"  {benchmark.name} failed:\n{traceback.format_exc()}")
        say(f"  {benchmark.name} took {time.monotonic() - started:.0f} s")

    def _load(self, benchmark: Benchmark, size: Size) -> None:
        """What is measured of rules that need not fit memory: they are built part by part."""
        from bench.spark import loaded

        count = benchmark.messages(benchmark.engines[0], size, self._quick)
        spark = self._session()
        with TemporaryDirectory(dir=self._scratch) as own:
            self._take(benchmark, loaded.measured(size, count, benchmark.repetitions, Path(own), spark))

    def _one(
        self, benchmark: Benchmark, size: Size, built: Built, folder: Path, registered: Registered
    ) -> None:
        fetch = not self._quick or "peers" in self._choice.only
        repetitions = benchmark.quick_repetitions if self._quick else benchmark.repetitions
        if benchmark.name == "build":
            self._take(benchmark, _steps(size, built))
        elif benchmark.name == "memory":
            bytes_a_rule = index_bytes(size.workload, size.rules) / size.rules
            self._take(
                benchmark, [Sample("memory", "index", size.workload, size.rules, 0, 0, 0.0, bytes_a_rule)]
            )
        elif benchmark.name == "cores":
            self._take(benchmark, self._under_each_master(benchmark, size, folder))
        elif benchmark.name == registry_engines.STARTS:
            self._take(benchmark, registry_engines.starts(registered, repetitions))
        elif benchmark.name in registry_engines.ENGINES:
            self._measure(benchmark, size, registry_engines.makers(benchmark.name, registered))
        elif benchmark.spark:
            self._measure(benchmark, size, self._in_spark(size, built, folder))
        else:
            made = makers(benchmark.name, size, built, self._scratch, fetch)
            self._measure(benchmark, size, made)

    def _measure(self, benchmark: Benchmark, size: Size, make: Mapping[str, Callable[[int], Engine]]) -> None:
        repetitions = benchmark.quick_repetitions if self._quick else benchmark.repetitions
        counts = {name: benchmark.messages(name, size, self._quick) for name in benchmark.engines}
        with ExitStack() as opened:
            engines = self._made(benchmark, make, counts, opened)
            taken = measure(benchmark.name, size.workload, size.rules, engines, size.check, repetitions)
        self._take(benchmark, taken)

    def _made(
        self,
        benchmark: Benchmark,
        make: Mapping[str, Callable[[int], AnyEngine]],
        counts: Mapping[str, int],
        opened: ExitStack,
    ) -> list[AnyEngine]:
        """Make the engines that can be had, each for so many messages; 0 is none. They are closed with
        ``opened``.
        """
        engines = []
        for name, count in counts.items():
            if not count or name not in make:
                continue
            try:
                engines.append(make[name](count))
                opened.callback(engines[-1].close)
            except SkippedError as error:
                self.skipped[name] = str(error)
                say(f"  {benchmark.name:8} {name:14} skipped: {error}")
        return engines

    def _take(self, benchmark: Benchmark, taken: list[Sample]) -> None:
        self.samples += taken
        for sample in sorted(taken, key=lambda one: (one.engine, one.repetition)):
            rate = f"{sample.rate:14,.0f} {benchmark.counted}/s" if sample.messages else ""
            say(f"  {benchmark.name:8} {sample.engine:14} {sample.seconds:8.3f} s {rate}")

    def _in_spark(self, size: Size, built: Built, folder: Path) -> Mapping[str, Callable[[int], Engine]]:
        """How to make Spark's engines; it is imported and started only when a benchmark needs it."""
        from bench.spark import engines as spark_engines

        spark = self._session()
        make = WORKLOADS[size.workload].messages
        if make not in self._files:
            # Which they are does not depend on how many rules there are, in any workload that Spark runs.
            paths = self._scratch / f"messages-{len(self._files)}"
            count = max(self._counts_in_spark(make))
            self._files[make] = spark_engines.write_files(paths, partial(make, size.rules), count)
        checked = spark_engines.write_checked(folder, size)
        columns = pq.read_schema(checked).names
        decisive = [name for name in columns if name in built.snapshot.reads]
        source = spark_engines.Source(spark, checked, self._files[make], decisive)
        return spark_engines.engines(source, size, built)

    def _session(self) -> Any:
        """Spark, started when it is first needed; with what Kafka takes if that is asked for."""
        from bench.kafka import streamed
        from bench.spark import engines as spark_engines

        if self._spark is None:
            conf: dict[str, str] = {}
            if any(one.group == KAFKA for one in self._benchmarks) and not self._quick:
                with suppress(SkippedError):
                    conf = streamed.connector()
            self._spark = spark_engines.start(self._choice.cores, **conf)
        return self._spark

    def _kafka(self, benchmark: Benchmark, size: Size, streamed: Streamed) -> None:
        """What is measured of jobs from Kafka to Kafka."""
        from bench.kafka import engines as kafka_engines
        from bench.kafka import latency as kafka_latency
        from bench.kafka import memory as kafka_memory
        from bench.kafka import relay as kafka_relay
        from bench.kafka import table_engines
        from bench.peers.topics import frameworks

        try:
            _ = streamed.broker
        except SkippedError as error:
            self.skipped |= dict.fromkeys(benchmark.engines, str(error))
            say(f"  {benchmark.name:8} skipped: {error}")
            return
        spark = self._session()
        if benchmark.name in table_engines.GIVEN:
            self._measure(benchmark, size, table_engines.makers(benchmark.name, spark, streamed))
            return
        make = {
            **kafka_engines.makers(spark, streamed),
            **kafka_relay.makers(streamed),
            **frameworks.makers(streamed),
        }
        seconds = benchmark.messages(benchmark.engines[0], size, self._quick)
        if benchmark.name == kafka_latency.NAME:
            counts = dict.fromkeys(benchmark.engines, CYCLE)
            with ExitStack() as opened:
                engines = self._made(benchmark, make, counts, opened)
                points = kafka_latency.measured(engines, streamed, seconds, benchmark.repetitions)
                self._take(benchmark, list(points))
        elif benchmark.name == kafka_memory.NAME:
            engine = kafka_engines.FanOutEngine(spark, streamed, kafka_memory.MESSAGES)
            self._take(benchmark, list(kafka_memory.measured(engine, streamed, seconds)))
        else:
            self._measure(benchmark, size, make)

    def _under_each_master(self, benchmark: Benchmark, size: Size, folder: Path) -> list[Sample]:
        """How cost grows with cores, see `bench.spark.cores`."""
        from bench.spark import cores

        repetitions = benchmark.quick_repetitions if self._quick else benchmark.repetitions
        count = benchmark.messages(benchmark.engines[0], size, self._quick)
        return cores.measured(size, folder, count, repetitions)

    def _counts_in_spark(self, make: Messages) -> Iterator[int]:
        """How many of these messages each engine is given."""
        named = bool(self._choice.rules)
        for benchmark in (one for one in self._benchmarks if one.spark):
            for size in self._sizes:
                if not benchmark.covers(size, self._quick, named):
                    continue
                if WORKLOADS[size.workload].messages is make:
                    yield from (benchmark.messages(one, size, self._quick) for one in benchmark.engines)


def say(line: str) -> None:
    """Progress, on standard error."""
    print(line, file=sys.stderr, flush=True)


def _steps(size: Size, built: Built) -> list[Sample]:
    return [
        Sample("build", step, size.workload, size.rules, 0, 0, seconds)
        for step, seconds in built.seconds.items()
    ]
