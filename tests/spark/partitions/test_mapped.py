"""All partitions in one process: what they find together, what stays mapped, and what fails."""

from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

pytest.importorskip("pyspark")

import selectroute as sr
from selectroute.spark.partitions import route as mapping
from selectroute.spark.partitions.publish import publish_partitions
from selectroute.spark.partitions.route import MappedPartitions, map_once
from selectroute.spark.partitions.snapshot import OPEN_PARTITIONS
from selectroute.spark.partitions.steps import Lists, merge


def rows_of(offsets, ordinals):
    return [ordinals[first:last].tolist() for first, last in pairwise(offsets)]


def registry_of_colors(rules):
    index = sr.Index()
    for number in range(rules):
        index.add(f"s{number}", f"color = 'c{number}' AND weight > {number % 3}")
    index.add("two", "color = 'c1' OR size = 'large'")
    index.add("all", None)
    return index.freeze()


def test_a_share_of_a_batch_and_nearly_all_of_it_are_matched_alike(tmp_path):
    snapshot = registry_of_colors(20)
    parts = MappedPartitions(publish_partitions(snapshot, tmp_path, 2))
    for share in range(0, 101, 20):
        batch = pa.record_batch(
            {
                "color": ["c1"] * share + [f"c{n % 25}" for n in range(100 - share)],
                "weight": pa.array([n % 5 if n % 7 else None for n in range(100)], pa.int32()),
                "size": ["large" if n % 2 else None for n in range(100)],
            }
        )
        expected = [sorted(own.tolist()) for own in snapshot.match(batch)]
        assert [sorted(own) for own in rows_of(*parts.match(batch))] == expected
        assert [sorted(own) for own in rows_of(*parts.match(batch.slice(30, 9)))] == expected[30:39]
    assert rows_of(*parts.match(batch.slice(0, 0))) == []


def test_all_partitions_stay_mapped_also_more_than_the_exchange_keeps_open(tmp_path, monkeypatch):
    snapshot, number = registry_of_colors(1_000), 2 * OPEN_PARTITIONS + 1
    parts = MappedPartitions(publish_partitions(snapshot, tmp_path, number))
    opened = Counter()
    original = mapping.open_snapshot

    def counted(ref):
        opened[ref.folder] += 1
        return original(ref)

    monkeypatch.setattr(mapping, "open_snapshot", counted)
    batch = pa.record_batch({"color": [f"c{n}" for n in range(1_100)], "weight": [2] * 1_100})
    expected = [sorted(own.tolist()) for own in snapshot.match(batch, missing="ignore")]
    for _ in range(3):
        assert [sorted(own) for own in rows_of(*parts.match(batch))] == expected
    assert len(opened) == number + 1 and set(opened.values()) == {1}


def test_an_empty_registry_matches_nothing(tmp_path):
    parts = MappedPartitions(publish_partitions(sr.Index().freeze(), tmp_path, 2))
    assert rows_of(*parts.match(pa.record_batch({"x": ["a", "b"]}))) == [[], []]


def test_a_worker_keeps_the_newest_revision_and_the_one_before(tmp_path):
    refs = [publish_partitions(registry_of_colors(n), tmp_path, 2).ref for n in (3, 4, 5)]
    first, second, third = map(map_once, refs)
    assert map_once(refs[2]) is third and map_once(refs[1]) is second
    assert map_once(refs[0]) is not first
    with pytest.raises(sr.SnapshotError, match="were replaced after the driver"):
        map_once(type(refs[0])(refs[0].folder, refs[0].revision, "0" * 64))


@pytest.mark.parametrize("is_missing", [True, False])
def test_a_damaged_or_missing_partition_is_the_same_error_as_for_an_exchange(tmp_path, is_missing):
    parts = publish_partitions(registry_of_colors(20), tmp_path, 2)
    for path in Path(parts.refs[1].folder).rglob("*-base.arrow"):
        data = path.read_bytes()
        path.unlink()
        if not is_missing:
            path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(sr.SnapshotError) as exchanged:
        parts.part(1)
    batch = pa.record_batch({"color": ["c1"], "weight": [2]})
    with pytest.raises(sr.SnapshotError) as found:
        MappedPartitions(parts).match(batch)
    assert str(found.value) == str(exchanged.value)


LISTS = st.lists(
    st.lists(st.sets(st.integers(0, 40), max_size=12), min_size=6, max_size=6), min_size=0, max_size=5
)


@given(LISTS)
@example([[{0}, {2**31 - 1}, set(), {1}, {1}, {1}], [{0}, {2**31 - 1}, {3}, set(), {1}, {1}]])
def test_merged_lists_have_each_marked_ordinal_once_in_the_order_of_the_parts(parts):
    lists = []
    for part in parts:
        numbers = np.array([number for number, own in enumerate(part) if own], np.int64)
        ordinals = [ordinal for own in part for ordinal in sorted(own)]
        offsets = np.cumsum([0, *(len(part[number]) for number in numbers)])
        lists.append(Lists(numbers, offsets, ~np.array(ordinals, np.int32)))
    found = rows_of(*merge(6, lists, marked=True))
    assert found == [list(dict.fromkeys(o for part in parts for o in sorted(part[n]))) for n in range(6)]


def test_ordinals_of_a_part_are_converted_and_only_marked_ones_compared():
    one = Lists(np.arange(2), np.array([0, 2, 3]), np.array([1, 0, 1], np.int32), np.array([7, ~9], np.int32))
    other = Lists(np.array([1]), np.array([0, 2]), np.array([0, 1], np.int32), np.array([8, ~9], np.int32))
    assert rows_of(*merge(3, [one, other], marked=True)) == [[9, 7], [9, 8], []]
    plain = one._replace(whole=np.array([7, 9], np.int32))
    assert rows_of(*merge(3, [plain, plain], marked=False)) == [[9, 7, 9, 7], [9, 9], []]
