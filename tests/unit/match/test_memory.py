"""Memory for matches is used again, and never while somebody has it."""

import numpy as np
import pyarrow as pa
import pytest

from selectroute.match import memory


@pytest.fixture
def take_array(monkeypatch):
    arrays = [np.empty(0, np.int32) for _ in range(memory.KEPT)]
    monkeypatch.setattr(memory, "_arrays", arrays)
    return memory.take_array


COUNT = memory.LEAST // 4


def address(array):
    return array.ctypes.data


def test_memory_that_nobody_has_any_more_is_given_again(take_array):
    first = take_array(COUNT)
    place = address(first)
    del first
    assert address(take_array(COUNT)) == place


@pytest.mark.parametrize(
    "held",
    [
        lambda array: array,
        lambda array: array[5:10],
        lambda array: array.reshape(2, -1)[1],
        lambda array: pa.array(array),
        lambda array: memoryview(array)[3:],
        lambda array: np.frombuffer(array, np.uint8),
    ],
    ids=["itself", "slice", "reshaped", "arrow", "memoryview", "buffer"],
)
def test_memory_that_somebody_has_is_not_given_again(take_array, held):
    first = take_array(COUNT)
    place = address(first)
    kept = held(first)
    del first
    second = take_array(COUNT)
    second[:] = 7
    assert address(second) != place
    assert kept is not None


def test_matches_of_one_batch_are_matched_beside_those_of_the_last(take_array):
    places = set()
    array = None
    for _ in range(5):
        array = take_array(COUNT)
        places.add(address(array))
    assert len(places) == memory.KEPT
    assert array is not None


def test_a_small_result_does_not_hold_a_large_array(take_array):
    large = take_array(5 * COUNT)
    place = address(large)
    del large
    small = take_array(COUNT)
    assert address(small) != place
    assert small.base.nbytes == small.nbytes


def test_an_array_that_is_too_large_is_not_kept(take_array, monkeypatch):
    monkeypatch.setattr(memory, "MOST", 2 * memory.LEAST)
    assert take_array(3 * COUNT).base is None


def test_results_of_one_batch_stay_when_the_next_is_matched(snapshot_of_many):
    snapshot, batch = snapshot_of_many
    first = snapshot.match(batch)
    before = first.ordinals.copy()
    assert before.nbytes >= memory.LEAST
    assert not np.shares_memory(first.ordinals, snapshot.match(batch.slice(1)).ordinals)
    assert np.array_equal(first.ordinals, before)


@pytest.fixture
def snapshot_of_many():
    import selectroute as sr

    snapshot = sr.build_snapshot([(f"s{number}", "a = 1", None) for number in range(1_000)])
    return snapshot, pa.record_batch({"a": pa.array([1] * 400)})
