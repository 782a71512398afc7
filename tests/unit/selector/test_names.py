"""Names of properties (seed 003), and fields of a message that have several names."""

import pytest

from selectroute.selector import Int, Long, Message, Selector, Short
from selectroute.selector.fields import DERIVED, SYNONYMS, id_to_text, may_be_set, octets_of_text
from selectroute.selector.names import (
    INVALID_NAMES,
    PropertyNameError,
    breaches,
    broken_rule,
    check_property_names,
    mixed_content,
)

BREACHES = {
    1: ["JMSFoo", "JMS", "JMS_IBM_Format", "JMSType.x", "usr.JMSFoo"],
    2: ["null", "Between", "ESCAPE"],
    3: ["mq.a.b", "MQ.a.b", "mqfoo.a.b", "mq_us.a.b"],
    4: ["a..b", "a.", ".a", ""],
}


@pytest.mark.parametrize(("rule", "name"), [(rule, name) for rule in BREACHES for name in BREACHES[rule]])
def test_a_name_that_breaks_a_rule_is_refused_with_2442(name, rule):
    assert broken_rule(name).number == rule
    with pytest.raises(PropertyNameError, match="2442") as caught:
        check_property_names([name])
    assert caught.value.reason == 2442 and caught.value.name == name


@pytest.mark.parametrize(
    "name", ["a", "jms.Foo", "jMSFoo", "usr.in", "usr.jms", "mq.a", "mq_usr.a.b", "MQ_USR.a.b.c", "mqa",
             "a.b.c", "usr.in.x", "nullx", "Root.MQMD.Format", "ın"],
)  # fmt: skip
def test_other_names_are_fine(name):
    assert broken_rule(name) is None
    check_property_names([name])


def test_only_five_fields_can_be_set_by_whichever_name():
    settable = {name for name in SYNONYMS if may_be_set(name)}
    assert {name for name in settable if name.startswith("JMS")} == {
        "JMSCorrelationID", "JMSReplyTo", "JMSType", "JMSXGroupID", "JMSXGroupSeq",
    }  # fmt: skip
    assert "jms.Cid" in settable and "Root.MQMD.ReplyToQ" in settable and "mcd.Fmt" in settable
    for name in ("JMSPriority", "jms.Pri", "Root.MQMD.MsgId", "JMSXDeliveryCount"):
        with pytest.raises(PropertyNameError, match="cannot be set"):
            check_property_names([name])


def test_mixed_content_is_2498():
    with pytest.raises(PropertyNameError) as caught:
        check_property_names(["a.b.c", "x", "a.b"])
    assert caught.value.reason == 2498 and caught.value.name == "a.b.c"
    check_property_names(["a.b", "a.bc", "a.b1.c", "ab"])


def test_every_pair_of_mixed_content_is_found():
    names = ["a", "a.b", "a.b.c", "a-b", "a.c", "b", "b.a.c", "a.b-", "a.b.c.d"]
    found = {(outer, inner) for outer in names for inner in names if inner.startswith(f"{outer}.")}
    assert set(mixed_content(names)) == found
    assert len(mixed_content(names)) == len(found)


def test_names_with_thousands_of_levels_are_checked_in_passing():
    deep = ["a" + ".b" * 2_000 + f".{number}" for number in range(500)]
    assert breaches(deep) == []
    assert breaches([*deep, "a.b"]) == [("a.b", name) for name in sorted(deep, key=lambda n: n.split("."))]


def test_a_property_that_is_null_breaks_no_rule():
    assert Message(properties={"JMSFoo": None, "a": 1, "a.b": None}).value(INVALID_NAMES) is False
    assert Message(properties={"a": 1, "a.b": 2}).value(INVALID_NAMES) is True
    assert Message(headers={"JMSDeliveryTime": 5}).value(INVALID_NAMES) is False


def test_a_message_is_validated_only_if_that_is_asked_for():
    with pytest.raises(PropertyNameError):
        Message(properties={"a..b": 1}, validate=True)
    message = Message(properties={"a..b": 1, "x": 1})
    assert not Selector("x = 1", "ibm-mq").matches(message)
    assert Selector("x = 1").matches(message) and Selector("", "ibm-mq").matches(message)


def test_what_begins_like_a_derived_field_and_is_none_is_null():
    assert Message(properties={"a": 1}).value("@nothing") is None


def test_every_synonym_reads_from_names_that_are_synonyms_too():
    for name, sources in DERIVED.items():
        for source in sources:
            assert name not in source.names and set(source.names) <= set(SYNONYMS)


@pytest.mark.parametrize(
    ("properties", "name", "value"),
    [
        ({"Root.MQMD.CorrelId": b"short"}, "JMSCorrelationID", None),
        ({"Root.MQMD.CorrelId": bytes(range(24))}, "jms.Cid", "ID:" + bytes(range(24)).hex().upper()),
        ({"jms.Pri": Long(4)}, "JMSPriority", Int(4)),
        ({"jms.Pri": Long(2**31)}, "JMSPriority", None),
        ({"jms.Pri": "4"}, "JMSPriority", None),
        ({"jms.Pri": "4", "Root.MQMD.Priority": Short(3)}, "JMSPriority", Int(3)),
        ({"jms.Pri": "4"}, "jms.Pri", "4"),
        ({"Root.MQMD.BackoutCount": Int(2**31 - 1)}, "JMSXDeliveryCount", None),
        ({"Root.MQMD.BackoutCount": Long(2**63 - 1)}, "JMSXDeliveryCount", None),
        ({"JMSXDeliveryCount": Long(-(2**63))}, "Root.MQMD.BackoutCount", None),
        ({"Root.MQMD.PutDate": "20130101", "Root.MQMD.PutTime": "25000000"}, "JMSTimestamp", None),
        ({"Root.MQMD.PutDate": "20130101"}, "JMSTimestamp", None),
        ({"Root.MQMD.PutDate": "19691231", "Root.MQMD.PutTime": "23595999"}, "jms.Tms", Long(-10)),
        ({"Root.MQMD.Expiry": Int(5)}, "JMSExpiration", None),
        ({"Root.MQMD.ReplyToQMgr": "QM"}, "JMSReplyTo", None),
    ],
)
def test_what_does_not_convert_is_null(properties, name, value):
    assert Message(properties=properties).value(f"@{name}") == value


def test_time_stamps_beyond_the_calendar_have_no_date():
    for far in (2**62, -(2**62), 253402300800000):
        message = Message(headers={"JMSTimestamp": far})
        assert message.value("@Root.MQMD.PutDate") is None
    message = Message(headers={"JMSTimestamp": -62135596800000})
    assert message.value("@Root.MQMD.PutDate") == "00010101"
    assert message.value("@Root.MQMD.PutTime") == "00000000"


def test_ids_are_padded_with_zeros_cut_or_decoded():
    assert octets_of_text("x" * 25) == b"x" * 24 and octets_of_text("é" * 12) == "é".encode() * 12
    assert octets_of_text("xy") == b"xy" + bytes(22) and octets_of_text("x" + "é" * 12)[-1:] == b"\xc3"
    assert octets_of_text("ID:" + "aB" * 24) == b"\xab" * 24
    assert octets_of_text("id:" + "ab" * 24) == b"id:" + b"ab" * 10 + b"a"
    assert id_to_text(b"\xab" * 24) == "ID:" + "AB" * 24 and id_to_text(b"x") is None


@pytest.mark.parametrize("name", ["a b", "1a", "a-b", "a.b c"])
def test_a_name_that_no_selector_can_spell_is_refused_on_a_message_and_harmless_as_a_column(name):
    with pytest.raises(PropertyNameError, match="2442"):
        Message(properties={name: 1}, validate=True)
    assert Message(properties={name: 1}).value("@invalid-names") is True
    assert breaches([name]) == []
