"""Definitions load, and name what there is."""

import pytest

from bench.catalogue import WORKLOADS
from bench.churn import ENGINES as CHANGES
from bench.definition import TEXTS, benchmarks, short, sizes
from bench.jvm import PEERS

ENGINES = {
    "kernel", "numpy", "c", "c-codes", "kernel-1", "change", "index", "reference", "build",
    "join", "when", "noop-int", "noop-array", "route", "files",
    "lark-lalr", "jms", "ibm-jms", "ibm-mq", *PEERS, *CHANGES,
}  # fmt: skip


@pytest.mark.parametrize("benchmark", benchmarks(), ids=lambda one: one.name)
def test_a_benchmark_names_engines_workloads_and_sizes_that_exist(benchmark):
    assert set(benchmark.engines) <= ENGINES
    assert benchmark.baseline is None or benchmark.baseline in benchmark.engines
    assert set(benchmark.workloads) <= WORKLOADS.keys() | {TEXTS}
    assert set(benchmark.by_engine) <= set(benchmark.engines)
    assert set(benchmark.by_workload) <= set(benchmark.workloads)
    assert set(benchmark.quick_rules) <= set(benchmark.by_rules)
    assert benchmark.analysis and benchmark.title


@pytest.mark.parametrize("benchmark", benchmarks(), ids=lambda one: one.name)
@pytest.mark.parametrize("quick", [True, False])
def test_every_engine_has_a_number_of_messages_at_every_size(benchmark, quick):
    covered = [size for size in sizes() if benchmark.covers(size, quick)]
    assert covered or (quick and benchmark.name == "peers")  # the JVM is not for a quick tour
    for size in covered:
        for engine in benchmark.engines:
            assert benchmark.messages(engine, size, quick) >= 0


def test_ten_million_rules_are_run_on_request_only():
    assert [size.name for size in sizes() if size.on_request] == ["R 10M"]
    assert all(size.on_request for size in sizes() if size.rules > 1_000_000)


def test_sizes_are_named_shortly():
    assert [short(n) for n in (1, 100, 1_000, 100_000, 1_000_000, 10_000_000)] == [
        "1", "100", "1k", "100k", "1M", "10M"
    ]  # fmt: skip
