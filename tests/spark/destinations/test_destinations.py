"""Destinations that are full or missing: they cost their own deliveries only, and nobody else a thing."""

import os
import time
from collections import Counter

import pytest

pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed (the extra `service`)")

from sqlalchemy import update

from selectroute.queues.sql.deliveries import QueueDeliveries, TaskKey
from selectroute.queues.sql.tables import metadata, queue
from selectroute.spark import start_fanout
from selectroute.spark.audit.audit import audit
from selectroute.spark.destinations.destination import Waiting
from selectroute.spark.job import JobError
from selectroute.storage import Location
from selectroute.store.engine import Store
from tests.spark.queue_world import CHUNK, PUTS, A, B, Queues, delivery_ids, numbered
from tests.spark.replay.test_replay import ask, begin, replay
from tests.spark.storages import ON_EVERY_STORAGE, ON_HDFS_TOO
from tests.support.crashes import DISK, killed, kills
from tests.support.world import World

WAIT = 0.1


def letters(world):
    """The id of each delivery that is a dead letter."""
    found = Counter()
    for row in world.rows("dead-letters"):
        assert row["stage"] == "deliver" and row["subscription"] is not None
        found[f"{row['source']}/{row['partition']}/{row['offset']}/{row['subscription']}"] += 1
    return found


def audited(world):
    """What an audit finds, but that the folder was filled without a stream."""
    return [one.sentence for one in audit(world.output).findings if "has no plan of it" not in one.sentence]


class Pause:
    """Waits a little, and counts how often."""

    def __init__(self):
        self.times = 0

    def __call__(self):
        self.times += 1
        time.sleep(0.01)
        return False


@pytest.fixture
def one_full(queues):
    """Queue A, which holds three messages, and B, both of which get every message."""
    begin(queues.world)
    queues.create("A", max_depth=3)
    queues.create("B")
    queues.publish(1, a=("", A), b=("", B))
    return queues


@ON_EVERY_STORAGE
def test_a_full_queue_costs_its_own_deliveries_only_and_the_stream_its_wait_once(one_full):
    queues, pause = one_full, Pause()
    router = queues.router(pause, wait=WAIT)
    paths = [queues.world.drop_json(f"{batch}.jsonl", *numbered(10)) for batch in range(4)]
    started = time.monotonic()
    report = router.route(0, paths[:1], "q")
    assert time.monotonic() - started >= WAIT
    assert (report.counts.queued, report.counts.refused, report.counts.deliveries) == (13, 7, 13)
    assert queues.ids("B") == delivery_ids("0.jsonl", "b", range(10))
    assert letters(queues.world) == delivery_ids("0.jsonl", "a", range(3, 10))
    assert {row["reason"] for row in queues.world.rows("dead-letters")} == {"destination-full"}
    assert router._queues.waiting.count == 1 and router._queues.waiting.tripped == {"A"}
    waited = pause.times
    assert waited > 0

    # From then on it is tried without a wait, until it takes all of a batch.
    router.route(1, paths[1:2], "q")
    assert queues.ids("A") == delivery_ids("0.jsonl", "a", range(3))
    assert router.route(2, paths[2:3], "q").counts.refused == 7
    assert queues.ids("A") == delivery_ids("2.jsonl", "a", range(3))
    assert pause.times == waited
    assert len(queues.warnings) == 2 and all(
        "the queue A is full: it holds 3" in one for one in queues.warnings
    )
    queues.publish(2, a=("n < 2", A), b=("", B))
    assert router.route(3, paths[3:], "q").counts.refused == 0
    assert queues.warnings[2:] == ["the queue A accepts messages again"]
    assert router._queues.waiting.count == 0
    assert queues.ids("B") == sum((delivery_ids(f"{n}.jsonl", "b", range(10)) for n in (1, 2, 3)), Counter())
    assert audited(queues.world) == []


@ON_HDFS_TOO
def test_what_a_full_queue_did_not_take_is_replayed_once_when_there_is_room(one_full):
    queues = one_full
    path = queues.world.drop_json("0.jsonl", *numbered(5))
    queues.router(wait=0).route(0, [path], "q")
    got = queues.ids("A")
    assert sum(got.values()) == 3 and queues.ids("B") == delivery_ids("0.jsonl", "b", range(5))
    ask(queues.world, reasons=("destination-full",))
    (report,) = replay(queues.router(wait=0))
    assert (report.counts.queued, report.counts.refused) == (2, 0)
    assert got + queues.ids("A") == delivery_ids("0.jsonl", "a", range(5))
    assert not queues.get_all("B")
    ask(queues.world, reasons=("destination-full",))
    assert replay(queues.router(wait=0)) == []
    assert audited(queues.world) == []


@ON_EVERY_STORAGE
@pytest.mark.parametrize("at", [1, 2, 3, None])
def test_a_replay_of_messages_and_deliveries_that_crashes_puts_each_once(sqlite, monkeypatch, at):
    begin(sqlite.world)
    sqlite.create("A", max_depth=2)
    sqlite.publish(1, a=("n >= 0 OR m > 2", A))
    rows = numbered(6)
    mended = '{"properties": {"m": 3}}'
    rows[1] = rows[4] = bad = "x" * len(mended)
    path = sqlite.world.drop_json("0.jsonl", *rows)
    sqlite.router(wait=0, tasks=1).route(0, [path], "q")
    got = sqlite.ids("A")
    assert sum(got.values()) == 2
    dead = Counter(row["offset"] for row in sqlite.world.rows("dead-letters"))
    assert dead == Counter([1, 3, 4, 5])
    # With its size and its time, the file counts as the one that was read.
    file = Location.of(path)
    before = file.entry()
    file.put(file.read().replace(bad.encode(), mended.encode()))
    if file.is_local:
        os.utime(file.path, (before.modified, before.modified))
    store = Store(sqlite.url, metadata)
    with store.writing() as connection:
        connection.execute(update(queue).values(max_depth=None))
    store.close()
    ask(sqlite.world)
    monkeypatch.setattr(CHUNK, 1)
    if at is not None:
        with killed(at, PUTS):
            replay(sqlite.router(wait=0, tasks=1))
        got += sqlite.ids("A")
    replay(sqlite.router(wait=0, tasks=1))
    assert got + sqlite.ids("A") == delivery_ids("0.jsonl", "a", range(6))


@ON_EVERY_STORAGE
def test_a_consumer_that_takes_in_time_gets_everything_in_order(sqlite, monkeypatch):
    monkeypatch.setattr(CHUNK, 4)
    sqlite.create("A", max_depth=3)
    sqlite.create("B", max_depth=2)
    sqlite.publish(1, a=("", A), b=("", B))
    got = {"A": [], "B": []}

    def pause():
        for name, taken in got.items():
            taken += [one.properties["selectroute_delivery_id"] for one in sqlite.get_all(name)]
        return False

    report = sqlite.router(pause, tasks=1).route(0, [sqlite.world.drop_json("a.jsonl", *numbered(30))], "q")
    pause()
    assert (report.counts.queued, report.counts.refused) == (60, 0)
    for name, subscription in (("A", "a"), ("B", "b")):
        assert got[name] == [f"a.jsonl/0/{row}/{subscription}" for row in range(30)]


@pytest.mark.slow
@pytest.mark.parametrize("after", [pytest.param(False, marks=pytest.mark.nightly), True])
def test_a_crash_at_any_step_of_a_batch_for_a_full_queue_loses_and_doubles_nothing(
    tmp_path_factory, monkeypatch, after
):
    monkeypatch.setattr(CHUNK, 2)
    decided = 0
    for at, kill in kills(after, [*DISK, *PUTS]):
        root = tmp_path_factory.mktemp("crash")
        queues = Queues(World(root), f"sqlite:///{root}/queues.db")
        queues.world.input.mkdir()
        begin(queues.world)
        queues.create("A", max_depth=2)
        queues.create("B")
        queues.publish(1, a=("", A), b=("n > 1", B))
        paths = [queues.world.drop_json("a.jsonl", *numbered(5))]
        router = queues.router(wait=0, tasks=1)
        with kill:
            router.route(0, paths, "q")
            router.commits.finish()
        known = QueueDeliveries(queues.url)
        plans = known.begun("q", 0)
        full = dict(known.progress(TaskKey("q", 0, 0, *plans)).full) if plans else {}
        known.close()
        decided += bool(full) and kill.killed
        taken = queues.ids("A")
        again = queues.router(wait=0, tasks=1)
        again.route(0, paths, "q")
        taken += queues.ids("A")
        dead = letters(queues.world)
        assert taken + dead == delivery_ids("a.jsonl", "a", range(5)), at
        if full:  # what was decided before the crash is what is dead, though there was room again
            assert dead == delivery_ids("a.jsonl", "a", range(full["A"] >> 32, 5)), at
        assert queues.ids("B") == delivery_ids("a.jsonl", "b", range(2, 5)), at
        (line,) = queues.world.accounting()
        assert (line["queued"], line["refused"]) == (8 - sum(dead.values()), sum(dead.values())), at
        assert audited(queues.world) == [], at
        assert list((queues.world.output / "_staging").iterdir()) == [], at
        ask(queues.world)
        replayed = replay(queues.router(wait=0, tasks=1))
        assert bool(replayed) == bool(dead), at
        assert (taken + queues.ids("A"))["a.jsonl/0/4/a"] == (1 if sum(dead.values()) <= 2 else 0), at
    assert decided > 0


@ON_EVERY_STORAGE
def test_what_is_missing_is_named_once_and_its_deliveries_are_dead_letters(sqlite):
    world = begin(sqlite.world)
    sqlite.create("A")
    gone = {"kind": "queue", "name": "GONE"}
    sqlite.publish(1, a=("", A), b=("", B), also=("n = 1", B), c=("n = 2", gone), f=("n = 3", None))
    router = sqlite.router()
    router.look()
    assert "1 subscription delivers to queue:GONE" in " ".join(sqlite.warnings)
    (of_b,) = [one for one in sqlite.warnings if "queue:B" in one]
    assert of_b.startswith("2 subscriptions deliver to queue:B: there is no such queue")
    assert f"`selectroute dead-letter replay {world.output} --reason unknown-queue`" in of_b
    assert len({*sqlite.warnings}) == len(sqlite.warnings) == 2
    report = router.route(0, [world.drop_json("0.jsonl", *numbered(4))], "q")
    assert (report.counts.queued, report.counts.refused) == (4, 6)
    assert len(sqlite.warnings) == 2, "each is named once"
    assert sqlite.ids("A") == delivery_ids("0.jsonl", "a", range(4))
    missed = delivery_ids("0.jsonl", "b", range(4)) + Counter(["0.jsonl/0/1/also", "0.jsonl/0/2/c"])
    assert letters(world) == missed
    letter = next(row for row in world.rows("dead-letters") if row["subscription"] == "b")
    assert letter["reason"] == "unknown-queue" and "there is no queue B" in letter["message"]
    assert ("0.jsonl", 3, "f", 1) in world.deliveries(), "without a destination"

    sqlite.create("B")
    ask(world, reasons=("unknown-queue",))
    (replayed,) = replay(router)
    assert (replayed.counts.queued, replayed.counts.refused) == (5, 1)
    assert sqlite.ids("B") == missed - Counter(["0.jsonl/0/2/c"])
    assert audited(world) == []


def test_very_many_that_are_missing_are_not_all_named(sqlite):
    sqlite.create("A")
    named = {f"s{n}": ("", {"kind": "queue", "name": f"Q{n}"}) for n in range(40)}
    sqlite.publish(1, a=("", A), **named)
    sqlite.router().look()
    assert len(sqlite.warnings) == 6 and "to 35 more destinations" in sqlite.warnings[-1]


@pytest.mark.slow
@pytest.mark.spark
def test_a_job_starts_though_it_has_neither_queues_nor_kafka_that_subscriptions_name(spark, sqlite):
    world = sqlite.world
    sqlite.publish(1, a=("", A), k=("n = 1", {"kind": "kafka", "name": "t"}), plain=("n = 2", None))
    world.drop_json("0.jsonl", *numbered(3))
    with pytest.raises(JobError, match="--queues"):
        start_fanout(spark, world.job(missing_destinations="fail"), available_now=True)
    warnings, reports = [], []
    told = {"on_batch": reports.append, "on_warning": warnings.append}
    start_fanout(spark, world.job(), available_now=True, **told).wait()
    assert [(one.counts.deliveries, one.counts.refused) for one in reports] == [(1, 4)]
    reasons = Counter(row["reason"] for row in world.rows("dead-letters"))
    assert reasons == {"unknown-queue": 3, "unknown-topic": 1}
    assert len(warnings) == 2
    assert any("queue:A" in one and "--queues" in one for one in warnings)
    assert any("kafka:t" in one and "--kafka-servers" in one for one in warnings)
    assert audit(world.output).findings == []


def test_waiting_costs_the_stream_a_tenth_of_its_time_at_most_whatever_a_destination_does():
    now, said = [0.0], []
    waiting = Waiting("the queue", 30, said.append, lambda: now[0])
    assert waiting.left("A") == 30
    waiting.begin("A", "the queue A is full")
    now[0] = 30
    waiting.waited(["A"], 30)
    assert waiting.left("A") == 0 and waiting.left("B") == 30
    waiting.trip("A", "the queue A is full")
    waiting.trip("A", "the queue A is full")
    now[0] = 130
    assert waiting.left("A") == 0, "what is tripped is not waited for"
    waiting.took("A")
    assert waiting.left("A") == pytest.approx(10), "of a hundred seconds it has a tenth"
    now[0] = 10_000
    assert waiting.left("A") == 30
    waiting.took("A")
    assert len(said) == 3 and "for at most 30 s" in said[0]
