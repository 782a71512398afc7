"""Messages of a stream as queues take them."""

from __future__ import annotations

import json

import pytest

from selectroute.queues.message.from_stream import routed_of, with_delivery
from selectroute.queues.message.record import expiry_at
from selectroute.selector.message import Message
from selectroute.selector.values import Double, Int
from tests.support.queue_calls import reason_of


def properties(**message):
    return json.loads(routed_of(Message(**message)).properties)


def test_a_message_without_anything_leaves_everything_to_the_queue():
    routed = routed_of(Message())
    assert routed == (None, None, None, 1, None, None, None, 0, "{}", b"")


def test_fields_are_read_under_any_of_their_names():
    given = {
        "Root.MQMD.MsgId": b"m" * 24,
        "Root.MQMD.CorrelId": b"c" * 24,
        "Root.MQMD.GroupId": b"g" * 24,
        "Root.MQMD.MsgSeqNumber": 3,
        "jms.Pri": Int(7),
        "jms.Dlv": Int(2),
        "jms.Tms": 5,
    }
    routed = routed_of(Message(properties=given))
    assert routed[:7] == (b"m" * 24, b"c" * 24, b"g" * 24, 3, 7, True, 5)
    assert json.loads(routed.properties) == {}


def test_a_message_id_that_is_no_msg_id_is_kept_as_a_property():
    routed = routed_of(Message({"JMSMessageID": "ID:1"}))
    assert routed.msg_id is None and json.loads(routed.properties) == {"selectroute_message_id": "ID:1"}
    assert routed_of(Message({"JMSMessageID": "ID:" + "ab" * 24})).msg_id == b"\xab" * 24


def test_what_only_a_queue_can_know_is_left_out():
    given = {"JMSXDeliveryCount": 7, "Root.MQMD.BackoutCount": 6}
    assert properties(headers={"JMSRedelivered": True, "JMSType": "t"}, properties=given) == {"JMSType": "t"}


def test_properties_of_ours_are_not_taken_from_the_message():
    given = {"selectroute_subscription": "other", "selectroute_revision": 1, "color": "red"}
    assert properties(properties=given, topic="a/b") == {"color": "red", "selectroute_topic": "a/b"}


def test_types_of_properties_are_kept():
    assert properties(properties={"i": Int(3), "l": 3, "d": 0.5, "n": Double(float("nan")), "b": b"\0"}) == {
        "i": {"type": "int", "value": 3},
        "l": 3,
        "d": 0.5,
        "n": {"type": "double", "value": "NaN"},
        "b": {"type": "bytes", "value": "00"},
    }


@pytest.mark.parametrize("name", ["JMSXGroupID", "jms.Gid"])
def test_a_text_longer_than_an_id_is_cut_and_stays_whole_as_a_property(name):
    routed = routed_of(Message(headers={"JMSCorrelationID": "c" * 36}, properties={name: "g" * 36}))
    assert (routed.correl_id, routed.group_id) == (b"c" * 24, b"g" * 24)
    assert json.loads(routed.properties) == {"JMSCorrelationID": "c" * 36, "JMSXGroupID": "g" * 36}


def test_a_body_is_its_bytes():
    for body, octets in ((None, b""), ("", b""), ("é", b"\xc3\xa9"), (b"\xff", b"\xff")):
        assert routed_of(Message(body=body)).body == octets


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        ({"Root.MQMD.MsgId": b"short"}, 2206),
        ({"Root.MQMD.CorrelId": b"short"}, 2207),
        ({"Root.MQMD.GroupId": b"x" * 25}, 2258),
        ({"Root.MQMD.MsgId": "text"}, 2473),
        ({"Root.MQMD.MsgSeqNumber": "1"}, 2473),
        ({"JMSXGroupSeq": 0}, 2250),
        ({"jms.Pri": Int(10)}, 2050),
        ({f"p{n}": 1 for n in range(995)}, 2478),
    ],
)
def test_what_no_queue_can_hold_has_the_reason_of_a_put(properties, reason):
    assert reason_of(routed_of, Message(properties=properties)) == reason


def test_as_many_properties_as_leave_room_for_ours():
    assert len(properties(properties={f"p{n}": 1 for n in range(994)})) == 994


def test_a_delivery_adds_its_own_properties():
    assert json.loads(with_delivery("{}", "s", "a/0/1/s", 7)) == {
        "selectroute_subscription": "s",
        "selectroute_delivery_id": "a/0/1/s",
        "selectroute_revision": 7,
    }
    assert json.loads(with_delivery('{"a": "}"}', "s", "é", 7))["a"] == "}"


@pytest.mark.parametrize(("expiration", "expiry"), [(0, -1), (1, 1), (1_000, 1), (1_001, 1), (2_050, 11)])
def test_expiry_is_what_is_left_of_the_time(expiration, expiry):
    assert expiry_at(expiration, 1_000) == expiry
    assert expiry_at(1_000 + 100 * (2**31 - 1), 1_000) == 2**31 - 1
    assert expiry_at(1_000 + 100 * 2**31, 1_000) == expiry_at(2**63 - 1, 1_000) == -1
