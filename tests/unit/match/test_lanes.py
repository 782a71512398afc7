"""Columns of a batch: what is left out, NULL in all of its rows, and the choice of some rows."""

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import selectroute as sr
from selectroute.match.columns.batch import ColumnBatch
from selectroute.match.columns.from_messages import MIXED, from_messages
from selectroute.match.encoding.lanes import AttributeLanes, Lanes
from selectroute.match.match import match_lanes
from tests.support.strategies import checked_selectors, messages

SELECTORS = {
    **{"equal": "x = 'a'", "unequal": "x <> 'a'", "null": "x IS NULL", "prefix": "x LIKE 'a%'"},
    **{"not-like": "NOT x LIKE '%a'", "greater": "x > 5", "other": "y = 1", "both": "x IS NULL AND y = 1"},
}
TYPES = [pa.null(), pa.string(), pa.int32(), pa.bool_(), pa.float64(), MIXED]
TYPES += [pa.dictionary(pa.int8(), pa.string()), pa.list_(pa.int8())]


def snapshot_of(**selectors):
    return sr.build_snapshot((id_, text, None) for id_, text in selectors.items())


def found(snapshot, batch):
    return [sorted(snapshot.ids.take(pa.array(row)).to_pylist()) for row in snapshot.match(batch)]


@pytest.mark.parametrize("type_", TYPES, ids=str)
def test_a_column_without_a_value_is_as_good_as_none(type_):
    snapshot = snapshot_of(**SELECTORS)
    y = pa.array([1, 2, None], pa.int64())
    batch = pa.record_batch({"x": pa.nulls(3, type_), "y": y})
    assert found(snapshot, batch) == found(snapshot, pa.record_batch({"y": y}))
    assert found(snapshot, batch) == [["both", "null", "other"], ["null"], ["null"]]
    assert list(Lanes(snapshot, AttributeLanes(ColumnBatch(batch))).lanes) == ["y"]


def test_a_slice_is_judged_by_its_own_rows():
    snapshot = snapshot_of(**SELECTORS)
    batch = pa.record_batch({"x": pa.array([None, "ab", None]), "y": [1, 2, 1]})
    rows = [[row] for row in found(snapshot, batch)]
    assert [found(snapshot, batch.slice(row, 1)) for row in range(3)] == rows
    assert found(snapshot, batch)[1] == ["not-like", "prefix", "unequal"]


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(checked_selectors(), min_size=12, max_size=12),
    st.lists(messages(), min_size=6, max_size=6),
    st.lists(st.integers(0, 5), max_size=8),
)
def test_some_rows_of_a_batch_are_matched_as_in_the_whole(selectors, batch, rows):
    snapshot = snapshot_of(**{f"s{number}": selector for number, selector in enumerate(selectors)})
    columns = from_messages([*batch, *batch], snapshot.reads).slice(6)
    expected = [row.tolist() for row in snapshot.match(columns)]
    whole = AttributeLanes(ColumnBatch(columns))
    for chosen in (rows, [], range(6)):
        some = whole.some(np.array(chosen, np.int64))
        offsets, ordinals, _ = match_lanes(snapshot, some)
        assert [ordinals[i:j].tolist() for i, j in pairwise(offsets)] == [expected[row] for row in chosen]


def test_rows_are_chosen_from_columns_with_few_values_and_from_strings_that_like_reads():
    selectors = {f"like-{n}": f"x LIKE '%{n}_' AND y = 1" for n in range(30)} | SELECTORS
    snapshot = snapshot_of(**selectors)
    texts = [f"a{n % 100}" for n in range(3_000)]
    x = pa.array([None if n % 7 == 0 else text for n, text in enumerate(texts)])
    y = pa.array([n % 3 for n in range(3_000)])
    rows = np.arange(5, 3_000, 2)
    for column in (x, x.dictionary_encode(), x.fill_null("a")):
        batch = pa.record_batch({"x": column, "y": y})
        offsets, ordinals, _ = match_lanes(snapshot, AttributeLanes(ColumnBatch(batch)).some(rows))
        expected = [sorted(row.tolist()) for row in snapshot.match(batch.take(pa.array(rows)))]
        assert [sorted(ordinals[i:j].tolist()) for i, j in pairwise(offsets)] == expected
