"""What every queue does: putting, the order, match options."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

import selectroute as sr
from selectroute import MatchOptions
from tests.support.queue_calls import bodies, hex_of, id_of, put_pool, reason_of

# ---- putting


def test_a_message_is_got_as_it_was_put_and_once(queue, clock):
    ids = {"msg_id": id_of("m"), "correl_id": id_of("c"), "group_id": id_of("g")}
    place = {"msg_seq_number": 2, "offset": 7, "last_in_group": True}
    properties = {"weight": 3000, "color": "blue", "JMSType": "car", "gone": None}
    made = queue.put(b"body", **ids, **place, priority=3, persistence=True, properties=properties)
    message = queue.get()
    assert message.descriptor == made
    assert message.body == b"body"
    assert message.properties == {"weight": sr.Long(3000), "color": "blue", "JMSType": "car"}
    assert (made.msg_id, made.correl_id, made.group_id) == (id_of("m"), id_of("c"), id_of("g"))
    assert (made.msg_seq_number, made.offset, made.last_in_group) == (2, 7, True)
    assert (made.priority, made.persistence, made.expiry, made.backout_count) == (3, True, -1, 0)
    assert made.put_time == datetime.fromtimestamp(clock.now, UTC)
    assert len(made.msg_token) == 16
    assert reason_of(queue.get) == 2033


def test_what_is_not_given_has_the_defaults_of_the_queue(make):
    queue = make(default_priority=7, default_persistence=True)
    made = queue.put()
    assert (made.priority, made.persistence, made.correl_id, made.group_id) == (7, True, bytes(24), bytes(24))
    assert queue.put(priority=0, persistence=False)[6:8] == (0, False)


def test_ids_are_made_where_none_are_given_and_none_twice(queue):
    made = [queue.put(msg_id=msg_id) for msg_id in (None, bytes(24), None)]
    assert len({one.msg_id for one in made}) == len({one.msg_token for one in made}) == 3
    assert all(len(one.msg_id) == 24 and one.msg_id != bytes(24) for one in made)


def test_later_changes_of_what_was_given_do_not_reach_the_queue(queue):
    body, msg_id, properties = bytearray(b"body"), bytearray(id_of("m")), {"a": 1}
    queue.put(body, msg_id=msg_id, properties=properties)
    body[0] = msg_id[0] = 0
    properties["a"] = 2
    message = queue.get(msg_id=id_of("m"))
    assert (message.body, message.properties) == (b"body", {"a": sr.Long(1)})
    with pytest.raises(TypeError):
        message.properties["a"] = 3


def test_a_correlation_id_given_as_text_is_also_its_24_bytes(queue):
    by_text = queue.put(properties={"JMSCorrelationID": "order-7", "jms.Gid": "group", "jms.Seq": sr.Int(3)})
    assert (by_text.correl_id, by_text.group_id) == (id_of("order-7"), id_of("group"))
    assert by_text.msg_seq_number == 3
    hexed = queue.put(properties={"JMSCorrelationID": hex_of(id_of("q"))}, correl_id=id_of("q"))
    assert hexed.correl_id == id_of("q")
    assert queue.get(selector="JMSCorrelationID = 'order-7'").descriptor == by_text


# ---- order


def test_the_most_urgent_come_first_and_then_those_that_came_first(queue):
    for body, priority in ((b"a", 0), (b"b", 9), (b"c", 4), (b"d", 9), (b"e", None)):
        queue.put(body, priority=priority)
    assert bodies(queue) == [b"b", b"d", b"c", b"e", b"a"]
    assert [queue.get().body for _ in range(5)] == [b"b", b"d", b"c", b"e", b"a"]


def test_a_fifo_queue_does_not_look_at_priorities(make):
    queue = make(order="fifo")
    for body, priority in ((b"a", 0), (b"b", 9), (b"c", 4)):
        queue.put(body, priority=priority)
    assert [queue.get().body for _ in range(3)] == [b"a", b"b", b"c"]


def test_order_holds_among_messages_with_one_id(queue):
    count = 300  # more than are in a short list
    for number in range(count):
        queue.put(str(number).encode(), correl_id=id_of("c"), priority=number % 10)
    wanted = sorted(range(count), key=lambda number: (-(number % 10), number))
    got = [int(queue.get(correl_id=id_of("c")).body) for _ in range(count)]
    assert got == wanted


# ---- match options


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({}, b"xxx"),
        ({"msg_id": id_of("y")}, b"yxx"),
        ({"correl_id": id_of("y")}, b"xyx"),
        ({"group_id": id_of("y")}, b"xxy"),
        ({"msg_id": id_of("y"), "correl_id": id_of("y")}, b"yyx"),
        ({"msg_id": id_of("y"), "correl_id": id_of("y"), "group_id": id_of("y")}, b"yyy"),
        ({"msg_id": bytes(24), "correl_id": id_of("y"), "group_id": bytes(24)}, b"xyx"),
        ({"msg_id": bytes(24), "correl_id": bytes(24)}, b"xxx"),
        (dict.fromkeys(MatchOptions.__annotations__), b"xxx"),
        ({"correl_id": id_of("y"), "group_id": id_of("y")}, b"xyy"),
    ],
)
def test_the_options_that_are_given_must_agree(queue, options, found):
    put_pool(queue)
    assert queue.browse(**options).body == found
    assert queue.get(**options).body == found


def test_there_is_no_other_option(queue):
    for call in (queue.get, queue.browse, queue.cursor().next):
        with pytest.raises(TypeError, match="correlation_id"):
            call(correlation_id="c")


def test_sequence_number_and_offset_are_compared_as_they_are(queue):
    for number, offset in ((1, 0), (2, 0), (2, 10)):
        queue.put(f"{number},{offset}".encode(), msg_seq_number=number, offset=offset)
    assert queue.get(msg_seq_number=2).body == b"2,0"
    assert queue.get(offset=10).body == b"2,10"
    assert reason_of(queue.get, msg_seq_number=1, offset=10) == 2033


def test_a_token_finds_its_message_and_no_other_if_the_rest_agrees(queue):
    made = [queue.put(str(number).encode(), correl_id=id_of(str(number))) for number in range(3)]
    token = made[1].msg_token
    assert reason_of(queue.get, msg_token=token, correl_id=id_of("2")) == 2033
    assert reason_of(queue.get, msg_token=bytes(16)) == 2033
    assert reason_of(queue.get, msg_token=b"\xff" * 16) == 2033
    assert queue.get(msg_token=token, correl_id=id_of("1")).body == b"1"
    assert reason_of(queue.get, msg_token=token) == 2033


def test_a_token_of_another_queue_is_that_of_no_message(make):
    one, other = make(), make()
    one.put(b"a")
    token = other.put(b"b").msg_token
    assert reason_of(one.get, msg_token=token) == 2033
    assert other.get(msg_token=token).body == b"b"


def test_get_writes_nothing_into_what_it_is_given(queue):
    """MQGET returns MsgId and CorrelId in the descriptor, so the next call with it looks for that message."""
    for _ in range(2):
        queue.put(msg_id=id_of("m"), correl_id=id_of("c"))
    given = {"msg_id": bytearray(24), "correl_id": bytearray(24), "group_id": bytearray(24)}
    for _ in range(2):
        queue.get(**given)
    assert given == {"msg_id": bytes(24), "correl_id": bytes(24), "group_id": bytes(24)}


def test_an_id_that_the_queue_has_made_may_be_given_to_other_messages(queue):
    made = [queue.put(str(number).encode()).msg_id for number in range(3)]
    queue.put(b"same", msg_id=made[1])
    queue.put(b"urgent", msg_id=made[1], priority=9)
    later = made[2][:-1] + bytes([made[2][-1] + 4])
    queue.put(b"foreseen", msg_id=later)
    queue.put(b"its own")
    for wanted in (b"urgent", b"1", b"same"):
        assert queue.browse(msg_id=made[1]).body == wanted
        assert queue.get(msg_id=made[1]).body == wanted
    with pytest.raises(sr.MQError):
        queue.get(msg_id=made[1])
    assert queue.get(msg_id=later).body == b"foreseen"
    assert [queue.get().body for _ in range(3)] == [b"0", b"2", b"its own"]
