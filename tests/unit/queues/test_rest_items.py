"""A message as an item of a list, and what a lookup means as texts."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

import selectroute as sr
from selectroute.queues.message.message import NO_ID, Descriptor, QueuedMessage
from selectroute.queues.rest.list_items import item_of, message_of_item
from selectroute.queues.rest.lookup import LookupParams
from selectroute.queues.settings import QueueSettings
from selectroute.selector.errors import InvalidSelectorError
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


def test_a_lookup_is_parameters_of_a_url():
    assert LookupParams().params() == {}
    assert LookupParams(message_id=hex_of(id_of("m"))).params() == {"messageId": hex_of(id_of("m"))}
    assert EVERYTHING.params() == {
        "correlationId": "order-7",
        "groupId": "ID:0a",
        "msgSeqNumber": "3",
        "offset": "4",
        "msgToken": "00" * 16,
        "selector": "a = 1",
        "dialect": "jms",
    }


def test_what_is_not_given_may_be_anything():
    assert LookupParams().fields(QueueSettings()) == {"match": 7, "selector": None}
    found = EVERYTHING.fields(QueueSettings())
    assert found.pop("selector").text == "a = 1"
    assert found == {
        "match": 63,
        "correl_id": id_of("order-7"),
        "group_id": b"\x0a" + bytes(23),
        "msg_seq_number": 3,
        "offset": 4,
        "msg_token": bytes(16),
    }


def test_a_selector_is_read_in_the_dialect_of_the_queue_and_within_limits():
    fields = LookupParams(selector="a.b = 1").fields(QueueSettings(dialect="ibm-mq"))
    assert fields["selector"].dialect == "ibm-mq"
    with pytest.raises(InvalidSelectorError):
        LookupParams(selector="a.b = 1").fields(QueueSettings())
    with pytest.raises(InvalidSelectorError):
        LookupParams(selector="a = 1").fields(QueueSettings(), Limits(length=4))
