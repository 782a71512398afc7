"""Protobuf bodies: written by the client library's serializer and read at paths."""

import base64
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("google.protobuf")
pytest.importorskip("confluent_kafka.schema_registry.protobuf")

from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, duration_pb2, struct_pb2, timestamp_pb2, wrappers_pb2
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.json_format import MessageToDict
from google.protobuf.message_factory import GetMessageClass

from selectroute.kafka.binding import PropertySource
from selectroute.kafka.errors import RecordError
from selectroute.kafka.schemas.framing import InvalidSchemaError, at_path
from selectroute.kafka.schemas.protobuf import protobuf_decoder
from selectroute.kafka.texts import NonFinite, Temporal
from tests.support.components import NIGHTLY

try:
    from confluent_kafka.schema_registry.confluent.type import decimal_pb2
except ImportError:  # where it was in earlier releases
    from confluent_kafka.schema_registry.confluent.types import decimal_pb2

VALUE = SerializationContext("t", MessageField.VALUE)
TYPES = {
    name.removeprefix("TYPE_").lower(): number
    for name, number in descriptor_pb2.FieldDescriptorProto.Type.items()
}
SCALARS = [*sorted(set(TYPES) - {"group", "message", "enum"})]


def field(into, name, type_, *, repeated=False, optional=False, oneof=None):
    """Add a field to a message's descriptor. The type is a scalar's or, with a dot first, a full name."""
    one = into.field.add(name=name, number=len(into.field) + 1, label=3 if repeated else 1)
    if type_.startswith("."):
        one.type = TYPES["enum"] if type_.endswith("Kind") else TYPES["message"]
        one.type_name = type_
    else:
        one.type = TYPES[type_]
    if oneof is not None:
        one.oneof_index = oneof
    if optional:
        one.proto3_optional = True
        one.oneof_index = len(into.oneof_decl)
        into.oneof_decl.add(name=f"_{name}")


def map_field(into, name, full_name, key, value):
    entry = into.nested_type.add(name=f"{name.title()}Entry")
    entry.options.map_entry = True
    field(entry, "key", key)
    field(entry, "value", value)
    field(into, name, f".{full_name}.{entry.name}", repeated=True)


def order_file():
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    file.dependency.extend(
        f"google/protobuf/{name}.proto" for name in ("timestamp", "duration", "wrappers", "struct")
    )
    file.dependency.append(decimal_pb2.DESCRIPTOR.name)
    kind = file.enum_type.add(name="Kind")
    kind.value.add(name="UNKNOWN", number=0)
    kind.value.add(name="EXPRESS", number=7)
    file.message_type.add(name="Other")
    order = file.message_type.add(name="Order")
    item = order.nested_type.add(name="Item")
    field(item, "sku", "string")
    field(item, "unit_price", "double")
    order.oneof_decl.add(name="paid")
    field(order, "card", "string", oneof=0)
    field(order, "cash", "int32", oneof=0)
    for scalar in SCALARS:
        field(order, f"f_{scalar}", scalar)
    field(order, "note", "string", optional=True)
    field(order, "kind", ".shop.Kind")
    field(order, "items", ".shop.Order.Item", repeated=True)
    field(order, "first", ".shop.Order.Item")
    field(order, "codes", "int64", repeated=True)
    map_field(order, "tags", "shop.Order", "string", "int32")
    map_field(order, "byid", "shop.Order", "sint64", ".shop.Order.Item")
    map_field(order, "flags", "shop.Order", "bool", "string")
    field(order, "at", ".google.protobuf.Timestamp")
    field(order, "took", ".google.protobuf.Duration")
    field(order, "extra", ".google.protobuf.Struct")
    field(order, "amount", ".confluent.type.Decimal")
    for name in ("Double", "Int64", "UInt64", "Bool", "String", "Bytes"):
        field(order, f"w_{name.lower()}", f".google.protobuf.{name}Value")
    return file


def built(file, *more):
    """A pool with files and what they import."""
    pool = DescriptorPool()
    for module in (timestamp_pb2, duration_pb2, wrappers_pb2, struct_pb2):
        pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    pool.AddSerializedFile(decimal_pb2.DESCRIPTOR.serialized_pb)
    for one in (*more, file):
        pool.Add(one)
    return pool


FILE = order_file()
POOL = built(FILE)
Order, Item = (GetMessageClass(POOL.FindMessageTypeByName(f"shop.Order{end}")) for end in ("", ".Item"))
TEXT = base64.b64encode(FILE.SerializeToString()).decode()
INDEX = b"\2\2"


def decoder(*paths, text=TEXT, references=()):
    return protobuf_decoder(text, tuple(references), tuple(PropertySource.of(path).path for path in paths))


def read(message, *paths):
    return decoder(*paths)(INDEX + message.SerializeToString(), None)


@pytest.mark.parametrize(
    ("given", "path", "found"),
    [
        ({"f_int32": -7}, "$.f_int32", -7),
        ({"f_int64": -(2**63)}, "$.f_int64", -(2**63)),
        ({"f_uint64": 2**64 - 1}, "$.f_uint64", 2**64 - 1),
        ({"f_fixed32": 2**32 - 1}, "$.f_fixed32", 2**32 - 1),
        ({"f_sint64": -1}, "$.f_sint64", -1),
        ({"f_bool": True}, "$.f_bool", True),
        ({"f_float": 0.5}, "$.f_float", 0.5),
        ({"f_double": 0.1}, "$.f_double", 0.1),
        ({"f_string": "rosé"}, "$.f_string", "rosé"),
        ({"f_bytes": b"\xff"}, "$.f_bytes", b"\xff"),
        ({"kind": 7}, "$.kind", "EXPRESS"),
        ({"kind": 9}, "$.kind", 9),
        ({}, "$.kind", "UNKNOWN"),
        ({}, "$.f_int32", 0),
        ({}, "$.f_string", ""),
        ({}, "$.note", None),
        ({"note": ""}, "$.note", ""),
        ({}, "$.card", None),
        ({"card": ""}, "$.card", ""),
        ({"card": "x"}, "$.cash", None),
        ({}, "$.first", None),
        ({}, "$.first.sku", None),
        ({"first": {}}, "$.first.sku", ""),
        ({"first": {}}, "$.first", {}),
        ({"first": {"unit_price": 1.5}}, "$.first.unit_price", 1.5),
        ({"first": {"unit_price": 1.5}}, "$.first.unitPrice", 1.5),
        ({"items": [{"sku": "a"}, {"sku": "b"}]}, "$.items[1].sku", "b"),
        ({"items": [{"sku": "a"}]}, "$.items[1].sku", None),
        ({"items": [{"sku": "a"}]}, "$.items", []),
        ({"items": [{"sku": "a"}]}, "$.items.sku", None),
        ({"codes": [1, 2]}, "$.codes[1]", 2),
        ({"codes": [1, 2]}, "$.codes[1].x", None),
        ({"tags": {"x y": 3}}, "$.tags['x y']", 3),
        ({"tags": {"x y": 3}}, "$.tags.z", None),
        ({"tags": {"x": 3}}, "$.tags", {}),
        ({"tags": {"x": 3}}, "$.tags[0]", None),
        ({"byid": {-5: {"sku": "a"}}}, "$.byid['-5'].sku", "a"),
        ({"byid": {-5: {"sku": "a"}}}, "$.byid.x.sku", None),
        ({"byid": {-5: {"sku": "a"}}}, "$.byid['99999999999999999999'].sku", None),
        ({"flags": {True: "yes"}}, "$.flags['true']", "yes"),
        ({"flags": {True: "yes"}}, "$.flags.yes", None),
        ({"at": {"seconds": 1, "nanos": 5}}, "$.at", Temporal("instant", 10**9 + 5)),
        ({"at": {"seconds": 1}}, "$.at.seconds", 1),
        ({"took": {"seconds": -1, "nanos": -5}}, "$.took", Temporal("duration", -(10**9) - 5)),
        ({"w_double": {"value": 0.0}}, "$.w_double", 0.0),
        ({"w_int64": {"value": 7}}, "$.w_int64", 7),
        ({"w_string": {}}, "$.w_string", ""),
        ({"w_bytes": {"value": b"x"}}, "$.w_bytes", b"x"),
        ({"w_bool": {"value": True}}, "$.w_bool.value", True),
        ({}, "$.w_uint64", None),
        ({"amount": {"value": b"\x04\xe2", "scale": 2}}, "$.amount", Decimal("12.50")),
        ({"extra": {"a": {"b": [1.5, "x", None, True]}}}, "$.extra.a.b[1]", "x"),
        ({"extra": {"a": {"b": [1.5, "x", None, True]}}}, "$.extra.a.b[2]", None),
        ({"extra": {"a": {"b": [1.5, "x", None, True]}}}, "$.extra.a.b[3]", True),
        ({"extra": {"a": {"b": [1.5]}}}, "$.extra.a.b", []),
        ({"extra": {"a": {"b": [1.5]}}}, "$.extra.a", {}),
        ({"extra": {"a": {"b": [1.5]}}}, "$.extra.a.b[1]", None),
        ({"extra": {"a": 1.5}}, "$.extra.a.b", None),
        ({"extra": {"a": 1.5}}, "$.extra.a[0]", None),
        ({"extra": {"a": 1.5}}, "$.extra.a", 1.5),
        ({}, "$.nothing", None),
        ({}, "$[0]", None),
        ({}, "$", {}),
    ],
)
def test_each_field_is_read_as_a_value(given, path, found):
    (got,) = read(Order(**given), path)
    assert got == found and type(got) is type(found)


def test_infinities_are_marked_for_they_are_values():
    message = Order(f_float=float("inf"), w_double={"value": float("nan")}, f_double=1.0)
    got = read(message, "$.f_float", "$.w_double", "$.f_double")
    assert [type(one) for one in got] == [NonFinite, NonFinite, float]


def test_the_message_is_found_by_its_index_in_prefix_or_header():
    item = Item(sku="a").SerializeToString()
    at = decoder("$.sku", "$.card")
    assert at(b"\4\2\0" + item, None) == ["a", None]
    assert at(item, b"\4\2\0") == ["a", None]
    assert decoder("$.sku")(b"\0", None) == [None]
    for index in (b"\2\6", b"\4\0\0", b"\2\1", b"\4\2\1"):
        for _ in range(2):
            with pytest.raises(RecordError, match="no message with index") as error:
                at(index + item, None)
        assert error.value.reason == "not-protobuf"


@pytest.mark.parametrize("body", [b"", b"\2", INDEX + b"\x0a\x05a", INDEX + b"\xff", INDEX + b"\x0a\1\xff"])
def test_what_is_not_of_the_schema_is_an_error_of_the_record(body):
    with pytest.raises(RecordError) as error:
        decoder("$.card")(body, None)
    assert (error.value.stage, error.value.reason) == ("parse", "not-protobuf")


def test_a_deep_message_is_an_error_of_the_record():
    file = descriptor_pb2.FileDescriptorProto(name="n.proto", syntax="proto3")
    node = file.message_type.add(name="Node")
    field(node, "next", ".Node")
    text = base64.b64encode(file.SerializeToString()).decode()
    body = b""
    for _ in range(5_000):
        size = len(body)
        body = b"\x0a" + bytes([size & 0x7F | 0x80, size >> 7 & 0x7F | 0x80, size >> 14]) + body
    with pytest.raises(RecordError, match="not Protobuf"):
        decoder("$.next", text=text)(b"\0" + body, None)


def test_a_schema_may_import_others():
    geo = descriptor_pb2.FileDescriptorProto(name="x", package="g", syntax="proto3")
    field(geo.message_type.add(name="Geo"), "lat", "double")
    place = descriptor_pb2.FileDescriptorProto(name="x", package="g", syntax="proto3")
    place.dependency.extend(["geo.proto", "google/type/date.proto"])
    message = place.message_type.add(name="Place")
    field(message, "geo", ".g.Geo")
    field(message, "since", ".google.type.Date")
    root = descriptor_pb2.FileDescriptorProto(name="x", package="g", syntax="proto3")
    root.dependency.extend(["place.proto", "google/protobuf/timestamp.proto"])
    field(root.message_type.add(name="Order"), "place", ".g.Place")
    texts = [base64.b64encode(one.SerializeToString()).decode() for one in (geo, place, root)]
    body = b"\0" + b"\x0a\x0f" + b"\x0a\x09\x09" + b"\0" * 6 + b"\xf8\x3f" + b"\x12\2\x08\x07"
    references = [("geo.proto", texts[0]), ("place.proto", texts[1])]
    at = decoder("$.place.geo.lat", "$.place.since.year", text=texts[2], references=references)
    assert at(body, None) == [1.5, 7]
    with pytest.raises(InvalidSchemaError, match="descriptor is not valid"):
        decoder("$", text=texts[2])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('syntax = "proto3"; message A {}', "format=serialized"),
        ("é", "format=serialized"),
        ("////", "format=serialized"),
        (base64.b64encode(b"\x22\5\x0a\3a b").decode(), "descriptor is not valid"),
    ],
)
def test_what_is_not_a_descriptor_is_an_error(text, said):
    with pytest.raises(InvalidSchemaError, match=said):
        decoder("$", text=text)


# -- against the library's own serializer, and Protobuf's own JSON

SCALAR = {
    "f_bool": st.booleans(),
    "f_bytes": st.binary(max_size=5),
    "f_double": st.floats(allow_nan=False, allow_infinity=False),
    "f_float": st.floats(width=32, allow_nan=False, allow_infinity=False),
    "f_string": st.text(max_size=5),
    **{f"f_{name}": st.integers(-(2**31), 2**31 - 1) for name in ("int32", "sint32", "sfixed32")},
    **{f"f_{name}": st.integers(-(2**63), 2**63 - 1) for name in ("int64", "sint64", "sfixed64")},
    **{f"f_{name}": st.integers(0, 2**32 - 1) for name in ("uint32", "fixed32")},
    **{f"f_{name}": st.integers(0, 2**64 - 1) for name in ("uint64", "fixed64")},
}
ITEM = st.fixed_dictionaries({}, optional={"sku": SCALAR["f_string"], "unit_price": SCALAR["f_double"]})
MESSAGE = st.fixed_dictionaries(
    {},
    optional={
        **SCALAR,
        "note": SCALAR["f_string"],
        "cash": SCALAR["f_int32"],
        "kind": st.sampled_from([0, 7]),
        "items": st.lists(ITEM, max_size=3),
        "first": ITEM,
        "codes": st.lists(SCALAR["f_int64"], max_size=3),
        "tags": st.dictionaries(st.sampled_from(["a", "b"]), SCALAR["f_int32"]),
    },
)
PATHS = [
    *([one] for one in (*SCALAR, "note", "cash", "kind", "items", "first", "codes", "tags")),
    *(["items", 0, "sku"], ["items", 1, "unit_price"], ["first", "sku"], ["codes", 1], ["tags", "a"]),
]


@settings(max_examples=400 if NIGHTLY else 40, deadline=None)
@given(MESSAGE)
def test_what_is_read_at_paths_is_what_was_written(given):
    client = SchemaRegistryClient.new_client({"url": "mock://protobuf"})
    message = Order(**given)
    body = ProtobufSerializer(Order, client)(message, VALUE)
    whole = MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    paths = tuple(map(tuple, PATHS))
    found = protobuf_decoder(client.get_schema(1).schema_str, (), paths)(body[5:], None)
    for path, got in zip(PATHS, found, strict=True):
        value = at_path(whole, tuple(path))
        if isinstance(got, bytes):
            got = base64.b64encode(got).decode()
        if isinstance(got, int) and isinstance(value, str):  # 64 bits are text in JSON
            got = str(got)
        if isinstance(value, dict | list):
            value = value.__class__()
        if isinstance(got, float) and path == ["f_float"]:
            value = Order(f_float=value).f_float
        assert got == value, path


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=60))
def test_no_body_does_anything_but_be_read_or_be_an_error(body):
    try:
        decoder("$.first.sku", "$.items[0].sku", "$.extra.a[1]")(body, None)
    except RecordError as error:
        assert error.reason == "not-protobuf"
