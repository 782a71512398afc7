"""A job with all folders in remote storage: queues, backfill, replay, rerun, and commands that look at it."""

import json
from collections import Counter

import pytest

pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed (the extra `service`)")
pytest.importorskip("deltalake", reason="deltalake is not installed (the extra `delta`)")

from sqlalchemy import update

import selectroute as sr
from selectroute.cli import main
from selectroute.index.specification import Destination, SubscriptionSpec
from selectroute.queues.sql.tables import metadata, queue
from selectroute.registry.model import EffectiveFrom
from selectroute.registry.publisher import RegistryPublisher
from selectroute.spark import JobError, rerun, start_fanout
from selectroute.store.engine import Store
from tests.spark.queue_world import Queues, delivery_ids, numbered
from tests.spark.remote.places import places_of
from tests.support.servers.s3 import SECRET

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.nightly)])
def queues(request, world, tmp_path):
    if request.param == "sqlite":
        return Queues(world, f"sqlite:///{tmp_path}/queues.db")
    return Queues(world, request.getfixturevalue("postgres")().replace("postgres:@", f"postgres:{SECRET}@"))


class Commands:
    """Runs commands in this process, and keeps all that they said."""

    def __init__(self, monkeypatch, capsys):
        self._patch, self._capture = monkeypatch, capsys
        self.said = ""

    def __call__(self, *arguments, code=0):
        self._patch.setattr("sys.argv", ["selectroute", *map(str, arguments), "-o", "ndjson"])
        with pytest.raises(SystemExit) as ended:
            main()
        captured = self._capture.readouterr()
        self.said += captured.out + captured.err
        assert ended.value.code == code, self.said
        return [json.loads(line) for line in captured.out.splitlines()]


@pytest.mark.parametrize("world", ["s3", pytest.param("hdfs", marks=pytest.mark.nightly)], indirect=True)
def test_what_a_job_does_besides_tables_it_does_in_remote_storage(
    spark, world, queues, tmp_path, monkeypatch, capsys
):
    command = Commands(monkeypatch, capsys)
    queues.create("A", max_depth=3)
    job = world.job(queues=queues.url, destination_wait=0.0, max_files=2)
    warnings, runs = [], []
    with (
        sr.Registry.open(f"sqlite:///{tmp_path}/registry.db") as registry,
        RegistryPublisher(registry, world.snapshots) as publisher,
    ):

        def changed(change):
            publisher.catch_up()
            return change

        def run():
            runs.append([])
            options = {"registry": registry, "on_batch": runs[-1].append, "on_warning": warnings.append}
            start_fanout(spark, job, available_now=True, **options).wait()
            return [(one.kind, one.batch, one.counts.queued, one.counts.refused) for one in runs[-1]]

        def register(id, selector, name):
            spec = SubscriptionSpec(selector, destination=Destination("queue", name))
            return changed(registry.register(spec, id=id).revision)

        added = [register("a", "n >= 0", "A"), register("gone", "n = 1", "GONE")]
        world.drop_json("0.jsonl", *numbered(5), {"properties": {"m": 1}}, "{")
        # A queue that is full, one that is missing, a message for nobody, and a line that is no message.
        assert run() == [("stream", 0, 3, 3)]
        assert queues.ids("A") == delivery_ids("0.jsonl", "a", range(3))
        said = " ".join(warnings)
        assert "queue:GONE" in said and f"`selectroute dead-letter replay {job.output} --reason" in said
        assert "the queue A is full" in said
        counts = command("dead-letter", "list", job.output, "--count")
        assert {(one["reason"], one["count"]) for one in counts} == {
            ("destination-full", 2),
            ("unknown-queue", 1),
            ("not-json", 1),
        }

        # A subscription that is paused, and gets what it missed.
        paused = changed(registry.pause("gone").revision)
        world.drop_json("1.jsonl", *numbered(2))
        assert run() == [("stream", 1, 2, 0)]
        queues.create("GONE")
        resumed = changed(registry.resume("gone", from_="last-processed").subscription.revision)
        world.drop_json("2.jsonl", *numbered(1))
        assert sorted(run()) == [("backfill", -1, 1, 0), ("stream", 2, 1, 0)]
        assert queues.ids("GONE") == {"1.jsonl/0/1/gone": 1}
        assert queues.ids("A") == delivery_ids("1.jsonl", "a", range(2)) + delivery_ids("2.jsonl", "a", [0])
        query = runs[-1] and world.output / "_job.json"
        query = query.read_json()["query"]
        effective = [registry.streams.effective_from(one) for one in (added[1], paused, resumed)]
        assert effective == [[EffectiveFrom(query, batch)] for batch in range(3)]

        # A repair, and the dead letters of the first batch once more.
        store = Store(queues.url, metadata)
        with store.writing() as connection:
            connection.execute(update(queue).values(max_depth=None))
        store.close()
        (asked,) = command("dead-letter", "replay", job.output, "--stage", "deliver")
        assert asked["letters"] == 3
        assert run() == [("replay", -2, 3, 0)]
        assert queues.ids("A") == delivery_ids("0.jsonl", "a", [3, 4])
        assert queues.ids("GONE") == {"0.jsonl/0/1/gone": 1}
        command("dead-letter", "replay", job.output, "--stage", "deliver", code=1)

    # What commands find, and what is the same when it is routed again.
    (status,) = command("stream", "status", job.output, "--top", 2)
    assert (status["running"], status["batches"], status["backfills"], status["replays"]) == (False, 3, 1, 1)
    assert (status["planned"], status["changed"], status["published"]) == ([], [], resumed)
    assert status["top"] == [
        {"subscription": "a", "deliveries": 8},
        {"subscription": "gone", "deliveries": 2},
    ]
    (audit,) = command("stream", "audit", job.output, "--recount")
    assert (audit["findings"], audit["pending"], audit["recounted"]) == ([], [], 3)
    # Two of the messages for nobody are those that the full queue refused.
    assert audit["counts"]["unrouted"] == 3 and audit["replayed"]["deliveries"] == 3
    of_gone = command("stream", "deliveries", job.output, "--subscription", "gone")
    assert Counter((one["source"], json.loads(one["message"])["body"]) for one in of_gone) == {
        ("0.jsonl", "body 1"): 1,
        ("1.jsonl", "body 1"): 1,
    }
    again = rerun(spark, job, world.root / "again")
    assert [(one.batch, one.verdict) for one in again] == [
        (0, "same rows"),
        (1, "same files"),
        (2, "same files"),
    ]
    lines = (world.root / "again" / "accounting.jsonl").read().decode().splitlines()
    assert [json.loads(line)["batch"] for line in lines] == [0, 1, 2]
    assert not queues.get_all("A"), "nothing is put by a rerun"

    (world.input / "0.jsonl").put(b"another")
    (audit,) = command("stream", "audit", job.output, code=1)
    (finding,) = audit["findings"]
    assert "0.jsonl was changed after batch 0 had read it" in finding["sentence"]
    with pytest.raises(JobError, match=r"unknown-queue|delivered to queues") as error:
        start_fanout(spark, world.job(missing_destinations="fail"), available_now=True)

    assert SECRET not in f"{command.said} {warnings} {error.value} {job!r}"
    assert places_of(SECRET.encode(), world.root) == []
