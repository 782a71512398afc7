"""Queues in a database: by name, durable, for several processes, beside a registry."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed (the extra `service`)")

import selectroute as sr
from selectroute.queues.settings import QueueSettings
from selectroute.queues.sql.queue import SqlQueue, SqlQueues
from selectroute.store.errors import InvalidUrlError
from tests.support.queue_calls import id_of, reason_of

_spawn = multiprocessing.get_context("spawn")


def test_an_unknown_queue_is_2085(url):
    SqlQueue.create(url, "A").close()
    for name in ("B", "a", "", "A' OR '1'='1", None):
        assert reason_of(SqlQueue, url, name) == 2085


def test_a_queue_prints_as_its_database_and_name(tmp_path):
    url = f"sqlite:///{tmp_path}/queues.db"
    with SqlQueue.create(url, "ORDERS") as queue:
        assert repr(queue) == f"SqlQueue('{url}', 'ORDERS')"


def test_a_database_is_made_when_asked_for_only(tmp_path):
    url = f"sqlite:///{tmp_path}/queues.db"
    with pytest.raises(InvalidUrlError, match="there is no database"):
        SqlQueue(url, "A")
    assert list(tmp_path.iterdir()) == []


def test_a_name_is_given_once_and_is_one_of_ibm_mq(url):
    SqlQueue.create(url, "A.b/c_1%").close()
    assert reason_of(SqlQueue.create, url, "A.b/c_1%") == 2100
    for name in ("", "x" * 49, "a b", "a'b", "ä", None, 7, ".", "..", "a/..", "../a", "a/./b"):
        assert reason_of(SqlQueue.create, url, name) == 2152
    SqlQueue.create(url, "A").close()
    with SqlQueues(url) as queues:
        assert queues.names() == ["A", "A.b/c_1%"]


def test_queues_of_a_database_do_not_see_each_others_messages(url):
    with SqlQueue.create(url, "A") as one, SqlQueue.create(url, "B") as other:
        one.put(b"a", correl_id=id_of("c"), properties={"k": 1})
        assert reason_of(other.get, correl_id=id_of("c")) == 2033
        assert reason_of(other.browse, selector="k = 1") == 2033
        assert (one.depth, other.depth) == (1, 0)


# fmt: off
SETTINGS = {
    "order": "fifo", "default_priority": 7, "default_persistence": True, "max_depth": 2,
    "max_message_length": 10, "dialect": "jms",
}
VALUES = {
    "n": None, "text": "ä\0'\U0001f600", "bytes": b"\0\xff", "yes": True, "byte": sr.Byte(1),
    "short": sr.Short(2), "int": sr.Int(3), "long": sr.Long(2**63 - 1), "float": sr.Float(0.5),
    "nan": sr.Double(float("nan")), "infinite": sr.Double(float("-inf")), "double": sr.Double(-0.0),
}
# fmt: on


def test_messages_and_settings_outlive_the_process(url, clock):
    with SqlQueue.create(url, "A", QueueSettings(**SETTINGS), clock=clock) as queue:
        made = queue.put(b"\0\xff", properties={**VALUES, "JMSType": "car"})
    with SqlQueue(url, "A", clock=clock) as queue:
        assert queue.name == "A"
        assert {name: getattr(queue.settings, name) for name in SETTINGS} == SETTINGS
        message = queue.get()
        assert (message.descriptor, message.body) == (made, b"\0\xff")
        coerced = sr.Message({"JMSType": "car"}, VALUES)
        names = (VALUES.keys() | {"JMSType"}) - {"n"}
        assert message.properties == {name: coerced.value(name) for name in names}
        assert queue.put().msg_id != made.msg_id


def test_a_message_that_is_waited_for_may_be_put_by_another_opening(url):
    with SqlQueue.create(url, "A") as queue, SqlQueue(url, "A") as other:
        threading.Timer(0.2, other.put, (b"late",)).start()
        assert queue.get(wait=60).body == b"late"
        unit = other.unit()
        other.put(b"in unit", syncpoint=unit)
        threading.Timer(0.2, unit.commit).start()
        assert queue.browse(selector="JMSPriority = 4", wait=60).body == b"in unit"


def test_who_was_woken_in_vain_waits_on_and_others_are_woken(url):
    """One message wakes one call; if that finds another one, the message wakes the next."""
    with SqlQueue.create(url, "A") as queue, ThreadPoolExecutor(8) as pool:
        gets = [pool.submit(queue.get, wait=60) for _ in range(8)]
        for number in range(8):
            queue.put(str(number).encode(), priority=number)
        assert sorted(get.result().body for get in gets) == [str(number).encode() for number in range(8)]


def die_in_unit(url, ready):
    queue = SqlQueue(url, "A")
    unit = queue.unit()
    queue.put(b"never", syncpoint=unit)
    assert queue.get(syncpoint=unit).body == b"a"
    ready.set()
    time.sleep(600)


@pytest.mark.slow
def test_the_death_of_a_process_backs_its_units_out_at_once(url):
    with SqlQueue.create(url, "A") as queue:
        queue.put(b"a")
        ready = _spawn.Event()
        process = _spawn.Process(target=die_in_unit, args=(url, ready), daemon=True)
        process.start()
        assert ready.wait(60)
        assert reason_of(queue.get) == 2033
        assert queue.depth == 0
        process.kill()
        process.join()
        message = queue.get(wait=60)
        assert (message.body, message.descriptor.backout_count) == (b"a", 1)
        assert queue.depth == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_fork_does_not_keep_the_units_of_its_parent_alive(tmp_path):
    url = f"sqlite:///{tmp_path}/queues.db"
    with SqlQueue.create(url, "A") as watching:
        watching.put(b"a")
        queue = SqlQueue(url, "A")
        unit = queue.unit()
        queue.get(syncpoint=unit)
        child = os.fork()
        if child == 0:
            time.sleep(600)
            os._exit(0)
        try:
            queue._store._owner._let_go()  # what the system does when the parent dies
            # The child closes what it inherited as soon as it runs: until then the owner seems alive.
            assert watching.get(wait=60).descriptor.backout_count == 1
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        assert reason_of(unit.commit) == 2003
        queue.close()


def test_a_unit_that_was_taken_for_dead_is_not_committed_and_the_next_one_is(url):
    with SqlQueue.create(url, "A") as queue, SqlQueue(url, "A") as other:
        queue.put(b"a")
        queue.put(b"b")
        unit, later = queue.unit(), queue.unit()
        queue.get(syncpoint=unit)
        queue.get(syncpoint=later)
        queue._store._owner._let_go()  # as when the connection to the server breaks
        assert other.get(wait=60).body == b"a"
        assert reason_of(unit.commit) == 2003
        assert reason_of(unit.commit) == 2232
        assert reason_of(queue.get, syncpoint=later) == 2003
        with queue.unit() as unit:
            message = queue.get(syncpoint=unit)
        assert (message.body, message.descriptor.backout_count) == (b"b", 1)
        assert other.depth == 0


def test_close_backs_units_out_and_leaves_no_file(tmp_path):
    url = f"sqlite:///{tmp_path}/queues.db"
    queue = SqlQueue.create(url, "A")
    queue.put(b"a")
    unit = queue.unit()
    queue.get(syncpoint=unit)
    assert list(tmp_path.glob("*.owner-*"))
    queue.close()
    assert not list(tmp_path.glob("*.owner-*"))
    with SqlQueue(url, "A") as queue:
        assert queue.get().descriptor.backout_count == 1


def test_a_file_of_somebody_who_died_just_when_he_came_is_swept(tmp_path):
    url = f"sqlite:///{tmp_path}/queues.db"
    queue = SqlQueue.create(url, "A")
    (tmp_path / "queues.db.owner-00000000000000ff").touch()
    (tmp_path / "queues.db.owner-what").touch()
    queue.put(b"a")
    unit = queue.unit()
    queue.get(syncpoint=unit)
    with SqlQueue(url, "A"):
        pass
    assert len(list(tmp_path.glob("*.owner-*"))) == 2, "those of the living stay, and what is none"
    unit.commit()
    queue.close()


def test_what_expired_is_dropped_from_the_database(tmp_path, clock):
    with SqlQueue.create(f"sqlite:///{tmp_path}/queues.db", "A", clock=clock) as queue:
        for _ in range(3):
            queue.put(expiry=1)
        clock.now += 1
        assert reason_of(queue.get) == 2033
    with sqlite3.connect(tmp_path / "queues.db") as connection:
        assert connection.execute("SELECT count(*) FROM queue_message").fetchone() == (0,)
    connection.close()
