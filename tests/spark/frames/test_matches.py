"""The forms of output of `route` and `match_files` hold the same; `auto` takes the cheaper and says why."""

import numpy as np
import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark.sql import functions as F

import selectroute as sr
from selectroute.spark import OutputError, deliveries, explain_output, match_files, route, unpack
from selectroute.spark.columns.matches import (
    ORDINALS,
    PACKED,
    PACKED_FROM,
    TooManyMatchesError,
    portions,
    read,
    written,
)

LISTS = [[1, 2, 3], [], [7], [-1, 2**31 - 1], []]


def flat(lists):
    offsets = np.cumsum([0, *map(len, lists)]).astype(np.int64)
    return offsets, np.array([one for each in lists for one in each], np.int32)


@pytest.mark.parametrize("form", ["array", "packed"])
@pytest.mark.parametrize("lists", [LISTS, [[]], []])
def test_what_is_written_is_read_again(form, lists):
    column = written(form, *flat(lists))
    assert len(column) == len(lists)
    offsets, ordinals = read(column)
    assert (offsets.tolist(), ordinals.tolist()) == tuple(part.tolist() for part in flat(lists))


@pytest.mark.parametrize("form", ["array", "packed"])
def test_a_slice_and_nulls_are_read_as_they_stand(form):
    column = written(form, *flat(LISTS)).slice(1, 3)
    assert read(column)[1].tolist() == [7, -1, 2**31 - 1]
    nulls = column.take(pa.array([0, None, 1, 2]))
    offsets, ordinals = read(nulls)
    assert (offsets.tolist(), ordinals.tolist()) == ([0, 0, 0, 1, 3], [7, -1, 2**31 - 1])


def test_packed_ordinals_are_four_little_endian_bytes_each():
    assert written("packed", *flat(LISTS)).to_pylist()[:3] == [b"\1\0\0\0\2\0\0\0\3\0\0\0", b"", b"\7\0\0\0"]


@pytest.mark.parametrize("form", ["array", "packed"])
@pytest.mark.parametrize("most", [1, 2, 3, 4, 100])
def test_portions_hold_together_what_one_column_would_and_no_more_at_once(form, most):
    parts = list(portions(form, *flat(LISTS), most))
    whole = written(form, *flat(LISTS))
    assert pa.concat_arrays([part for _, part in parts]).equals(whole)
    assert [row for row, _ in parts] == np.cumsum([0, *(len(part) for _, part in parts[:-1])]).tolist()
    assert all(len(part) == 1 or len(read(part)[1]) <= most for _, part in parts)
    assert len(parts) == {1: 4, 2: 3, 3: 2, 4: 2, 100: 1}[most]
    assert list(portions(form, *flat([]), most)) == []


def test_more_bytes_than_arrow_can_address_are_refused():
    many = np.broadcast_to(np.int32(0), 2**29)
    offsets = np.array([0, 2**29], np.int64)
    with pytest.raises(TooManyMatchesError, match=r"lower spark\.sql\.execution\.arrow"):
        written("packed", offsets, many)


def index_of(*selectors):
    index = sr.Index()
    for number, selector in enumerate(selectors):
        index.add(f"s{number}", selector)
    return index


def test_auto_takes_arrays_where_messages_have_few_subscriptions_and_packs_where_they_have_many():
    few = index_of(*(f"JMSCorrelationID = 'ID:{n}'" for n in range(500))).freeze()
    many = index_of(*(f"color = 'c{n % 5}' AND weight > {n}" for n in range(500))).freeze()
    assert (explain_output(few).form, explain_output(many).form) == ("array", "packed")
    assert explain_output(few).expected < 2
    assert 40 < explain_output(many).expected < 60  # half of 100
    sentence = str(explain_output(many))
    assert sentence.startswith("packed: a message is expected to go to about")
    assert f"at least the {PACKED_FROM}" in sentence
    assert "fewer than" in str(explain_output(few))


def test_what_has_no_equality_and_no_selector_counts_for_every_message():
    ranges = index_of(*(f"weight > {n}" for n in range(100))).freeze()
    assert explain_output(ranges).expected == pytest.approx(50)
    everything = index_of(*[None] * 40).freeze()
    assert explain_output(everything).expected == pytest.approx(40)
    assert explain_output(sr.Index().freeze()).form == "array"


@pytest.mark.slow
def test_the_estimate_is_made_from_a_sample_and_scaled_to_the_registry():
    large = index_of(*(f"color = 'c{n % 100}' AND weight > 1" for n in range(20_000))).freeze()
    assert 80 < explain_output(large).expected < 125  # half of 200


SELECTORS = [None, *(f"color = 'c{n % 3}' AND weight > {n}" for n in range(240))]


@pytest.fixture(scope="module")
def snapshot():
    return index_of(*SELECTORS).freeze()


def frame(spark):
    rows = [(f"ID:{n}", f"c{n % 4}" if n % 5 else None, n) for n in range(250)]
    return spark.createDataFrame(rows, "`@id` string, color string, weight int").repartition(3)


def lists(df):
    return sorted((row["@id"], row["subscriptions"]) for row in df.collect())


@pytest.mark.spark
def test_every_form_holds_the_same_subscriptions_and_deliveries_of_them_are_the_same(spark, snapshot):
    df = frame(spark)
    arrays = lists(route(df, snapshot))
    assert max(len(ordinals) for _, ordinals in arrays) > 50
    spelled = sorted((row.message_id, row.subscription) for row in deliveries(df, snapshot).collect())
    ids = snapshot.ids.to_pylist()
    assert spelled == sorted((id, ids[ordinal]) for id, ordinals in arrays for ordinal in ordinals)
    packed = route(df, snapshot, output="packed")
    assert packed.schema["subscriptions"].dataType == PACKED
    assert route(df, snapshot, output="auto").schema["subscriptions"].dataType == PACKED
    assert lists(packed.withColumn("subscriptions", unpack(F.col("subscriptions")))) == arrays
    delivered = deliveries(packed, snapshot).collect()
    assert sorted((row.message_id, row.subscription) for row in delivered) == spelled
    few = index_of("color = 'c1'").freeze()
    assert route(df, few, output="auto").schema["subscriptions"].dataType == ORDINALS


@pytest.mark.slow
@pytest.mark.spark
def test_files_hold_the_same_subscriptions_in_every_form(spark, snapshot, tmp_path):
    frame(spark).repartition(2).write.parquet(str(tmp_path / "in"))
    paths = sorted((tmp_path / "in").glob("*.parquet"))

    def found(**options):
        routed = match_files(spark, paths, snapshot, **options)
        if routed.schema["subscriptions"].dataType.simpleString() == "binary":
            routed = routed.withColumn("subscriptions", unpack(F.col("subscriptions")))
        return sorted(map(tuple, routed.collect()))

    arrays = found()
    assert len(arrays) == 250 and max(len(ordinals) for *_, ordinals in arrays) > 50
    assert found(output="packed") == found(output="auto") == arrays
    assert found(output="packed", place=False) == sorted((ordinals,) for *_, ordinals in arrays)
    of_frame = sorted((ordinals,) for _, ordinals in lists(route(frame(spark), snapshot)))
    assert found(place=False) == of_frame
    assert match_files(spark, paths, snapshot, output="auto").schema["subscriptions"].dataType == PACKED
    few = index_of("color = 'c1'").freeze()
    assert match_files(spark, paths, few, output="auto").schema["subscriptions"].dataType == ORDINALS
    with pytest.raises(OutputError, match="array, packed, auto or ids, not 'rows'"):
        match_files(spark, paths, snapshot, output="rows")
