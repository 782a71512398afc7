"""Columns that are encoded block by block, and short strings, against the reference."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import selectroute as sr
from selectroute.arrays import tables as t
from selectroute.match.columns.batch import ColumnBatch
from selectroute.match.columns.columns import PlainColumn
from selectroute.match.encoding.blocks import BLOCK
from selectroute.match.encoding.lanes import AttributeLanes, Lanes
from selectroute.match.short_strings import fill, short_strings

ROWS = 2 * BLOCK + 7
STRINGS = ["", "a", "a\0", "\0", "b", "seven..", "eight...", "eight..\0", "nine.....", "é"]
STRINGS += ["seventeen bytes.."]
SELECTORS = [
    *(f"s = '{text}' AND n > {bound}" for text in STRINGS for bound in (-5, 0, 2)),
    *(f"JMSType = '{text}'" for text in STRINGS),
    "n = 2 AND s = 'a'",
    "n < 1 AND JMSType = 'b'",
    "d >= 0.5 AND s = 'b'",
]


def batch_of(rows):
    generator = np.random.default_rng(7)
    texts = pa.array([*STRINGS, "none", "eight..."])
    return pa.record_batch(
        {
            "s": texts.take(pa.array(generator.integers(0, len(texts), rows))),
            "JMSType": texts.take(pa.array(generator.integers(0, len(texts), rows))),
            "n": pa.array(generator.integers(-6, 6, rows), pa.int32()),
            "d": pa.array(generator.random(rows)),
        }
    )


def wanted(selectors, batch):
    known = [sr.Selector(text) for text in selectors]
    rows = []
    for row in batch.to_pylist():
        type_ = row.pop("JMSType")
        message = sr.Message({"JMSType": type_}, {name: one for name, one in row.items() if one is not None})
        rows.append([number for number, selector in enumerate(known) if selector.matches(message)])
    return rows


def found(snapshot, batch):
    return [sorted(row.tolist()) for row in snapshot.match(batch)]


def with_nulls(batch, name):
    column = batch[name]
    present = pa.array(np.arange(len(column)) % 3 > 0)
    return batch.set_column(batch.schema.get_field_index(name), name, pc.if_else(present, column, None))


def snapshot_of(selectors):
    return sr.build_snapshot((f"s{number}", text, None) for number, text in enumerate(selectors))


@pytest.mark.parametrize("more", [[], ["s LIKE '%e%' AND n > 1"], ["n BETWEEN 0 AND 3 AND s = 'a'"]], ids=str)
def test_every_block_is_matched_by_its_own_rows(more):
    selectors = [*SELECTORS, *more]
    batch, snapshot = batch_of(ROWS), snapshot_of(selectors)
    expected = wanted(selectors, batch)
    assert found(snapshot, batch) == expected
    for start, stop in ((0, 0), (5, 6), (3, BLOCK + 4), (BLOCK, ROWS)):
        assert found(snapshot, batch.slice(start, stop - start)) == expected[start:stop]


@pytest.mark.parametrize("name", ["s", "JMSType", "n", "d"])
def test_plain_columns_stand_beside_lanes(name):
    snapshot, batch = snapshot_of(SELECTORS), with_nulls(batch_of(BLOCK + 7), name)
    lanes = Lanes(snapshot, AttributeLanes(ColumnBatch(batch))).lanes
    assert [isinstance(lanes[one], PlainColumn) for one in ("s", "JMSType", "n", "d")] == [
        one != name for one in ("s", "JMSType", "n", "d")
    ]
    assert found(snapshot, batch) == wanted(SELECTORS, batch)


def test_a_bound_of_strings_is_read_at_its_place_in_the_text():
    selectors = ["a = 'x' AND b > c", "a = 'x' AND b LIKE '%y' AND c LIKE '%z'"]
    batch = pa.record_batch({"a": ["x"] * 3, "b": ["1y", "2y", "n"], "c": ["1z", "n", "3z"]})
    assert found(snapshot_of(selectors), batch) == [[1], [], []]


@pytest.mark.parametrize("longest", [1, 3, 8])
def test_the_last_short_strings_are_read_within_their_column(longest):
    texts = ["abcdefgh"[:size] for size in range(1, longest + 1)]
    snapshot = snapshot_of([f"s = '{text}'" for text in texts] + ["s = 'bcdefgh'"])
    for rows in (1, 2, 7, 50):
        column = pa.array((texts * rows)[:rows])
        for start in range(rows):
            batch = pa.record_batch({"s": column}).slice(start)
            expected = [[texts.index(text)] for text in batch["s"].to_pylist()]
            # As a column of Arrow's own, and of bytes that end with the last string.
            cut = pa.array(batch["s"].to_pylist())
            assert found(snapshot, batch) == found(snapshot, pa.record_batch({"s": cut})) == expected


def test_short_strings_go_on_after_a_long_one():
    texts = ["a", "nine.....", "b", "", "a", "eight..."] * BLOCK
    batch = pa.record_batch({"s": texts, "n": pa.array(range(len(texts)), pa.int32())})
    selectors = [f"s = '{text}'" for text in STRINGS if text.isascii()]
    assert found(snapshot_of(selectors), batch) == wanted_strings(selectors, texts)


def wanted_strings(selectors, texts):
    place = {text: [number] for number, text in enumerate(text for text in STRINGS if text.isascii())}
    assert len(place) == len(selectors)
    return [place[text] for text in texts]


def test_a_short_string_is_found_by_hash_and_length():
    segment = snapshot_of([f"s = 'v{number}'" for number in range(3000)]).segments[0]
    first, slot, multiplier = short_strings(segment)
    assert int(np.sum(slot[1::2] != np.uint64(t.EMPTY_SLOT))) == 3000
    assert first[-1] * 2 == len(slot) == 8 * len(multiplier)


def test_equal_hashes_of_two_lengths_leave_a_table_unmade():
    slot = np.full(16, t.EMPTY_SLOT, np.uint64)
    hashes, metas = np.array([5, 5], np.uint64), np.array([1 << 32, 2 << 32], np.uint64)
    assert not fill(hashes, metas, slot, np.ones(2, np.uint64))
