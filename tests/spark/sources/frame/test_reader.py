"""Rows of a DataFrame in a worker: each row is read once, in its place, and a repeat is told from others."""

import json
from itertools import chain, pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pyspark")

from selectroute.spark.job import CommitError, Unrouted
from selectroute.spark.messages import DeadLetterBatch
from selectroute.spark.sources.frame.reader import (
    HASH,
    LETTER,
    OFFSET,
    PARTITION,
    SOURCE,
    RowDigests,
    RowLayout,
    RowReader,
)
from selectroute.spark.task.task import TaskSettings
from selectroute.storage import Location


def task_settings(**more):
    return TaskSettings(None, "", Unrouted.of("keep", ()), 1_000, **more)


def read(batches, more=(), names=("n",), full=False, **options):
    """Return (source, partition, offset, n) of each message in order, and (place, letter) of the others."""
    layout = RowLayout("telemetry", 7, names, tuple(more), options.pop("id_name", None), full)
    reader = RowReader(iter(batches), layout, 3, task_settings(**options), full)
    messages, dead, numbers = [], [], []
    for part in reader.parts():
        if isinstance(part.read, DeadLetterBatch):
            dead.append((tuple(part.place), part.read))
            continue
        values = part.read.columns.column(0).to_pylist()
        numbers += part.read.numbers.tolist()
        messages += [(*part.place, row, n) for row, n in zip(part.read.rows.tolist(), values, strict=True)]
    return messages, dead, numbers


def rows(*columns):
    return pa.RecordBatch.from_arrays(
        [pa.array(column) if isinstance(column, list) else column for column in columns],
        names=[f"c{number}" for number in range(len(columns))],
    )


def test_without_a_position_a_row_is_known_by_batch_task_and_number():
    found, _, numbers = read([rows([10, 11]), rows([12])])
    assert found == [("telemetry/batch=7", 3, row, 10 + row) for row in range(3)]
    assert numbers == [0, 1, 2]


def test_with_an_offset_a_row_is_known_by_its_columns_in_every_batch_and_without_in_one():
    found, _, _ = read([rows([1, 2], [70, 60])], [OFFSET])
    assert found == [("telemetry", 0, 70, 1), ("telemetry", 0, 60, 2)]
    batch = rows([1, 2, 3, 4], ["b", "a", "b", "a"], pa.array([0, 1, 0, 0], pa.int32()), [5, 6, 7, 8])
    found, _, _ = read([batch], [SOURCE, PARTITION, OFFSET])
    assert sorted(found) == [("a", 0, 8, 4), ("a", 1, 6, 2), ("b", 0, 5, 1), ("b", 0, 7, 3)]
    found, _, _ = read([rows([1, 2], ["a", "b"])], [SOURCE])
    assert found == [("a/batch=7", 3, 0, 1), ("b/batch=7", 3, 1, 2)]


def test_where_deliveries_are_put_rows_keep_their_order():
    batch = rows([1, 2, 3], ["b", "a", "b"], pa.array([5, 6, 5]))
    found, _, numbers = read([batch, rows([4], ["b"], [4])], [SOURCE, OFFSET], full=True)
    assert [(source, n) for source, _, _, n in found] == [("b", 1), ("a", 2), ("b", 3), ("b", 4)]
    assert numbers == [0, 1, 2, 3]


def test_a_row_without_a_position_is_a_dead_letter_with_the_row():
    letters = pa.array([None, '{"n":2}', None], pa.string())
    found, [(place, dead)], numbers = read([rows([1, 2, 3], [7, None, 9], letters)], [OFFSET, LETTER])
    assert found == [("telemetry", 0, 7, 1), ("telemetry", 0, 9, 3)] and numbers == [0, 2]
    assert place == ("telemetry", 3)
    assert (dead.reason, dead.count, dead.raw) == ("no-position", 1, b'{"n":2}')
    long = json.dumps({"text": "x" * 2_000})  # kept as far as a message may be long
    found, [(_, dead)], _ = read([rows([1], pa.array([None], pa.int64()), [long])], [OFFSET, LETTER])
    assert found == [] and dead.raw == long.encode()[:1_000]


def test_rows_that_are_too_large_or_no_text_are_dead_letters_and_the_others_keep_their_numbers():
    ends = pa.py_buffer(np.array([0, 1, 2, 2002, 2003], np.int32))
    bad = pa.Array.from_buffers(pa.string(), 4, [None, ends, pa.py_buffer(b"a\xff" + b"x" * 2001)])
    found, dead, numbers = read([rows(bad)])
    assert [(row, n) for _, _, row, n in found] == [(0, "a"), (3, "x")] and numbers == [0, 3]
    letters = sorted((one.reason, one.rows.tolist()) for _, one in dead)
    assert letters == [("not-utf-8", [1]), ("too-large", [2])]


def hashed(*counts, first=0):
    """Batches of so many rows, with hashes that number them."""
    found = []
    for count in counts:
        hashes = pa.array(np.arange(first, first + count))
        found.append(pa.RecordBatch.from_arrays([hashes], names=[HASH]))
        first += count
    return found


def checked(folder, batches, task=0):
    blocks = RowDigests(Location.of(folder), 7, task).checked(iter(batches), HASH)
    return [block.column(0).to_pylist() for block in blocks]


@settings(deadline=None)
@given(
    first=st.lists(st.integers(0, 5), max_size=6),
    cuts=st.lists(st.integers(0, 30), max_size=6),
    stopped=st.integers(0, 6),
)
def test_the_same_rows_in_other_batches_are_the_same(tmp_path_factory, first, cuts, stopped):
    folder, total = tmp_path_factory.mktemp("digests") / "7.rows", sum(first)
    blocks = RowDigests(Location.of(folder), 7, 0).checked(iter(hashed(*first)), HASH)
    for _ in zip(range(stopped), blocks, strict=False):  # the attempt may end anywhere
        pass
    borders = [0, *sorted(min(cut, total) for cut in cuts), total]
    again = hashed(*(end - start for start, end in pairwise(borders)))
    assert [*chain(*checked(folder, again))] == list(range(total))


@pytest.mark.parametrize(
    "others",
    [
        hashed(4, 2),  # a row less
        hashed(4, 4),  # a row more
        hashed(7, first=1),
        [*hashed(4), *hashed(3, first=5)],
        [],
    ],
)
def test_other_rows_stop_the_batch(tmp_path, others):
    assert len(checked(tmp_path, hashed(4, 3))) == 2
    given_out = []
    with pytest.raises(CommitError, match=r"batch 7 was put .* in part, and its task 0 now has other rows"):
        for block in RowDigests(Location.of(tmp_path), 7, 0).checked(iter(others), HASH):
            given_out.append(block.column(0).to_pylist())
    if len(others) == 2 and len(others[1]) == 3:
        assert given_out == [[0, 1, 2, 3]], "others are found before any of their block is given out"
    assert len(checked(tmp_path, others, task=1)) == len(others)  # each task has its own


def test_an_attempt_that_ended_early_says_nothing_of_the_rest(tmp_path):
    blocks = RowDigests(Location.of(tmp_path), 7, 0).checked(iter(hashed(4, 3)), HASH)
    next(blocks)
    assert checked(tmp_path, [*hashed(4), *hashed(9, first=40)]) == [[0, 1, 2, 3], list(range(40, 49))]
