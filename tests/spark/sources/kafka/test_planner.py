"""How batches of records are cut: offsets by partition, and ranges by task."""

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed (the extra `spark`)")
pytest.importorskip("kafka.net.manager", reason="kafka-python is not installed (the extra `kafka`)")

from hypothesis import given
from hypothesis import strategies as st

from selectroute.kafka.record import Range
from selectroute.spark.sources.kafka.offsets import Identity, offsets_with, ranges_between, ranges_record
from selectroute.spark.sources.kafka.offsets import ranges_of as ranges_of_record
from selectroute.spark.sources.kafka.planner import limited
from selectroute.spark.sources.kafka.source import distribute

SIZES = st.lists(st.integers(1, 20_000), min_size=1, max_size=9)


def ranges_of(sizes):
    return [Range("t", number, 10, 10 + size) for number, size in enumerate(sizes)]


@given(SIZES, st.integers(1, 5), st.integers(0, 12))
def test_a_plan_has_every_offset_once_and_the_same_arguments_give_the_same(sizes, most, least):
    ranges = ranges_of(sizes)
    tasks = distribute(ranges, most, least)
    assert tasks == distribute(ranges, most, least)
    assert 1 <= len(tasks) <= max(most, least) and all(tasks)
    offsets = sorted((one.partition, n) for task in tasks for one in task for n in (one.start, one.end))
    covered = {}
    for task in tasks:
        for one in task:
            covered[one.partition] = covered.get(one.partition, 0) + one.end - one.start
    assert covered == dict(enumerate(sizes))
    assert offsets[0][1] == 10
    if least <= len(sizes):
        assert sum(map(len, tasks)) == len(sizes), "a partition stays in one task"


def test_few_records_are_one_task():
    assert len(distribute(ranges_of([300] * 6), 4)) == 1
    assert len(distribute(ranges_of([5_000] * 6), 4)) == 4
    assert len(distribute(ranges_of([100]), 4, 3)) == 3


@given(SIZES, st.integers(1, 30_000))
def test_a_batch_has_no_more_offsets_than_its_limit_and_one_a_partition(sizes, most):
    start = {"t": {str(n): 5 for n in range(len(sizes))}}
    ends = {"t": {str(n): 5 + size for n, size in enumerate(sizes)}}
    found = limited(start, ends, most)
    taken = [found["t"][str(n)] - 5 for n in range(len(sizes))]
    assert all(0 < one <= size for one, size in zip(taken, sizes, strict=True))
    assert sum(taken) <= most + len(sizes)
    assert limited(start, ends, None) == ends


def test_a_partition_that_is_new_begins_at_its_first_offset():
    new = Identity("id", epochs={"0": 1, "1": 1}, begin={"1": 4}, skipped={"1": 4})
    start, end = offsets_with({"t": {"0": 3}}, {}), offsets_with({"t": {"0": 3, "1": 6}}, {"t": new})
    (one,) = ranges = ranges_between(start, end)
    assert one == Range("t", 1, 4, 6, "id", 1, skipped=4)
    assert ranges_of_record(ranges_record(ranges)) == ranges
    assert [part.skipped for task in distribute(ranges, 2, 2) for part in task] == [4, 0]
