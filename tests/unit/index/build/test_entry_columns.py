"""Columns of numbers, row by row."""

from __future__ import annotations

import numpy as np
import pytest

from selectroute.index.build.entry_columns import distinct


@pytest.mark.parametrize("rows", [0, 1, 2, 1_000])
def test_the_distinct_pairs_are_those_that_numpy_finds(rows):
    random = np.random.default_rng(rows)
    first, second = random.integers(-3, 4, (2, rows))
    pairs, number = distinct(first, second)
    wanted, inverse = np.unique(np.stack((first, second), axis=1), axis=0, return_inverse=True)
    assert pairs.tolist() == wanted.tolist()
    assert number.tolist() == inverse.reshape(-1).tolist()
