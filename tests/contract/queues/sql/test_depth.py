"""The depth of a queue in a database: counted by triggers, whatever is done with its messages."""

from __future__ import annotations

import random
from contextlib import closing

import pytest

pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed (the extra `service`)")

from sqlalchemy import func, select

from selectroute.queues.errors import MQError
from selectroute.queues.settings import QueueSettings
from selectroute.queues.sql import units
from selectroute.queues.sql.queue import SqlQueue, SqlQueues
from selectroute.queues.sql.statements import ANY_EXPIRED, DEPTH, EXPIRE, HELD
from selectroute.queues.sql.tables import held, message, metadata, queue
from selectroute.store.engine import Store
from tests.support.queue_calls import created


def recount(url):
    """Compare the counts of each queue with its messages."""
    held_sums = [func.coalesce(func.sum(column), 0) for column in (held.c.messages, held.c.in_units)]
    with closing(Store(url, metadata)) as store, store.reading() as connection:
        for (id,) in connection.execute(select(queue.c.id)):
            rows = select(func.count(), func.count(message.c.owner)).where(message.c.queue == id)
            sums = select(*held_sums).where(held.c.queue == id)
            assert tuple(connection.execute(sums).one()) == tuple(connection.execute(rows).one())


def rows_of_counts(url):
    with closing(Store(url, metadata)) as store, store.reading() as connection:
        return connection.execute(select(func.count()).select_from(held)).scalar_one()


class Doings:
    """Random calls on two queues, and the depths that they should have."""

    def __init__(self, queues, clock, seed):
        self.chance = random.Random(seed)
        self.queues = {name: created(queues, name, QueueSettings(max_depth=40)) for name in "AB"}
        self.depths = dict.fromkeys(self.queues, 0)
        self.units = []
        self.clock = clock

    def put(self, name, **options):
        return self._tried(self.queues[name].put, 2053, body=b"x", **options)

    def get(self, name, **options):
        return self._tried(self.queues[name].get, 2033, **options)

    def _tried(self, call, reason, **options):
        try:
            call(**options)
        except MQError as error:
            assert error.reason == reason
            return 0
        return 1

    def expire(self, name):
        self.put(name, expiry=10)
        self.clock.now += 1.001

    def enter_unit(self, name):
        unit = self.queues[name].unit()
        puts = sum(self.put(name, syncpoint=unit) for _ in range(2))
        gets = self.get(name, syncpoint=unit)
        self.depths[name] -= gets
        self.units.append((name, unit, puts, gets))

    def end_unit(self):
        name, unit, puts, gets = self.units.pop(self.chance.randrange(len(self.units)))
        if self.chance.random() < 0.5:
            unit.commit()
            self.depths[name] += puts
        else:
            unit.backout()
            self.depths[name] += gets

    def do_one(self):
        name = self.chance.choice("AB")
        match self.chance.randrange(9):
            case 0 | 1 | 2:
                self.depths[name] += self.put(name)
            case 3:
                self.expire(name)
            case 4:
                self.depths[name] -= self.get(name)
            case 5:
                self.enter_unit(name)
            case 6 if self.units:
                self.end_unit()
            case 7:
                other = "B" if name == "A" else "A"
                moved = self.queues[name].move(other).done
                self.depths[name] -= moved
                self.depths[other] += moved
            case _ if self.chance.random() < 0.2:
                self.depths[name] -= self.queues[name].purge().done
        assert {name: one.depth for name, one in self.queues.items()} == self.depths


@pytest.mark.parametrize("seed", range(3))
def test_it_is_right_whatever_is_done(url, clock, seed):
    with SqlQueues(url, clock=clock) as queues:
        doings = Doings(queues, clock, seed)
        for _ in range(120):
            doings.do_one()
        recount(url)
    recount(url)  # the units that were left are backed out


def test_rows_of_counts_become_one(url, clock, monkeypatch):
    monkeypatch.setattr(units, "_MOST_ROWS", 4)
    monkeypatch.setattr(units, "_CLEAN_UP_SECONDS", 0.0)
    with SqlQueue.create(url, "A", clock=clock) as one:
        for _ in range(40):
            one.put(b"x")
        one.get()
        assert rows_of_counts(url) <= 8
        assert one.depth == 39
    recount(url)


def test_it_reads_no_message_that_has_not_expired(tmp_path, clock):
    url = f"sqlite:///{tmp_path}/queues.db"
    SqlQueue.create(url, "A", clock=clock).close()
    with closing(Store(url, metadata)) as store, store.reading() as connection:
        for statement in (DEPTH, HELD, ANY_EXPIRED, EXPIRE):
            compiled = statement.compile(store.engine, compile_kwargs={"render_postcompile": True})
            plan = connection.exec_driver_sql(
                f"EXPLAIN QUERY PLAN {compiled}", tuple(1 for _ in compiled.positiontup or ())
            ).all()
            steps = [step[3] for step in plan if "queue_message" in step[3]]
            assert all("queue_message_expiration" in step for step in steps), steps


def test_a_deleted_queue_leaves_no_counts(url, clock):
    with SqlQueues(url, clock=clock) as queues:
        created(queues, "A").put(b"x")
        queues.delete("A", purge=True)
    assert rows_of_counts(url) == 0
