"""The second pass with tombstones and segments behind: the same as picking the ordinals one by one."""

from itertools import pairwise

import numpy as np
import pytest

from selectroute.match.multi_segment import empty_matches, merge_segments


def words_of(dead, entries):
    bits = np.zeros((entries // 64 + 1) * 64, np.bool_)
    bits[list(dead)] = True
    return np.packbits(bits, bitorder="little").view(np.uint64)


def one_by_one(rows, ordinals, first, dead, beside):
    """The matches of each row, live entries first, then those beside."""
    result = []
    for number, runs in enumerate(rows):
        own = [ordinals[e] + first for start, end in runs for e in range(start, end) if e not in dead]
        result.append(own + beside[1][beside[0][number] : beside[0][number + 1]].tolist())
    return result


def emitted(rows, ordinals, first, dead, beside):
    runs = np.array([run for row in rows for run in row], np.int64).reshape(-1, 2)
    counts = [sum(end - start for start, end in row) for row in rows]
    offsets = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
    words = words_of(dead, len(ordinals)) if dead is not None else None
    found_offsets, found = merge_segments(runs, offsets, ordinals, first, words, beside)
    assert (found_offsets.dtype, found.dtype) == (np.int64, np.int32)
    assert found_offsets[-1] == len(found)
    return [found[a:b].tolist() for a, b in pairwise(found_offsets)]


ENTRIES = 400


@pytest.mark.parametrize("share", [0.0, 0.004, 0.03, 0.3, 1.0])
@pytest.mark.parametrize("seed", range(3))
def test_dead_entries_are_left_out_and_rows_beside_come_behind(seed, share):
    chance = np.random.default_rng(seed)
    ordinals = chance.permutation(ENTRIES).astype(np.int32)
    rows = []
    for _ in range(30):
        bounds = np.sort(chance.choice(ENTRIES + 1, 2 * chance.integers(0, 4), replace=False))
        rows.append([tuple(pair) for pair in bounds.reshape(-1, 2).tolist()])
    dead = set(np.flatnonzero(chance.random(ENTRIES) < share).tolist())
    side = np.concatenate(([0], np.cumsum(chance.integers(0, 3, len(rows))))).astype(np.int64)
    beside = (side, chance.integers(1_000, 2_000, side[-1]).astype(np.int32))
    for behind in (beside, empty_matches(len(rows))):
        for gone in (dead, None):
            expected = one_by_one(rows, ordinals, 7, gone or set(), behind)
            assert emitted(rows, ordinals, 7, gone, behind) == expected


@pytest.mark.parametrize("entry", [0, 1, 62, 63, 64, 127, 128, 191])
def test_a_single_dead_entry_is_found_wherever_in_its_word_it_lies(entry):
    ordinals = np.arange(192, dtype=np.int32)
    rows = [[(0, 192)], [(entry, entry + 1)], [(0, entry)] if entry else [], [(entry + 1, 192)]]
    expected = one_by_one(rows, ordinals, 0, {entry}, empty_matches(4))
    assert emitted(rows, ordinals, 0, {entry}, empty_matches(4)) == expected
    assert expected[1] == []


def test_a_segment_that_matches_nothing_leaves_what_is_beside_it():
    beside = (np.array([0, 1], np.int64), np.array([5], np.int32))
    assert emitted([[]], np.zeros(0, np.int32), 0, None, beside) == [[5]]
