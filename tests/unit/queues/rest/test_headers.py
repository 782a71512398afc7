"""A message as headers of IBM MQ's messaging REST API, and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import selectroute as sr
from selectroute.queues.message.message import UNLIMITED, Descriptor, QueuedMessage
from selectroute.queues.rest.headers import decoded, headers_of, message_of, put_fields, put_headers
from selectroute.queues.rest.lookup import RestError, id_of_any_text
from selectroute.queues.rest.properties import header_of, properties_of
from selectroute.selector.fields import NO_ID
from tests.support.queue_calls import id_of
from tests.support.strategies import DESCRIPTOR_FIELDS

MADE = Descriptor(
    id_of("m"), NO_ID, NO_ID, 1, 0, False, 4, False, UNLIMITED, 1_700_000_000_123, 0, 0, bytes(16)
)

TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=30)
VALUES = st.one_of(
    st.booleans(),
    TEXTS,
    st.binary(max_size=30),
    st.integers(-128, 127).map(sr.Byte),
    st.integers(-(2**15), 2**15 - 1).map(sr.Short),
    st.integers(-(2**31), 2**31 - 1).map(sr.Int),
    st.integers(-(2**63), 2**63 - 1).map(sr.Long),
    st.floats(width=32).map(sr.Float),
    st.floats().map(sr.Double),
)


@given(st.dictionaries(TEXTS, VALUES, max_size=5))
def test_any_properties_go_through_a_header_of_plain_characters(properties):
    header = header_of(properties)
    assert header.isascii() and (header.isprintable() or not header)
    assert properties_of([header]) == properties


@pytest.mark.parametrize(
    ("header", "found"),
    [
        ("weight;3000;integer", {"weight": sr.Int(3000)}),
        ("weight;3000;int", {"weight": sr.Int(3000)}),
        (
            "a;1;i1,b;1;i2, c;1;i4 ,d;1;i8",
            {"a": sr.Byte(1), "b": sr.Short(1), "c": sr.Int(1), "d": sr.Long(1)},
        ),
        ("a;1;r4, b;.5e1;r8", {"a": sr.Float(1.0), "b": sr.Double(5.0)}),
        ('myProp2;"My String";string', {"myProp2": "My String"}),
        ("bare; my text ;string", {"bare": "my text"}),
        ('q;"a;b,c\\"d\\u00e9é";string', {"q": 'a;b,c"déé'}),
        ("yes;TRUE;boolean,no;false;boolean", {"yes": True, "no": False}),
        ("b;0aFF;bytes", {"b": b"\x0a\xff"}),
        ("n;-Infinity;double", {"n": sr.Double(float("-inf"))}),
        ("", {}),
    ],
)
def test_a_property_has_a_name_a_value_and_a_type(header, found):
    assert properties_of([header]) == found


def test_several_headers_are_one():
    assert properties_of(["a;1;long", 'b;"x";string']) == {"a": sr.Long(1), "b": "x"}


@pytest.mark.parametrize(
    "header", [
        "a", "a;1", "a;1;number", "a;1;integer;", "a;300;byte", "a;1e400;double", "a;1e39;float",
        "a;1_0;double", "a;nan;double", "a;x;integer", "a;maybe;boolean", 'a;"x;string',
        'a;"C:\\dir";string', 'a;"x"y;string', "a;1;integer,a;2;integer", "a;zz;bytes", " ", ",",
        ";" * 50_000, " " * 50_000, '"' + "\\" * 49_999,
    ], ids=lambda header: header[:20],
)  # fmt: skip
def test_what_is_no_property_is_refused(header):
    with pytest.raises(RestError) as caught:
        properties_of([header])
    assert caught.value.place == "ibm-mq-usr"


MESSAGES = st.builds(
    lambda fields, properties, reply_to: QueuedMessage(
        MADE._replace(**fields), b"body", {**properties, **reply_to}
    ),
    st.fixed_dictionaries(DESCRIPTOR_FIELDS),
    st.dictionaries(st.sampled_from(["color", "a.b", "é", "JMSType"]), VALUES, max_size=3),
    st.sampled_from(["queue:///Q", "queue://QM/Q?a=b", "x"]).map(lambda to: {"JMSReplyTo": to}) | st.just({}),
)
TEXT_IDS = ("order-7", "ab cd", " x ", "é", "ID:x")
CUT = [(b"longer than twenty-four ", "longer than twenty-four bytes"), (b"ab" * 12, "ab" * 24)]
BARE = [(octets, None) for octets in (NO_ID, id_of("c"), bytes(range(24)))]
IDS = st.sampled_from([*BARE, *((id_of(text), text) for text in TEXT_IDS), *CUT])


@given(MESSAGES, IDS, IDS)
def test_a_message_comes_out_of_its_headers_as_it_went_in(message, correlation, group):
    properties = dict(message.properties)
    if correlation[1] is not None:
        properties["JMSCorrelationID"] = correlation[1]
    if group[1] is not None:
        properties["JMSXGroupID"] = group[1]
    descriptor = message.descriptor._replace(correl_id=correlation[0], group_id=group[0])
    given = message._replace(descriptor=descriptor, properties=properties)
    headers = headers_of(given)
    assert all(value.isascii() and value.isprintable() for value in headers.values())
    assert message_of(headers, b"body") == given._replace(queue_key=0)


@given(MESSAGES, IDS)
def test_what_is_put_comes_out_of_its_headers_as_it_went_in(message, correlation):
    queue = sr.MemoryQueue()
    names = ("msg_id", "msg_seq_number", "offset", "last_in_group", "priority", "persistence", "expiry")
    fields = {name: getattr(message.descriptor, name) for name in names} | {"correl_id": correlation[0]}
    fields["properties"] = properties = dict(message.properties)
    if not isinstance(properties.get("JMSType"), str):
        properties.pop("JMSType", None)
    if correlation[1] is not None:
        properties["JMSCorrelationID"] = correlation[1]
    headers = dict(put_headers(fields))
    usr = headers.pop("ibm-mq-usr", "")
    for arguments in (fields, put_fields(headers, [usr])):
        queue.put(b"", **arguments)
    one, other = queue.get(), queue.get()
    same = {"timestamp": 0, "msg_token": b"", "expiration": 0, "msg_id": b""}
    assert one.descriptor._replace(**same) == other.descriptor._replace(**same)
    assert one.properties == other.properties


@pytest.mark.parametrize(
    ("header", "value", "field", "found"),
    [
        ("ibm-mq-md-messageId", "ID:" + "0a" * 24, "msg_id", b"\x0a" * 24),
        ("ibm-mq-md-messageId", "0A" * 24, "msg_id", b"\x0a" * 24),
        ("ibm-mq-md-correlationId", "ID:0A0b", "correl_id", b"\x0a\x0b" + bytes(22)),
        ("ibm-mq-md-correlationId", "order-7", "properties", {"JMSCorrelationID": "order-7"}),
        ("ibm-mq-md-groupId", "ID:01", "group_id", b"\x01" + bytes(23)),
        ("ibm-mq-md-expiry", "unlimited", "expiry", UNLIMITED),
        ("ibm-mq-md-expiry", "0", "expiry", UNLIMITED),
        ("ibm-mq-md-expiry", "1", "expiry", 1),
        ("ibm-mq-md-expiry", "120000", "expiry", 1200),
        ("ibm-mq-md-persistence", "persistent", "persistence", True),
        ("ibm-mq-md-persistence", "nonPersistent", "persistence", False),
        ("ibm-mq-md-replyTo", "Q", "properties", {"JMSReplyTo": "queue:///Q"}),
        ("ibm-mq-md-replyTo", "Q@QM", "properties", {"JMSReplyTo": "queue://QM/Q"}),
    ],
)
def test_headers_are_read_as_ibm_mq_has_them(header, value, field, found):
    assert put_fields({header: value}, []) == {field: found}


@pytest.mark.parametrize("header", ["ibm-mq-md-priority", "ibm-mq-md-persistence"])
def test_as_destination_is_what_the_queue_has(header):
    assert put_fields({header: "asDestination"}, []) == {}


REFUSED = {
    "messageId": (2206, ["ID:" + "0" * 46, "ID:" + "g" * 48, ""]),
    "correlationId": (2207, ["ID:abc", "ID:" + "0" * 50, "ID:"]),
    "groupId": (2258, ["ID:zz"]),
    "priority": (2050, ["10", "high"]),
    "persistence": (2047, ["maybe"]),
    "expiry": (2013, ["-1", "99999999901", "9" * 5_000]),
    "msgSeqNumber": (2250, ["x"]),
    "offset": (2251, ["1000000000"]),
    "lastInGroup": (2249, ["1"]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_field_can_be_is_refused_with_its_reason(name):
    reason, values = REFUSED[name]
    for value in values:
        with pytest.raises(RestError) as caught:
            put_fields({f"ibm-mq-md-{name}": value}, [])
        assert (caught.value.place, caught.value.reason) == (f"ibm-mq-md-{name}", reason)


def test_one_thing_is_said_once():
    with pytest.raises(RestError, match="twice"):
        put_fields({"ibm-mq-md-correlationId": "a"}, ["JMSCorrelationID;a;string"])


def test_a_text_is_looked_up_by_its_24_bytes():
    assert id_of_any_text("order-7", "correlationId", 2207) == id_of("order-7")
    assert id_of_any_text("x" * 25, "correlationId", 2207) == b"x" * 24
    assert id_of_any_text("0A" * 24, "correlationId", 2207) == b"\n" * 24
    with pytest.raises(RestError, match="hexadecimal"):
        id_of_any_text("ID:order-7", "correlationId", 2207)


def test_a_header_is_utf_8():
    assert decoded("é".encode().decode("latin-1"), "h") == "é"
    with pytest.raises(RestError):
        decoded("\xe9", "h")
