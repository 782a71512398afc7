"""Messages: typed properties, headers whose names fix their types, the wire form, and what is no message."""

import json
import math
import pickle
from typing import Any

import pytest

from selectroute.selector import Byte, Double, Float, Int, Long, Message, MessageError, Short
from selectroute.selector.message import MAX_NAME_LENGTH, MAX_PROPERTIES

WIRE = {
    "headers": {"JMSType": "car", "JMSPriority": 4, "JMSTimestamp": 1700000000000, "JMSRedelivered": False},
    "properties": {
        "weight": {"type": "int", "value": 3000}, "b": {"type": "byte", "value": -1}, "l": 5, "d": 5.0,
        "s": {"type": "short", "value": 7}, "f": {"type": "float", "value": 0.5}, "color": "blue",
        "nan": {"type": "double", "value": "NaN"}, "inf": {"type": "float", "value": "-Infinity"},
        "flag": True, "none": None,
    },
    "topic": "cars/eu",
    "body": "text",
}  # fmt: skip


def test_plain_values_are_string_boolean_long_and_double():
    message = Message(properties={"a": "x", "b": True, "c": 5, "d": 5.0, "e": None, "f": Int(3)})
    values = ["x", True, Long(5), Double(5.0), None, Int(3), None]
    assert [message.value(name) for name in "abcdefg"] == values


def test_the_wire_form_gives_every_type():
    message = Message.from_json(WIRE)
    assert message.value("weight") == Int(3000) and message.value("b") == Byte(-1)
    assert message.value("s") == Short(7) and message.value("l") == Long(5)
    assert message.value("d") == Double(5.0) and message.value("f") == Float(0.5)
    assert message.value("nan") == Double(math.nan) and message.value("inf") == Float(-math.inf)
    assert message.value("flag") is True and message.value("none") is None
    assert message.topic == "cars/eu" and message.body == "text"


def test_the_wire_form_survives_the_round_trip():
    message = Message.from_json(WIRE)
    assert message.to_json() == WIRE
    assert Message.from_json(json.loads(json.dumps(message.to_json()))) == message
    assert Message.from_json({}) == Message() and Message().to_json() == {}


def test_typed_plain_types_may_be_spelled_out():
    wire = {"a": {"type": "string", "value": "x"}, "b": {"type": "boolean", "value": True}}
    wire |= {"c": {"type": "long", "value": 1}, "d": {"type": "double", "value": 1}}
    wire |= {"e": {"type": "int", "value": None}}
    message = Message.from_json({"properties": wire})
    assert [message.value(name) for name in "abcde"] == ["x", True, Long(1), Double(1.0), None]


def test_a_body_is_carried_as_text_or_bytes():
    message = Message.from_json({"body": {"type": "bytes", "value": "00fF"}})
    assert message.body == b"\x00\xff" and Message.from_json(message.to_json()) == message


def test_headers_take_the_type_of_their_name():
    message = Message(headers={"JMSPriority": 4, "JMSTimestamp": Int(5), "JMSType": None, "JMSExpiration": 0})
    assert message.value("JMSPriority") == Int(4) and message.value("JMSTimestamp") == Long(5)
    assert message.value("JMSType") is None and message.value("JMSMessageID") is None


# fmt: off
NO_HEADERS = [
    ("Type", "x"), ("JMSType", 5), *(("JMSPriority", priority) for priority in (10, True, 4.0, 2**40)),
    ("JMSDeliveryMode", 2), ("JMSDeliveryMode", "persistent"), ("JMSTimestamp", 2**63),
]
TYPED = [
    ("int", 2**31), ("int", 1.0), ("int", "1"), ("int", True), ("float", "nan"), ("string", 1),
    ("boolean", 1), ("bytes", "0"), ("bytes", "0 0 "), ("bytes", "0g"), ("bytes", 0), ([], "00"),
]
# fmt: on
NO_WEIGHTS = [[1], 2**63, {"type": "int"}, {"type": "int", "value": 1, "unit": "kg"}]
NO_WEIGHTS += [{"type": type_, "value": value} for type_, value in TYPED]


@pytest.mark.parametrize(
    ("wire", "place"),
    [
        ([], "message"),
        ({"property": {}}, "property"),
        ({"headers": []}, "headers"),
        *(({"headers": {name: value}}, f"headers.{name}") for name, value in NO_HEADERS),
        ({"properties": 5}, "properties"),
        *(({"properties": {"weight": weight}}, "properties.weight") for weight in NO_WEIGHTS),
        ({"properties": {"color": "\ud800"}}, "properties.color"),
        ({"properties": {"": 1}}, "properties."),
        ({"properties": {"JMSType": "x"}}, "properties.JMSType"),
        *(({"topic": topic}, "topic") for topic in (5, "\ud800")),
        *(({"body": body}, "body") for body in ({"a": 1}, {"type": "bytes", "value": "0"}, 5)),
    ],
)
def test_what_is_no_message_is_an_error_that_names_the_place(wire, place):
    with pytest.raises(MessageError) as caught:
        Message.from_json(wire)
    assert caught.value.place == place
    assert str(caught.value).startswith(f"{place}: ")


BEYOND = [("double", number) for number in (f"1{'0' * 400}", f"-1{'0' * 400}", "1e400")]
BEYOND += [("float", number) for number in (f"1{'0' * 39}", "-1e39", "1e400")]


@pytest.mark.parametrize(
    "number", [*(f'{{"type": "{kind}", "value": {number}}}' for kind, number in BEYOND), "1e400", "-1e400"]
)
def test_a_number_beyond_its_types_range_is_an_error_and_no_infinity(number):
    with pytest.raises(MessageError, match=r"outside the range of a Java (double|float)") as caught:
        Message.from_json(json.loads(f'{{"properties": {{"weight": {number}}}}}'))
    assert caught.value.place == "properties.weight"


def test_infinities_and_the_largest_numbers_can_be_written():
    largest = (2 - 2**-23) * 2.0**127
    for kind, type_ in (("double", Double), ("float", Float)):
        for text, value in (("Infinity", math.inf), ("-Infinity", -math.inf), ("NaN", math.nan)):
            message = Message.from_json({"properties": {"x": {"type": kind, "value": text}}})
            assert message.value("x") == type_(value)
    for number in (largest, int(largest)):
        message = Message.from_json({"properties": {"x": {"type": "float", "value": number}}})
        assert message.value("x") == Float(largest)


def test_names_and_their_number_are_limited():
    Message(properties={"n" * MAX_NAME_LENGTH: 1})
    with pytest.raises(MessageError, match="longer than 4,095"):
        Message(properties={"n" * (MAX_NAME_LENGTH + 1): 1})
    Message(properties={f"p{i}": i for i in range(MAX_PROPERTIES)})
    with pytest.raises(MessageError, match="more than 1,000"):
        Message(properties={f"p{i}": i for i in range(MAX_PROPERTIES + 1)})
    no_names: list[Any] = ["\ud800", 5]
    for name in no_names:
        with pytest.raises(MessageError):
            Message(properties={name: 1})


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        *(("properties", wrong) for wrong in ([("a", 1)], {"a": object()})),
        *(("headers", wrong) for wrong in (5, {"JMSType": b"x"}, {"JMSType": 1})),
        ("topic", 1),
        ("body", 1),
    ],
)
def test_the_constructor_checks_as_the_wire_does(field, wrong):
    with pytest.raises(MessageError):
        Message(**{field: wrong})


def test_messages_are_immutable_values():
    message = Message.from_json(WIRE)
    with pytest.raises(TypeError):
        message.properties["weight"] = Int(1)  # type: ignore[index]
    assert hash(message) == hash(Message.from_json(WIRE)) and message != Message() and message != 5
    assert pickle.loads(pickle.dumps(message)) == message  # noqa: S301  # bytes of this very line
    assert repr(Message(properties={"a": 1}, topic="t")) == "Message(properties={'a': Long(1)}, topic='t')"


@pytest.mark.parametrize("topic", ["é" * 32_768, "/" * 1_000], ids=["bytes", "levels"])
def test_a_topic_has_a_limit_of_bytes_and_of_levels(topic):
    assert Message(topic=topic[1:]).topic == topic[1:]
    with pytest.raises(MessageError, match="topic: more than 65,535 bytes of UTF-8, or 1,000 levels"):
        Message.from_json({"topic": topic})
