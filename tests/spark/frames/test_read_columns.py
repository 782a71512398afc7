"""What of a frame crosses to the matcher: nested and dotted names, bytes, synonyms, the rules on names."""

import re

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import functions as F
from pyspark.sql.types import StructType

import selectroute as sr
from selectroute.selector.names import INVALID_NAMES
from selectroute.spark import Binding, BindingError, deliveries, route
from selectroute.spark.columns.binding import bind
from tests.support.components import after_first

# Spark's own parser makes the schemas.
pytestmark = pytest.mark.spark

MIXED = "struct<tag: tinyint, bits: bigint, text: string>"
LONG = (5, 1, None)
ID = "AB" * 24


def snapshot_of(dialect="ibm-mq", **selectors):
    index = sr.Index()
    for name, selector in selectors.items():
        index.add(name, selector, dialect=dialect)
    return index.freeze()


def found(df, snapshot, binding=None):
    ids = snapshot.ids.to_pylist()
    rows = route(df, snapshot, binding).collect()
    spelled = [row.subscription for row in deliveries(df, snapshot, binding).collect()]
    routed = [{ids[ordinal] for ordinal in row["subscriptions"]} for row in rows]
    assert sorted(spelled) == sorted(name for names in routed for name in names)
    return routed


def schema(text):
    return StructType.fromDDL(text)


def test_names_are_found_in_structs_of_any_depth_and_in_columns_with_dots():
    nested = schema(f"Root struct<MQMD: struct<MsgId: binary>>, `x.y` int, m {MIXED}, `@a` struct<b: int>")
    bound = bind(nested, ("Root.MQMD.MsgId", "x.y", "m", "x", "m.tag", "@a", "@a.b", "root.MQMD.MsgId"), None)
    places = [(one.identifier, one.path) for one in bound]
    assert places == [("Root.MQMD.MsgId", (0, 0, 0)), ("x.y", (1,)), ("m", (2,)), ("@a", (3,))]

    (nested,) = bind(schema("meta struct<kind: string>"), ("JMSType",), Binding({"JMSType": "meta.kind"}))
    assert (nested.column, nested.path) == ("meta.kind", (0, 0))


@pytest.mark.parametrize(
    ("columns", "binding", "sentence"),
    [
        (
            "meta struct<kind: string>",
            {"a.b": "meta.Kind"},
            r"'a\.b' is bound to column 'meta\.Kind'.*no such",
        ),
        ("`a.b` int, a struct<b: int>", {}, r"2 columns named 'a\.b'"),
        ("a struct<b: int>, a struct<b: int>", {}, r"2 columns named 'a\.b'"),
        ("a struct<b: int, b: int>", {}, r"2 columns named 'a\.b'"),
    ],
)
def test_a_name_that_is_not_there_or_is_there_twice_is_an_error(columns, binding, sentence):
    with pytest.raises(BindingError, match=sentence):
        bind(schema(columns), ("a.b",), Binding(binding))


def test_nested_and_dotted_columns_are_properties_by_their_exact_names(spark):
    snapshot = snapshot_of(
        inner="a.b = 1", deep="a.c.d = 'x'", dotted="x.y.z IS NOT NULL", mixed="a.m = 2",
        small="e.b = 1", large="e.B = 1", smaller="e.c.d = 1", larger="e.c.D = 1",
    )  # fmt: skip
    ddl = (
        f"a struct<b: int, c: struct<d: string>, m: {MIXED}>, `x.y` struct<z: boolean>, "
        "e struct<b: int, B: int, c: struct<D: int, d: int>>, `the group` struct<`b.c`: int>"
    )
    rows = [
        ((1, ("x",), (4, 2, None)), (True,), (1, 2, (2, 1)), None),
        ((None, ("y",), (8, 0, "2")), (None,), (2, 1, (1, 2)), None),
        (None, None, None, None),
        ((1, None, None), None, None, None),
    ]
    wanted = [{"inner", "deep", "dotted", "mixed", "small", "smaller"}, {"large", "larger"}, set(), {"inner"}]
    assert found(spark.createDataFrame(rows, ddl), snapshot) == wanted


@pytest.mark.slow
def test_a_group_of_properties_is_no_property(spark):
    df = spark.sql("SELECT named_struct('b', named_struct('c', 1)) AS a")
    for name in ("a", "a.b"):
        snapshot = snapshot_of(one=f"{name} = 1", there=f"{name} IS NOT NULL", all="")
        with pytest.warns(UserWarning, match=rf"column '{name}' .*group of properties.*2 subscriptions"):
            assert found(df, snapshot) == [{"there", "all"}]
        with pytest.raises(sr.ColumnTypeError, match=rf"column '{name}' .*group of properties"):
            route(df, snapshot, strict=True)


def test_bytes_are_byte_strings_where_every_dialect_that_reads_them_has_those(spark):
    df = spark.createDataFrame([(b"\x2f\x1c",), (b"\x2f",), (None,)], "b binary")
    only = snapshot_of(equal='b = "0x2F1C"', unlike='b <> "0x2F1C"', null="b IS NULL")
    assert found(df, only) == [{"equal"}, {"unlike"}, {"null"}]
    index = sr.Index()
    index.add("mq", 'b = "0x2F1C"', dialect="ibm-mq")
    index.add("jms", "b = 'x'")
    index.add("not", "NOT (b = 'x')")
    index.add("other", "c IS NULL AND 'b' = 'b'")
    with pytest.warns(UserWarning, match=r"'b' has type binary.*the 2 subscriptions that read it"):
        assert found(df, index.freeze()) == [{"mq", "not", "other"}, {"not", "other"}, {"other"}]
    with pytest.raises(sr.ColumnTypeError, match="'b' has type binary"):
        route(df, index.freeze(), strict=True)


SYNONYMS = {
    "id": f"JMSMessageID = 'ID:{ID}'",
    "mqmd": f'Root.MQMD.MsgId = "0x{ID}"',
    "priority": "JMSPriority = 7",
    "pri": "jms.Pri = 7",
}


BY_NAME = [
    (f"unhex('{ID}') AS JMSMessageID", {"id", "mqmd"}),
    (f"'ID:{ID}' AS JMSMessageID", {"id", "mqmd"}),
    (f"unhex('{ID}') AS `Root.MQMD.MsgId`", {"id", "mqmd"}),
    (f"named_struct('MQMD', named_struct('MsgId', unhex('{ID}'))) AS Root", {"id", "mqmd"}),
    ("7Y AS JMSPriority", {"priority", "pri"}),
    ("named_struct('Pri', 7) AS jms", {"priority", "pri"}),
    ("7 AS `Root.MQMD.Priority`, 6 AS JMSPriority", set()),
    ("CAST(NULL AS INT) AS JMSPriority, 7 AS `jms.Pri`", {"priority", "pri"}),
]


@pytest.mark.parametrize(("sql", "wanted"), after_first(pytest.mark.slow, *BY_NAME))
def test_a_field_is_read_under_any_of_its_names(spark, sql, wanted):
    assert found(spark.sql(f"SELECT {sql}"), snapshot_of(**SYNONYMS)) == [wanted]


@pytest.mark.slow
def test_ids_compare_as_24_bytes_whatever_their_column_is(spark):
    snapshot = snapshot_of(
        "ibm-jms", same=f"JMSMessageID = 'ID:{ID.lower()}'", any=f"JMSMessageID = 'ID:{'0' * 48}'"
    )
    for sql in (f"'ID:{ID}'", f"unhex('{ID}')"):
        assert found(spark.sql(f"SELECT {sql} AS JMSMessageID"), snapshot) == [{"same", "any"}]
    assert found(spark.sql("SELECT 1 AS x"), snapshot) == [{"any"}]


BREACHES = {"one": "color = 'red'", "all": ""}


NAMES = [
    ("color string, x int, `x.y` int",
     [("red", 1, 1), ("red", 1, None), ("red", None, 1)], [True, False, False]),
    ("color string, JMSFoo int", [("red", 1), ("red", None)], [True, False]),
    ("color string, `in` struct<x: int>", [("red", (1,))], [False]),
    ("color string, `in` int, `mq.a.b` array<int>", [("red", None, [1]), ("red", 1, None)], [True, True]),
    ("color struct<a: int>, `usr.JMSx` int, JMSDeliveryTime int", [((1,), 1, 1)], [True]),
    (f"color string, a {MIXED}, a struct<b: {MIXED}>",
     [("red", LONG, (LONG,)), ("red", (0, 0, None), (LONG,)), ("red", LONG, None)], [True, False, False]),
    (f"color string, `in` {MIXED}",  # a string without text is NULL, as the matcher takes it
     [("red", (8, 0, None)), ("red", (9, 0, None)), ("red", (8, 0, "")), ("red", LONG)],
     [False, False, True, True]),
    ("color string, `` int, JMSType string, `@frame` int",
     [("red", 1, "x", 1), ("red", None, "y", 1)], [True, False]),
]  # fmt: skip


@pytest.mark.parametrize(("ddl", "rows", "broken"), after_first(pytest.mark.slow, *NAMES))
def test_the_rules_on_names_are_judged_by_the_names_of_columns_that_are_not_null(spark, ddl, rows, broken):
    df = spark.createDataFrame(rows, ddl)
    strict = snapshot_of(missing="nothing IS NULL", all="")
    assert found(df, strict) == [{"all"} if bad else {"all", "missing"} for bad in broken]


@pytest.mark.slow
def test_a_column_that_says_who_breaks_the_rules_is_believed(spark):
    df = spark.createDataFrame(
        [("red", True), ("red", False), ("red", None)], f"color string, `{INVALID_NAMES}` boolean"
    )
    assert found(df, snapshot_of(**BREACHES)) == [{"all"}, {"one", "all"}, {"one", "all"}]
    bound = Binding({INVALID_NAMES: "bad"})
    assert found(df.withColumnRenamed(INVALID_NAMES, "bad"), snapshot_of(**BREACHES), bound) == [
        {"all"}, {"one", "all"}, {"one", "all"},
    ]  # fmt: skip
    with pytest.raises(sr.ColumnTypeError, match="boolean"):
        route(df.withColumn(INVALID_NAMES, F.lit(1)), snapshot_of(**BREACHES))
    with pytest.raises(BindingError, match="2 columns named 'in'"):
        route(df.select("color", F.lit(1).alias("in"), F.lit(2).alias("in")), snapshot_of(**BREACHES))


@pytest.mark.slow
def test_a_bound_column_counts_under_its_identifier(spark):
    snapshot = snapshot_of(**BREACHES)
    df = spark.createDataFrame([("red",)], "JMSColor string")
    assert found(df, snapshot, Binding({"color": "JMSColor"})) == [{"one", "all"}]
    df = spark.createDataFrame([("red", 1)], "color string, fine int")
    assert found(df, snapshot, Binding({"color": "color", "in": "fine"})) == [{"all"}]
    assert found(df, snapshot, Binding({"@id": "fine", "absent": "gone"})) == [{"one", "all"}]


def inputs(df, snapshot):
    """The arguments of the matcher in Spark's plan."""
    node = route(df, snapshot)._jdf.queryExecution().optimizedPlan()
    while node.nodeName() != "ArrowEvalPython":
        node = node.children().apply(0)
    arguments = node.udfs().apply(0).children()
    return [re.sub(r"#\d+", "", arguments.apply(i).toString()) for i in range(arguments.size())]


def test_only_what_selectors_read_and_one_boolean_cross(spark):
    read = "color string, body string, x int, g struct<read: int, other: string>"
    broken = ", ".join(f"`mq.a.b{i}` int" for i in range(20))
    strict = snapshot_of(one="color = 'red' AND g.read = 1")
    sound = spark.createDataFrame([], read)
    assert inputs(sound, strict) == ["color", "g.read", "false"]
    assert inputs(sound, snapshot_of("jms", one="color = 'red'")) == ["color"]
    many = spark.createDataFrame([], f"{read}, {broken}, `x.y` int")
    color, field, flag = inputs(many, strict)
    assert (color, field) == ("color", "g.read")
    assert flag.count("isnotnull(") == 22 and "(isnotnull(x) AND isnotnull(x.y))" in flag
    assert found(many, strict) == []
