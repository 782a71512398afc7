import numpy as np
import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from selectroute.spark.columns.matches import TooManyMatchesError, ids_of, list_array, list_offsets, pairs

LISTS = [[3, 1], [], [], [0, 1, 2, 3, 4], [2], []]


def flat(lists):
    offsets = np.cumsum([0, *map(len, lists)], dtype=np.int64)
    return offsets, np.array([ordinal for ordinals in lists for ordinal in ordinals], dtype=np.int32)


@pytest.mark.parametrize("most", [1, 2, 3, 4, 8, 100])
def test_slices_of_any_size_hold_every_pair_once_in_order(most):
    parts = list(pairs(*flat(LISTS), most))
    assert all(len(part.rows) <= most for part in parts)
    together = [pair for part in parts for pair in zip(part.rows, part.ordinals, strict=True)]
    assert together == [(row, ordinal) for row, ordinals in enumerate(LISTS) for ordinal in ordinals]
    assert list(pairs(*flat([[], []]))) == list(pairs(*flat([]))) == []


@pytest.mark.parametrize("ids", [5, 1000])
def test_ids_are_encoded_over_those_that_occur(ids):
    names = pa.array([f"s{i}" for i in range(ids)])
    encoded = ids_of(np.array([4, 0, 4, 2], dtype=np.int32), names)
    assert encoded.to_pylist() == ["s4", "s0", "s4", "s2"]
    assert len(encoded.dictionary) == 3


def test_lists_go_there_and_back():
    lists = list_array(*flat(LISTS))
    assert lists.to_pylist() == LISTS
    offsets, ordinals = list_offsets(lists.slice(3))
    assert offsets.tolist() == [0, 5, 6, 6] and ordinals.tolist() == [0, 1, 2, 3, 4, 2]
    offsets, ordinals = list_offsets(pa.array([[1], None, [2]], pa.list_(pa.int32())))
    assert offsets.tolist() == [0, 1, 1, 2] and ordinals.tolist() == [1, 2], "a null list is an empty one"


def test_more_matches_than_a_list_can_hold_are_an_error_that_says_what_to_do():
    with pytest.raises(TooManyMatchesError, match="maxRecordsPerBatch"):
        list_array(np.array([0, 2**31], dtype=np.int64), np.zeros(0, dtype=np.int32))
