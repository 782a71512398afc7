"""Casts of a frame's columns: the same as those of Parquet columns, in every time zone of a session."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark")

from pyspark.sql import Row
from pyspark.sql.types import (
    ByteType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

import selectroute as sr
from selectroute.match.columns.columns import lane
from selectroute.match.columns.fields import values_of_rows
from selectroute.match.columns.from_messages import MIXED
from selectroute.spark import Binding, BindingError, deliveries, route
from selectroute.spark.columns.binding import bind, by_position
from selectroute.spark.columns.casts import MIXED as SPARKS_MIXED
from selectroute.spark.columns.casts import cast_column, casts_of, type_of
from selectroute.spark.sources.files.bound_columns import cast_array
from selectroute.spark.sources.files.bound_columns import casts_of as arrow_casts_of

pytestmark = pytest.mark.spark

# An hour that New York has twice, one that it never had, and times before 1970.
TIMES = [
    "2026-11-01 01:30:00", "2026-11-01 05:30:00.678", "2026-11-01 06:30:00", "2026-03-08 02:30:00.000001",
    "1969-12-31 23:59:59.999999", "1883-11-18 12:00:00", "0001-01-01 00:00:00", "9999-12-31 23:59:59.9",
]  # fmt: skip
NAIVE = [datetime.fromisoformat(text) for text in TIMES]
COLUMNS = [
    (TimestampType(), pa.timestamp("us", "UTC"), [one.replace(tzinfo=UTC) for one in NAIVE]),
    (TimestampNTZType(), pa.timestamp("us"), NAIVE),
    (DateType(), pa.date32(), [date(2026, 1, 2), date(1969, 12, 31), date(1, 1, 1), date(9999, 12, 31)]),
    (
        DecimalType(38, 2),
        pa.decimal128(38, 2),
        [Decimal(text) for text in ("12.50", "-3.00", "0.00", "127.00", "-128.00", "9" * 36, "-0.01")],
    ),
    (
        DecimalType(38, 18),
        pa.decimal128(38, 18),
        [Decimal("1e-18"), Decimal("2.000000000000000000"), Decimal("9223372036854775807")],
    ),
    (DecimalType(20, 0), pa.decimal128(20, 0), [Decimal(1 << 63), Decimal((1 << 64) - 1), Decimal(5)]),
    (ByteType(), pa.int8(), [-128, 127]),
    (IntegerType(), pa.int32(), [-(2**31), 2**31 - 1, 127]),
    (LongType(), pa.int64(), [-(2**63), 2**63 - 1, 2**53 + 1, 7]),
    (FloatType(), pa.float32(), [1.5, -2.0, 16777216.0, float("nan"), float("inf")]),
    (DoubleType(), pa.float64(), [1.5, -2.0, 2.0**63, -(2.0**63), 1e300, float("nan"), float("-inf")]),
]


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Asia/Kathmandu"])
@pytest.mark.parametrize(
    ("type_", "arrow", "values"), COLUMNS, ids=lambda one: getattr(one, "simpleString", str)()
)
def test_a_cast_gives_what_the_cast_of_a_parquet_column_gives(spark, tmp_path, zone, type_, arrow, values):

    array = pa.array([*values, None], arrow)
    # By Parquet: Python's own times would go through the zone of this machine.
    pq.write_table(pa.table({"x": array}), tmp_path / "x.parquet")
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        frame = spark.read.schema(StructType([StructField("x", type_)])).parquet(str(tmp_path)).coalesce(1)
        possible = casts_of(type_)
        assert set(possible) == set(arrow_casts_of(arrow)) and possible[0] == arrow_casts_of(arrow)[0]
        exact, (column,) = by_position(frame)
        cast = exact.select(*(cast_column(column, type_, to).alias(to) for to in possible))
        shown = [type_of(type_, to).simpleString() for to in possible]
        assert [field.dataType.simpleString() for field in cast.schema] == shown
        rows = cast.collect()
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    for to in possible:
        wanted = cast_array(array, to)
        own = [row[to].asDict() if isinstance(row[to], Row) else row[to] for row in rows]
        found = pa.array(own, MIXED if type_of(type_, to) == SPARKS_MIXED else wanted.type)
        shown = [str(one) for one in values_of_rows(lane("x", found))]
        assert shown == [str(one) for one in values_of_rows(lane("x", wanted))], to


AT = "SELECT timestamp '2026-01-02 03:04:05.678Z' AS at, 12.50BD AS price, date '2026-01-02' AS day, 'x' AS s"
BOUND = Binding.of(["at:long=cast", "price:double=cast", "on:string=cast(day)", "@topic=s"])
MILLISECONDS = 1_767_323_045_678


def snapshot_of(**selectors):
    return sr.build_snapshot(list(selectors.items()))


def test_bound_casts_are_read_by_route_by_deliveries_and_in_partitions(spark):
    snapshot = snapshot_of(
        at=f"at = {MILLISECONDS}",
        price="price > 12.4 AND price < 12.6",
        on="on = '2026-01-02'",
    )
    df = spark.sql(AT)
    expected = ["at", "on", "price"]
    assert sorted(route(df, snapshot, BOUND, output="ids", strict=True).first().subscriptions) == expected
    assert sorted(row.subscription for row in deliveries(df, snapshot, BOUND).collect()) == expected
    routed = route(df, snapshot, BOUND, partitions=2, output="ids")
    assert sorted(routed.first().subscriptions) == expected


def test_a_stream_that_follows_casts_also_what_no_selector_has_read_before(spark, tmp_path):
    folder = tmp_path / "snapshots"
    sr.publish(snapshot_of(other="color = 'red'"), folder)
    spark.sql(AT).write.parquet(str(tmp_path / "in"))
    stream = spark.readStream.schema(spark.sql(AT).schema).parquet(str(tmp_path / "in"))
    routed = route(stream, folder, BOUND).select("subscriptions")
    sr.publish(sr.Snapshot.open(folder).changed([sr.Add("at", f"at = {MILLISECONDS}")]), folder)
    found = []
    query = routed.writeStream.foreachBatch(lambda df, _: found.extend(df.collect()))
    query.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(
        availableNow=True
    ).start().awaitTermination()
    assert [row.subscriptions for row in found] == [["at"]]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "s:long=cast",
            "'s' is bound to column 's' with a cast to long, but the column has type string: this type has",
        ),
        ("at:double=cast", "has type timestamp: it can be cast to long, string"),
        ("x:long=cast(y)", "'x' is bound to column 'y', but the frame has no such column"),
    ],
)
def test_a_cast_that_the_column_does_not_have_is_one_sentence(spark, text, sentence):
    name = text[0] if text[0] != "a" else "at"
    with pytest.raises(BindingError) as error:
        route(spark.sql(AT), snapshot_of(one=f"{name} > 1"), Binding.of([text]))
    assert sentence in str(error.value)


def test_the_bind_that_a_warning_names_mends_it(spark):
    snapshot = snapshot_of(at="at > 0", sent="JMSTimestamp > 0", price="price > 0")
    df = spark.sql(AT).selectExpr("at", "at AS sent", "price")
    renamed = Binding({"JMSTimestamp": "sent"})
    with pytest.warns(UserWarning) as warned:
        route(df, snapshot, renamed)
    binds = [str(one.message).partition("with a cast, '")[2].partition("'")[0] for one in warned]
    assert sorted(binds) == ["JMSTimestamp:long=cast(sent)", "at:long=cast", "price:double=cast"]
    routed = route(df, snapshot, Binding.of(binds), strict=True, output="ids")
    assert sorted(routed.first().subscriptions) == ["at", "price", "sent"]


def test_a_header_of_another_number_is_named_with_its_bind(spark):
    df = spark.sql("SELECT 4.0 AS JMSPriority")
    with pytest.raises(sr.ColumnTypeError, match="bind it with a cast, 'JMSPriority:int=cast'"):
        route(df, snapshot_of(one="JMSPriority = 4"), strict=True)
    with pytest.raises(sr.ColumnTypeError, match="must be an int; bind it as 'JMSPriority:int=cast'"):
        route(
            df.selectExpr("cast(JMSPriority AS double) JMSPriority"),
            snapshot_of(one="JMSPriority = 4"),
            strict=True,
        )


def test_a_bound_column_has_the_type_of_its_cast(spark):
    schema = spark.sql(AT).schema
    found = {one.identifier: one.type.simpleString() for one in bind(schema, ("at", "price", "on"), BOUND)}
    assert found == {"at": "bigint", "price": "double", "on": "string"}
