"""``selectroute stream run`` on a registry: changes while it runs, and from where they hold."""

import threading
import time
from collections import Counter, defaultdict

import pytest

pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed (the extra `service`)")

import selectroute as sr
from selectroute.index.specification import SubscriptionSpec
from selectroute.registry.model import EffectiveFrom
from selectroute.registry.publisher import RegistryPublisher
from selectroute.spark import Job, JobError, start_fanout
from selectroute.spark.batch.router import Router
from selectroute.spark.stream.reports import BatchReporter
from tests.spark.registry_log import Run, delivered
from tests.spark.stream.test_application import ran

RED = {"properties": {"color": "red"}}
RED_SPEC = SubscriptionSpec("color = 'red'")


@pytest.fixture
def url(world):
    return f"sqlite:///{world.root}/registry.db"


@pytest.fixture
def registry(url):
    with sr.Registry.open(url) as opened:
        yield opened


@pytest.fixture
def published(registry):
    """The registry's publisher; what is published is published when it is told to."""
    with RegistryPublisher(registry) as publisher:
        yield publisher


def until(done):
    deadline = time.monotonic() + 600
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.spark
def test_a_change_holds_from_the_batch_that_the_registry_names(spark, world, registry, published):
    added = registry.register(RED_SPEC, id="red").revision
    published.catch_up()
    stop = threading.Event()
    following = threading.Thread(target=published.follow, args=(stop,))
    following.start()
    job = Job.of(world.input, registry.snapshots_folder, world.output)
    reports, warnings = [], []
    world.drop_json("0.jsonl", RED)
    fan = start_fanout(spark, job, on_batch=reports.append, registry=registry, on_warning=warnings.append)

    def drop(name):
        there = len([one for one in reports if one.batch >= 0])
        world.drop_json(name, RED)
        until(lambda: len([one for one in reports if one.batch >= 0]) > there)

    def publish(revision):
        until(lambda: published.snapshot.revision == revision)
        return revision

    try:
        until(lambda: reports)
        changed = publish(registry.register(SubscriptionSpec("color LIKE 'r%'"), id="r").revision)
        drop("1.jsonl")
        paused = publish(registry.pause("red").revision)
        drop("2.jsonl")
        answer = registry.resume("red", from_="last-processed")
        resumed = answer.subscription.revision
        until(lambda: any(one.batch == -1 for one in reports))
        drop("3.jsonl")
        until(lambda: registry.streams.effective_from(resumed))
    finally:
        fan.stop()
        fan.wait()
        stop.set()
        following.join()
    query = fan.query.id
    assert [(one.query, one.can_replay, one.reason) for one in answer.backfill] == [(query, True, None)]
    effective = [registry.streams.effective_from(revision) for revision in (added, changed, paused, resumed)]
    assert effective == [[EffectiveFrom(query, batch)] for batch in range(4)]
    assert not warnings
    (stream,) = registry.streams.all()
    told = {one["batch"]: one for one in registry.streams.reports(query).batches}
    assert stream.query == query
    state = {"name": "out", "waiting": {"queue": 0, "kafka": 0}, "behind": None}
    assert stream.state == {**state, "ended": "stopped"} and stream.status == "stopped"
    assert sorted(told) == [-1, 0, 1, 2, 3] and told[-1]["kind"] == "backfill"
    assert [told[batch]["revision"] for batch in range(4)] == [added, changed, paused, resumed]
    assert [told[batch]["deliveries"] for batch in (1, 2, -1)] == [2, 1, 1]
    assert told[0]["seconds"]["match"] > 0
    of_batches = defaultdict(Counter)
    for (batch, _, _, id, _), number in delivered(world).items():
        of_batches[batch][id] += number
    assert {batch: one["busiest"] for batch, one in told.items() if one["busiest"]} == of_batches
    last = {
        one.id: (one.query, one.batch, one.deliveries)
        for one in registry.streams.activities(["red", "r", "x"])
    }
    assert last == {"red": (query, 3, 1), "r": (query, 3, 1)}
    mine = {
        (batch, source[0], revision) for batch, source, _, id, revision in delivered(world) if id == "red"
    }
    assert mine == {(-1, "2", resumed), (0, "0", added), (1, "1", changed), (3, "3", resumed)}
    assert set(delivered(world).values()) == {1}


@pytest.mark.spark
@pytest.mark.slow
def test_a_stream_says_whether_it_ended_or_failed(spark, world, registry, published, monkeypatch):
    registry.register(RED_SPEC, id="red")
    published.catch_up()
    job = Job.of(world.input, registry.snapshots_folder, world.output)
    world.drop_json("0.jsonl", RED)
    start_fanout(spark, job, available_now=True, registry=registry).wait()
    (stream,) = registry.streams.all()
    assert (stream.status, stream.newest["batch"]) == ("ended", 0)

    def fails(*_):
        raise JobError("it fails")

    world.drop_json("1.jsonl", RED)
    with monkeypatch.context() as patch:
        patch.setattr(Router, "route", fails)
        with pytest.raises(JobError, match="it fails"):
            start_fanout(spark, job, available_now=True, registry=registry).wait()
    assert [one.status for one in registry.streams.all()] == ["failed"]
    start_fanout(spark, job, available_now=True, registry=registry).wait()
    assert [one.status for one in registry.streams.all()] == ["ended"]


@pytest.mark.parametrize("over_http", [False, True])
def test_a_database_and_a_service_are_followed_alike(world, registry, published, over_http):
    from selectroute.client.registry import RemoteRegistry
    from tests.support.servers.serving import served

    registry.register(RED_SPEC, id="red")
    published.catch_up()
    with served(registry) as url, RemoteRegistry(url) as remote:
        run = Run(world, remote if over_http else registry, snapshots=registry.snapshots_folder)
        run.route(0, RED)
        paused = registry.pause("red").revision
        published.catch_up()
        run.route(1, RED)
        registry.resume("red", from_="last-processed")
        registry.import_(f'{{"id": "s{number}", "selector": "a = {number}"}}' for number in range(1_500))
        published.catch_up()
        (report,) = run.backfill()
        run.effective_from.report(run.log.streams, "q")
        reporter = BatchReporter(lambda: {"waiting": {"queue": 1}, "behind": 3})
        reporter.note(report)
        reporter.send(run.log.streams, "q")
        (stream,) = registry.streams.all()
        assert (stream.newest["batch"], stream.state["behind"]) == (-1, 3)
        assert (report.batch, report.revision) == (-1, registry.revision)
        got = {place[:4] for place in delivered(world)}
        assert got == {(0, "0.jsonl", 0, "red"), (-1, "1.jsonl", 0, "red")}
        assert registry.streams.effective_from(paused) == [EffectiveFrom("q", 1)]
        assert registry.pause("red") and registry.resume("red", from_="last-processed").backfill[0].can_replay


def test_a_registry_that_cannot_be_followed_is_one_sentence(world, url):
    def said(url, code, *more):
        done = ran("--input", world.input, "--output", world.output, "--registry", url, *more)
        assert done.returncode == code and not world.output.exists()
        return done.stderr

    missing = said(url, 3, "--available-now")
    assert missing.startswith("selectroute: ") and len(missing.splitlines()) == 1
    sr.Registry.open(url).close()
    unpublished = said(url, 3, "--available-now")
    assert "no snapshot is published in" in unpublished and "selectroute serve" in unpublished
    assert len(unpublished.splitlines()) == 1
    assert "--snapshots is needed" in said("http://127.0.0.1:1", 2), "a service does not say where they are"
