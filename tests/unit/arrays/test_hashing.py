"""Hashes of strings as a snapshot stores them; distinct values and rows of arrays."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from selectroute.arrays import hashing
from selectroute.arrays.hashing import HASH_MULTIPLIER, HASH_SEED, HASH_SHIFT, HASH_TAG_SHIFT, hash_strings
from selectroute.arrays.rows import distinct_pairs, distinct_values

_WORD = 1 << 64


def _hash(text: bytes, tag: int) -> int:
    """Hash one string in Python's integers."""
    state = (HASH_SEED ^ len(text) ^ tag << HASH_TAG_SHIFT) * HASH_MULTIPLIER % _WORD
    state ^= state >> HASH_SHIFT
    for start in range(0, len(text), 8):
        word = int.from_bytes(text[start : start + 8], "little")
        state = (state ^ word) * HASH_MULTIPLIER % _WORD
        state ^= state >> HASH_SHIFT
    return state


@given(st.lists(st.tuples(st.binary(max_size=20), st.integers(0, 1)), max_size=12))
def test_hashes_are_those_of_one_string_after_another(strings: list[tuple[bytes, int]]) -> None:
    data = np.frombuffer(b"".join(text for text, _ in strings), np.uint8)
    offsets = np.cumsum([0, *(len(text) for text, _ in strings)])
    tags = np.array([tag for _, tag in strings], np.uint8)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hashing, "_BLOCK", 5)  # so that a few strings are several blocks
        assert hash_strings(data, offsets, tags).tolist() == [_hash(*one) for one in strings]


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
