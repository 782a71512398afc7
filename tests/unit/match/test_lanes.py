"""What a batch leaves out: columns that are NULL in all of its rows."""

from __future__ import annotations

import pyarrow as pa
import pytest

import selectroute as sr
from selectroute.match.columns.batch import Batch
from selectroute.match.columns.from_messages import MIXED
from selectroute.match.encoding.lanes import AttributeLanes, Lanes

SELECTORS = {
    "equal": "x = 'a'",
    "unequal": "x <> 'a'",
    "null": "x IS NULL",
    "prefix": "x LIKE 'a%'",
    "not-like": "NOT x LIKE '%a'",
    "greater": "x > 5",
    "other": "y = 1",
    "both": "x IS NULL AND y = 1",
}
TYPES = [
    pa.null(),
    pa.string(),
    pa.int32(),
    pa.bool_(),
    pa.float64(),
    MIXED,
    pa.dictionary(pa.int8(), pa.string()),
]


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
    assert list(Lanes(snapshot, AttributeLanes(Batch(batch))).lanes) == ["y"]


def test_a_slice_is_judged_by_its_own_rows():
    snapshot = snapshot_of(**SELECTORS)
    batch = pa.record_batch({"x": pa.array([None, "ab", None]), "y": [1, 2, 1]})
    assert [found(snapshot, batch.slice(row, 1)) for row in range(3)] == [
        [row] for row in found(snapshot, batch)
    ]
    assert found(snapshot, batch)[1] == ["not-like", "prefix", "unequal"]


def test_a_column_without_a_value_is_null_whatever_its_type():
    batch = pa.record_batch({"x": pa.nulls(2, pa.list_(pa.int8()))})
    assert found(snapshot_of(**SELECTORS), batch) == [["null"], ["null"]]
