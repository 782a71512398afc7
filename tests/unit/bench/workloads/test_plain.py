"""The workloads are those that every engine in every language runs, and our kernel finds what must be
found.
"""

import pytest

from bench.definition import sizes
from bench.matching.engines import KernelEngine, build
from bench.workloads.oracle import Oracle
from bench.workloads.plain import messages, rules, selectors, splitmix64

CHECKED = 2_000
SIZES = [size for size in sizes() if size.workload in ("Z", "U")]


def test_splitmix64_is_the_published_generator():
    # The reference implementation's first outputs for seed 1234567.
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    assert splitmix64(1234567, 0, 3).tolist() == published


def test_draws_do_not_depend_on_where_one_starts():
    assert splitmix64(1, 5, 4).tolist() == splitmix64(1, 0, 9)[5:].tolist()


def test_first_rules_and_first_message_are_as_defined():
    first = rules("Z", 3)
    numbers = [(38, 26, 9710), (15, 5, 7628), (398, 7, 2855)]
    assert list(zip(first.type, first.color, first.weight, strict=True)) == numbers
    assert next(selectors(first)) == "JMSType = 't38' AND color = 'c26' AND weight > 9710"
    message = {"JMSType": "t46", "color": "c26", "weight": 5956, "JMSCorrelationID": "c3f2827a"}
    message |= {"JMSPriority": 3, "qty": 346, "region": "r14", "urgent": True}
    assert messages(1)[1].to_pylist() == [message]


@pytest.mark.parametrize("size", SIZES, ids=lambda size: size.name)
def test_oracle_gives_the_check_values(size):
    assert Oracle(rules(size.workload, size.rules)).expected(messages(CHECKED)[0]) == size.check


@pytest.mark.parametrize("size", [size for size in SIZES if size.rules <= 10_000], ids=lambda size: size.name)
def test_kernel_gives_the_check_values(size, tmp_path):
    _, batch = messages(CHECKED)
    built = build(lambda: selectors(rules(size.workload, size.rules)), tmp_path)
    assert KernelEngine(built, [batch]).judge() == size.check
