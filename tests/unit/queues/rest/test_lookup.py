"""A message as an item of a list, and what a lookup means as texts."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

import selectroute as sr
from selectroute import MatchOptions
from selectroute.queues.message.message import Descriptor, QueuedMessage
from selectroute.queues.rest.lookup import LookupParams, item_of, message_of_item
from selectroute.selector.errors import InvalidSelectorError
from selectroute.selector.fields import NO_ID
from selectroute.selector.limits import Limits
from tests.support.queue_calls import hex_of, id_of
from tests.support.strategies import DESCRIPTOR_FIELDS

IDS = st.just(NO_ID) | DESCRIPTOR_FIELDS["msg_id"]
DESCRIPTORS = st.builds(Descriptor, **{**DESCRIPTOR_FIELDS, **dict.fromkeys(("correl_id", "group_id"), IDS)})
VALUES = st.booleans() | st.text("ab\u00e9\n") | st.integers(-5, 5).map(sr.Int) | st.floats().map(sr.Double)


@given(DESCRIPTORS, st.dictionaries(st.text("ab.", min_size=1), VALUES, max_size=3))
def test_a_message_comes_out_of_a_list_as_it_went_in(descriptor, properties):
    item = json.loads(json.dumps(item_of(QueuedMessage(descriptor, b"body", properties)), allow_nan=False))
    assert message_of_item(item) == QueuedMessage(descriptor, b"", properties)


def test_what_no_list_has_is_refused():
    descriptor = Descriptor(id_of("m"), NO_ID, NO_ID, 1, 0, False, 4, False, -1, 0, 0, 0, bytes(16))
    whole = item_of(QueuedMessage(descriptor, b""))
    for name in whole:
        with pytest.raises((KeyError, TypeError, ValueError, sr.SelectRouteError)):
            message_of_item({other: value for other, value in whole.items() if other != name})
        if name not in ("lastInGroup", "persistence", "correlationId", "groupId"):
            with pytest.raises((KeyError, TypeError, ValueError, AttributeError, sr.SelectRouteError)):
                message_of_item({**whole, name: None})


EVERYTHING = LookupParams(None, "order-7", "ID:0a", 3, 4, "00" * 16, "a = 1", "jms")


def test_a_lookup_is_members_of_a_body():
    assert LookupParams().body() == {}
    assert LookupParams(messageId=hex_of(id_of("m"))).body() == {"messageId": hex_of(id_of("m"))}
    assert EVERYTHING.body() == {
        "correlationId": "order-7",
        "groupId": "ID:0a",
        "msgSeqNumber": 3,
        "offset": 4,
        "msgToken": "00" * 16,
        "selector": "a = 1",
        "dialect": "jms",
    }


def test_what_is_not_given_may_be_anything():
    options = LookupParams().options("jms")
    assert options.keys() == MatchOptions.__annotations__.keys() and set(options.values()) == {None}
    found = EVERYTHING.options("ibm-mq")
    assert (found["selector"].text, found["selector"].dialect) == ("a = 1", "jms")
    again = LookupParams.of(found)
    assert again.options() == found and again.selector == "a = 1"
    del found["selector"]
    assert found == {
        "msg_id": None,
        "correl_id": id_of("order-7"),
        "group_id": b"\x0a" + bytes(23),
        "msg_seq_number": 3,
        "offset": 4,
        "msg_token": bytes(16),
    }


def test_a_selector_is_read_in_the_dialect_of_the_queue_and_within_limits():
    lookup = LookupParams(selector="a.b = 1")
    assert lookup.options("ibm-mq")["selector"].dialect == "ibm-mq"
    assert lookup.options()["selector"] == "a.b = 1"
    with pytest.raises(InvalidSelectorError):
        lookup.options("ibm-jms")
    with pytest.raises(InvalidSelectorError):
        lookup.options("ibm-mq", Limits(length=4))
