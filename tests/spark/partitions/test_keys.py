"""What compares equal has one number, and different keys have different ones."""

import math

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pyspark")

import selectroute as sr
from selectroute.clauses.access import equalities, message_key
from selectroute.clauses.normal_form import clauses_of
from selectroute.match.columns.batch import ColumnBatch
from selectroute.match.columns.from_messages import mixed_array
from selectroute.match.encoding.lanes import AttributeLanes
from selectroute.selector.dialect import dialect
from selectroute.spark.partitions.keys import MessageKeys, hash_keys, joined
from tests.support.strategies import values


def numbers(columns, *names):
    """The number of each message, None for one without a key."""
    hashes, has = MessageKeys(AttributeLanes(ColumnBatch(pa.record_batch(columns)))).of(
        names or tuple(columns)
    )
    return [int(one) if known else None for one, known in zip(hashes, has, strict=True)]


@settings(max_examples=300, deadline=None)
@given(st.lists(values | st.none(), min_size=1, max_size=30))
def test_a_message_has_the_number_of_its_key_and_no_two_keys_have_the_same(found):
    keys = [message_key(value) for value in found]
    known = [key for key in keys if key is not None]
    expected = iter(joined(["x"], [hash_keys(known)]).tolist())
    assert numbers({"x": mixed_array(found)}) == [None if key is None else next(expected) for key in keys]
    assert len(set(hash_keys(known).tolist())) == len({repr(key) for key in known})


@pytest.mark.parametrize(
    "equal",
    [
        [pa.array([3], kind) for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8())]
        + [pa.array([3.0], pa.float32()), pa.array([3.0], pa.float64())],
        [pa.array(["ab"]), pa.array(["ab"], pa.large_string()), pa.array(["ab"]).dictionary_encode()],
        [pa.array([0.0]), pa.array([-0.0]), pa.array([0], pa.int64())],
        [pa.array([None], kind) for kind in (pa.string(), pa.int32(), pa.bool_(), pa.null())],
        [pa.array([b"ab"]), pa.array([b"ab"], pa.large_binary()), pa.array([b"ab"], pa.binary(2))],
    ],
)
def test_what_compares_equal_has_one_number_in_columns_of_any_type(equal):
    assert len({numbers({"x": column})[0] for column in equal}) == 1


def test_what_differs_in_kind_has_different_numbers():
    different = ["3", b"3", 3, True, None, ""]
    assert len({numbers({"x": pa.array([value])})[0] for value in different}) == len(different)
    assert numbers({"x": pa.array([2.0**24], pa.float32())}) != numbers({"x": pa.array([2.0**24])})


def test_nan_has_no_key_alone_or_with_another():
    columns = {"x": pa.array([math.nan, 1.0]), "y": pa.array(["a", "a"])}
    assert [number is None for number in numbers(columns, "x")] == [True, False]
    assert [number is None for number in numbers(columns, "x", "y")] == [True, False]


def test_attributes_and_their_places_count_an_absent_column_is_null_and_topics_have_levels():
    columns = {"x": pa.array(["a"]), "y": pa.array(["b"]), "z": pa.array(["a"])}
    found = {tuple(names): numbers(columns, *names)[0] for names in ("x", "z", "xy", "yx", "zy")}
    assert len(set(found.values())) == len(found)
    [clause] = clauses_of(sr.Selector("gone IS NULL").expression, dialect("jms"))
    [key] = equalities(clause).keys["gone"]
    assert numbers(columns, "gone") == joined(["gone"], [hash_keys([key])]).tolist()
    topics = {"@topic": pa.array(["cars/eu", "cars", None])}
    eu, null = joined(["@topic[1]"], [hash_keys(["eu", ("null",)])]).tolist()
    assert numbers(topics, "@topic[1]") == [eu, null, null]
    assert numbers(topics, "@topic")[1] == joined(["@topic"], [hash_keys(["cars"])])[0]


def test_the_numbers_are_those_that_earlier_versions_wrote_down():
    # Published partitions hold these. If one changes, `FORMAT` must.
    keys = ["", "a", "JMSType", "eight by", "nine byte", "é", b"a", 1.0, 0.5, ("float", 2.0**24)]
    keys += [("true",), ("false",), ("null",)]
    assert [f"{number:x}" for number in joined(["x", "é"], [hash_keys(keys)] * 2).tolist()] == WRITTEN


WRITTEN = [
    *("3ed5d2db09bc58a3", "345a497645cc3dd2", "8de85b2ea05ca958", "7ea948bf7bf2074d", "79aaa6552ac171bd"),
    *("ba6b99ed529c16b4", "b6374d650fa99900", "a1bfeba4b9ea9712", "2798384caee03f67", "808beb7fbd572400"),
    *("5c86787c66de48f7", "9e3717639a6aefca", "e982767a38b0c7b4"),
]
