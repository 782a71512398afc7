"""Getting and browsing by selectors, and what selectors see."""

from __future__ import annotations

import pytest

import selectroute as sr
from tests.support.queue_calls import bodies, hex_of, id_of, put_pool, reason_of


def test_selectors_get_the_first_message_that_they_select(queue):
    for number in range(40):
        color = "blue" if number % 2 else "red"
        queue.put(str(number).encode(), properties={"color": color, "weight": number, "JMSType": "car"})
    chosen = "JMSType = 'car' AND color = 'blue' AND weight > 2"
    assert [int(queue.get(selector=chosen).body) for _ in range(3)] == [3, 5, 7]
    assert queue.get(selector=sr.Selector("weight BETWEEN 20 AND 30")).body == b"20"
    assert queue.get(selector="").body == b"0"
    assert reason_of(queue.get, selector="color = 'green'") == 2033
    assert queue.get(selector="color IN ('green', 'blue') OR weight = 2").body == b"1"


def test_the_forms_of_seed_000_are_gets_by_id(queue):
    put_pool(queue)
    assert queue.browse(selector=f"JMSMessageID = '{hex_of(id_of('y'))}'").body == b"yxx"
    assert queue.browse(selector=f"('{hex_of(id_of('y'))}' = JMSCorrelationID)").body == b"xyx"
    lower = hex_of(id_of("y")).replace("79", "79".lower())
    assert queue.browse(selector=f"JMSCorrelationID = '{lower}'", msg_id=id_of("y")).body == b"yyx"
    for name in ("JMSMessageID", "JMSCorrelationID"):
        assert queue.browse(selector=f"{name} = '{hex_of(bytes(24))}'").body == b"xxx"
    assert reason_of(queue.get, selector=f"JMSMessageID = '{hex_of(id_of('z'))}'") == 2033
    in_jms = sr.Selector(f"JMSMessageID = '{hex_of(bytes(24))}'", "jms")
    assert reason_of(queue.get, selector=in_jms) == 2033, "elsewhere an id is the string that it is"


def test_options_and_selector_must_both_agree(queue):
    for color in ("red", "blue"):
        for c in "xy":
            queue.put(f"{color}{c}".encode(), correl_id=id_of(c), properties={"color": color})
    assert queue.get(selector="color = 'blue'", correl_id=id_of("y")).body == b"bluey"
    assert reason_of(queue.get, selector="color = 'blue'", correl_id=id_of("y")) == 2033


@pytest.mark.parametrize(
    ("dialect", "selector"),
    [
        ("ibm-mq", "Root.MQMD.Priority = 7"),
        ("ibm-mq", "jms.Pri = 7"),
        ("ibm-mq", 'Root.MQMD.MsgId = "0x' + id_of("m").hex() + '"'),
        ("ibm-mq", 'Root.MQMD.CorrelId = "0x' + id_of("c").hex() + '"'),
        ("ibm-mq", 'Root.MQMD.GroupId = "0x' + id_of("g").hex() + '"'),
        ("ibm-mq", "Root.MQMD.MsgSeqNumber = 2 AND Root.MQMD.BackoutCount = 0"),
        ("ibm-mq", "Root.MQMD.Persistence = 1 AND Root.MQMD.Expiry = -1"),
        ("ibm-mq", "mcd.Type = 'car' AND Root.MQMD.PutDate = '20231114'"),
        ("jms", "JMSPriority = 7 AND JMSDeliveryMode = 'PERSISTENT' AND JMSTimestamp = 1700000000000"),
        ("jms", f"JMSCorrelationID = '{hex_of(id_of('c'))}' AND JMSXGroupID = '{hex_of(id_of('g'))}'"),
        ("jms", "JMSXGroupSeq = 2 AND JMSXDeliveryCount = 1 AND JMSType = 'car'"),
        ("mqe", "JMSPriority = 7 AND JMSDeliveryMode = 2"),
    ],
)
def test_selectors_read_the_descriptor_by_every_name_of_its_fields(queue, dialect, selector):
    queue.put(b"other")
    ids = {"msg_id": id_of("m"), "correl_id": id_of("c"), "group_id": id_of("g")}
    queue.put(b"a", **ids, msg_seq_number=2, priority=7, persistence=True, properties={"JMSType": "car"})
    assert queue.get(selector=sr.Selector(selector, dialect)).body == b"a"


def test_a_message_whose_names_break_a_rule_is_selected_by_no_selector_of_ibm_mq(queue):
    queue.put(b"a", properties={"a": 1, "x.y": 1, "x.y.z": 1})
    assert reason_of(queue.get, selector=sr.Selector("a = 1", "ibm-mq")) == 2033
    assert queue.get(selector="a = 1").body == b"a"


def test_24_bytes_that_spell_a_text_are_not_that_text(queue):
    queue.put(b"bytes", correl_id=id_of("order-7"), group_id=id_of("g"))
    queue.put(b"text", properties={"JMSCorrelationID": "order-7", "JMSXGroupID": "g"})
    for selector in ("JMSCorrelationID = 'order-7'", "JMSXGroupID = 'g'"):
        assert queue.browse(selector=sr.Selector(selector)).body == b"text"
    assert queue.browse(correl_id=id_of("order-7")).body == b"bytes"
    spelled = f"JMSCorrelationID = '{hex_of(id_of('order-7'))}'"
    assert queue.browse(selector=sr.Selector(spelled)).body == b"bytes"


def test_a_message_has_the_id_of_its_producer_for_selectors(queue):
    named = queue.put(b"named", properties={"selectroute_message_id": "ID:qpid:1:1-7"})
    plain = queue.put(b"plain")
    messages = [queue.browse(msg_id=made.msg_id) for made in (named, plain)]
    for dialect, selector, selected in (
        ("jms", "JMSMessageID = 'ID:qpid:1:1-7'", [b"named"]),
        ("jms", "JMSMessageID LIKE 'ID:qpid%'", [b"named"]),
        ("jms", f"JMSMessageID = '{hex_of(plain.msg_id)}'", [b"plain"]),
        ("jms", f"JMSMessageID = '{hex_of(named.msg_id)}'", []),
        ("ibm-mq", f'Root.MQMD.MsgId = "0x{named.msg_id.hex()}"', [b"named"]),
    ):
        prepared = sr.Selector(selector, dialect)
        assert bodies(queue, selector=prepared) == selected
        assert [one.body for one in messages if prepared.matches(one.selector_message)] == selected
