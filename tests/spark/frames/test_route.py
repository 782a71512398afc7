from __future__ import annotations

import gc
import re

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark.sql import functions as F

import selectroute as sr
from selectroute.match.columns.from_messages import MIXED
from selectroute.spark import Binding, BindingError, deliveries, match_files, route
from selectroute.spark.columns.snapshot_ref import open_once, refer

pytestmark = pytest.mark.spark

SELECTORS = {
    "red": "color = 'red'",
    "heavy": "weight > 2500",
    "not-blue": "NOT color = 'blue'",
    "typed": "weight = 3000 AND price < 1.5",
    "none": "color IS NULL",
    "like": "color LIKE '%e%' AND JMSPriority BETWEEN 3 AND 5",
    "wrong": "weight = 'red' OR NOT (color > 3)",
    "computed": "weight * 2 >= JMSTimestamp",
    "all": "",
}
SCHEMA = "color string, weight int, price float, JMSPriority tinyint, JMSTimestamp bigint, body string"
ROWS = [
    ("red", 3000, 1.1, 4, 6000, "x"),
    ("blue", 2500, 2.5, 5, 5001, None),
    (None, None, None, None, None, "y"),
    ("green", 2501, float("nan"), 0, 0, "z"),
    ("Red", -1, 0.0, 3, -2, ""),
]


def index_of(selectors):
    index = sr.Index()
    for name, selector in selectors.items():
        index.add(name, selector)
    return index


@pytest.fixture(scope="module")
def snapshot():
    return index_of(SELECTORS).freeze()


def as_message(color, weight, price, priority, timestamp, body):
    return sr.Message(
        headers={"JMSPriority": priority, "JMSTimestamp": timestamp},
        properties={
            "color": color,
            "weight": None if weight is None else sr.Int(weight),
            "price": None if price is None else sr.Float(price),
        },
    )


def reference(rows):
    parsed = {name: sr.Selector(text) for name, text in SELECTORS.items()}
    return [{name for name, selector in parsed.items() if selector.matches(as_message(*row))} for row in rows]


def named(snapshot, ordinals):
    return {snapshot.ids[ordinal].as_py() for ordinal in ordinals}


def test_every_row_goes_where_the_reference_sends_it_and_deliveries_are_the_same(spark, snapshot):
    df = spark.createDataFrame(ROWS, SCHEMA).withColumn("@offset", F.expr("cast(weight as bigint)"))
    df = df.withColumn("JMSMessageID", F.expr("unhex(repeat('0a', 24))"))
    routed = route(df, snapshot)
    assert routed.schema["subscriptions"].dataType.simpleString() == "array<int>"
    assert [named(snapshot, row.subscriptions) for row in routed.collect()] == reference(ROWS)
    direct = deliveries(df, snapshot)
    names = "subscription batch revision source partition offset message_id"
    assert direct.columns == names.split()
    rows = sorted(map(tuple, direct.collect()), key=str)
    assert rows == sorted(map(tuple, deliveries(routed, snapshot).collect()), key=str)
    message_id = "ID:" + "0A" * 24
    expected = [
        (name, None, 1, None, None, row[1], message_id)
        for row, names in zip(ROWS, reference(ROWS), strict=True)
        for name in names
    ]
    assert rows == sorted(expected, key=str)


@pytest.mark.slow
def test_streaming_frames_are_routed_alike(spark, snapshot, tmp_path):
    spark.createDataFrame(ROWS, SCHEMA).repartition(2).write.parquet(str(tmp_path / "in"))
    stream = spark.readStream.schema(SCHEMA).parquet(str(tmp_path / "in"))
    found: list[object] = []
    spelled: list[object] = []
    for frame, rows in ((route(stream, snapshot), found), (deliveries(stream, snapshot), spelled)):
        query = (
            frame.writeStream.foreachBatch(lambda df, _, rows=rows: rows.extend(df.collect()))
            .option("checkpointLocation", str(tmp_path / f"checkpoint-{id(rows)}"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    expected = sorted(sorted(names) for names in reference(ROWS))
    assert sorted(sorted(named(snapshot, row.subscriptions)) for row in found) == expected
    assert sorted(row.subscription for row in spelled) == sorted(name for names in expected for name in names)


@pytest.mark.slow
def test_names_are_exact_where_spark_itself_is_not(spark):
    snapshot = index_of({"red": "color = 'red'", "blue": "Color = 'blue'"}).freeze()
    both = spark.createDataFrame([("red", "red"), ("blue", "blue")], "color string, Color string")
    routed = route(both, snapshot)
    assert routed.columns == ["color", "Color", "subscriptions"]
    assert [named(snapshot, row[2]) for row in routed.collect()] == [{"red"}, {"blue"}]
    one = spark.createDataFrame([("red",), ("blue",)], "Color string")
    assert [named(snapshot, row[1]) for row in route(one, snapshot).collect()] == [set(), {"blue"}]
    kept = deliveries(both, snapshot, keep="*")
    assert kept.columns[-2:] == ["color", "Color"]
    assert [(row[0], *row[-2:]) for row in kept.collect()] == [("red",) * 3, ("blue",) * 3]


@pytest.mark.slow
def test_a_snapshot_that_reads_no_column_works_on_any_frame(spark):
    snapshot = index_of({"all": None}).freeze()
    df = spark.range(3)
    assert [row.subscriptions for row in route(df, snapshot).collect()] == [[0]] * 3
    assert deliveries(df, snapshot).count() == 3
    nobody = sr.Index().freeze()
    assert [row.subscriptions for row in route(df, nobody).collect()] == [[]] * 3
    assert deliveries(df, nobody).count() == 0


@pytest.mark.slow
def test_a_filter_and_an_explode_compute_the_column_once(spark, snapshot, tmp_path, monkeypatch):
    # Each call of the matcher in a worker leaves a file.
    from selectroute.spark.columns import matches

    calls = tmp_path / "calls"
    calls.mkdir()
    real = matches.written

    def counted(form, offsets, ordinals, ids):
        import tempfile

        if len(offsets) > 1:
            tempfile.mkstemp(dir=calls)
        return real(form, offsets, ordinals, ids)

    import sys

    monkeypatch.setattr(sys.modules["selectroute.spark.frames.route"], "written", counted)
    # The patched function must travel with the UDF instead of being imported by name in the worker.
    spark_pickle = pytest.importorskip("pyspark.cloudpickle")
    module = sys.modules["selectroute.spark.frames.route"]
    spark_pickle.register_pickle_by_value(module)
    try:
        df = spark.createDataFrame(ROWS, SCHEMA).coalesce(1)
        routed = route(df, snapshot).where(F.size("subscriptions") > 1)
        exploded = routed.select("weight", F.explode("subscriptions").alias("ordinal"))
        assert exploded.count() > len(ROWS)
    finally:
        spark_pickle.unregister_pickle_by_value(module)
    assert len(list(calls.iterdir())) == 1


def test_mixed_types_and_topics_cross(spark):
    index = index_of({"int": "v = 3", "text": "v = 'x'"})
    index.add("topic", None, topic="cars/+")
    snapshot = index.freeze()
    schema = "v struct<tag: tinyint, bits: bigint, text: string>, `@topic` string"
    rows = [((4, 3, None), "cars/eu"), ((8, 0, "x"), None), ((0, 0, None), "cars/eu/de"), (None, "cars/us")]
    df = spark.createDataFrame(rows, schema)
    found = [named(snapshot, row.subscriptions) for row in route(df, snapshot).collect()]
    assert found == [{"int", "topic"}, {"text"}, set(), {"topic"}]
    assert pa.types.is_struct(MIXED)


UNLIKE_ALL = {
    "timestamp": "current_timestamp()",
    "timestamp_ntz": "current_timestamp()::timestamp_ntz",
    "date": "current_date()",
    "decimal": "1.5BD",
    "array": "array('x')",
    "map": "map('x', 1)",
    "struct": "named_struct('a', named_struct('b', array(1, 2)))",
    "interval": "interval '1' day",
    "variant": "parse_json('{}')",
}


def test_a_column_that_is_no_property_concerns_only_those_who_read_it(spark):
    index = index_of({"red": "color = 'red'"})
    wanted = {"red"}
    for name in UNLIKE_ALL:
        index.add(f"{name}-there", f"{name} IS NOT NULL")
        index.add(f"{name}-not", f"NOT ({name} = 'x') AND {name} IS NOT NULL")
        index.add(
            f"{name}-equal", f"{name} = {name} OR {name} <> 1 OR {name} > 1 OR {name} LIKE '%' OR {name}"
        )
        index.add(f"{name}-gone", f"{name} IS NULL")
        index.add(f"{name}-ibm", f"NOT ({name} = 'x') OR color = 'red'", dialect="ibm-jms")
        wanted |= {f"{name}-there", f"{name}-not"}
    snapshot = index.freeze()
    columns = ", ".join(f"{sql} AS {name}" for name, sql in UNLIKE_ALL.items())
    full = spark.sql(f"SELECT 1 AS row, 'red' AS color, {columns}")
    null = [F.when(F.lit(False), F.col(name)).alias(name) for name in UNLIKE_ALL]
    df = full.unionByName(full.select(F.lit(2).alias("row"), "color", *null))
    gone = {"red"} | {f"{name}-gone" for name in UNLIKE_ALL} | {f"{name}-ibm" for name in UNLIKE_ALL}
    for way in ({}, {"partitions": 2}):
        with pytest.warns(UserWarning) as warned:
            routed = route(df, snapshot, **way)
        assert len(warned) == len(UNLIKE_ALL)
        assert way or all("the 5 subscriptions that read it" in str(one.message) for one in warned)
        found = {row.row: named(snapshot, row.subscriptions) for row in routed.collect()}
        assert found == {1: wanted, 2: gone}
    with pytest.warns(UserWarning):
        spelled = deliveries(df, snapshot, keep=["row"]).collect()
    assert {(row.row, row.subscription) for row in spelled} == {
        (row, name) for row, names in ((1, wanted), (2, gone)) for name in names
    }


def test_a_column_that_selectors_compare_with_constants_of_another_type_is_warned_of(spark):
    snapshot = index_of({"number": "color = 5", "text": "color = 'red'", "double": "carat = 0.23"}).freeze()
    df = spark.sql("SELECT 'red' AS color, CAST(0.23 AS FLOAT) AS carat")
    with pytest.warns(UserWarning) as warned:
        (row,) = route(df, snapshot).collect()
    said = sorted(str(one.message) for one in warned)
    assert ["write 0.23F" in said[0], "with numbers" in said[1], len(said)] == [True, True, 2]
    assert named(snapshot, row.subscriptions) == {"text"}


# A call of `F`, perhaps with others behind it.
ADVICE = re.compile(r"F(?:\.\w+\((?:[^()]|\([^()]*\))*\))+")


def test_a_type_that_no_property_can_have_is_named_and_what_it_says_to_cast_to_is_a_property(spark):
    """All errors come before any job; each way that they name is then tried in one of two jobs."""
    types = {**UNLIKE_ALL, "year_month_interval": "interval 1 year", "binary": "X'00'"}
    # The key and the path that the sentence has for an example.
    types |= {"map": "map('key', 1)", "variant": "parse_json('{\"path\": 1}')"}
    df = spark.sql(f"SELECT {', '.join(f'{sql} AS {name}' for name, sql in types.items())}")
    ways: list[dict[str, str]] = [{}, {}]
    for name in types:
        one = index_of({"s": f"{name} IS NOT NULL AND ({name} > 1 OR {name} LIKE '%')"}).freeze()
        with pytest.raises(sr.ColumnTypeError) as error:
            route(df, one, strict=True)
        sentence = str(error.value)
        shown = df.schema[name].dataType.simpleString().partition(" ")[0].partition("<")[0]
        assert sentence.startswith(f"column '{name}' ") and "\n" not in sentence
        assert f"has type {shown}" in sentence or name == "struct"
        for function in (route, deliveries):
            with pytest.warns(UserWarning, match="the one subscription that reads it") as warned:
                function(df, one)
            assert [sentence in str(each.message) for each in warned] == [True]
        if name in ("struct", "binary"):
            assert "selectors read its fields" in sentence or name == "binary"
            continue
        binds = re.findall(rf"'({name}:\w+=cast)'", sentence)
        advice = binds or ADVICE.findall(sentence)
        bound = {"timestamp": 2, "timestamp_ntz": 2, "date": 1, "decimal": 2}
        assert len(binds) == bound.get(name, 0) and len(advice) == bound.get(
            name, 2 if name == "array" else 1
        )
        assert binds or f"route df.withColumn('{name}', …) with F." in sentence
        for way in (0, -1):
            ways[way][name] = advice[way]
    there = "{0} > 1 OR {0} LIKE '%' OR {0} OR NOT {0}"
    snapshot = index_of({name: there.format(name) for name in ways[0]}).freeze()
    for way in ways:
        binding = Binding.of([text for text in way.values() if "=cast" in text])
        calls = {name: text for name, text in way.items() if "=cast" not in text}
        cast = df.withColumns({name: eval(text, {"F": F}) for name, text in calls.items()})  # noqa: S307  # ours
        assert named(snapshot, route(cast, snapshot, binding, strict=True).first().subscriptions) == {*way}


@pytest.mark.slow
def test_a_header_of_another_type_is_unlike_everything(spark):
    snapshot = index_of({"s": "JMSPriority = 1", "not": "NOT (JMSPriority = 1)", "all": ""}).freeze()
    df = spark.range(1).select(F.lit("1").alias("JMSPriority"), F.lit(b"a").alias("@topic"))
    with pytest.warns(UserWarning, match="JMSPriority.*the header field must be an int"):
        (row,) = route(df, snapshot).collect()
    assert named(snapshot, row.subscriptions) == {"not", "all"}
    with pytest.raises(sr.ColumnTypeError, match="JMSPriority"):
        route(df, snapshot, strict=True)


@pytest.mark.slow
def test_a_binding_renames(spark):
    snapshot = index_of({"red": "color = 'red'"}).freeze()
    df = spark.createDataFrame([("red", "blue"), ("blue", "red")], "`the colour` string, color string")
    binding = Binding.from_dict({"columns": {"color": "the colour", "@id": "color"}})
    assert [row.subscriptions for row in route(df, snapshot, binding).collect()] == [[0], []]
    assert [row.message_id for row in deliveries(df, snapshot, binding).collect()] == ["blue"]


def test_frames_that_cannot_be_bound_are_one_sentence(spark):
    snapshot = index_of({"s": "a = 1"}).freeze()
    df = spark.range(1).select(F.lit(1).alias("a"))
    with pytest.raises(BindingError, match="no such column"):
        route(df, snapshot, Binding({"a": "b"}))
    with pytest.raises(BindingError, match="has 2 columns named"):
        route(df.select("a", "a"), snapshot)
    with pytest.raises(BindingError, match="already"):
        route(df.withColumn("subscriptions", F.lit(1)), snapshot)
    with pytest.raises(BindingError, match="not the array<int>"):
        deliveries(df.withColumn("subscriptions", F.lit(1)), snapshot)
    with pytest.raises(BindingError, match="a binding must be"):
        Binding.from_dict({"columns": []})
    with pytest.raises(BindingError, match="a binding has no field `column`: did you mean `columns`"):
        Binding.from_dict({"column": {}})


def test_a_published_snapshot_is_opened_once_and_only_as_it_was_pinned(snapshot, tmp_path):
    sr.publish(snapshot, tmp_path)
    ref = refer(sr.Snapshot.open(tmp_path))
    assert open_once(ref) is open_once(ref)
    assert refer(snapshot) == refer(snapshot)
    forged = type(ref)(ref.folder, ref.revision, "0" * 64)
    with pytest.raises(sr.SnapshotError, match="was replaced after it was pinned"):
        open_once(forged)


@pytest.mark.slow
def test_a_workers_collections_leave_out_what_it_has_loaded_and_no_other_processs(spark, snapshot):
    ref = refer(snapshot)

    def frozen(batches):
        for batch in batches:
            open_once(ref)
            open_once(ref)
            yield pa.RecordBatch.from_pydict({"id": [gc.get_freeze_count()] * len(batch)})

    before = gc.get_freeze_count()  # from Python 3.12 on some are there from the start
    [row] = spark.range(0, 1, 1, 1).mapInArrow(frozen, "id long").collect()
    assert row.id > 10_000
    assert open_once(ref) is open_once(ref) and gc.get_freeze_count() == before


def test_match_files_reads_like_the_fan_out(spark, snapshot, tmp_path):
    spark.createDataFrame(ROWS, SCHEMA).coalesce(1).write.parquet(str(tmp_path / "in"))
    files = sorted((tmp_path / "in").glob("*.parquet"))
    rows = match_files(spark, files, snapshot).orderBy("offset").collect()
    assert [named(snapshot, row.subscriptions) for row in rows] == reference(ROWS)
    assert [row.offset for row in rows] == list(range(5)) and rows[0].source == str(files[0])
    assert match_files(spark, files, snapshot, place=False).columns == ["subscriptions"]
    assert match_files(spark, [], snapshot).count() == 0
