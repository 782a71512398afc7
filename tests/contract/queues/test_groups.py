"""Groups and logical order."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.queue_calls import id_of, reason_of


def put(queue, body, group=None, number=1, offset=0, last=False, **others):
    group_id = bytes(24) if group is None else id_of(group)
    return queue.put(
        body, group_id=group_id, msg_seq_number=number, offset=offset, last_in_group=last, **others
    )


def put_figure_2(queue):
    """The messages of IBM's figure "Physical order on a queue", Z2 ahead of Z1."""
    put(queue, b"A")
    put(queue, b"Y1", "Y")
    put(queue, b"Z2", "Z", 2, last=True)
    put(queue, b"Y2", "Y", 2)
    put(queue, b"Y3a", "Y", 3)
    put(queue, b"Y3b", "Y", 3, offset=3, last=True)
    put(queue, b"Z1", "Z")
    put(queue, b"B")


LOGICAL = [b"A", b"Y1", b"Y2", b"Y3a", b"Y3b", b"Z1", b"Z2", b"B"]


def test_groups_are_got_one_after_the_other_each_in_its_sequence(queue):
    put_figure_2(queue)
    assert [queue.get(logical_order=True).body for _ in LOGICAL] == LOGICAL
    assert reason_of(queue.get, logical_order=True) == 2033


def test_groups_are_browsed_in_the_same_order(queue):
    put_figure_2(queue)
    cursor = queue.cursor()
    assert [cursor.next(logical_order=True).body for _ in LOGICAL] == LOGICAL
    assert reason_of(cursor.next, logical_order=True) == 2033
    assert cursor.first(logical_order=True).body == b"A"
    assert cursor.next(logical_order=True).body == b"Y1"
    assert queue.get(logical_order=True).body == b"A", "a cursor's group is not the thread's"


def test_physical_order_is_that_of_arrival(queue):
    put_figure_2(queue)
    assert [queue.get().body for _ in range(3)] == [b"A", b"Y1", b"Z2"]


def test_browsing_goes_on_in_the_order_in_which_it_began(queue):
    put_figure_2(queue)
    cursor = queue.cursor()
    cursor.first(logical_order=True)
    assert reason_of(cursor.next) == 2259
    cursor.first()
    assert reason_of(cursor.next, logical_order=True) == 2259


def test_a_group_that_was_begun_is_waited_for_although_others_are_there(queue):
    put(queue, b"Y1", "Y")
    put(queue, b"A")
    assert queue.get(logical_order=True).body == b"Y1"
    assert reason_of(queue.get, logical_order=True) == 2033
    put(queue, b"Y2", "Y", 2, last=True)
    assert [queue.get(logical_order=True).body for _ in range(2)] == [b"Y2", b"A"]


def test_ids_choose_which_group_is_begun(queue):
    put_figure_2(queue)
    got = [queue.get(group_id=id_of("Z"), logical_order=True).body for _ in range(2)]
    assert got == [b"Z1", b"Z2"]


def test_options_that_do_not_apply_must_agree_with_the_message(queue):
    put_figure_2(queue)
    assert reason_of(queue.get, msg_seq_number=2, logical_order=True) == 2247
    assert reason_of(queue.get, offset=1, logical_order=True) == 2247
    assert reason_of(queue.get, msg_token=bytes(16), logical_order=True) == 2247
    assert queue.get(group_id=id_of("Y"), logical_order=True).body == b"Y1"
    assert reason_of(queue.get, group_id=id_of("Z"), logical_order=True) == 2247
    asked = {"group_id": id_of("Y"), "msg_seq_number": 2}
    assert queue.get(**asked, offset=0, logical_order=True).body == b"Y2"


def test_a_get_without_logical_order_leaves_the_group(queue):
    put_figure_2(queue)
    queue.get(group_id=id_of("Y"), logical_order=True)
    assert queue.get().body == b"A"
    assert queue.get(logical_order=True).body == b"Z1"


def test_each_thread_is_in_a_group_of_its_own(queue):
    for number in (1, 2):
        for group in "YZ":
            put(queue, f"{group}{number}".encode(), group, number, last=number == 2)
    barrier = threading.Barrier(2, timeout=60)

    def work(_):
        first = queue.get(logical_order=True).body
        barrier.wait()
        return [first, queue.get(logical_order=True).body]

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(work, range(2))) == [[b"Y1", b"Y2"], [b"Z1", b"Z2"]]


def test_backout_takes_a_thread_back_to_where_it_was_in_the_group(queue):
    put_figure_2(queue)
    queue.get()
    assert queue.get(logical_order=True).body == b"Y1"
    unit = queue.unit()
    assert [queue.get(logical_order=True, syncpoint=unit).body for _ in range(2)] == [b"Y2", b"Y3a"]
    unit.backout()
    assert queue.get(logical_order=True).body == b"Y2"


def test_segments_without_bytes_do_not_repeat(queue):
    put(queue, b"", "Y")
    put(queue, b"", "Y", 2, last=True)
    put(queue, b"A")
    assert [queue.get(logical_order=True).body for _ in range(3)] == [b"", b"", b"A"]


def test_waiting_in_logical_order_is_for_the_next_of_the_group(queue):
    put(queue, b"Y1", "Y")
    queue.get(logical_order=True)
    thread = threading.Timer(
        0.05, lambda: [put(queue, b"A"), put(queue, b"Y3", "Y", 3), put(queue, b"Y2", "Y", 2)]
    )
    thread.start()
    assert queue.get(logical_order=True, wait=30).body == b"Y2"
    assert queue.get(logical_order=True, wait=30).body == b"Y3"
    thread.join()


@pytest.mark.parametrize("text", ["3fa85f64-5717-4562-b3fc-2c963f66afa6", "x" + 20 * "é"])
def test_a_text_longer_than_an_id_is_cut_to_24_bytes(queue, text):
    """As JMSXGroupID is in IBM MQ; of the second text a character is cut in two."""
    octets = text.encode()[:24]
    for number in (1, 2, 3):
        ids = {"JMSXGroupID": text, "JMSCorrelationID": text, "JMSXGroupSeq": number}
        made = queue.put(b"%d" % number, properties=ids, last_in_group=number == 3)
        assert (made.group_id, made.correl_id) == (octets, octets)
    queue.put(b"another", properties={"JMSXGroupID": text[1:]})
    assert queue.browse(group_id=octets).body == b"1"
    assert queue.browse(correl_id=octets).body == b"1"
    for name in ("JMSXGroupID", "JMSCorrelationID"):
        assert queue.browse(selector=f"{name} = '{text}'").properties[name] == text
        assert reason_of(queue.browse, selector=f"{name} = '{text}y'") == 2033, "a selector reads it whole"
    assert [queue.get(logical_order=True).body for _ in range(4)] == [b"1", b"2", b"3", b"another"]
