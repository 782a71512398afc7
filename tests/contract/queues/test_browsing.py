"""Browsing with a cursor, and expiry."""

from __future__ import annotations

import selectroute as sr
from tests.support.queue_calls import bodies, id_of, reason_of


def test_an_expired_message_is_gone(queue, clock):
    queue.put(b"a", expiry=10, correl_id=id_of("c"), properties={"k": 1})
    queue.put(b"b", expiry=30)
    assert queue.depth == 2
    clock.now += 0.9
    assert queue.browse().body == b"a"
    clock.now += 0.1
    assert queue.depth == 1
    assert reason_of(queue.get, correl_id=id_of("c")) == 2033
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
    asked = {"correl_id": id_of("1")}
    assert bodies(queue, **asked) == [str(number).encode() for number in range(1, 200, 2)]
    assert bodies(queue, selector="even = 0") == [str(number).encode() for number in range(0, 200, 2)]
    token = queue.browse(selector="n = 7").descriptor.msg_token
    cursor = queue.cursor()
    cursor.next(selector="n = 8")
    assert reason_of(cursor.next, msg_token=token) == 2033


def test_a_cursor_is_never_behind_what_it_finds_by_id(queue):
    for name in "ab":
        queue.put(msg_id=id_of(name))
    cursor = queue.cursor()
    cursor.next(msg_id=id_of("b"))
    for name in "ab":
        assert reason_of(cursor.next, msg_id=id_of(name)) == 2033


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
