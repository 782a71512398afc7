"""Routing in partitions gives what routing unpartitioned gives, on generated work and on the corpus."""

from __future__ import annotations

import logging
import random
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark")

from pyspark.errors import PythonException
from pyspark.sql import functions as F

import selectroute as sr
from selectroute.selector import DIALECTS
from selectroute.spark import Binding, BindingError, PartitionError, deliveries, publish_partitions, route
from selectroute.spark.partitions import route as choice
from selectroute.spark.partitions.publish import partitioned
from selectroute.spark.partitions.steps import Tasks, address, gather, match
from tests.spark import agreement
from tests.support.components import after_first

pytestmark = pytest.mark.spark

BOTH = pytest.mark.parametrize("exchange", after_first(pytest.mark.nightly, "always", "never"))
"""Mark of tests of both ways; by day generated messages alone are routed without an exchange, too."""


@agreement.spark_jobs(2)
@given(agreement.REGISTRIES, agreement.BATCHES, st.sampled_from([1, 2, 3, 7]))
def test_partitions_agree_with_the_reference_on_generated_selectors_and_messages(
    spark, registry, batch, partitions
):
    snapshot, sent = agreement.registered(registry), agreement.as_sent(batch)
    parts = partitioned(snapshot, partitions)
    for exchange in ("never", "always"):
        found = agreement.routed(spark, sent, parts, exchange=exchange)
        for message, ids in zip(batch, found, strict=True):
            assert ids == agreement.wanted(registry, message)


@BOTH
@pytest.mark.nightly
@pytest.mark.parametrize("dialect", DIALECTS)
def test_partitions_select_exactly_the_true_rows_of_the_corpus(spark, dialect, exchange):
    snapshot, batch = agreement.corpus(dialect)
    found = agreement.routed(spark, agreement.as_sent(batch), snapshot, partitions=4, exchange=exchange)
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


@BOTH
def test_the_frame_comes_back_whole_with_the_same_subscriptions_and_deliveries(
    spark, snapshot, tmp_path, exchange
):
    parts = publish_partitions(snapshot, tmp_path, 3)
    df = frame(spark).repartition(5)
    by_parts = route(df, parts, BINDING, exchange=exchange)
    whole = route(df, snapshot, BINDING)
    assert by_parts.columns == whole.columns
    assert by_parts.schema["subscriptions"].dataType.simpleString() == "array<int>"

    def sorted_rows(routed):
        return sorted(([*row[:-1], sorted(row.subscriptions)] for row in routed.collect()), key=repr)

    assert sorted_rows(by_parts) == sorted_rows(whole)
    expected = sorted(map(tuple, deliveries(df, snapshot, BINDING).collect()), key=repr)
    kept = deliveries(df, parts, BINDING, keep=["weight"], exchange=exchange).collect()
    assert sorted((tuple(row)[:-1] for row in kept), key=repr) == expected
    spelled = deliveries(by_parts, parts, BINDING)
    assert sorted(map(tuple, spelled.collect()), key=repr) == expected


@pytest.mark.slow
@BOTH
def test_a_registry_that_reads_no_column_and_an_empty_frame_are_routed(spark, exchange):
    index = sr.Index()
    index.add("all", None)
    found = route(spark.range(3), index.freeze(), partitions=2, exchange=exchange).collect()
    assert [(row.id, row.subscriptions) for row in sorted(found)] == [(0, [0]), (1, [0]), (2, [0])]
    assert route(spark.range(0), index.freeze(), partitions=2, exchange=exchange).collect() == []
    found = route(spark.range(2), sr.Index().freeze(), partitions=2, exchange=exchange).collect()
    assert [row.subscriptions for row in found] == [[], []]


@pytest.mark.slow
@BOTH
def test_names_that_spark_confuses_stay_apart(spark, exchange):
    index = sr.Index()
    index.add("red", "color = 'red'")
    index.add("blue", "Color = 'blue'")
    both = spark.createDataFrame([("red", "red"), ("blue", "blue")], "color string, Color string")
    routed = route(both, index.freeze(), partitions=2, exchange=exchange)
    assert routed.columns == ["color", "Color", "subscriptions"]
    assert sorted((row[0], row[2]) for row in routed.collect()) == [("blue", [1]), ("red", [0])]


@pytest.mark.slow
@BOTH
def test_what_spark_infers_of_a_wide_frame_grows_with_its_columns_and_not_exponentially(spark, exchange):
    index = sr.Index()
    for number in range(12):
        index.add(f"s{number}", f"p{number} = 1")
    wide = spark.range(5).selectExpr(*(f"id + {n} AS p{n}" for n in range(12)))
    routed = route(wide, index.freeze(), partitions=2, exchange=exchange)
    waiting, most = [routed._jdf.queryExecution().optimizedPlan()], 0
    while waiting:
        plan = waiting.pop()
        most = max(most, plan.validConstraints().size())
        waiting += [plan.children().apply(n) for n in range(plan.children().size())]
    assert 0 < most < 100
    found = routed.select("p0", "subscriptions").collect()
    assert {row.p0: len(row.subscriptions) for row in found} == {0: 1, 1: 1, 2: 0, 3: 0, 4: 0}


@pytest.mark.slow
def test_a_stream_is_routed_with_one_revision_and_so_are_the_frames_of_foreach_batch(
    spark, snapshot, tmp_path, caplog
):
    df = frame(spark)
    df.repartition(3).write.parquet(str(tmp_path / "in"))
    publish_partitions(snapshot, tmp_path / "parts", 3)
    stream = spark.readStream.schema(df.schema).option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "in"))
    folder = str(tmp_path / "parts")
    with caplog.at_level(logging.INFO, "selectroute"):
        routed = route(stream, folder, BINDING, output="ids")
    assert "is routed with revision 1 of the partitions in" in caplog.text
    assert "matched in each worker with all partitions: 3 partitions take" in caplog.text
    exchanged = route(stream, folder, BINDING, output="ids", exchange="always")
    whole = route(df, snapshot, BINDING, output="ids").collect()
    expected = Counter((*row[:-1], *sorted(row[-1])) for row in whole)
    found: list[object] = []
    for name, query in {
        "stream": routed.writeStream.foreachBatch(lambda df, _: found.extend(df.collect())),
        "exchanged": exchanged.writeStream.foreachBatch(lambda df, _: found.extend(df.collect())),
        "batch": stream.writeStream.foreachBatch(
            lambda df, _: found.extend(route(df, snapshot, BINDING, partitions=2, output="ids").collect())
        ),
    }.items():
        found.clear()
        started = query.option("checkpointLocation", str(tmp_path / name)).trigger(availableNow=True).start()
        started.awaitTermination()
        assert Counter((*row[:-1], *sorted(row[-1])) for row in found) == expected


@pytest.mark.slow
@BOTH
def test_each_message_of_a_frame_of_chance_has_the_subscriptions_of_its_own_values(spark, snapshot, exchange):
    @F.udf("string")
    def another(_):
        return f"c{random.randrange(10)}"

    chance = another.asNondeterministic()("id").alias("color")
    df = spark.range(500).select(chance, F.lit(100).alias("weight"))
    found = route(df, snapshot, partitions=3, exchange=exchange).collect()
    colors = [f"c{number}" for number in range(10)]
    matches = snapshot.match(pa.record_batch({"color": colors, "weight": [100] * 10}))
    expected = {color: sorted(own.tolist()) for color, own in zip(colors, matches, strict=True)}
    assert len(found) == 500 and len({row.color for row in found}) > 1
    assert all(sorted(row.subscriptions) == expected[row.color] for row in found)


@pytest.mark.slow
@BOTH
def test_columns_of_any_type_come_back_as_they_were(spark, snapshot, exchange):
    df = spark.sql(
        """SELECT 'c1' AS color, 50 AS weight, map('a', array(1, 2)) AS m,
        named_struct('x', 1.5D, 'y', X'00FF') AS s, TIMESTAMP '2026-01-02 03:04:05.678901' AS t,
        TIMESTAMP_NTZ '2026-01-02 03:04:05' AS n, DATE '2026-01-02' AS d, INTERVAL '1' DAY AS i,
        CAST(12.345 AS DECIMAL(20, 3)) AS e, CAST(NULL AS array<struct<a: int>>) AS v"""
    )
    df = df.unionByName(df.select(*(F.lit(None).cast(one.dataType).alias(one.name) for one in df.schema)))
    routed = route(df, snapshot, partitions=2, exchange=exchange)
    types = [one.dataType for one in df.schema]
    assert [one.dataType for one in routed.drop("subscriptions").schema] == types
    assert sorted(map(repr, routed.drop("subscriptions").collect())) == sorted(map(repr, df.collect()))


@pytest.mark.slow
def test_a_column_that_spark_cannot_send_to_python_is_refused_by_an_exchange_alone(spark, snapshot):
    df = spark.sql("SELECT 'c1' AS color, 50 AS weight, make_interval(1) AS pause")
    with pytest.raises(PartitionError, match="column 'pause' has type interval"):
        route(df, snapshot, partitions=2, exchange="always")
    found = route(df, snapshot, partitions=2, exchange="never").select("subscriptions").collect()
    assert sorted(found[0].subscriptions) == [1, 11, 21, 31, 40, 41, 42]


@pytest.mark.slow
@BOTH
@pytest.mark.parametrize("output", after_first(pytest.mark.nightly, "ids", "packed", "auto"))
def test_the_forms_of_output_are_those_without_partitions(spark, snapshot, output, exchange):
    df = frame(spark)
    found = [
        sorted(deliveries(route(df, snapshot, BINDING, output=output, **way), snapshot, BINDING).collect())
        for way in ({}, {"partitions": 3, "exchange": exchange})
    ]
    assert found[0] == found[1]


@pytest.mark.slow
@BOTH
def test_a_subscription_of_several_parts_comes_once_also_where_others_are_in_none(spark, exchange):
    index = sr.Index()
    for number in range(10):
        index.add(f"any-{number}", f"a = 'x{number}' OR b = 'y{number}'")
    for number in range(30):
        index.add(f"never-{number}", f"a = 'p{number}' AND a = 'q'")
    df = spark.createDataFrame([(f"x{n}", f"y{n}") for n in range(10)], "a string, b string")
    found = route(df, index.freeze(), partitions=7, exchange=exchange).collect()
    assert sorted((row.a, row.subscriptions) for row in found) == [(f"x{n}", [n]) for n in range(10)]


def test_a_missing_answer_fails_and_loses_nothing(snapshot, tmp_path):
    parts = publish_partitions(snapshot, tmp_path, 2)
    tasks = Tasks(each=1, partitions=2, homes=1)
    messages = pa.record_batch({"color": [f"c{n % 10}" for n in range(100)], "weight": [50] * 100})
    [sent] = address(parts.ref, [("color", 0), ("weight", 1)], 2, tasks)(iter([messages]))
    assert sent.column(0).to_pylist() == [0, 1, 2] and sent.column(2).to_pylist() == [-1, -1, 2]
    answer, collect = match(parts.ref, tasks), gather(parts.ref, "array")
    answers = [found for row in range(3) for found in answer(iter([sent.slice(row, 1)]))]
    [whole] = collect(iter(answers))
    assert [sorted(own) for own in whole.column("found").to_pylist()] == [
        sorted(own.tolist()) for own in snapshot.match(messages)
    ]
    with pytest.raises(PartitionError, match="an answer of a partition is missing"):
        list(collect(iter(answers[1:])))
    # What is computed again under another place, or is another batch, has another name.
    [other] = address(parts.ref, [("color", 0), ("weight", 1)], 2, tasks)(iter([messages.slice(0, 99)]))
    assert other.column(1)[0] != sent.column(1)[0]


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
    for way in (route, deliveries):
        with pytest.raises(ValueError, match="exchange is True: give 'auto', 'always' or 'never'"):
            way(frame(spark), parts, BINDING, exchange=True)
        with pytest.raises(PartitionError, match="but the snapshot has none"):
            way(frame(spark), snapshot, BINDING, exchange="always")
    assert route(frame(spark), snapshot, BINDING, exchange="never").count() == 502


def test_the_choice_by_itself_looks_at_the_memory_and_the_number_of_partitions(spark, snapshot, monkeypatch):
    parts = partitioned(snapshot, 3)

    def shuffles(**options):
        routed = route(frame(spark), parts, BINDING, **options)
        return "Exchange" in routed._jdf.queryExecution().executedPlan().toString()

    assert not shuffles() and not shuffles(exchange="never") and shuffles(exchange="always")
    needed = sum(parts.bytes) + 2 * 4 * sum(parts.rows)  # two workers
    monkeypatch.setattr(choice, "machine_memory", lambda: 2 * needed)
    assert not shuffles()
    monkeypatch.setattr(choice, "machine_memory", lambda: 2 * needed - 1)
    assert shuffles() and not shuffles(exchange="never")
    monkeypatch.undo()
    monkeypatch.setattr(choice, "MOST_MAPPED", 2)
    assert shuffles()


@pytest.mark.slow
def test_on_a_cluster_the_memory_is_what_an_executor_has_beside_its_jvm(spark, monkeypatch):
    assert choice._memory(spark) == choice.machine_memory() > 1 << 28
    monkeypatch.setattr(choice, "_has_local_master", lambda _: False)
    assert choice._memory(spark) == 384 << 20


@pytest.mark.slow
@BOTH
def test_a_damaged_partition_fails_the_job_with_the_same_error(spark, snapshot, tmp_path, exchange):
    parts = publish_partitions(snapshot, tmp_path, 3)
    for path in Path(parts.refs[1].folder).rglob("*-base.arrow"):
        path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(PythonException, match=r"SnapshotError.*is damaged"):
        route(frame(spark), parts, BINDING, exchange=exchange).collect()


@pytest.mark.slow
@BOTH
def test_extended_subscriptions_get_nothing_without_a_provider_and_a_warning_says_so(spark, exchange):
    index = sr.Index()
    index.add("xpath", "any text", dialect="ibm-mq", extended=True)
    index.add("red", "color = 'red'")
    df = spark.createDataFrame([("red",)], "color string")
    with pytest.warns(UserWarning, match="EXTENDED"):
        routed = route(df, index.freeze(), partitions=2, exchange=exchange)
    assert [row.subscriptions for row in routed.collect()] == [[1]]
