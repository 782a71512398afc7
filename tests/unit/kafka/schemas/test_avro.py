"""Avro bodies: written by the client library, read at paths, and compared with what the library reads."""

import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from io import BytesIO
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("fastavro")
pytest.importorskip("confluent_kafka.schema_registry.avro")

import fastavro
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from selectroute.kafka.binding import PropertySource
from selectroute.kafka.errors import RecordError
from selectroute.kafka.schemas.avro import avro_decoder
from selectroute.kafka.schemas.framing import InvalidSchemaError, at_path
from selectroute.kafka.texts import NonFinite, Temporal
from tests.support.components import NIGHTLY

VALUE = SerializationContext("t", MessageField.VALUE)
DAY = 86_400 * 10**9
AT = Temporal("instant", DAY + 5_000)


def record(name, **fields):
    return {"type": "record", "name": name, "fields": [{"name": n, "type": t} for n, t in fields.items()]}


def logical(type_, name, precision=0, scale=0):
    """A logical type."""
    own = {"type": type_, "logicalType": name}
    return {**own, "precision": precision, "scale": scale} if precision else own


def read(schema, datum, *paths, references=()):
    """The values at paths of a datum, written by fastavro."""
    body = BytesIO()
    named = {}
    for _, other in references:
        fastavro.parse_schema(json.loads(other), named)
    fastavro.schemaless_writer(body, fastavro.parse_schema(schema, named), datum)
    return decoder(schema, *paths, references=references)(body.getvalue(), None)


def decoder(schema, *paths, references=()):
    return avro_decoder(
        json.dumps(schema), tuple(references), tuple(PropertySource.of(path).path for path in paths)
    )


@pytest.mark.parametrize(
    ("type_", "datum", "found"),
    [
        ("null", None, None),
        ("boolean", True, True),
        ("int", -7, -7),
        ("long", 2**62, 2**62),
        ("float", 0.5, 0.5),
        ("double", 0.1, 0.1),
        ("string", "rosé", "rosé"),
        ("bytes", b"\0\xff", b"\0\xff"),
        ({"type": "string"}, "a", "a"),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", "B"),
        ({"type": "fixed", "name": "F", "size": 2}, b"ab", b"ab"),
        (["null", "string"], None, None),
        (["null", "string"], "a", "a"),
        (["string", "int", "null"], 7, 7),
        (["null", "double", "int"], ("int", 7), 7),
        (["null", "int", "long", "float", "double", "string", "bytes"], b"x", b"x"),
        (["null", "bytes", "string"], "x", "x"),
        ({"type": "array", "items": "int"}, [1], [1]),
        ({"type": "map", "values": "int"}, {"a": 1}, {"a": 1}),
        (record("R", a="int"), {"a": 1}, {"a": 1}),
        (logical("long", "timestamp-millis"), datetime(1970, 1, 2, tzinfo=UTC), Temporal("instant", DAY)),
        (logical("long", "timestamp-micros"), datetime(1970, 1, 2, tzinfo=UTC), Temporal("instant", DAY)),
        (logical("long", "timestamp-nanos"), 5, Temporal("instant", 5)),
        (logical("long", "timestamp-millis"), 2**63 - 1, Temporal("instant", (2**63 - 1) * 10**6)),
        (logical("long", "local-timestamp-millis"), datetime(1970, 1, 1, 0, 0, 1), Temporal("local", 10**9)),
        (logical("int", "date"), date(2026, 1, 2), Temporal("date", 20_455)),
        (logical("int", "time-millis"), time(0, 0, 1), Temporal("time", 10**9)),
        (logical("long", "time-micros"), time(0, 0, 1), Temporal("time", 10**9)),
        (logical("bytes", "decimal", 10, 2), Decimal("-12.50"), Decimal("-12.50")),
        ({"name": "D", "size": 8, **logical("fixed", "decimal", 10, 3)}, Decimal("1.500"), Decimal("1.500")),
        (logical("string", "uuid"), UUID(int=7), str(UUID(int=7))),
        ({"name": "U", "size": 16, **logical("fixed", "uuid")}, bytes(15) + b"\7", str(UUID(int=7))),
        (logical("long", "of-somebody"), 7, 7),
        (logical("bytes", "decimal", 4_000, 4_000), Decimal("7E-4000"), b"\7"),
        (["null", logical("long", "timestamp-millis")], 5, Temporal("instant", 5_000_000)),
    ],
)  # fmt: skip
def test_each_type_is_read_as_a_value(type_, datum, found):
    (got,) = read(
        record("Order", before="string", f=type_, after="int"), {"before": "x", "f": datum, "after": 1}, "$.f"
    )
    assert got == found and type(got) is type(found)


def test_a_type_may_be_wrapped():
    assert decoder({"type": {"type": "long"}}, "$")(b"\x0e", None) == [7]
    assert decoder({"type": ["null", {"type": {"type": "int"}}]}, "$")(b"\2\x0e", None) == [7]
    schema = record("O", a=record("A", b="int"), c={"type": {"type": "A"}})
    assert decoder(schema, "$.c.b")(b"\2\4", None) == [2]


def test_infinities_are_marked_for_they_are_values():
    schema = record("O", f="float", d="double")
    got = read(schema, {"f": float("-inf"), "d": float("nan")}, "$.f", "$.d")
    assert [type(one) for one in got] == [NonFinite] * 2 and got[0] == float("-inf")


ADDRESS = record(
    "Address", street="string", city=["null", "string"], geo=record("Geo", lat="double", lon="double")
)
ORDER = {
    **record(
        "Order",
        id="string",
        to=["null", ADDRESS],
        sender="Address",
        items={
            "type": "array",
            "items": record("Item", sku="string", at="Geo", tags={"type": "map", "values": "int"}),
        },
    ),
    "namespace": "shop.v1",
}
GEO = {"lat": 1.5, "lon": 2.5}
DATUM = {
    "id": "7",
    "to": None,
    "sender": {"street": "s", "city": "Rome", "geo": GEO},
    "items": [{"sku": "a", "at": GEO, "tags": {"x y": 1}}, {"sku": "b", "at": GEO, "tags": {}}],
}  # fmt: skip


@pytest.mark.parametrize(
    ("paths", "found"),
    [
        (["$.id"], ["7"]),
        (["$.sender.city", "$.to.city"], ["Rome", None]),
        (["$.to.geo.lat", "$.sender.geo.lon"], [None, 2.5]),
        (["$.items[1].sku", "$.items[0].at.lat", "$.items[2].sku"], ["b", 1.5, None]),
        (["$.items[0].tags['x y']", "$.items[1].tags['x y']"], [1, None]),
        (["$.nothing", "$.id.nothing", "$.id[0]", "$.items.sku", "$[0]"], [None] * 5),
        (["$", "$.sender", "$.items"], [{}, {}, []]),
        ([], []),
    ],
)
def test_paths_lead_through_records_unions_arrays_and_maps(paths, found):
    got = read(ORDER, DATUM, *paths)
    assert [
        {} if isinstance(one, dict) else one[:0] if isinstance(one, list) else one for one in got
    ] == found


def test_a_string_that_is_not_utf_8_is_an_error_of_the_record():
    with pytest.raises(RecordError, match="not UTF-8") as error:
        decoder(record("O", a="string", b="int"), "$.b")(b"\2\xff" + b"\2", None)
    assert error.value.reason == "not-avro"


def test_names_are_qualified_as_avro_has_it():
    inner = {"type": "record", "name": "Same", "fields": [{"name": "x", "type": "int"}]}
    schema = {
        "type": "record", "name": "a.Order", "fields": [
            {"name": "one", "type": {**inner, "namespace": "b"}},
            {"name": "two", "type": {**inner, "name": "c.Same", "fields": [{"name": "y", "type": "string"}]}},
            {"name": "three", "type": ["null", "b.Same", "c.Same"]},
            {"name": "four", "type": {"type": "enum", "name": "Kind", "symbols": ["A"]}},
            {"name": "five", "type": "Kind"},
            {"name": "six", "type": "a.Kind"},
        ],
    }  # fmt: skip
    datum = {"one": {"x": 1}, "two": {"y": "b"}, "three": {"y": "c"}, "four": "A", "five": "A", "six": "A"}
    assert read(schema, datum, "$.three.y", "$.six", "$.one.x") == ["c", "A", 1]


def test_a_schema_may_refer_to_others():
    geo = json.dumps({**record("Geo", lat="double"), "namespace": "g"})
    address = json.dumps({**record("Address", city="string", geo="g.Geo"), "namespace": "g"})
    schema = record("Order", to="g.Address", geo="g.Geo")
    references = [("g.Geo", geo), ("g.Address", address)]
    datum = {"to": {"city": "Rome", "geo": {"lat": 1.5}}, "geo": {"lat": 2.5}}
    assert read(schema, datum, "$.to.geo.lat", "$.geo.lat", references=references) == [1.5, 2.5]
    with pytest.raises(InvalidSchemaError, match=r"no type 'g\.Address'"):
        decoder(schema, "$.geo.lat")


LIST = record("Node", value="int", next=["null", "Node"])


def test_a_recursive_type_is_read_and_a_deep_datum_is_an_error():
    datum = {"value": 1, "next": {"value": 2, "next": {"value": 3, "next": None}}}
    assert read(LIST, datum, "$.next.next.value", "$.value", "$.next.next.next.value") == [3, 1, None]
    for paths in (["$.next.value"], ["$.value"], ["$.x"]):
        for body in (b"\2\2" * 1_000_000 + b"\2\0", b"\2\2" * 1_000_000):
            with pytest.raises(RecordError) as error:
                decoder(LIST, *paths)(body, None)
            assert error.value.reason == "too-deep"


@pytest.mark.parametrize("body", [b"", b"\2", b"\x02a\x09", b"\xff" * 40, b"\x02a\x04" + b"\xfe" * 12])
def test_what_is_not_of_the_schema_is_an_error_of_the_record(body):
    schema = record("O", a="string", b=["null", "int"], c={"type": "array", "items": "string"})
    for path in ("$.a", "$.b", "$.c[0]", "$.d"):
        with pytest.raises(RecordError) as error:
            decoder(schema, path)(body, None)
        assert (error.value.stage, error.value.reason) == ("parse", "not-avro")
        assert len(error.value.problem) < 200


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ('{"type": "record"', "JSONDecodeError"),
        ('"strin"', "no type 'strin'"),
        ("7", "not valid Avro"),
        ('{"name": "a"}', "KeyError"),
        ('{"type": "record"}', "SchemaParseException"),
        ('{"type": "array"}', "KeyError"),
        ('{"type": "enum", "name": "A", "symbols": 7}', "Error"),
        ('{"type": "array", "items": "null"}', "items without any bytes"),
        (
            '{"type": "map", "values": {"type": "array", "items": {"type": "record", "name": "A", '
            '"fields": [{"name": "b", "type": "null"}]}}}',
            "items without any bytes",
        ),
        ('{"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}}', "items without any bytes"),
        ('{"type": "array", "items": ' * 200 + '"int"' + "}" * 200, "nested too deeply"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_what_is_not_a_schema_is_an_error(schema, said):
    with pytest.raises(InvalidSchemaError, match=said):
        avro_decoder(schema, (), ((),))


def test_types_that_are_nested_by_name_are_not_deeper_than_the_limit():
    references = [("T0", json.dumps(record("T0", a="int")))]
    references += [(f"T{i}", json.dumps(record(f"T{i}", a=f"T{i - 1}"))) for i in range(1, 300)]
    with pytest.raises(InvalidSchemaError, match="nested too deeply"):
        avro_decoder('"T299"', tuple(references), ((),))


def test_a_schema_of_only_bytes_is_the_body_itself_as_serializers_write_it():
    client = SchemaRegistryClient.new_client({"url": "mock://bytes"})
    body = AvroSerializer(client, '"bytes"')(b"\x06abc", VALUE)
    assert avro_decoder('{"type": "bytes"}', (), ((), ("a",)))(body[5:], None) == [b"\x06abc", None]


# -- against the library's own serializer and deserializer

LEAVES = {
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32, allow_nan=False, allow_infinity=False),
    "double": st.floats(allow_nan=False, allow_infinity=False),
    "string": st.text(max_size=5),
    "bytes": st.binary(max_size=5),
    "null": st.none(),
}
FIELDS = ("a", "b", "c d", "e")


@st.composite
def typed(draw, names, depth=0):
    """A type, and the strategy of its data."""
    kinds = ["leaf"] * 3 + ([] if depth > 2 else ["record", "record", "array", "map", "union"])
    kind = draw(st.sampled_from(kinds))
    if kind == "leaf":
        leaf = draw(st.sampled_from([*LEAVES, "enum", "fixed", *names]))
        if leaf in names:
            return leaf, names[leaf]
        if leaf == "enum":
            return {
                "type": "enum",
                "name": f"E{len(names)}_{draw(st.uuids()).hex}",
                "symbols": ["A", "B"],
            }, st.sampled_from("AB")
        if leaf == "fixed":
            return {"type": "fixed", "name": f"F_{draw(st.uuids()).hex}", "size": 2}, st.binary(
                min_size=2, max_size=2
            )
        return leaf, LEAVES[leaf]
    if kind == "record":
        return draw(records(names, depth + 1))
    if kind in ("array", "map"):
        inner, data = draw(typed(names, depth + 1))
        if kind == "array" and inner == "null":
            inner, data = "int", LEAVES["int"]
        if kind == "map":
            keys = st.sampled_from(FIELDS)
            return {"type": "map", "values": inner}, st.dictionaries(keys, data, max_size=3)
        if not isinstance(inner, str) or inner in names:  # a record may have no bytes
            inner, data = ["null", inner] if not isinstance(inner, list) else inner, data
        return {"type": "array", "items": inner}, st.lists(data, max_size=3)
    branches = draw(st.lists(st.sampled_from(sorted(LEAVES)), min_size=1, max_size=4, unique=True))
    data = [LEAVES[one] for one in branches]
    if draw(st.booleans()):
        more, of_more = draw(records(names, depth + 1))
        branches.append(more)
        data.append(of_more)
    return branches, st.one_of(data)


@st.composite
def records(draw, names, depth=0):
    name = f"R_{draw(st.uuids()).hex}"
    fields, data = [], {}
    for field in draw(
        st.lists(st.sampled_from([f for f in FIELDS if " " not in f]), max_size=3, unique=True)
    ):
        type_, of_field = draw(typed(names, depth))
        fields.append({"name": field, "type": type_})
        data[field] = of_field
    strategy = st.fixed_dictionaries(data)
    names[name] = strategy
    return {"type": "record", "name": name, "fields": fields}, strategy


PATHS = st.lists(st.one_of(st.sampled_from(FIELDS), st.integers(0, 2)), max_size=4).map(tuple)


def plain(value):
    """A value as it is compared: that of an object or array is never read."""
    return "object" if isinstance(value, dict) else "array" if isinstance(value, list) else value


@settings(max_examples=600 if NIGHTLY else 50, deadline=None)
@given(st.data())
def test_what_is_read_at_paths_is_what_the_librarys_deserializer_reads(data):
    schema, strategy = data.draw(records({}))
    client = SchemaRegistryClient.new_client({"url": "mock://avro"})
    serialize, deserialize = AvroSerializer(client, json.dumps(schema)), AvroDeserializer(client)
    paths = tuple(data.draw(st.lists(PATHS, max_size=5)))
    own = avro_decoder(json.dumps(schema), (), paths)
    for _ in range(3):
        body = serialize(data.draw(strategy), VALUE)
        if len(body) <= 5:  # an empty record, at which the library's deserializer fails
            continue
        whole = deserialize(body, VALUE)
        assert [plain(one) for one in own(body[5:], None)] == [plain(at_path(whole, path)) for path in paths]


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=60))
def test_no_body_does_anything_but_be_read_or_be_an_error(body):
    for schema in (ORDER, LIST):
        try:
            decoder(schema, "$.items[0].sku", "$.next.value")(body, None)
        except RecordError as error:
            assert error.reason in ("not-avro", "too-deep")
