"""What queues refuse, and with which reason."""

from __future__ import annotations

import copy
import math
import pickle

import pytest

import selectroute as sr
from selectroute import MatchOptions as M
from selectroute.queues.errors import REASONS
from tests.support.queue_calls import reason_of

SHORT, LONG, TEXT = bytes(23), bytes(25), "x" * 24

PUTS = [
    ({"msg_id": SHORT}, 2206),
    ({"msg_id": LONG}, 2206),
    ({"msg_id": TEXT}, 2206),
    ({"msg_id": b""}, 2206),
    ({"correl_id": SHORT}, 2207),
    ({"correl_id": TEXT}, 2207),
    ({"correl_id": None}, 2207),
    ({"correl_id": b"a" * 24, "properties": {"JMSCorrelationID": "b"}}, 2207),
    ({"correl_id": b"a" * 24, "properties": {"JMSCorrelationID": "b" * 25}}, 2207),
    ({"group_id": LONG}, 2258),
    ({"group_id": b"a" * 24, "properties": {"JMSXGroupID": "b"}}, 2258),
    ({"msg_seq_number": 0}, 2250),
    ({"msg_seq_number": 1_000_000_000}, 2250),
    ({"msg_seq_number": 1.0}, 2250),
    ({"msg_seq_number": True}, 2250),
    ({"msg_seq_number": 2, "properties": {"JMSXGroupSeq": 3}}, 2250),
    ({"properties": {"JMSXGroupSeq": "3"}}, 2250),
    ({"offset": -1}, 2251),
    ({"offset": "0"}, 2251),
    ({"offset": False}, 2251),
    ({"last_in_group": 1}, 2249),
    ({"priority": 10}, 2050),
    ({"priority": -1}, 2050),
    ({"priority": 4.0}, 2050),
    ({"priority": True}, 2050),
    ({"persistence": 1}, 2047),
    ({"persistence": "PERSISTENT"}, 2047),
    ({"expiry": 0}, 2013),
    ({"expiry": -2}, 2013),
    ({"expiry": -1.0}, 2013),
    ({"expiry": 1_000_000_000}, 2013),
    ({"expiry": None}, 2013),
    ({"body": "text"}, 2004),
    ({"body": None}, 2004),
    ({"body": bytes(11)}, 2030),
    ({"body": bytearray(11)}, 2030),
    ({"properties": {"a": 1j}}, 2473),
    ({"properties": {"a": 2**63}}, 2473),
    ({"properties": {"a": "\ud800"}}, 2473),
    ({"properties": {"JMSType": 1}}, 2473),
    ({"properties": {"JMSXGroupID": 1}}, 2473),
    ({"properties": [("a", 1)]}, 2473),
    ({"properties": {"": 1}}, 2442),
    ({"properties": {1: 1}}, 2442),
    ({"properties": {"a" * 4_096: 1}}, 2442),
    ({"properties": {"\ud800": 1}}, 2442),
    ({"properties": {"JMSMessageID": "ID:1"}}, 2442),
    ({"properties": {"JMSPriority": 4}}, 2442),
    ({"properties": {"Root.MQMD.BackoutCount": 0}}, 2442),
    ({"properties": {"jms.Pri": 4}}, 2442),
    ({"properties": {f"a{number}": 1 for number in range(1_001)}}, 2478),
    ({"syncpoint": "unit"}, 2018),
]

GETS = [
    ({"match": 64}, 2247),
    ({"match": 3 | 1 << 20}, 2247),
    ({"match": -1}, 2247),
    ({"match": M(64)}, 2247),
    ({"match": 1.0}, 2247),
    ({"match": True}, 2247),
    ({"match": None}, 2247),
    ({"match": "MSG_ID"}, 2247),
    ({"match": M.MSG_ID, "msg_id": SHORT}, 2206),
    ({"match": M.MSG_ID, "msg_id": b""}, 2206),
    ({"match": M.MSG_ID, "msg_id": None}, 2206),
    ({"msg_id": TEXT}, 2206),
    ({"correl_id": LONG}, 2207),
    ({"match": M.GROUP_ID, "group_id": SHORT}, 2258),
    ({"match": M.MSG_SEQ_NUMBER, "msg_seq_number": 0}, 2250),
    ({"match": M.OFFSET, "offset": -1}, 2251),
    ({"match": M.MSG_TOKEN, "msg_token": bytes(15)}, 2331),
    ({"match": M.MSG_TOKEN, "msg_token": None}, 2331),
    ({"selector": "a ="}, 2551),
    ({"selector": " "}, 2551),
    ({"selector": 7}, 2519),
    ({"selector": b"a = 1"}, 2519),
    ({"selector": "a = '" + "x" * 20_000 + "'"}, 2551),
]

WAITS = [
    ({"wait": -1}, 2090),
    ({"wait": math.nan}, 2090),
    ({"wait": "1"}, 2090),
    ({"wait": True}, 2090),
    ({"wait": 0, "match": M.MSG_TOKEN}, 2331),
]


@pytest.fixture
def filled(make):
    queue = make(max_message_length=10)
    queue.put(b"a")
    return queue


def test_a_put_of_what_cannot_be_is_refused_and_changes_nothing(filled):
    for given, reason in PUTS:
        assert reason_of(filled.put, **given) == reason, given
    assert filled.depth == 1


def test_a_get_of_what_cannot_be_is_refused_and_changes_nothing(filled):
    for given, reason in GETS + WAITS:
        for call in (filled.get, filled.browse, filled.cursor().first):
            assert reason_of(call, **given) == reason, given
    assert filled.depth == 1


def test_a_syntax_error_of_a_byte_string_keeps_its_own_reason(make):
    with pytest.raises(sr.MQError) as raised:
        make(dialect="ibm-mq").get(selector='a = "0x2F1"')
    assert raised.value.reason == 2459
    assert isinstance(raised.value.__cause__, sr.InvalidSelectorError)


def test_an_error_prints_as_those_of_ibm_mq_and_has_a_sentence_for_people():
    error = sr.MQError(2, 2033)
    assert str(error) == "MQI Error. Comp 2, Reason 2033: FAILED: MQRC_NO_MSG_AVAILABLE"
    assert isinstance(error, sr.SelectRouteError)
    with pytest.raises(sr.MQError, match="MQRC_MSG_ID_ERROR") as raised:
        sr.MemoryQueue().put(msg_id=b"short")
    assert raised.value.detail == "an id must be 24 bytes, not 5"
    for copied in (copy.copy(raised.value), pickle.loads(pickle.dumps(raised.value))):  # noqa: S301
        assert (copied.comp, copied.reason, copied.detail) == (2, 2206, "an id must be 24 bytes, not 5")


def test_every_reason_has_a_name():
    assert all(name.isupper() and not name.startswith("MQRC_") for name in REASONS.values())
    assert {2033, 2085, 2247, 2331, 2459, 2519, 2551} <= set(REASONS)


@pytest.mark.parametrize(
    "settings",
    [
        {"order": "lifo"},
        {"default_priority": 10},
        {"max_depth": -1},
        {"max_message_length": -1},
        {"dialect": "sql"},
    ],
)
def test_settings_that_cannot_be_are_refused(make, settings):
    with pytest.raises(ValueError, match=r"must be|there is no dialect"):
        make(**settings)
