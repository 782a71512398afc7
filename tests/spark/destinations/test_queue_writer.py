"""Deliveries to queues: each put exactly once, whatever crashes, repeats, is got or goes away meanwhile."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest

pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed (the extra `service`)")

from sqlalchemy import delete, update

from selectroute.queues.sql.deliveries import QueueDeliveries, TaskKey
from selectroute.queues.sql.tables import message, metadata, queue
from selectroute.spark import JobError, check, start_fanout
from selectroute.spark.audit.audit import audit
from selectroute.spark.batch.pins import begun_batches
from selectroute.spark.batch.router import Router
from selectroute.spark.destinations.destination import StoppingError
from selectroute.spark.job import CommitError
from selectroute.spark.sources.files.source import SplitReader
from selectroute.spark.task import task
from selectroute.storage import Location
from selectroute.store.engine import Store
from selectroute.store.errors import OvertakenError, StoreError, UnavailableError
from tests.crash.programs.streams.stream_faults import TOPIC, Topics
from tests.spark.queue_world import CHUNK, PUTS, A, B, Queues, delivery_ids, numbered
from tests.spark.registry_log import Log, Run
from tests.spark.storages import ON_EVERY_STORAGE, ON_HDFS_TOO
from tests.support.crashes import DISK, killed, kills
from tests.support.world import Files, World

WAITS = (
    "the queue A is full: it holds {}: its deliveries wait, and so does the stream, without a limit; all "
    "others are made"
)


@ON_EVERY_STORAGE
def test_a_repeated_batch_puts_nothing_again_though_a_consumer_took_it(queues):
    queues.create("A")
    queues.publish(1, all=("", A))
    path = queues.world.drop_json("a.jsonl", *numbered(5))
    queues.router().route(0, [path], "q")
    assert queues.ids("A") == delivery_ids("a.jsonl", "all", range(5))
    assert queues.router().route(0, [path], "q").skipped
    assert not queues.get_all("A")


@dataclass
class _Delivering:
    """A world whose routers deliver to queues."""

    queues: Queues

    def __getattr__(self, name: str) -> Any:
        return getattr(self.queues.world, name)

    def router(self, tasks: int = 2, **options: Any) -> Router:
        return self.queues.router(tasks=tasks, **options)


class _Log(Log):
    """A log whose subscriptions are all delivered to queue A."""

    def publish(self) -> int:
        live = {id: (text, A) for id, text in self.selectors.items() if id not in self.paused}
        self.world.queues.publish(self.revision, **live)
        return self.revision


@ON_EVERY_STORAGE
@pytest.mark.parametrize("crashes", [False, True])
def test_a_backfill_is_delivered_to_queues_once(sqlite, monkeypatch, crashes):
    monkeypatch.setattr(CHUNK, 2)
    sqlite.create("A")
    log = _Log(_Delivering(sqlite))
    log.add("some", "n > 0")
    run = Run(log.world, log)
    run.route(0, *numbered(2))
    log.pause("some")
    run.route(1, *numbered(4))
    log.resume("some")
    run.route(2, *numbered(2))
    if crashes:
        with killed(1, PUTS):  # one chunk of the backfill's two
            run.backfill()
        assert len(sqlite.ids("A")) == 4
        Run(log.world, log).backfill()
        assert sqlite.ids("A") == {"1.jsonl/0/3/some": 1}
    else:
        (report,) = run.backfill()
        assert (report.batch, report.counts.queued) == (-1, 3)
        got = sqlite.ids("A")
        assert got == Counter(
            {f"{place}/some": 1 for place in ("0.jsonl/0/1", "2.jsonl/0/1")}
        ) + delivery_ids("1.jsonl", "some", [1, 2, 3])
    assert Run(log.world, log).backfill() == [] and not sqlite.get_all("A")
    assert [line["queued"] for line in sqlite.world.accounting()] == [1, 0, 1, 3]


def test_two_jobs_deliver_to_one_queue_each_its_own(sqlite):
    sqlite.create("A")
    sqlite.publish(1, all=("", A))
    path = sqlite.world.drop_json("a.jsonl", *numbered(2))
    sqlite.router().route(0, [path], "one")
    other = Queues(World(sqlite.world.root / "other"), sqlite.url)
    other.world.input.mkdir(parents=True)
    other.publish(1, all=("", A))
    other.router().route(0, [other.world.drop_json("a.jsonl", *numbered(2))], "two")
    assert sqlite.ids("A") == Counter({"a.jsonl/0/0/all": 2, "a.jsonl/0/1/all": 2})


@pytest.mark.slow
@pytest.mark.parametrize("after", [pytest.param(False, marks=pytest.mark.nightly), True])
def test_a_crash_at_any_step_puts_each_delivery_once_while_consumers_take(
    tmp_path_factory, monkeypatch, after
):
    monkeypatch.setattr(CHUNK, 2)
    in_part = 0
    for at, kill in kills(after, [*DISK, *PUTS]):
        root = tmp_path_factory.mktemp("crash")
        queues = Queues(World(root), f"sqlite:///{root}/queues.db")
        queues.world.input.mkdir()
        queues.create("A", "B")
        queues.publish(1, a=("", A), b=("n > 1", B), twice=("n < 2", A))
        paths = [queues.world.drop_json(f"{name}.jsonl", *numbered(3)) for name in "ab"]
        router = queues.router()
        with kill:
            router.route(0, paths, "q")
            router.commits.finish()
        taken = {name: queues.ids(name) for name in "AB"}
        in_part += 0 < len(taken["A"]) < 10
        queues.publish(2, a=("", A), b=("n > 1", B), twice=("n < 2", A))
        again = queues.router()
        again.route(0, paths, "q")
        for name in taken:
            taken[name] += queues.ids(name)
        expected = Counter()
        for source in ("a.jsonl", "b.jsonl"):
            expected += delivery_ids(source, "a", range(3)) + delivery_ids(source, "twice", range(2))
        assert taken["A"] == expected, at
        assert taken["B"] == Counter({"a.jsonl/0/2/b": 1, "b.jsonl/0/2/b": 1}), at
        assert queues.router().route(0, paths, "q").skipped
        assert not queues.get_all("A") and not queues.get_all("B"), at
        assert queues.world.accounting()[0]["queued"] == 12, at
        assert list((queues.world.output / "_staging").iterdir()) == [], at
    assert in_part > 0


@ON_EVERY_STORAGE
def test_a_full_queue_holds_the_batch_back_and_there_is_one_warning(queues):
    queues.create("A", max_depth=3)
    queues.create("B")
    queues.publish(1, a=("", A), b=("", B))
    taken: Counter[str] = Counter()

    def pause():
        got = queues.ids("A")
        assert sum(got.values()) == 3
        taken.update(got)
        return False

    report = queues.router(pause).route(0, [queues.world.drop_json("a.jsonl", *numbered(10))], "q")
    taken += queues.ids("A")
    assert taken == delivery_ids("a.jsonl", "a", range(10))
    assert queues.ids("B") == delivery_ids("a.jsonl", "b", range(10))
    assert report.counts.queued == 20
    assert queues.warnings == [WAITS.format(3), "the queue A accepts messages again"]


@ON_EVERY_STORAGE
def test_told_to_stop_while_a_queue_is_full_the_next_start_goes_on(sqlite):
    sqlite.create("A", max_depth=3)
    sqlite.publish(1, all=("", A))
    path = sqlite.world.drop_json("a.jsonl", *numbered(5))
    with pytest.raises(StoppingError, match="the queue A is full"):
        sqlite.router().route(0, [path], "q")
    assert not sqlite.world.deliveries(), "what is not handed on is not published"
    with pytest.raises(StoppingError):
        sqlite.router().route(0, [path], "q")
    taken = sqlite.ids("A")
    assert sqlite.router().route(0, [path], "q").counts.queued == 5
    assert taken + sqlite.ids("A") == delivery_ids("a.jsonl", "all", range(5))
    assert len(sqlite.world.deliveries()) == 5 and len(sqlite.world.accounting()) == 1


@ON_EVERY_STORAGE
def test_an_output_folder_older_than_the_queues_is_refused_before_anything_is_lost(sqlite):
    sqlite.create("A")
    sqlite.publish(1, all=("", A))
    path = sqlite.world.drop_json("a.jsonl", *numbered(3))
    router = sqlite.router()
    for batch in range(2):
        router.route(batch, [path], "q")
    for batch in (0, 1):
        Location.of(sqlite.world.output / "_commits" / f"{batch}.json").delete()
    other = sqlite.world.drop_json("b.jsonl", *numbered(4))
    for batch in (0, 1):
        with pytest.raises(JobError, match=rf"batch {batch} is not committed, but the queues in .* already"):
            sqlite.router().route(batch, [other], "q")
    assert sqlite.router().route(2, [other], "q").counts.queued == 4


@ON_EVERY_STORAGE
def test_tasks_have_a_progress_each_and_a_repeat_reads_their_plan(queues, monkeypatch):
    queues.create("A")
    queues.publish(1, all=("", A))
    paths = [queues.world.drop_json(f"{name}.jsonl", *numbered(4)) for name in "ab"]
    monkeypatch.setattr(CHUNK, 2)
    with killed(3, PUTS):
        queues.router().route(0, paths, "q")
    (digest,) = put_by(queues, "q", 0)
    plan = Location.of(queues.world.output / "pins" / "0.plan.json").read_json()
    assert plan["queues"] == {"A": 4_194_304} and plan["topics"] == {}
    database = QueueDeliveries(queues.url)
    assert [database.progress(TaskKey("q", 0, task, digest)).done for task in (0, 1)] == [4, 2]
    database.close()
    # Though the queue takes shorter messages only by now, which a new plan would refuse.
    store = Store(queues.url, metadata)
    with store.writing() as connection:
        connection.execute(update(queue).values(max_message_length=6))
    store.close()
    router = queues.router()
    router.source.tasks = 1
    assert router.route(0, paths, "q").counts.queued == 8
    assert queues.ids("A") == delivery_ids("a.jsonl", "all", range(4)) + delivery_ids(
        "b.jsonl", "all", range(4)
    )
    assert begun_batches(Location.of(queues.world.output / "pins")) == []


def put_by(queues, job, batch):
    database = QueueDeliveries(queues.url)
    try:
        return database.begun(job, batch)
    finally:
        database.close()


@ON_HDFS_TOO
def test_a_batch_that_was_put_in_part_is_put_by_its_plan_or_not_at_all(sqlite, monkeypatch):
    sqlite.create("A")
    sqlite.publish(1, all=("", A))
    path = sqlite.world.drop_json("a.jsonl", *numbered(4))
    monkeypatch.setattr(CHUNK, 2)
    with killed(1, PUTS):
        sqlite.router().route(0, [path], "q")
    before = Location.of(path).read()
    Location.of(path).put(before + b"{}\n")
    with pytest.raises(CommitError, match="its input has changed since: restore the files"):
        sqlite.router().route(0, [path], "q")
    Location.of(path).put(before)
    plan = Location.of(sqlite.world.output / "pins" / "0.plan.json")
    written = plan.read()
    plan.put_json((plan.read_json() or {}) | {"topics": {"other": [9, 1, False]}})
    with pytest.raises(JobError, match="the output folder is older than the queues"):
        sqlite.router().route(0, [path], "q")
    plan.delete()
    with pytest.raises(JobError, match="the output folder is older than the queues"):
        sqlite.router().route(0, [path], "q")
    plan.put(written)
    sqlite.router().route(0, [path], "q")
    assert sqlite.ids("A") == delivery_ids("a.jsonl", "all", range(4))


@ON_EVERY_STORAGE
@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OvertakenError("another process delivers batch 0"), "another process delivers batch 0"),
        (UnavailableError("the database cannot be reached"), "the database cannot be reached"),
    ],
)
def test_a_task_that_cannot_go_on_is_run_again(queues, monkeypatch, error, said):
    queues.create("A")
    queues.publish(1, all=("", A))
    monkeypatch.setattr("selectroute.queues.sql.deliveries._CHUNK", 2)
    real, calls = QueueDeliveries.put, 0

    def put(self, *given):
        nonlocal calls
        calls += 1
        if calls in (2, 3):
            raise error
        return real(self, *given)

    monkeypatch.setattr(QueueDeliveries, "put", put)
    report = queues.router(lambda: False, tasks=1).route(
        0, [queues.world.drop_json("a.jsonl", *numbered(5))], "q"
    )
    assert report.counts.queued == 5
    assert queues.ids("A") == delivery_ids("a.jsonl", "all", range(5))
    assert queues.warnings == [f"{said}: the stream waits"]


def test_a_job_that_another_process_runs_too_ends(sqlite, monkeypatch):
    sqlite.create("A")
    sqlite.publish(1, all=("", A))

    def put(self, *given):
        raise OvertakenError("another process delivers batch 0 of job q to queues")

    monkeypatch.setattr(QueueDeliveries, "put", put)
    with pytest.raises(JobError, match="another process seems to run this job"):
        sqlite.router(lambda: False).route(0, [sqlite.world.drop_json("a.jsonl", *numbered(5))], "q")


def test_the_input_of_a_task_that_only_waits_for_a_full_queue_is_not_read_again(sqlite, monkeypatch):
    sqlite.create("A", max_depth=3)
    sqlite.create("B")
    sqlite.publish(1, a=("", A), b=("", B))
    real, reads, waits = SplitReader.parts, 0, 0
    taken: Counter[str] = Counter()

    def parts(self):
        nonlocal reads
        reads += 1
        return real(self)

    def pause():
        nonlocal waits
        waits += 1
        if waits % 5 == 0:
            taken.update(sqlite.ids("A"))
        return False

    monkeypatch.setattr(SplitReader, "parts", parts)
    router = sqlite.router(pause, tasks=1)
    router.route(0, [sqlite.world.drop_json("a.jsonl", *numbered(8))], "q")
    assert taken + sqlite.ids("A") == delivery_ids("a.jsonl", "a", range(8))
    assert sqlite.ids("B") == delivery_ids("a.jsonl", "b", range(8))
    assert (waits, reads) == (10, 3)


def test_records_are_not_sent_again_while_only_a_full_queue_is_left(sqlite, monkeypatch):
    sqlite.create("A", max_depth=2)
    sqlite.publish(1, a=("", A), t=("", {"kind": "kafka", "name": TOPIC}))
    topics, held, taken = Topics(), [], Counter()

    def writer(target, _wire, task, names, ids, _revision, without):
        held.append(list(without))
        return topics.writer(target, None, task, names, ids)

    def pause():
        taken.update(sqlite.ids("A"))
        return False

    monkeypatch.setattr(task, "KafkaWriter", writer)
    monkeypatch.setattr(task, "connected", lambda *_, **__: None)
    job = sqlite.world.job()
    router = Router(job, Files(job, 1), sqlite.sender(pause), topics, pause=pause)
    router.commits.prepare()
    report = router.route(0, [sqlite.world.drop_json("a.jsonl", *numbered(5))], "q")
    assert (report.counts.queued, report.counts.sent) == (5, 5)
    assert taken + sqlite.ids("A") == delivery_ids("a.jsonl", "a", range(5))
    assert held == [[], [TOPIC], [TOPIC]]


@ON_EVERY_STORAGE
def test_a_batch_that_is_to_fail_is_judged_before_anything_is_put(sqlite):
    sqlite.create("A")
    sqlite.publish(1, some=("n > 0", A))
    path = sqlite.world.drop_json("a.jsonl", *numbered(3))
    with pytest.raises(CommitError, match="1 unrouted message, and the policy is to fail"):
        sqlite.router(unrouted="fail").route(0, [path], "q")
    assert not sqlite.get_all("A")


def audited(world):
    """What an audit of the output finds; the folder was filled without a stream, which it says, too."""
    record = Location.of(world.output / "_job.json")
    own = {"input": str(world.input), "checkpoint": str(world.job().checkpoint)}
    record.put_json((record.read_json() or {}) | own)
    return [one.sentence for one in audit(world.output).findings]


@ON_EVERY_STORAGE
def test_a_queue_that_goes_away_while_a_batch_is_put_leaves_dead_letters(queues, monkeypatch):
    queues.create("A", "B")
    queues.publish(3, a=("", A), b=("", B))
    path = queues.world.drop_json("a.jsonl", *numbered(6))
    monkeypatch.setattr("selectroute.queues.sql.deliveries._CHUNK", 4)
    real, calls = QueueDeliveries.put, 0

    def put(self, *given):
        nonlocal calls
        calls += 1
        if calls == 2:
            store = Store(queues.url, metadata)
            with store.writing() as connection:
                connection.execute(delete(message))
                connection.execute(delete(queue).where(queue.c.name == "A"))
            store.close()
        if calls == 3:
            queues.create("A")  # made anew: what is dead stays so
        return real(self, *given)

    monkeypatch.setattr(QueueDeliveries, "put", put)
    report = queues.router(tasks=1).route(0, [path], "q")
    assert (report.counts.queued, report.counts.refused) == (8, 4)
    assert not queues.get_all("A")
    assert queues.ids("B") == delivery_ids("a.jsonl", "b", range(2, 6))
    dead = queues.world.rows("dead-letters")
    assert [(row["offset"], row["subscription"], row["stage"], row["reason"]) for row in dead] == [
        (offset, "a", "deliver", "unknown-queue") for offset in range(2, 6)
    ]
    (only,) = audited(queues.world)
    assert "has no plan of it" in only
    for _ in range(2):
        (line,) = queues.world.accounting()
        assert (line["queued"], line["refused"]) == (8, 4)
        queues.router()  # which makes the accounting again
    assert queues.router().route(0, [path], "q").counts == report.counts


def test_a_start_that_is_to_fail_says_which_queues_are_not_there(sqlite):
    sqlite.publish(1, a=("", A), b=("", B), c=("", {"kind": "queue", "name": "C"}))
    strict = {"missing_destinations": "fail"}
    with pytest.raises(JobError, match=r"delivered to queues \(A, B, C\): name .*--queues"):
        check(sqlite.world.job(**strict))
    with pytest.raises(StoreError, match=r"there is no database .*; `selectroute queue create NAME"):
        check(sqlite.world.job(queues=sqlite.url))
    sqlite.create("A")
    with pytest.raises(JobError, match=r"not in sqlite:.*queues\.db: B, C; create them first"):
        check(sqlite.world.job(queues=sqlite.url, **strict))
    check(sqlite.world.job(queues=sqlite.url))
    check(sqlite.world.job())
    sqlite.create("B", "C")
    check(sqlite.world.job(queues=sqlite.url, **strict))
    assert not sqlite.world.output.exists()


@pytest.mark.slow
@pytest.mark.spark
def test_a_stream_that_a_full_queue_holds_back_can_be_stopped_and_goes_on_where_it_was(spark, sqlite):
    sqlite.create("A", max_depth=2)
    sqlite.publish(1, all=("", A))
    sqlite.world.drop_json("a.jsonl", *numbered(5))
    job = sqlite.world.job(queues=sqlite.url, destination_wait=float("inf"))
    full = threading.Event()

    def warned(sentence):
        sqlite.warnings.append(sentence)
        full.set()

    fan = start_fanout(spark, job, on_warning=warned)
    assert full.wait(timeout=300)
    fan.stop()
    fan.wait()
    assert not sqlite.world.deliveries()
    # Nobody took anything: the next start waits as well, and ends when it is told to.
    start_fanout(spark, job, on_warning=warned, should_stop=lambda: len(sqlite.warnings) == 2).wait()
    assert sqlite.warnings == [WAITS.format(2)] * 2
    taken, reports = Counter(), []
    fan = start_fanout(
        spark,
        job,
        available_now=True,
        on_batch=reports.append,
        should_stop=lambda: bool(taken.update(sqlite.ids("A"))),  # a consumer, asked while the job waits
    )
    fan.wait()
    assert [(report.skipped, report.counts.queued) for report in reports] == [(False, 5)]
    assert taken + sqlite.ids("A") == delivery_ids("a.jsonl", "all", range(5))
    assert len(sqlite.world.deliveries()) == 5
