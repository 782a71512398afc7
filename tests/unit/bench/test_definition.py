"""Definitions load, and name what there is."""

import pytest

from bench.definition import KAFKA, MESSAGES, TEXTS, benchmarks, short, sizes
from bench.jvm import PEERS
from bench.matching.churn import ENGINES as CHANGES
from bench.queues.engines import ENGINES as QUEUES
from bench.registry.engines import ENGINES as REGISTRY
from bench.registry.engines import STARTS
from bench.workloads.catalogue import WORKLOADS

ENGINES = {
    "kernel", "expanded", "numpy", "c", "c-codes", "kernel-1", "match-one", "change", "index", "reference",
    "build",
    "join", "when", "noop-int", "noop-array", "noop-no-nulls", "route", "route-auto", "files", "files-auto",
    "partitions-2", "partitions-8", "exchanged-2", "exchanged-8",
    "stream-route", "stream-partitions-2", "stream-partitions-8", "stream-exchanged-2",
    "lark-lalr", "jms", "ibm-jms", "ibm-mq", *PEERS, *CHANGES,
    "import", "start-anew", "start", *(name for engines in REGISTRY.values() for name in engines),
    "no-op", "fan-out",
    "fan-out-by-message", "relay", "relay-transactional", "kafka-streams", "flink",
    "load", "open", "match", "stream",
    "parquet-minute", "delta-minute", "parquet-hour", "delta-hour",
    "queue", "queue-of-properties", *(name for engines in QUEUES.values() for name in engines),
}  # fmt: skip


@pytest.mark.parametrize("benchmark", benchmarks(), ids=lambda one: one.name)
def test_a_benchmark_names_engines_workloads_and_sizes_that_exist(benchmark):
    assert set(benchmark.engines) <= ENGINES
    assert benchmark.baseline is None or benchmark.baseline in benchmark.engines
    assert {*benchmark.shares, *benchmark.shared} <= set(benchmark.engines)
    assert set(benchmark.workloads) <= WORKLOADS.keys() | {TEXTS, MESSAGES}
    assert set(benchmark.by_engine) <= set(benchmark.engines)
    assert set(benchmark.by_workload) <= set(benchmark.workloads)
    assert set(benchmark.quick_rules) <= set(benchmark.by_rules)
    assert benchmark.analysis and benchmark.title


@pytest.mark.parametrize("benchmark", benchmarks(), ids=lambda one: one.name)
def test_every_engine_has_a_number_of_messages_at_every_size_and_a_quick_tour_leaves_some_out(benchmark):
    quick, whole = ([size for size in sizes() if benchmark.covers(size, quick)] for quick in (True, False))
    assert whole and (quick or not benchmark.quick_rules)  # what a quick tour has no time for
    assert not [size for size in quick if size.rules > 100_000]
    for engine in benchmark.engines:
        assert all(benchmark.messages(engine, size, quick=False) >= 0 for size in whole)
        assert all(benchmark.messages(engine, size, quick=True) >= 0 for size in quick)
    assert set(benchmark.quick_without) <= set(benchmark.engines)
    for engine in benchmark.quick_without:
        assert not any(benchmark.messages(engine, size, quick=True) for size in quick)
        assert any(benchmark.messages(engine, size, quick=False) for size in whole)


def test_a_full_run_has_every_workload_at_every_size_that_is_promised():
    by_workload = {
        name: {size.rules for size in sizes() if size.workload == name} for name in ("Z", "U", "M", "R", "G")
    }
    to_a_million = {1_000, 10_000, 100_000, 1_000_000}
    assert all(of >= to_a_million for of in by_workload.values())
    assert max(by_workload["R"]) == 100_000_000
    assert {size.rules for size in sizes() if size.workload == MESSAGES} == to_a_million | {10_000_000}
    kernel, single = (one for one in benchmarks() if one.name in ("kernel", "single"))
    for size in (one for one in sizes() if one.rules <= 10_000_000):
        if size.workload in kernel.workloads:
            assert kernel.covers(size, quick=False) and kernel.messages("kernel", size, quick=False)
        if size.workload in single.workloads and size.rules in to_a_million:
            assert single.covers(size, quick=False) and single.messages("kernel-1", size, quick=False)


@pytest.mark.parametrize(
    ("group", "names"),
    [
        ("registry", [STARTS, *REGISTRY]),
        (KAFKA, ["kafka-rates", "kafka-latency", "kafka-memory", "tables-files", "tables-kafka"]),
    ],
)
def test_a_group_has_all_that_there_is(group, names):
    assert sorted(one.name for one in benchmarks() if one.group == group) == sorted(names)


def test_sizes_are_named_shortly():
    assert [short(n) for n in (1, 100, 1_000, 100_000, 1_000_000, 10_000_000)] == [
        "1", "100", "1k", "100k", "1M", "10M"
    ]  # fmt: skip
