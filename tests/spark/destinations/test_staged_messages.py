"""What an earlier release had staged for queues is put by this one, once it starts."""

from __future__ import annotations

import hashlib
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed (the extra `service`)")

from selectroute.durable import disk
from selectroute.durable.disk import DamagedFileError
from selectroute.queues.message.from_stream import Routed
from selectroute.queues.sql.deliveries import QueueDeliveries, TaskKey
from selectroute.queues.sql.task_puts import TaskPuts
from selectroute.spark import JobError
from selectroute.spark.batch.commits import Commits
from selectroute.spark.destinations.queue_messages import QueueMessages
from selectroute.spark.job.job import CommitError
from selectroute.spark.senders.sender import StoppingError
from selectroute.spark.senders.staged_messages import _Staged
from tests.spark.published import DELIVERY_LIST
from tests.spark.queue_world import A, Queues, delivery_ids, numbered


def staged(queues, *bodies):
    """Leave an output folder as the release before did when it ended after the commit of batch 0."""
    sender = queues.sender()
    commits = Commits(queues.world.output)
    commits.prepare()
    staging = commits.stage(0)
    folder = staging.path / "outgoing-queue"
    folder.mkdir()
    path = folder / "part-00000-0123abcd.parquet"
    nothing = Routed(None, None, None, 1, None, None, None, 0, "{}", b"")
    messages = [nothing._replace(body=body) for body in bodies]
    of_each = list(zip(*messages, strict=True))
    table = pa.table(
        {
            "source": pa.array(["a.jsonl"] * len(bodies)).dictionary_encode(),
            "partition": pa.array([0] * len(bodies), pa.int32()),
            "offset": pa.array(range(len(bodies)), pa.int64()),
            **{field.name: pa.array(of_each[n], field.type) for n, field in enumerate(QueueMessages.columns)},
            "deliveries": pa.array(
                [[{"destination": "A", "subscription": "all", "partition": None}]] * len(bodies),
                DELIVERY_LIST,
            ),
            "first": pa.array(range(len(bodies)), pa.int64()),
        }
    )
    pq.write_table(table, path, row_group_size=2)
    file = {
        "path": f"outgoing-queue/{path.name}",
        "rows": len(bodies),
        "size": path.stat().st_size,
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
    }
    counts = {"messages": len(bodies), "routed": len(bodies), "unrouted": 0, "dead_lettered": 0}
    counts |= {"deliveries": len(bodies), "queued": len(bodies)}
    commits.commit(
        {
            "batch": 0,
            "revision": 1,
            "digest": "0" * 64,
            "staging": staging.name,
            "inputs": {"count": 1, "sha256": "0" * 64},
            "counts": counts,
            "files": [],
            "committed": "2026-01-01T00:00:00+00:00",
            "outgoing": {"queue": {"job": "q", "queues": sender.name, "puts": len(bodies), "files": [file]}},
        }
    )
    sender.close()
    return path


def put_before(queues, path, count):
    """Put the first of the staged deliveries, as the release before would have."""
    outgoing = json.loads((queues.world.output / "_commits" / "0.json").read_bytes())["outgoing"]["queue"]
    database = QueueDeliveries(queues.url)
    deliveries = list(_Staged(outgoing, path.parent.parent, 1).numbered())
    TaskPuts(database, TaskKey("q", 0)).put(deliveries[:count])
    database.close()


@pytest.mark.parametrize("before", [0, 2, 5])
def test_staged_messages_are_put_from_where_the_release_before_ended(queues, before):
    queues.create("A")
    queues.publish(1, all=("", A))
    path = staged(queues, *(b"body %d" % n for n in range(5)))
    put_before(queues, path, before)
    assert len(queues.get_all("A")) == before
    router = queues.router()
    assert queues.ids("A") == delivery_ids("a.jsonl", "all", range(before, 5))
    (line,) = queues.world.accounting()
    assert (line["queued"], line["refused"]) == (5, 0)
    assert not list((queues.world.output / "_staging").iterdir())
    # The next batch is of this release.
    router.route(1, [queues.world.drop_json("b.jsonl", *numbered(3))], "q")
    assert queues.ids("A") == delivery_ids("b.jsonl", "all", range(3))
    queues.router()
    assert not queues.get_all("A")


def test_staged_messages_for_a_full_queue_wait_and_then_are_late_dead_letters(sqlite):
    sqlite.create("A", max_depth=3)
    staged(sqlite, *(b"body %d" % n for n in range(5)))
    with pytest.raises(StoppingError, match="the queue A is full"):
        sqlite.router()
    assert not sqlite.world.accounting()
    sqlite.router(wait=0)
    assert sqlite.ids("A") == delivery_ids("a.jsonl", "all", range(3))
    for _ in range(2):
        (line,) = sqlite.world.accounting()
        assert (line["queued"], line["refused"]) == (3, 2)
        assert [(row["offset"], row["reason"]) for row in sqlite.world.rows("dead-letters")] == [
            (3, "destination-full"),
            (4, "destination-full"),
        ]
        sqlite.router()
    assert not sqlite.get_all("A")


def test_another_database_of_queues_does_not_get_what_is_staged(sqlite):
    sqlite.create("A")
    staged(sqlite, b"body")
    other = Queues(sqlite.world, f"sqlite:///{sqlite.world.root}/other.db")
    other.create("A")
    with pytest.raises(JobError, match=r"is committed for the queues in .*queues\.db"):
        other.router()
    with pytest.raises(CommitError, match="--queues"):
        sqlite.world.router()
    assert not other.get_all("A")


def test_damaged_staged_messages_are_not_put(sqlite):
    sqlite.create("A")
    path = staged(sqlite, b"body")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(DamagedFileError, match="was committed with another SHA-256"):
        sqlite.router()
    assert not sqlite.get_all("A") and disk.read_json(sqlite.world.output / "_commits" / "0.json")
