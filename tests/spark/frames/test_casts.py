"""Casts of a frame's columns: the same as those of Parquet columns, in every time zone of a session."""

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
from selectroute.spark.columns.arrow_casts import cast_array
from selectroute.spark.columns.arrow_casts import casts_of as arrow_casts_of
from selectroute.spark.columns.binding import bind, by_position
from selectroute.spark.columns.casts import MIXED as SPARKS_MIXED
from selectroute.spark.columns.casts import cast_column, casts_of, type_of
from tests.support.components import after_first

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


@pytest.mark.parametrize("zone", after_first(pytest.mark.slow, "America/New_York", "UTC", "Asia/Kathmandu"))
def test_a_cast_gives_what_the_cast_of_a_parquet_column_gives(spark, tmp_path, zone):
    most = max(len(values) for *_, values in COLUMNS)
    arrays = [pa.array([*values, *[None] * (most + 1 - len(values))], arrow) for _, arrow, values in COLUMNS]
    names = [f"x{number}" for number in range(len(COLUMNS))]
    # By Parquet: Python's own times would go through the zone of this machine.
    pq.write_table(pa.table(arrays, names), tmp_path / "x.parquet")
    schema = StructType([StructField(name, type_) for name, (type_, *_) in zip(names, COLUMNS, strict=True)])
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        exact, columns = by_position(spark.read.schema(schema).parquet(str(tmp_path)).coalesce(1))
        casts = [
            (f"{column} {to}", cast_column(column, type_, to), type_of(type_, to), cast_array(array, to))
            for column, array, (type_, *_) in zip(columns, arrays, COLUMNS, strict=True)
            for to in casts_of(type_)
        ]
        cast = exact.select(*(column.alias(name) for name, column, *_ in casts))
        types = [field.dataType.simpleString() for field in cast.schema]
        assert types == [type_.simpleString() for _, _, type_, _ in casts]
        rows = cast.collect()
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    for type_, arrow, _ in COLUMNS:
        possible, expected = casts_of(type_), arrow_casts_of(arrow)
        assert (set(possible), possible[0]) == (set(expected), expected[0])
    for place, (name, _, type_, expected) in enumerate(casts):
        values = [row[place].asDict() if isinstance(row[place], Row) else row[place] for row in rows]
        array = pa.array(values, MIXED if type_ == SPARKS_MIXED else expected.type)
        texts = [[str(value) for value in values_of_rows(lane("x", each))] for each in (array, expected)]
        assert texts[0] == texts[1], name


AT = "SELECT timestamp '2026-01-02 03:04:05.678Z' AS at, 12.50BD AS price, date '2026-01-02' AS day, 'x' AS s"
BOUND = Binding.of(["at:long=cast", "price:double=cast", "on:string=cast(day)", "@topic=s"])
MILLISECONDS = 1_767_323_045_678


def snapshot_of(**selectors):
    return sr.build_snapshot(list(selectors.items()))


def test_bound_casts_are_read_by_route_by_deliveries_and_in_partitions(spark):
    snapshot = snapshot_of(
        at=f"at = {MILLISECONDS}", price="price > 12.4 AND price < 12.6", on="on = '2026-01-02'"
    )
    df = spark.sql(AT)
    expected = ["at", "on", "price"]
    assert sorted(route(df, snapshot, BOUND, output="ids", strict=True).first().subscriptions) == expected
    assert sorted(row.subscription for row in deliveries(df, snapshot, BOUND).collect()) == expected
    routed = route(df, snapshot, BOUND, partitions=2, output="ids")
    assert sorted(routed.first().subscriptions) == expected


@pytest.mark.slow
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


def test_a_cast_that_the_column_does_not_have_is_one_sentence_and_a_header_s_is_named(spark):
    df = spark.sql(AT)
    types = {one.identifier: one.type.simpleString() for one in bind(df.schema, ("at", "price", "on"), BOUND)}
    assert types == {"at": "bigint", "price": "double", "on": "string"}
    string = "'s' is bound to column 's' with a cast to long, but the column has type string: this type has"
    for text, sentence in {
        "s:long=cast": string,
        "at:double=cast": "has type timestamp: it can be cast to long, string",
        "x:long=cast(y)": "'x' is bound to column 'y', but the frame has no such column",
    }.items():
        with pytest.raises(BindingError) as error:
            route(df, snapshot_of(one=f"{text.partition(':')[0]} > 1"), Binding.of([text]))
        assert sentence in str(error.value)
    for sql, sentence in {
        "4.0": "bind it with a cast, 'JMSPriority:int=cast'",
        "4D": "must be an int; bind it as 'JMSPriority:int=cast'",
    }.items():
        with pytest.raises(sr.ColumnTypeError, match=sentence):
            route(spark.sql(f"SELECT {sql} AS JMSPriority"), snapshot_of(one="JMSPriority = 4"), strict=True)
