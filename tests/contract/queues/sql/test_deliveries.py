"""What a stream delivers to the queues of a database, without a stream."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed (the extra `service`)")

from sqlalchemy import delete

from selectroute.queues.errors import MQError
from selectroute.queues.message.from_stream import routed_of
from selectroute.queues.settings import QueueSettings
from selectroute.queues.sql.deliveries import (
    DONE,
    Delivery,
    Progress,
    QueueDeliveries,
    Room,
    TaskKey,
    TaskPuts,
)
from selectroute.queues.sql.queue import SqlQueue
from selectroute.queues.sql.tables import metadata, queue
from selectroute.selector.message import Message
from selectroute.selector.values import Long
from selectroute.store.engine import Store
from selectroute.store.errors import InvalidUrlError, OvertakenError, StoreError


@pytest.fixture
def open_database(url, clock):
    opened = []

    def opening(*names, **settings):
        for name in names:
            SqlQueue.create(url, name, QueueSettings(**settings)).close()
        opened.append(QueueDeliveries(url, clock=clock))
        return opened[-1]

    yield opening
    for one in opened:
        one.close()


def to(queue, *bodies, **headers):
    routed = [(body, routed_of(Message(headers, body=str(body)))) for body in bodies]
    return [Delivery(queue, "s", f"a/0/{body}/s", 7, message) for body, message in routed]


def bodies(url, name, clock):
    with SqlQueue(url, name, clock=clock) as queue:
        return [queue.get().body.decode() for _ in range(queue.depth)]


TASK = TaskKey("q", 0, 0, "plan")


def put(database, *deliveries, task=TASK, first=0, excluded=()):
    """Put these deliveries, numbered from `first`, as one attempt; return the progress and what is closed."""
    puts = TaskPuts(database, task, excluded)
    puts.put(list(enumerate(deliveries, first)))
    return puts.progress, puts.closed


def test_deliveries_are_put_in_order_and_the_task_is_so_far(url, open_database, clock):
    database = open_database("A", "B")
    first, _ = put(database, *to("A", 1), *to("B", 2), *to("A", 3))
    assert first == database.progress(TASK) == Progress(3, 3)
    assert bodies(url, "A", clock) == ["1", "3"]
    assert put(database, *to("A", 4), first=3)[0] == Progress(4, 4)
    assert (bodies(url, "A", clock), bodies(url, "B", clock)) == (["4"], ["2"])


def test_an_attempt_puts_what_the_ones_before_did_not(url, open_database, clock):
    database = open_database("A")
    given = to("A", 0, 1, 2, 3)
    put(database, *given[:2])
    assert put(database, *given)[0] == Progress(4, 4)
    assert put(database, *given)[0] == Progress(4, 4)
    assert bodies(url, "A", clock) == ["0", "1", "2", "3"]


def test_numbers_of_deliveries_may_have_more_than_64_bits(url, open_database, clock):
    database = open_database("A", max_depth=1)
    after, _ = put(database, *to("A", 0, 1), first=1 << 100)
    assert after == database.progress(TASK) == Progress(1, (1 << 100) + 2, {}, {"A": (1 << 100) + 1})


def test_each_task_of_a_batch_has_a_progress_of_its_own(url, open_database, clock):
    database = open_database("A")
    tasks = [TaskKey("q", 0, task, "plan") for task in range(3)]
    for task in tasks:
        put(database, *to("A", task.task), task=task)
    assert [database.progress(task) for task in tasks] == [Progress(1, 1)] * 3
    assert bodies(url, "A", clock) == ["0", "1", "2"]


def test_a_batch_that_was_put_by_another_plan_is_an_error(open_database):
    database = open_database("A")
    put(database, *to("A", 0))
    assert [database.begun("q", batch) for batch in (0, 1, -1)] == [{"plan"}, set(), set()]
    with pytest.raises(StoreError, match="by another plan than this one"):
        database.progress(TASK._replace(plan="other"))


def test_a_queue_of_a_stream_is_a_queue_as_any_other(url, open_database, clock):
    database = open_database("A")
    with SqlQueue(url, "A", clock=clock) as queue:
        queue.put(b"before")
        put(database, *to("A", 1, JMSPriority=9), *to("A", 2))
        queue.put(b"after")
        cursor = queue.cursor()
        found = [cursor.next() for _ in range(4)]
    assert [one.body for one in found] == [b"1", b"before", b"2", b"after"]
    for name in ("msg_id", "msg_token"):
        assert len({getattr(message.descriptor, name) for message in found}) == 4
    ours = {"subscription": "s", "delivery_id": "a/0/1/s", "revision": Long(7)}
    assert found[0].properties == {f"selectroute_{name}": value for name, value in ours.items()}
    assert found[0].descriptor.timestamp == int(clock.now * 1000)


def test_indexes_of_a_queue_have_what_a_stream_puts(url, open_database, clock):
    database = open_database("A")
    with SqlQueue(url, "A", clock=clock) as queue:
        for _ in range(1_100):
            queue.put(properties={"color": "blue"})
        for _ in range(2):
            with pytest.raises(MQError):
                queue.get(selector="color = 'red'")
        assert queue.statistics.indexes_made == 1
        routed = routed_of(Message(properties={"color": "red"}, body="found"))
        put(database, Delivery("A", "s", "a/0/1/s", 7, routed))
        before = queue.statistics.looked_at
        assert queue.get(selector="color = 'red'").body == b"found"
        assert queue.statistics.looked_at - before < 5


def test_what_a_full_queue_has_no_room_for_is_held_and_nothing_else(url, open_database, clock):
    database = open_database("A", max_depth=2)
    open_database("B")
    given = [*to("A", 0, 1), *to("B", 2), *to("A", 3), *to("B", 4), *to("A", 5, 6)]
    puts = TaskPuts(database, TASK)
    puts.put(list(enumerate(given[:5])))
    assert puts.progress == database.progress(TASK) == Progress(4, 5, {}, {"A": 3})
    assert puts.closed == {"A": 2}
    # Also when there is room again, nothing overtakes what is held.
    assert bodies(url, "A", clock) == ["0", "1"]
    puts.put([(5, given[5]), (6, given[6])])
    puts.finish()
    assert puts.progress == database.progress(TASK) == Progress(4, DONE, {}, {"A": 3})
    assert database.rooms(["A", "B", "C"]) == {"A": Room(2, 2), "B": None}
    assert not TaskPuts(database, TASK).is_held_up()
    third, closed = put(database, *given)
    assert (third, closed) == (Progress(6, DONE, {}, {"A": 6}), {"A": 2})
    assert TaskPuts(database, TASK).is_held_up() and not TaskPuts(database, TASK, ["A"]).is_held_up()
    assert (bodies(url, "A", clock), bodies(url, "B", clock)) == (["3", "5"], ["2", "4"])
    puts = TaskPuts(database, TASK)
    puts.put(list(enumerate(given)))
    puts.finish()
    assert puts.progress == database.progress(TASK) == Progress(7, DONE)
    assert bodies(url, "A", clock) == ["6"]


def test_an_attempt_that_ended_before_its_last_delivery_goes_on_with_a_held_queue(url, open_database, clock):
    database = open_database("A", max_depth=1)
    open_database("B")
    given = [*to("A", 0, 1), *to("B", 2), *to("A", 3), *to("B", 4)]
    assert put(database, *given[:3])[0] == Progress(2, 3, {}, {"A": 1})
    assert bodies(url, "A", clock) == ["0"]
    after, _ = put(database, *given)
    assert after == Progress(4, 5, {}, {"A": 3})
    assert (bodies(url, "A", clock), bodies(url, "B", clock)) == (["1"], ["2", "4"])


def test_what_was_given_up_is_never_put(url, open_database, clock):
    database = open_database("A", max_depth=1)
    first, _ = put(database, *to("A", 0, 1, 2))
    assert first.held == {"A": 1}
    given_up, closed = put(database, *to("A", 0, 1, 2), excluded=["A"])
    assert given_up == database.progress(TASK) == Progress(1, 3, {}, {}, {"A": 1})
    assert not closed and bodies(url, "A", clock) == ["0"]
    assert put(database, *to("A", 0, 1, 2, 3))[0].full == {"A": 1}
    assert bodies(url, "A", clock) == []
    assert put(database, *to("A", 4), task=TASK._replace(batch=1))[0] == Progress(1, 1)


def test_a_queue_that_goes_away_while_it_is_full_is_gone(url, open_database, clock):
    database = open_database("A", max_depth=1)
    given = to("A", 0, 1, 2)
    put(database, *given)
    assert bodies(url, "A", clock) == ["0"]
    with Store(url, metadata).writing() as connection:
        connection.execute(delete(queue).where(queue.c.name == "A"))
    assert put(database, *given)[0] == Progress(1, 3, {"A": 1})


def test_a_queue_that_is_gone_is_gone_for_the_rest_of_the_task(url, open_database, clock):
    database = open_database("A")
    first, _ = put(database, *to("A", 1), *to("B", 2), *to("A", 3))
    assert first == Progress(2, 3, {"B": 1})
    open_database("B")
    assert put(database, *to("A", 1), *to("B", 2), *to("A", 3), *to("B", 4))[0].gone == {"B": 1}
    assert bodies(url, "B", clock) == []
    assert put(database, *to("B", 5), task=TASK._replace(batch=1))[0] == Progress(1, 1)


def test_a_queue_that_became_too_short_for_a_message_is_gone(url, open_database):
    database = open_database("A", max_message_length=2)
    assert put(database, *to("A", 12, 123, 12))[0].gone == {"A": 1}


def test_another_attempt_of_the_task_is_noticed(url, open_database, clock):
    one, two = open_database("A"), open_database()
    late = TaskPuts(two, TASK)
    put(one, *to("A", 1))
    with pytest.raises(OvertakenError, match="another process delivers batch 0 of job q"):
        late.put([(0, *to("A", 1))])
    put(one, *to("A", 1), task=TASK._replace(batch=1))
    with pytest.raises(OvertakenError):
        two.progress(TASK)
    assert bodies(url, "A", clock) == ["1", "1"]


def test_an_attempt_that_was_taken_over_puts_nothing_more(url, open_database, clock):
    earlier = TaskPuts(open_database("A"), TASK)
    earlier.take_over()
    earlier.put([(0, *to("A", 0))])
    later = TaskPuts(open_database(), TASK)
    later.take_over()
    with pytest.raises(OvertakenError):
        earlier.put([(1, *to("A", 1))])
    later.put(list(enumerate(to("A", 0, 1, 2))))
    assert later.progress == Progress(3, 3, attempt=1)
    assert bodies(url, "A", clock) == ["0", "1", "2"]


def test_only_one_of_two_first_attempts_puts(url, open_database, clock):
    open_database("A")
    puts = [TaskPuts(open_database(), TASK) for _ in range(4)]
    barrier = Barrier(len(puts), timeout=60)

    def first(one):
        barrier.wait()
        try:
            one.put([(0, *to("A", 1))])
        except OvertakenError:
            return 0
        return 1

    with ThreadPoolExecutor(len(puts)) as pool:
        assert sum(pool.map(first, puts)) == 1
    assert bodies(url, "A", clock) == ["1"]


def test_tasks_put_to_one_queue_side_by_side(url, open_database, clock):
    open_database("A", "B")

    def task(number):
        given = [one for n in range(50) for one in (*to("A", f"{number}-{n}"), *to("B", f"{number}-{n}"))]
        puts = TaskPuts(open_database(), TaskKey("q", 0, number, "plan"))
        for start in range(0, len(given), 10):
            puts.put(list(enumerate(given[start : start + 10], start)))
        puts.finish()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(task, range(4)))
    for name in "AB":
        got = bodies(url, name, clock)
        assert len(got) == 200
        for number in range(4):
            own = [body for body in got if body.startswith(f"{number}-")]
            assert own == [f"{number}-{n}" for n in range(50)]


def test_jobs_streams_and_side_batches_are_known_apart_and_only_by_their_newest_batch(open_database):
    database = open_database("A")
    for batch in (0, 1, -1, 2, -2):
        put(database, *to("A", batch), task=TASK._replace(batch=batch))
    assert [database.begun("q", batch) for batch in (1, 0, -1)] == [None] * 3
    assert [database.progress(TASK._replace(batch=batch)).done for batch in (2, -2, 3, -3)] == [1, 1, 0, 0]
    assert database.begun("other", 2) == set()


def test_lengths_are_those_of_all_queues(open_database):
    open_database("A", max_message_length=7)
    assert open_database("B").lengths() == {"A": 7, "B": 4_194_304}


def test_the_name_says_which_database_it_is_wherever_it_is_asked(tmp_path, monkeypatch):
    SqlQueue.create(f"sqlite:///{tmp_path}/q.db", "A").close()
    monkeypatch.chdir(tmp_path)
    named = [QueueDeliveries(url).name for url in ("sqlite:///q.db", f"sqlite:///{tmp_path}/q.db")]
    assert named == [f"sqlite:///{tmp_path}/q.db"] * 2


def test_a_database_that_is_not_there_is_one_sentence(tmp_path):
    with pytest.raises(InvalidUrlError, match="there is no database"):
        QueueDeliveries(f"sqlite:///{tmp_path}/none.db")
