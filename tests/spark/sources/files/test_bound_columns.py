"""Columns of Parquet under other names, and cast: what each value becomes, and what a job makes of it."""

from collections import Counter
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pyspark")

from selectroute.kafka.texts import Temporal, TextError, value_of_json
from selectroute.match.columns.columns import lane
from selectroute.match.columns.fields import values_of_rows
from selectroute.selector.values import UNSUPPORTED, Double, Int, Long
from selectroute.spark import Binding, BindingError, Cast, Job, JobError, KafkaCluster, KafkaInput
from selectroute.spark.batch.router import Router
from selectroute.spark.columns.arrow_casts import cast_array, casts_of

INTEGERS = ("byte", "short", "int", "long")


def values(array):
    return values_of_rows(lane("x", array))


def expected(plain, to):
    """What a body of a schema with this value gives."""
    try:
        return value_of_json(plain, to, "x")
    except TextError:
        return UNSUPPORTED


@settings(deadline=None)
@given(
    count=st.integers(-62_135_596_800_000_000, 253_402_300_799_000_000),
    unit=st.sampled_from(["s", "ms", "us", "ns"]),
    zone=st.sampled_from([None, "UTC", "America/New_York"]),
)
def test_a_time_is_milliseconds_or_a_text_as_in_the_body_of_a_schema(count, unit, zone):
    each = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}[unit]
    count //= {"s": 10**6, "ms": 10**3, "us": 1, "ns": 1}[unit]
    array = pa.array([count, None], pa.int64()).cast(pa.timestamp(unit, zone))
    instant = Temporal("local" if zone is None else "instant", count * each)
    assert values(cast_array(array, "long")) == [expected(instant, "long"), None]
    assert values(cast_array(array, "string")) == [expected(instant, "string"), None]


@settings(deadline=None)
@given(st.dates())
def test_a_date_is_days_or_its_text(day):
    days = (day - date(1970, 1, 1)).days
    for type_ in (pa.date32(), pa.date64()):
        array = pa.array([day, None], type_)
        assert values(cast_array(array, "int")) == [Int(days), None]
        assert values(cast_array(array, "long")) == [Long(days), None]
        assert values(cast_array(array, "string")) == [day.isoformat(), None]


@settings(deadline=None)
@given(
    digits=st.one_of(st.integers(-(10**38) + 1, 10**38 - 1), st.integers(-10_000, 10_000)),
    scale=st.sampled_from([0, 1, 2, 18, 38]),
    to=st.sampled_from(["byte", "short", "int", "long", "double", "string"]),
)
def test_a_decimal_is_what_its_digits_are(digits, scale, to):
    number = Decimal(digits).scaleb(-scale, Context(prec=80))
    array = pa.array([number, None], pa.decimal128(38, scale))
    if to in INTEGERS:
        whole = number == number.to_integral_value()
        wanted = expected(int(number), to) if whole else UNSUPPORTED
    else:
        wanted = expected(number, to)
    (found, none) = values(cast_array(array, to))
    assert none is None
    if to == "double":  # Arrow's own conversion, which may be the next double
        assert isinstance(found, Double) and found.value == pytest.approx(float(number), rel=1e-15, abs=0)
    else:
        assert found == wanted


@pytest.mark.parametrize("type_", [pa.int8(), pa.int32(), pa.int64(), pa.uint8(), pa.uint32(), pa.uint64()])
@pytest.mark.parametrize("to", [*INTEGERS, "double", "string"])
def test_an_integer_is_one_of_another_width_if_it_fits(type_, to):
    limits = np.iinfo(type_.to_pandas_dtype())
    numbers = sorted({limits.min, -1 if limits.min else 0, 0, 1, 127, limits.max})
    array = pa.array([*numbers, None], type_)
    wanted = [str(number) if to == "string" else expected(number, to) for number in numbers]
    assert values(cast_array(array, to)) == [*wanted, None]


def test_a_fraction_or_nan_is_no_integer_and_a_type_without_the_cast_unlike_everything():
    numbers = [1.0, 1.5, -2.0, float("nan"), float("inf"), 2.0**63, -(2.0**63), 2.0**31, None]
    u = UNSUPPORTED
    array = pa.array(numbers, pa.float64())
    longs = [Long(1), u, Long(-2), u, u, u, Long(-(2**63)), Long(2**31), None]
    assert values(cast_array(array, "long")) == longs
    assert values(cast_array(array, "int")) == [Int(1), u, Int(-2), u, u, u, u, u, None]
    for array in (pa.array(["1", None]), pa.array([[1], None]), pa.array([True, None])):
        assert casts_of(array.type) == ()
        assert values(cast_array(array, "long")) == [UNSUPPORTED, None]


TIMES = [datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC) + timedelta(days=day) for day in range(3)]
FIRST = 1_767_323_045_678


def stamped(**more):
    return pa.table({"at": pa.array(TIMES, pa.timestamp("us", "UTC")), **more})


def test_a_job_reads_a_bound_column_under_its_identifier_and_with_its_cast(world):
    world.publish(1, later=f"at > {FIRST}", red="color = 'red'", own="colour = 'red'")
    world.drop_parquet("a.parquet", stamped(colour=["red", "blue", "red"]))
    world.route("a.parquet", binding=Binding.of(["at:long=cast", "color=colour"]))
    # A column that is bound to another identifier is not a property of its own name.
    assert world.deliveries() == Counter(
        {("a.parquet", row, "later", 1): 1 for row in (1, 2)}
        | {("a.parquet", row, "red", 1): 1 for row in (0, 2)}
    )


def test_a_bound_column_may_be_nested_and_be_the_message_id(world):
    world.publish(1, later=f"placed > {FIRST}", all="number >= 0")
    order = pa.array(
        [{"at": at, "number": n} for n, at in enumerate(TIMES)],
        pa.struct([("at", pa.timestamp("ms", "UTC")), ("number", pa.int32())]),
    )
    world.drop_parquet("a.parquet", pa.table({"order": order, "key": ["x", "y", "z"]}))
    world.route(
        "a.parquet", binding=Binding.of(["placed:long=cast(order.at)", "number=order.number", "@id=key"])
    )
    found = {(row["subscription"], row["message_id"]) for row in world.rows("deliveries")}
    assert found == {("later", "y"), ("later", "z"), *(("all", key) for key in "xyz")}


def test_values_that_do_not_convert_affect_only_their_readers(world):
    world.publish(1, many="n > 2", any="n IS NOT NULL", all="")
    numbers = pa.array([Decimal("1.5"), Decimal("3.0"), None], pa.decimal128(5, 1))
    world.drop_parquet("a.parquet", pa.table({"n": numbers}))
    world.route("a.parquet", binding=Binding.of(["n:long=cast"]))
    found = Counter(row["subscription"] for row in world.rows("deliveries"))
    assert found == {"many": 1, "any": 2, "all": 3}


def warnings_of(world, **options):
    job, said = world.job(**options), []
    router = Router(job, world.source(job, 1), warn=said.append)
    router.commits.prepare()
    router.route(0, [world.input / "a.parquet"], "world")
    return said


def test_the_warning_for_a_type_names_the_bind_that_mends_it(world):
    world.publish(1, later=f"at > {FIRST}", sent="JMSTimestamp > 0")
    world.drop_parquet("a.parquet", stamped(sent=pa.array(TIMES, pa.timestamp("ms"))))
    first, second = sorted(warnings_of(world, binding=Binding.of(["JMSTimestamp=sent"])))
    assert "bind it as 'JMSTimestamp:long=cast(sent)'" in first
    assert "bind it as 'at:long=cast'" in second and "the one subscription that reads it" in second


def test_a_file_whose_column_has_no_such_cast_is_warned_of_and_unlike(world):
    world.publish(1, later="at > 0", any="at IS NOT NULL")
    world.drop_parquet("a.parquet", pa.table({"at": ["yesterday"]}))
    (sentence,) = warnings_of(world, binding=Binding.of(["at:long=cast"]))
    assert sentence.startswith("column 'at' has type string: it has no cast to long: this type has no cast")
    assert [row["subscription"] for row in world.rows("deliveries")] == ["any"]


def test_a_column_that_selectors_compare_with_constants_of_another_type_is_warned_of(world):
    world.publish(1, double="carat = 0.23", float="carat = 0.23F", number="color = 5", text="color = 'red'")
    carat = pa.array([0.23], pa.float32())
    world.drop_parquet("a.parquet", pa.table({"carat": carat, "color": ["red"]}))
    first, second = sorted(warnings_of(world))
    assert "0.23, a double that no float equals: write 0.23F" in first and "with numbers" in second
    assert {row["subscription"] for row in world.rows("deliveries")} == {"float", "text"}


@pytest.mark.parametrize(
    ("texts", "sentence"),
    [
        (["at"], "'at' is not a valid binding: write IDENTIFIER=COLUMN, or IDENTIFIER:TYPE=cast"),
        (["at:long"], "is not a valid binding"),
        (["at="], "is not a valid binding"),
        (["at:long=placed"], "to convert it, write at:long=cast(placed)"),
        (["at:time=cast"], "no column can be cast to 'time': the types are byte"),
        (["at:lnog=cast"], "did you mean `long`?"),
        (["JMSTimestamp:int=cast"], "'JMSTimestamp' is always of type long, not int"),
        (["@topic:long=cast"], "'@topic' is always of type string, not long"),
        (["a=b", "a=c"], "'a' is bound twice"),
    ],
)
def test_a_text_that_is_not_a_binding_is_one_sentence(texts, sentence):
    with pytest.raises(BindingError) as error:
        Binding.of(texts)
    assert sentence in str(error.value) and "\n" not in str(error.value)


def test_texts_a_dict_and_python_make_the_same_binding():
    made = Binding({"JMSType": "kind", "at": Cast("long"), "day": Cast("string", "placed.on")})
    assert Binding.of(["JMSType=kind", "at:long=cast", "day:string=cast(placed.on)"]) == made
    data = {"JMSType": "kind", "at": {"type": "long"}, "day": {"type": "string", "from": "placed.on"}}
    assert Binding.from_dict({"columns": data}) == made
    assert made.names == {"kind", "at", "placed.on"}
    assert Binding.of(["a=cast"]).columns == {"a": "cast"}
    for wrong in ({"type": 1}, {"from": "a"}, {"type": "long", "to": "a"}, 5):
        with pytest.raises(BindingError, match="'at'"):
            Binding.from_dict({"columns": {"at": wrong}})


def test_a_binding_of_columns_is_not_for_records(world):
    records = KafkaInput(KafkaCluster("host:9092"), ("cars",))
    with pytest.raises(JobError, match="give that of a KafkaInput to the KafkaInput"):
        Job.of(records, world.snapshots, world.output, binding=Binding.of(["a=b"]))
