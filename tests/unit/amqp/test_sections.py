"""Sections of a message: what is read, and what is kept byte for byte."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selectroute.amqp.errors import DECODE_ERROR, AmqpError
from selectroute.amqp.performatives import MessageHeader, Properties, write
from selectroute.amqp.sections import read_message, read_value
from selectroute.amqp.types import Symbol, binary, decoder, described, encode, map_of, string

HEADER = write(MessageHeader(True, 9, 1_000, True, 2))
HOP = described(0x71, map_of({Symbol("x"): "this hop"}))
ANNOTATIONS = described(0x72, map_of({Symbol("x-opt-jms-dest"): 1}))
PROPERTIES = write(
    Properties("ID:1", b"ada", "cars", "car", creation_time=17, group_id="g", group_sequence=4)
)
APPLICATION = described(0x74, map_of({"color": "red", "weight": 3_000}))
VALUE = described(0x77, string("body"))
FOOTER = described(0x78, map_of({Symbol("x-end"): True}))
BARE = PROPERTIES + APPLICATION + VALUE


def test_all_sections() -> None:
    message = read_message(HEADER + HOP + ANNOTATIONS + BARE + FOOTER)
    assert message.header == MessageHeader(True, 9, 1_000, True, 2)
    assert message.annotations == {"x-opt-jms-dest": 1}
    assert message.properties.subject == "car"
    assert message.properties.creation_time == 17
    assert message.application_properties == {"color": "red", "weight": 3_000}
    assert message.rest == ANNOTATIONS + BARE + FOOTER
    assert read_value(message) == "body"


def test_a_body_alone() -> None:
    message = read_message(VALUE)
    assert message.header == MessageHeader()
    assert message.properties == Properties()
    assert message.application_properties == message.annotations == {}
    assert message.rest == VALUE


@pytest.mark.parametrize("body", [described(0x75, binary(b"a")) * 3, described(0x76, encode([1])) * 2, b""])
def test_a_body_that_is_no_value_is_kept_unread(body: bytes) -> None:
    message = read_message(HEADER + PROPERTIES + body)
    assert message.rest == PROPERTIES + body
    with pytest.raises(AmqpError, match="not a value"):
        read_value(message)


def test_descriptors_may_be_names_or_long() -> None:
    properties = described("amqp:properties:list", encode(["ID:2"]))
    message = read_message(
        described("amqp:header:list", encode([True]))
        + properties
        + b"\x00\x80"
        + (0x77).to_bytes(8)
        + string("x")
    )
    assert message.header.durable
    assert message.properties.message_id == "ID:2"
    assert read_value(message) == "x"


def test_numbers_of_application_properties_get_their_classes() -> None:
    decode = decoder({"long": lambda number: f"long {number}"})
    message = read_message(APPLICATION + VALUE, decode)
    assert message.application_properties["weight"] == "long 3000"


MALFORMED = {
    "sections out of order": APPLICATION + PROPERTIES + VALUE,
    "a section twice": HEADER + HEADER + VALUE,
    "an unknown section": described(0x79, string("x")),
    "a text": b"hello",
    "the end within a section": PROPERTIES[:-1],
    "properties that are a map": described(0x73, map_of({})),
    "application properties that are a list": described(0x74, encode([])),
    "a subject that is a number": described(0x73, encode([None, None, None, 1])),
    "too many fields": described(0x70, encode([None] * 6)),
    "an unknown name of a section": described("amqp:nothing", string("x")),
}


@pytest.mark.parametrize("payload", MALFORMED.values(), ids=MALFORMED.keys())
def test_malformed_messages_are_decode_errors(payload: bytes) -> None:
    with pytest.raises(AmqpError) as caught:
        read_message(payload)
    assert caught.value.condition == DECODE_ERROR


@given(st.binary(max_size=100), st.integers(0, 300))
def test_any_bytes_are_a_message_or_a_decode_error(noise: bytes, at: int) -> None:
    whole = HEADER + ANNOTATIONS + BARE
    for payload in (noise, whole[:at], whole[:at] + noise + whole[at + len(noise) :]):
        try:
            message = read_message(payload)
            assert payload.endswith(message.rest)
        except AmqpError as error:
            assert error.condition == DECODE_ERROR
