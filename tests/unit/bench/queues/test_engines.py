"""Every engine of the queues finds what it must, gives it back, and counts what it did."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench.definition import MESSAGES, benchmarks, sizes
from bench.measure import WrongCountError, measure
from bench.queues import engines as queue_engines
from bench.queues import memory as queue_memory

SIZE = next(size for size in sizes() if size.workload == MESSAGES)
ENGINES = [
    pytest.param(benchmark, name, marks=pytest.mark.nightly if place or benchmark == "queue-durable" else ())
    for benchmark, engines in queue_engines.ENGINES.items()
    for place, name in enumerate(engines)
]
"""All engines; in the default tier the first of each benchmark in memory."""


@pytest.fixture
def queues(tmp_path):
    made = queue_engines.Queues(SIZE, tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize(("benchmark", "name"), ENGINES)
def test_an_engine_takes_the_messages_that_are_asked_for_and_puts_them_back(queues, benchmark, name):
    engine = queue_engines.makers(benchmark, SIZE, queues)[name](60)
    samples = measure(benchmark, MESSAGES, SIZE.rules, [engine], SIZE.check, 2)
    assert [sample.messages for sample in samples] == [60, 60]
    assert engine.run().matches == 60 and engine.judge() == SIZE.check


def test_a_wrong_count_is_found(queues):
    engine = queue_engines.makers("queue-gets", SIZE, queues)["msg-id"](60)
    with pytest.raises(WrongCountError):
        measure("queue-gets", MESSAGES, SIZE.rules, [engine], replace(SIZE.check, matches=499), 1)


def test_every_benchmark_of_queues_has_its_engines():
    for benchmark in benchmarks():
        if benchmark.group == "queues" and benchmark.name != queue_memory.NAME:
            assert set(benchmark.engines) == set(queue_engines.ENGINES[benchmark.name])


@pytest.mark.nightly
def test_the_memory_of_a_message_is_that_of_a_process():
    samples = queue_memory.measured(["queue", "dict"], replace(SIZE, rules=20_000))
    queue, plain = (sample.bytes_a_rule for sample in samples)
    assert 100 < queue < 1_200
    assert 50 < plain < 600
