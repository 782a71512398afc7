"""A frame's own columns beside the ids of who gets them, in `deliveries` and in `route`."""

import pytest

pytest.importorskip("pyspark")

import selectroute as sr
from selectroute.spark import Binding, BindingError, OutputError, deliveries, match_files, route

pytestmark = pytest.mark.spark


def frame(spark):
    return spark.sql(
        """select * from values
            (1, 'red', 3000, timestamp'2026-01-01 00:00:00', map('a', 1), 10L),
            (2, 'blue', 3000, null, null, 11L),
            (3, 'blue', 1, timestamp'2026-01-03 00:00:00', map('c', 3), 12L)
        as t(order_id, color, weight, placed, tags, `@offset`)"""
    )


@pytest.fixture(scope="module")
def snapshot():
    return sr.build_snapshot([("red", "color = 'red'"), ("heavy", "weight > 2500"), ("never", "weight < 0")])


EXPECTED = [("heavy", 1), ("heavy", 2), ("red", 1)]


def test_deliveries_keep_the_columns_that_are_asked_for_as_they_are(spark, snapshot):
    plain = deliveries(frame(spark), snapshot)
    kept = deliveries(frame(spark), snapshot, keep=["order_id"])
    assert kept.columns == [*plain.columns, "order_id"]
    everything = deliveries(frame(spark), snapshot, keep="*").collect()
    assert sorted((row.subscription, row.order_id) for row in everything) == EXPECTED
    before = {row.order_id: tuple(row) for row in frame(spark).collect()}
    assert all(tuple(row)[7:] == before[row.order_id] for row in everything)
    assert sorted(tuple(row)[:7] for row in everything) == sorted(map(tuple, plain.collect()))


@pytest.mark.slow
def test_a_routed_frame_keeps_its_columns_in_every_form(spark, snapshot):
    direct = sorted(map(tuple, deliveries(frame(spark), snapshot).collect()))
    for output in ("array", "packed", "ids"):
        kept = deliveries(route(frame(spark), snapshot, output=output), snapshot, keep=["order_id"])
        assert sorted((row.subscription, row.order_id) for row in kept.collect()) == EXPECTED, output
        plain = deliveries(route(frame(spark), snapshot, output=output), snapshot)
        assert sorted(map(tuple, plain.collect())) == direct


def test_what_cannot_be_kept_is_one_sentence(spark, snapshot):
    df = frame(spark)
    with pytest.raises(BindingError, match=r"keep names 'orderid'.*did you mean `order_id`"):
        deliveries(df, snapshot, keep=["orderid"])
    with pytest.raises(BindingError, match=r"keep names 'Source', 'offset'.*withColumnRenamed"):
        deliveries(df.selectExpr("*", "1 as Source", "2 as offset"), snapshot, keep="*")
    with pytest.raises(BindingError, match="has 2 columns named"):
        deliveries(df.selectExpr("*", "1 as order_id"), snapshot, keep=["order_id"])
    with pytest.raises(TypeError, match="keep is a str: give a list of columns"):
        deliveries(df, snapshot, keep="order_id")
    with pytest.raises(OutputError, match="array, packed, auto or ids, not 'id'"):
        route(df, snapshot, output="id")
    with pytest.raises(BindingError, match="not the array<int> that route adds"):
        deliveries(df.selectExpr("*", "'text' AS subscriptions"), snapshot)


@pytest.mark.slow
def test_route_gives_ids(spark, snapshot, tmp_path):
    routed = route(frame(spark), snapshot, output="ids")
    assert routed.schema["subscriptions"].dataType.simpleString() == "array<string>"
    found = {row.order_id: sorted(row.subscriptions) for row in routed.collect()}
    assert found == {1: ["heavy", "red"], 2: ["heavy"], 3: []}
    changed = snapshot.changed([sr.Add("late", "color = 'blue'")])  # ids of two segments
    rows = route(frame(spark), changed, output="ids").collect()
    found = {row.order_id: sorted(row.subscriptions) for row in rows}
    assert found == {1: ["heavy", "red"], 2: ["heavy", "late"], 3: ["late"]}
    for partitions in (1, 3):
        parts = route(frame(spark), snapshot, partitions=partitions, output="ids").collect()
        found = {row.order_id: sorted(row.subscriptions) for row in parts}
        assert found == {1: ["heavy", "red"], 2: ["heavy"], 3: []} and len(parts) == 3
    frame(spark).drop("tags", "placed").write.parquet(str(tmp_path / "in"))
    files = sorted((tmp_path / "in").glob("*.parquet"))
    rows = match_files(spark, files, snapshot, output="ids", place=False).collect()
    assert sorted(sorted(row.subscriptions) for row in rows) == [[], ["heavy"], ["heavy", "red"]]


def test_ordinals_carry_their_revision_and_no_other_is_taken_for_it(spark, snapshot, tmp_path):
    sr.publish(snapshot, tmp_path / "snapshots")
    first = sr.Snapshot.open(tmp_path / "snapshots")
    sr.publish(first.changed([sr.Remove("red"), sr.Add("late", "color = 'red'")]), tmp_path / "snapshots")
    routed = route(frame(spark).drop("tags"), first)
    assert routed.schema["subscriptions"].metadata == {"selectroute.revision": 1}
    routed.write.parquet(str(tmp_path / "routed"))
    read = spark.read.parquet(str(tmp_path / "routed"))
    with pytest.raises(BindingError, match=r"ordinals of revision 1, but the snapshot is revision 2"):
        deliveries(read, sr.Snapshot.open(tmp_path / "snapshots"))
    with pytest.raises(BindingError, match="revision 1, but the snapshot is revision 2"):
        deliveries(read, tmp_path / "snapshots", keep=["order_id"])
    found = deliveries(read, first, keep=["order_id"])
    assert sorted((row.subscription, row.order_id) for row in found.collect()) == EXPECTED


@pytest.mark.slow
def test_a_folder_is_its_newest_revision(spark, snapshot, tmp_path):
    folder = tmp_path / "snapshots"
    with pytest.raises(sr.SnapshotNotFoundError, match="no snapshot is published"):
        route(frame(spark), folder)
    sr.publish(snapshot, folder)
    for path in (folder, str(folder)):
        found = {row.order_id: sorted(row.subscriptions) for row in route(frame(spark), path).collect()}
        assert found == {1: ["heavy", "red"], 2: ["heavy"], 3: []}
    sr.publish(snapshot.changed([sr.Remove("heavy")]), folder)
    rows = deliveries(frame(spark), folder, keep=["order_id"]).collect()
    assert [(row.subscription, row.order_id, row.revision) for row in rows] == [("red", 1, 2)]
    metadata = route(frame(spark), folder, output="array").schema["subscriptions"].metadata
    assert metadata == {"selectroute.revision": 2}


def test_missing_columns_are_said_once_or_are_an_error(spark, caplog):
    snapshot = sr.build_snapshot([("a", "Sku = 'x' AND nosuch_17 > 1"), ("b", None, "cars/+")])
    df = spark.createDataFrame([("x",)], "sku string")
    sentence = "selectors read 3 columns that the frame does not have: @topic, Sku (there is sku), nosuch_17"
    for function in (route, deliveries):
        with pytest.raises(sr.MissingColumnError, match="Sku") as error:
            function(df, snapshot, missing="error")
        assert sentence in str(error.value) and error.value.columns == ("@topic", "Sku", "nosuch_17")
    function(df, snapshot, missing="ignore")
    assert not caplog.records
    for _ in range(3):
        route(df, snapshot)
        deliveries(df, snapshot)
    assert [sentence in record.getMessage() for record in caplog.records] == [True]
    assert caplog.records[0].name == "selectroute" and caplog.records[0].levelname == "WARNING"
    with pytest.raises(ValueError, match="missing is 'yes': give 'warn', 'error' or 'ignore'"):
        route(df, snapshot, missing="yes")


@pytest.mark.slow
def test_columns_that_are_bound_or_in_a_struct_are_not_missing(spark, caplog):
    snapshot = sr.build_snapshot([("a", sr.Selector("a.b = 1 AND JMSPriority > 3 AND kind = 'x'", "ibm-mq"))])
    df = spark.createDataFrame([((1,), 4, "x")], "a struct<b: int>, `jms.Pri` int, k string")
    binding = Binding({"kind": "k"})
    assert route(df, snapshot, binding, output="ids", missing="error").first().subscriptions == ["a"]
    assert not caplog.records
