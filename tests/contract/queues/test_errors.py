"""What queues refuse, and with which reason."""

from __future__ import annotations

import copy
import math
import pickle

import pytest

import selectroute as sr
from selectroute.queues.errors import REASONS
from tests.support.queue_calls import reason_of

SHORT, LONG, TEXT = bytes(23), bytes(25), "x" * 24

# fmt: off
PUTS = {
    2206: [{"msg_id": msg_id} for msg_id in (SHORT, LONG, TEXT, b"")],
    2207: [*({"correl_id": correl_id} for correl_id in (SHORT, TEXT, None)),
           *({"correl_id": b"a" * 24, "properties": {"JMSCorrelationID": text}} for text in ("b", "b" * 25))],
    2258: [{"group_id": LONG}, {"group_id": b"a" * 24, "properties": {"JMSXGroupID": "b"}}],
    2250: [*({"msg_seq_number": number} for number in (0, 1_000_000_000, 1.0, True)),
           {"msg_seq_number": 2, "properties": {"JMSXGroupSeq": 3}}, {"properties": {"JMSXGroupSeq": "3"}}],
    2251: [{"offset": offset} for offset in (-1, "0", False)],
    2249: [{"last_in_group": 1}],
    2050: [{"priority": priority} for priority in (10, -1, 4.0, True)],
    2047: [{"persistence": persistence} for persistence in (1, "PERSISTENT")],
    2013: [{"expiry": expiry} for expiry in (0, -2, -1.0, 1_000_000_000, None)],
    2004: [{"body": body} for body in ("text", None)],
    2030: [{"body": body} for body in (bytes(11), bytearray(11))],
    2473: [*({"properties": {"a": value}} for value in (1j, 2**63, "\ud800")),
           *({"properties": {name: 1}} for name in ("JMSType", "JMSXGroupID")), {"properties": [("a", 1)]}],
    2442: [*({"properties": {name: 1}} for name in ("", 1, "a" * 4_096, "\ud800")),
           {"properties": {"JMSMessageID": "ID:1"}}, {"properties": {"JMSPriority": 4}},
           {"properties": {"Root.MQMD.BackoutCount": 0}}, {"properties": {"jms.Pri": 4}}],
    2478: [{"properties": {f"a{number}": 1 for number in range(1_001)}}],
    2018: [{"syncpoint": "unit"}],
}
GETS = {
    2206: [{"msg_id": msg_id} for msg_id in (SHORT, b"", TEXT)],
    2207: [{"correl_id": LONG}],
    2258: [{"group_id": SHORT}],
    2250: [{"msg_seq_number": 0}],
    2251: [{"offset": -1}],
    2331: [{"msg_token": bytes(15)}, {"wait": 0, "msg_token": bytes(16)}],
    2551: [{"selector": selector} for selector in ("a =", " ", "a = '" + "x" * 20_000 + "'")],
    2519: [{"selector": selector} for selector in (7, b"a = 1")],
    2090: [{"wait": wait} for wait in (-1, math.nan, "1", True)],
}
# fmt: on


@pytest.fixture
def filled(make):
    queue = make(max_message_length=10)
    queue.put(b"a")
    return queue


def test_a_put_or_a_get_of_what_cannot_be_is_refused_and_changes_nothing(filled):
    gets = [filled.get, filled.browse, filled.cursor().first]
    for table, calls in ((PUTS, [filled.put]), (GETS, gets)):
        for reason, requests in table.items():
            for request in requests:
                for call in calls:
                    assert reason_of(call, **request) == reason, request
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


WRONG = {"order": "lifo", "default_priority": 10, "max_depth": -1, "max_message_length": -1, "dialect": "x"}


@pytest.mark.parametrize("name", WRONG)
def test_settings_that_cannot_be_are_refused(make, name):
    with pytest.raises(ValueError, match=r"must be|there is no dialect"):
        make(**{name: WRONG[name]})
