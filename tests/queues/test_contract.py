"""What every queue does: putting, getting, browsing, units."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

import selectroute as sr
from selectroute import MatchOptions as M
from tests.queues.ids import hex_of, id_of


def reason_of(call, *args, **kwargs):
    with pytest.raises(sr.MQError) as raised:
        call(*args, **kwargs)
    assert raised.value.comp == 2
    return raised.value.reason


def bodies(queue, **request):
    """The bodies of all matches, in the order of browsing."""
    cursor, found = queue.cursor(), []
    while True:
        try:
            found.append(cursor.next(**request).body)
        except sr.MQError as error:
            assert error.reason == 2033
            return found


# ---- putting


def test_a_message_is_got_as_it_was_put_and_once(queue, clock):
    made = queue.put(
        b"body",
        msg_id=id_of("m"),
        correl_id=id_of("c"),
        group_id=id_of("g"),
        msg_seq_number=2,
        offset=7,
        last_in_group=True,
        priority=3,
        persistence=True,
        properties={"weight": 3000, "color": "blue", "JMSType": "car", "gone": None},
    )
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
    message = queue.get(M.MSG_ID, msg_id=id_of("m"))
    assert (message.body, message.properties) == (b"body", {"a": sr.Long(1)})
    with pytest.raises(TypeError):
        message.properties["a"] = 3


def test_a_correlation_id_given_as_text_is_also_its_24_bytes(queue):
    by_text = queue.put(properties={"JMSCorrelationID": "order-7", "jms.Gid": "group", "jms.Seq": sr.Int(3)})
    assert (by_text.correl_id, by_text.group_id) == (id_of("order-7"), id_of("group"))
    assert by_text.msg_seq_number == 3
    long = queue.put(properties={"JMSCorrelationID": "x" * 25})
    assert long.correl_id == bytes(24)
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
    got = [int(queue.get(M.CORREL_ID, correl_id=id_of("c")).body) for _ in range(count)]
    assert got == wanted


# ---- match options


def put_pool(queue):
    for m in "xy":
        for c in "xy":
            for g in "xy":
                queue.put(f"{m}{c}{g}".encode(), msg_id=id_of(m), correl_id=id_of(c), group_id=id_of(g))


@pytest.mark.parametrize(
    ("match", "given", "found"),
    [
        (0, {"msg_id": id_of("y"), "correl_id": id_of("y")}, b"xxx"),
        (M.MSG_ID, {"msg_id": id_of("y"), "correl_id": id_of("y")}, b"yxx"),
        (M.CORREL_ID, {"msg_id": id_of("y"), "correl_id": id_of("y")}, b"xyx"),
        (M.GROUP_ID, {"group_id": id_of("y")}, b"xxy"),
        (3, {"msg_id": id_of("y"), "correl_id": id_of("y")}, b"yyx"),
        (7, {"msg_id": id_of("y"), "correl_id": id_of("y"), "group_id": id_of("y")}, b"yyy"),
        (7, {"msg_id": bytes(24), "correl_id": id_of("y"), "group_id": bytes(24)}, b"xyx"),
        (M.MSG_ID | M.CORREL_ID, {"msg_id": bytes(24), "correl_id": bytes(24)}, b"xxx"),
        (M.CORREL_ID | M.GROUP_ID, {"correl_id": id_of("y"), "group_id": id_of("y")}, b"xyy"),
    ],
)
def test_the_fields_whose_options_are_given_must_agree(queue, match, given, found):
    put_pool(queue)
    assert queue.browse(match, **given).body == found
    assert queue.get(match, **given).body == found


def test_the_default_is_message_and_correlation_id(queue):
    put_pool(queue)
    assert queue.get(msg_id=id_of("y"), correl_id=id_of("y"), group_id=id_of("y")).body == b"yyx"


def test_fields_without_their_option_may_hold_anything(queue):
    queue.put(b"a")
    nonsense = {"msg_id": b"", "correl_id": None, "group_id": 7, "msg_seq_number": -1, "offset": "x"}
    assert queue.get(0, **nonsense, msg_token=None).body == b"a"


def test_sequence_number_and_offset_are_compared_as_they_are(queue):
    for number, offset in ((1, 0), (2, 0), (2, 10)):
        queue.put(f"{number},{offset}".encode(), msg_seq_number=number, offset=offset)
    assert queue.get(M.MSG_SEQ_NUMBER, msg_seq_number=2).body == b"2,0"
    assert queue.get(M.OFFSET, offset=10).body == b"2,10"
    assert reason_of(queue.get, M.MSG_SEQ_NUMBER | M.OFFSET, msg_seq_number=1, offset=10) == 2033
    assert queue.get(M.MSG_SEQ_NUMBER | M.OFFSET).body == b"1,0"


def test_a_token_finds_its_message_and_no_other_if_the_rest_agrees(queue):
    made = [queue.put(str(number).encode(), correl_id=id_of(str(number))) for number in range(3)]
    token = made[1].msg_token
    assert reason_of(queue.get, 34, msg_token=token, correl_id=id_of("2")) == 2033
    assert reason_of(queue.get, M.MSG_TOKEN, msg_token=bytes(16)) == 2033
    assert reason_of(queue.get, M.MSG_TOKEN, msg_token=b"\xff" * 16) == 2033
    assert queue.get(34, msg_token=token, correl_id=id_of("1")).body == b"1"
    assert reason_of(queue.get, M.MSG_TOKEN, msg_token=token) == 2033


def test_get_writes_nothing_into_what_it_is_given(queue):
    """MQGET returns MsgId and CorrelId in the descriptor, so the next call with it looks for that message."""
    for _ in range(2):
        queue.put(msg_id=id_of("m"), correl_id=id_of("c"))
    given = {"msg_id": bytearray(24), "correl_id": bytearray(24), "group_id": bytearray(24)}
    for _ in range(2):
        queue.get(7, **given)
    assert given == {"msg_id": bytes(24), "correl_id": bytes(24), "group_id": bytes(24)}


# ---- selectors


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
    assert queue.browse(selector=f"JMSCorrelationID = '{lower}'", match=1, msg_id=id_of("y")).body == b"yyx"
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


# ---- expiry


def test_an_expired_message_is_gone(queue, clock):
    queue.put(b"a", expiry=10, correl_id=id_of("c"), properties={"k": 1})
    queue.put(b"b", expiry=30)
    assert queue.depth == 2
    clock.now += 0.9
    assert queue.browse().body == b"a"
    clock.now += 0.1
    assert queue.depth == 1
    assert reason_of(queue.get, M.CORREL_ID, correl_id=id_of("c")) == 2033
    assert reason_of(queue.get, selector="k = 1") == 2033
    assert queue.get().body == b"b"


def test_expiry_is_what_is_left_of_it(queue, clock):
    made = queue.put(b"a", expiry=100)
    assert made.expiry == 100
    clock.now += 3.05
    assert queue.browse().descriptor.expiry == 70
    message = queue.get()
    assert message.descriptor.expiry == 70
    assert message.descriptor.expiration == made.expiration
    assert message.selector_message.value("JMSExpiration") == sr.Long(made.expiration)


def test_a_message_that_expires_in_a_unit_is_gone_after_backout(queue, clock):
    queue.put(b"a", expiry=10)
    unit = queue.unit()
    queue.get(syncpoint=unit)
    clock.now += 5
    unit.backout()
    assert reason_of(queue.get) == 2033
    with queue.unit() as unit:
        queue.put(b"b", expiry=10, syncpoint=unit)
        clock.now += 5
    assert queue.depth == 0


# ---- browsing


def test_a_cursor_goes_through_the_queue_and_stays_at_its_end(queue):
    for number in range(3):
        queue.put(str(number).encode())
    cursor = queue.cursor()
    assert reason_of(cursor.under) == 2034
    assert [cursor.next().body for _ in range(3)] == [b"0", b"1", b"2"]
    assert reason_of(cursor.next) == 2033
    assert cursor.under().body == b"2"
    queue.put(b"3")
    assert cursor.next().body == b"3"
    assert cursor.first().body == b"0"
    assert queue.depth == 4


def test_a_cursor_does_not_see_what_arrives_ahead_of_it(queue):
    queue.put(b"a", priority=5)
    cursor = queue.cursor()
    cursor.next()
    queue.put(b"urgent", priority=9)
    assert reason_of(cursor.next) == 2033
    assert cursor.first().body == b"urgent"


def test_a_cursor_finds_matches_behind_it_only(queue):
    for number in range(200):
        queue.put(
            str(number).encode(),
            correl_id=id_of(str(number % 2)),
            properties={"n": number, "even": number % 2},
        )
    asked = {"match": M.CORREL_ID, "correl_id": id_of("1")}
    assert bodies(queue, **asked) == [str(number).encode() for number in range(1, 200, 2)]
    assert bodies(queue, selector="even = 0") == [str(number).encode() for number in range(0, 200, 2)]
    token = queue.browse(selector="n = 7").descriptor.msg_token
    cursor = queue.cursor()
    cursor.next(selector="n = 8")
    assert reason_of(cursor.next, M.MSG_TOKEN, msg_token=token) == 2033


def test_the_message_under_the_cursor_is_got_whatever_is_ahead_of_it(queue):
    for number in range(3):
        queue.put(str(number).encode())
    cursor = queue.cursor()
    cursor.next()
    cursor.next()
    assert cursor.get_under().body == b"1"
    assert reason_of(cursor.get_under) == 2034
    assert reason_of(cursor.under) == 2034
    assert cursor.next().body == b"2"
    with queue.unit() as unit:
        assert cursor.get_under(syncpoint=unit).body == b"2"
        unit.backout()
    assert cursor.under().descriptor.backout_count == 1


def test_browse_takes_a_cursor_along(queue):
    for number in range(2):
        queue.put(str(number).encode())
    cursor = queue.cursor()
    assert [queue.browse(cursor=cursor).body for _ in range(2)] == [b"0", b"1"]
    assert queue.browse().body == b"0"


# ---- units of work


def test_a_put_is_there_when_its_unit_is_committed_in_the_place_of_the_put(queue):
    unit = queue.unit()
    queue.put(b"a", correl_id=id_of("c"), syncpoint=unit)
    queue.put(b"b")
    assert queue.depth == 1
    assert reason_of(queue.get, correl_id=id_of("c")) == 2033
    assert reason_of(queue.get, correl_id=id_of("c"), syncpoint=unit) == 2033
    unit.commit()
    assert [queue.get().body for _ in range(2)] == [b"a", b"b"]


def test_a_put_that_is_backed_out_never_was(queue):
    unit = queue.unit()
    queue.put(b"a", syncpoint=unit)
    unit.backout()
    assert queue.depth == 0


def test_a_get_that_is_backed_out_comes_back_to_its_place_and_is_counted(queue):
    for number in range(3):
        queue.put(str(number).encode(), correl_id=id_of("c"), properties={"k": 1})
    for count in (1, 2):
        unit = queue.unit()
        message = queue.get(syncpoint=unit)
        assert (message.body, message.descriptor.backout_count) == (b"0", count - 1)
        assert queue.depth == 2
        assert queue.browse(selector="k = 1").body == b"1"
        unit.backout()
    assert queue.get(selector="JMSXDeliveryCount = 3").body == b"0"
    assert [queue.get(correl_id=id_of("c")).body for _ in range(2)] == [b"1", b"2"]


def test_a_get_that_is_committed_is_gone(queue):
    queue.put(b"a")
    with queue.unit() as unit:
        queue.get(syncpoint=unit)
    assert queue.depth == 0
    assert reason_of(unit.commit) == reason_of(unit.backout) == 2232
    assert reason_of(queue.put, syncpoint=unit) == reason_of(queue.get, syncpoint=unit) == 2232


def test_an_exception_backs_a_unit_out(queue):
    queue.put(b"a")
    with pytest.raises(ZeroDivisionError), queue.unit() as unit:
        queue.get(syncpoint=unit)
        queue.put(b"b", syncpoint=unit)
        raise ZeroDivisionError
    assert bodies(queue) == [b"a"]


def test_the_messages_of_a_unit_count_towards_the_depth_that_is_allowed(make):
    queue = make(max_depth=2)
    queue.put(b"a")
    unit = queue.unit()
    queue.get(syncpoint=unit)
    queue.put(b"b", syncpoint=unit)
    assert reason_of(queue.put, b"c") == 2053
    unit.commit()
    queue.put(b"c")
    assert queue.depth == len(queue) == 2


def test_a_unit_is_for_its_own_queue(make):
    one, other = make(), make()
    assert reason_of(one.put, syncpoint=other.unit()) == 2018
    assert reason_of(one.get, syncpoint=object()) == 2018


def test_a_closed_queue_refuses_everything(make):
    queue = make()
    unit, cursor = queue.unit(), queue.cursor()
    queue.put(b"a")
    queue.close()
    calls = (queue.put, queue.get, queue.browse, cursor.first, cursor.under, unit.commit)
    assert {reason_of(call) for call in calls} == {2019}
    queue.close()
