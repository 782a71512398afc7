"""Distinct values and rows of arrays."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from selectroute.arrays.hashing import distinct_pairs, distinct_values


@pytest.mark.parametrize("rows", [0, 1, 2, 1_000])
def test_the_distinct_pairs_are_those_that_numpy_finds(rows):
    random = np.random.default_rng(rows)
    first, second = random.integers(-3, 4, (2, rows))
    pairs, number = distinct_pairs(first, second)
    wanted, inverse = np.unique(np.stack((first, second), axis=1), axis=0, return_inverse=True)
    assert pairs.tolist() == wanted.tolist()
    assert number.tolist() == inverse.reshape(-1).tolist()


@given(st.lists(st.integers(0, 9) | st.integers(2**64 - 2, 2**64 - 1)))
def test_distinct_values_are_sorted_and_each_is_there_once(values: list[int]) -> None:
    assert distinct_values(np.array(values, np.uint64)).tolist() == sorted(set(values))
