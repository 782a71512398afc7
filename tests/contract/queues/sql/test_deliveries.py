"""What a stream delivers to the queues of a database, without a stream."""

from __future__ import annotations

import pytest

pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed (the extra `service`)")

from sqlalchemy import delete, insert

from selectroute.queues.errors import MQError
from selectroute.queues.message.from_stream import routed_of
from selectroute.queues.sql.deliveries import Delivery, Progress, QueueDeliveries, Room
from selectroute.queues.sql.queue import SqlQueue
from selectroute.queues.sql.tables import delivered, metadata, queue
from selectroute.selector.message import Message
from selectroute.selector.values.values import Long
from selectroute.store.engine import Store
from selectroute.store.errors import InvalidUrlError, StoreError
from tests.support.components import POSTGRES


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=POSTGRES)])
def url(request, tmp_path):
    return (
        f"sqlite:///{tmp_path}/queues.db"
        if request.param == "sqlite"
        else request.getfixturevalue("postgres")()
    )


@pytest.fixture
def open_database(url, clock):
    opened = []

    def opening(*names, **settings):
        for name in names:
            SqlQueue.create(url, name, **settings).close()
        opened.append(QueueDeliveries(url, clock=clock))
        return opened[-1]

    yield opening
    for one in opened:
        one.close()


def to(queue, *bodies, **headers):
    return [
        Delivery(queue, "s", f"a/0/{body}/s", 7, routed_of(Message(headers, body=str(body))))
        for body in bodies
    ]


def bodies(url, name, clock):
    with SqlQueue(url, name, clock=clock) as queue:
        return [queue.get().body.decode() for _ in range(queue.depth)]


def test_deliveries_are_put_in_order_and_the_batch_is_so_far(url, open_database, clock):
    database = open_database("A", "B")
    first = database.put("q", database.progress("q", 0), [*to("A", 1), *to("B", 2), *to("A", 3)])
    assert first == database.progress("q", 0) == Progress(0, 3, {})
    assert bodies(url, "A", clock) == ["1", "3"]
    assert database.put("q", first, to("A", 4)).done == 4
    assert (bodies(url, "A", clock), bodies(url, "B", clock)) == (["4"], ["2"])


def test_a_queue_of_a_stream_is_a_queue_as_any_other(url, open_database, clock):
    database = open_database("A")
    with SqlQueue(url, "A", clock=clock) as queue:
        queue.put(b"before")
        database.put("q", database.progress("q", 0), [*to("A", 1, JMSPriority=9), *to("A", 2)])
        queue.put(b"after")
        cursor = queue.cursor()
        found = [cursor.next() for _ in range(4)]
    assert [one.body for one in found] == [b"1", b"before", b"2", b"after"]
    assert (
        len({one.descriptor.msg_id for one in found}) == len({one.descriptor.msg_token for one in found}) == 4
    )
    assert found[0].properties == {
        "selectroute_subscription": "s",
        "selectroute_delivery_id": "a/0/1/s",
        "selectroute_revision": Long(7),
    }
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
        database.put("q", database.progress("q", 0), [Delivery("A", "s", "a/0/1/s", 7, routed)])
        before = queue.statistics.looked_at
        assert queue.get(selector="color = 'red'").body == b"found"
        assert queue.statistics.looked_at - before < 5


def test_what_a_full_queue_has_no_room_for_is_held_and_nothing_else(url, open_database, clock):
    database = open_database("A", max_depth=2)
    open_database("B")
    given = [*to("A", 0, 1), *to("B", 2), *to("A", 3), *to("B", 4), *to("A", 5, 6)]
    first = database.put("q", Progress(0), given)
    assert first == database.progress("q", 0) == Progress(0, 7, {}, {"A": 3})
    # Also when there is room again, nothing overtakes what is held.
    assert bodies(url, "A", clock) == ["0", "1"]
    second = database.put("q", first, to("A", 7))
    assert (second.done, second.held) == (8, {"A": 3})
    assert database.rooms(["A", "B", "C"]) == {"A": Room(2, 2), "B": None}
    numbered = [(number, one) for number, one in enumerate([*given, *to("A", 7)])]
    third = database.put_held("q", second, numbered)
    assert third == database.progress("q", 0) == Progress(0, 8, {}, {"A": 6})
    assert database.rooms(["A"]) == {"A": Room(0, 2)}
    assert (bodies(url, "A", clock), bodies(url, "B", clock)) == (["3", "5"], ["2", "4"])
    assert database.put_held("q", third, numbered, ["A"]) == Progress(0, 8)
    assert bodies(url, "A", clock) == ["6", "7"]


def test_what_was_given_up_is_never_put(url, open_database, clock):
    database = open_database("A", max_depth=1)
    first = database.put("q", Progress(0), to("A", 0, 1, 2))
    decided = database.give_up("q", first, ["A"])
    assert decided == database.progress("q", 0) == Progress(0, 3, {}, {}, {"A": 1})
    assert bodies(url, "A", clock) == ["0"]
    assert database.put("q", decided, to("A", 3)).full == {"A": 1}
    assert bodies(url, "A", clock) == []
    with pytest.raises(StoreError, match="another process"):
        database.give_up("q", first, ["A"])
    assert database.put("q", Progress(1), to("A", 4)) == Progress(1, 1)


def test_a_queue_that_goes_away_while_it_is_full_is_gone(url, open_database, clock):
    database = open_database("A", max_depth=1)
    given = to("A", 0, 1, 2)
    first = database.put("q", Progress(0), given)
    assert bodies(url, "A", clock) == ["0"]
    with Store(url, metadata).writing() as connection:
        connection.execute(delete(queue).where(queue.c.name == "A"))
    after = database.put_held("q", first, list(enumerate(given)), ["A"])
    assert after == Progress(0, 3, {"A": 1})


def test_what_an_earlier_release_wrote_of_a_batch_is_read(url, open_database):
    database = open_database("A")
    with Store(url, metadata).writing() as connection:
        row = {"job": "q", "backfill": False, "batch": 3, "done": 5, "gone": '{"A": 2}'}
        connection.execute(insert(delivered), row)
    assert database.progress("q", 3) == Progress(3, 5, {"A": 2})


def test_a_queue_that_is_gone_is_gone_for_the_rest_of_the_batch(url, open_database, clock):
    database = open_database("A")
    first = database.put("q", Progress(0), [*to("A", 1), *to("B", 2), *to("A", 3)])
    assert first == Progress(0, 3, {"B": 1})
    open_database("B")
    assert database.put("q", first, to("B", 4)).gone == {"B": 1}
    assert bodies(url, "B", clock) == []
    assert database.put("q", Progress(1), to("B", 5)) == Progress(1, 1, {})


def test_a_queue_that_became_too_short_for_a_message_is_gone(url, open_database):
    database = open_database("A", max_message_length=2)
    assert database.put("q", Progress(0), to("A", 12, 123, 12)).gone == {"A": 1}


def test_somebody_else_who_delivers_the_batch_is_noticed(url, open_database, clock):
    one, two = open_database("A"), open_database()
    progress = one.progress("q", 0)
    one.put("q", progress, to("A", 1))
    with pytest.raises(StoreError, match="another process delivers batch 0 of job q"):
        two.put("q", progress, to("A", 1))
    assert bodies(url, "A", clock) == ["1"]


def test_jobs_streams_and_backfills_are_known_apart_and_only_by_their_newest_batch(open_database):
    database = open_database("A")
    for batch in (0, 1, -1, 2, -2):
        database.put("q", Progress(batch), to("A", batch))
    assert [database.progress("q", batch) for batch in (1, 0, -1)] == [None] * 3
    assert [database.progress("q", batch).done for batch in (2, -2, 3, -3)] == [1, 1, 0, 0]
    assert database.progress("other", 2).done == 0


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
