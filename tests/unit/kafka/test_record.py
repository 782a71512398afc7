import pickle

import pytest

from selectroute.kafka.binding import KafkaBinding
from selectroute.kafka.record import Record, RecordError, delivery_id, message_id, message_of
from selectroute.selector.message import Message
from selectroute.selector.values import UNSUPPORTED, Int, Long

BINDING = KafkaBinding.of(["weight:int", "kind=type", "price:double=$.price", "JMSTimestamp=@timestamp"], ".")


def test_a_record_is_a_message_with_every_header_that_is_a_property():
    headers = [
        *(("weight", b"1"), ("weight", b"2"), ("type", b"car"), ("color", b"red"), ("JMSPriority", b"4")),
        *(("trace", b"\xff\x00"), ("gone", b"x"), ("gone", None), ("", b"nameless")),
        ("n" * 4_096, b"too long"),
    ]
    record = Record("cars.eu", 1, 7, 1_000, b"key", b'{"price": 2.5}', headers)
    assert message_of(record, BINDING) == Message(
        headers={"JMSPriority": Int(4), "JMSTimestamp": Long(1_000)},
        properties={
            **{"weight": Int(2), "kind": "car", "color": "red", "trace": b"\xff\x00", "gone": None},
            "price": 2.5,
        },
        topic="cars/eu",
        body=b'{"price": 2.5}',
    )


def test_ids_of_24_bytes_are_their_text():
    binding = KafkaBinding.of(["JMSCorrelationID:bytes", "JMSMessageID:bytes=@key"])
    record = Record("t", 0, 0, key=b"k" * 24, headers=[("JMSCorrelationID", b"\0" * 24)])
    id = "ID:" + "6B" * 24
    headers = {"JMSCorrelationID": "ID:" + "00" * 24, "JMSMessageID": id}
    assert message_of(record, binding).headers == headers
    assert message_id(record, binding) == id


@pytest.mark.parametrize(
    ("given", "name", "kept"),
    [
        ({"headers": [("weight", b"heavy")]}, "weight", "heavy"),
        ({"headers": [("weight", b"\xff")]}, "weight", b"\xff"),
        ({"headers": [("JMSPriority", b"\xff")]}, "JMSPriority", None),
        ({"value": b"{"}, "price", None),
        ({"value": b'{"price": "2.5"}'}, "price", None),
    ],
)
def test_what_is_not_of_its_type_is_unlike_everything(given, name, kept):
    message = message_of(Record("t", 0, 0, **given), BINDING)
    assert message.value(name) is UNSUPPORTED
    assert message.properties.get(name) == kept and name not in message.headers
    again = pickle.loads(pickle.dumps(message))  # noqa: S301  our own
    assert again == message and again.value(name) is UNSUPPORTED


def test_more_headers_or_properties_than_a_message_has_are_an_error():
    headers = [(f"h{i}", b"") for i in range(1_001)]
    with pytest.raises(RecordError) as error:
        message_of(Record("t", 0, 0, headers=headers), BINDING)
    assert error.value.reason == "too-many-headers"
    with pytest.raises(RecordError, match="more than 1,000") as error:
        message_of(Record("t", 0, 0, value=b'{"price": 1}', headers=headers[:1_000]), BINDING)
    assert error.value.reason == "not-a-message"


def test_only_what_is_read_must_be_right():
    record = Record(
        "t", 0, 0, value=b"{", headers=[("weight", b"heavy"), ("color", b"\xff"), ("JMSPriority", b"x")]
    )
    message = message_of(record, BINDING, ("kind",))
    assert message.properties["weight"] == "heavy" and message.properties["color"] == b"\xff"
    assert "JMSPriority" not in message.headers or message.headers["JMSPriority"] is None
    assert message_of(record, BINDING, ("color",)).value("color") is UNSUPPORTED
    assert message.value("color") == b"\xff"


def test_the_id_of_a_message_is_its_header_or_what_is_bound():
    record = Record("t", 0, 0, key=b"k", headers=[("JMSMessageID", b"ID:7")])
    assert message_id(record, KafkaBinding()) == "ID:7"
    assert message_id(record, KafkaBinding.of(["@id=@key"])) == "k"
    assert message_id(record, KafkaBinding.of(["other=JMSMessageID"])) is None
    assert message_id(Record("t", 0, 0, headers=[("JMSMessageID", b"\xff")]), KafkaBinding()) is None


def test_the_size_of_a_record_is_all_that_it_carries():
    assert Record("t", 0, 0, key=b"12", value=None, headers=[("é", b"34"), ("b", None)]).size == 7


def test_an_id_says_which_message_and_for_whom():
    assert delivery_id("cars", 3, 17, "sub-1") == "cars/3/17/sub-1"
