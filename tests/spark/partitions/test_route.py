"""Routing in partitions gives what routing unpartitioned gives, on generated work and on the corpus."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark")

from pyspark.sql import functions as F

import selectroute as sr
from selectroute.selector import DIALECTS
from selectroute.spark import Binding, BindingError, PartitionError, deliveries, publish_partitions, route
from tests.spark import agreement

pytestmark = pytest.mark.spark


@agreement.spark_jobs(2)
@given(agreement.REGISTRIES, agreement.BATCHES, st.sampled_from([1, 2, 3, 7]))
def test_partitions_agree_with_the_reference_on_generated_selectors_and_messages(
    spark, registry, batch, partitions
):
    snapshot = agreement.registered(registry)
    found = agreement.routed(spark, agreement.as_sent(batch), snapshot, partitions=partitions)
    for message, ids in zip(batch, found, strict=True):
        assert ids == agreement.wanted(registry, message)


@pytest.mark.nightly
@pytest.mark.parametrize("dialect", DIALECTS)
def test_partitions_select_exactly_the_true_rows_of_the_corpus(spark, dialect):
    snapshot, batch = agreement.corpus(dialect)
    found = agreement.routed(spark, agreement.as_sent(batch), snapshot, partitions=4)
    wrong = agreement.disagreements(found, dialect)
    assert not wrong, "\n".join(wrong)


@pytest.fixture(scope="module")
def snapshot():
    index = sr.Index()
    for number in range(40):
        index.add(f"color-{number}", f"color = 'c{number % 10}' AND weight > {number}")
    index.add("any-of", "color IN ('c1', 'c2', 'c3') OR JMSType = 't'")
    index.add("scan", "weight > 30")
    index.add("all", None)
    return index.freeze()


def frame(spark):
    rows = [(f"c{n % 12}", n % 50, f"body {n}", f"ID:{n}") for n in range(500)]
    rows += [(None, None, None, "ID:null")] * 2  # the same message twice is two messages
    return spark.createDataFrame(rows, "Color string, weight int, `the.body` string, `@id` string")


BINDING = Binding({"color": "Color"})


def test_the_frame_comes_back_whole_with_the_same_subscriptions(spark, snapshot, tmp_path):
    parts = publish_partitions(snapshot, tmp_path, 3)
    df = frame(spark).repartition(5)
    by_parts = route(df, parts, BINDING)
    whole = route(df, snapshot, BINDING)
    assert by_parts.columns == whole.columns
    assert by_parts.schema["subscriptions"].dataType.simpleString() == "array<int>"

    def sorted_rows(routed):
        return sorted(([*row[:-1], sorted(row.subscriptions)] for row in routed.collect()), key=repr)

    assert sorted_rows(by_parts) == sorted_rows(whole)


def test_deliveries_are_the_same_too(spark, snapshot, tmp_path):
    parts = publish_partitions(snapshot, tmp_path, 3)
    expected = sorted(map(tuple, deliveries(frame(spark), snapshot, BINDING).collect()), key=repr)
    assert sorted(map(tuple, deliveries(frame(spark), parts, BINDING).collect()), key=repr) == expected
    spelled = deliveries(route(frame(spark), parts, BINDING), parts, BINDING)
    assert sorted(map(tuple, spelled.collect()), key=repr) == expected


def test_a_registry_that_reads_no_column_and_an_empty_frame_are_routed(spark):
    index = sr.Index()
    index.add("all", None)
    found = route(spark.range(3), index.freeze(), partitions=2).collect()
    assert [(row.id, row.subscriptions) for row in sorted(found)] == [(0, [0]), (1, [0]), (2, [0])]
    assert route(spark.range(0), index.freeze(), partitions=2).collect() == []
    assert [
        row.subscriptions for row in route(spark.range(2), sr.Index().freeze(), partitions=2).collect()
    ] == [
        [],
        [],
    ]


def test_names_that_spark_confuses_stay_apart(spark):
    index = sr.Index()
    index.add("red", "color = 'red'")
    index.add("blue", "Color = 'blue'")
    both = spark.createDataFrame([("red", "red"), ("blue", "blue")], "color string, Color string")
    routed = route(both, index.freeze(), partitions=2)
    assert routed.columns == ["color", "Color", "subscriptions"]
    assert sorted((row[0], row[2]) for row in routed.collect()) == [("blue", [1]), ("red", [0])]


def test_what_spark_infers_of_a_wide_frame_grows_with_its_columns_and_not_exponentially(spark):
    index = sr.Index()
    for number in range(12):
        index.add(f"s{number}", f"p{number} = 1")
    routed = route(
        spark.range(5).selectExpr(*(f"id + {n} AS p{n}" for n in range(12))), index.freeze(), partitions=2
    )
    waiting, most = [routed._jdf.queryExecution().optimizedPlan()], 0
    while waiting:
        plan = waiting.pop()
        most = max(most, plan.validConstraints().size())
        waiting += [plan.children().apply(n) for n in range(plan.children().size())]
    assert 0 < most < 100
    found = routed.select("p0", "subscriptions").collect()
    assert sorted((row.p0, len(row.subscriptions)) for row in found) == [
        (0, 1),
        (1, 1),
        (2, 0),
        (3, 0),
        (4, 0),
    ]


def test_a_stream_is_refused_and_the_frames_of_foreach_batch_are_routed(spark, snapshot, tmp_path):
    frame(spark).write.parquet(str(tmp_path / "in"))
    stream = spark.readStream.schema(frame(spark).schema).parquet(str(tmp_path / "in"))
    with pytest.raises(PartitionError, match="route the frames of foreachBatch"):
        route(stream, snapshot, BINDING, partitions=2)
    found: list[object] = []
    query = (
        stream.writeStream.foreachBatch(
            lambda df, _: found.extend(route(df, snapshot, BINDING, partitions=2).collect())
        )
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert sorted((row["@id"], sorted(row.subscriptions)) for row in found) == sorted(
        (row["@id"], sorted(row.subscriptions)) for row in route(frame(spark), snapshot, BINDING).collect()
    )


def test_a_frame_that_changes_each_time_it_is_computed_fails_and_loses_nothing(spark, snapshot):
    @F.udf("string")
    def another(_):
        return f"c{random.randrange(10**9)}"

    changing = spark.range(200).select(another.asNondeterministic()("id").alias("color"))
    with pytest.raises(Exception, match="the frame is not the same each time"):
        route(changing, snapshot, partitions=2).collect()


def test_types_and_names_are_refused_as_without_partitions(spark, snapshot, tmp_path):
    parts = publish_partitions(snapshot, tmp_path, 2)
    wrong = spark.range(1).select(F.current_timestamp().alias("weight"))
    with pytest.raises(sr.ColumnTypeError, match="column 'weight' has type timestamp"):
        route(wrong, parts, strict=True)
    with pytest.warns(UserWarning, match="column 'weight' has type timestamp"):
        route(wrong, parts)
    bytes_ = spark.range(1).select(F.lit(b"red").alias("color"))
    with pytest.raises(sr.ColumnTypeError, match="column 'color' has type binary"):
        route(bytes_, parts, strict=True)
    with pytest.raises(BindingError, match="already"):
        route(spark.range(1).withColumn("subscriptions", F.lit(1)), parts)
    with pytest.raises(sr.SnapshotError, match="already has 2 partitions"):
        route(frame(spark), parts, BINDING, partitions=3)


def test_extended_subscriptions_get_nothing_without_a_provider_and_a_warning_says_so(spark):
    index = sr.Index()
    index.add("xpath", "any text", dialect="ibm-mq", extended=True)
    index.add("red", "color = 'red'")
    df = spark.createDataFrame([("red",)], "color string")
    with pytest.warns(UserWarning, match="EXTENDED"):
        routed = route(df, index.freeze(), partitions=2)
    assert [row.subscriptions for row in routed.collect()] == [[1]]
