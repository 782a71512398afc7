"""The broker dies, or a task stands still, in the middle of a transaction: nothing is lost or twice.

The tasks run in this process, one after another, so that a test can stop them at a step.
"""

import errno
import json
import os
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from pyspark.serializers import CloudPickleSerializer

from selectroute.kafka import tokens
from selectroute.kafka.errors import BrokerUnreachableError, KafkaClientError
from selectroute.kafka.transactions import Transactions
from selectroute.spark import JavaError
from selectroute.spark.audit.audit import audit
from selectroute.spark.cluster import KafkaCluster
from selectroute.spark.sources import open_source
from selectroute.spark.sources.kafka import reader as records
from selectroute.spark.stream.fan_out import StreamError
from selectroute.spark.task import task
from selectroute.storage import Location
from selectroute.testing.broker import Broker, BrokerError
from selectroute.testing.jars import JarError
from tests.crash.programs.failing import NAMES, WRITES, Shim, compiled
from tests.spark.kafka_world import Pipe, answer_within, cars
from tests.support.components import KAFKA, after_first, missing

pytestmark = [pytest.mark.spark, *KAFKA]


NIGHTLY = pytest.mark.nightly
SECRET = "hunter2-of-all"
USERS = [f"user{number}" for number in range(10)]


@pytest.fixture(scope="module")
def own_broker():
    """A broker that is killed and stopped. It looks often for transactions that are open for too long."""
    pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed (the extra `kafka`)")
    with tempfile.TemporaryDirectory(prefix="selectroute-outages-", ignore_cleanup_errors=True) as folder:
        shim = compiled(Path(tempfile.mkdtemp(dir=folder)))
        users = " ".join(f'user_{user}="{SECRET}"' for user in USERS)
        try:
            broker = Broker(
                Path(tempfile.mkdtemp(dir=folder)),
                {
                    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 300,
                    "transaction.state.log.num.partitions": 4,
                    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                    "super.users": "User:ANONYMOUS",
                    "listener.name.sasl_plaintext.sasl.enabled.mechanisms": "PLAIN",
                    "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
                        f"org.apache.kafka.common.security.plain.PlainLoginModule required {users};"
                    ),
                },
                secure=["SASL_PLAINTEXT"],
                environment=None if isinstance(shim, str) else {**os.environ, **shim[0]},
            )
            broker.start()
        except (BrokerError, JarError, JavaError) as error:
            missing(f"Kafka cannot be had here: {error}")
        broker.disk = (
            shim if isinstance(shim, str) else Shim(shim[1], "full", errno.ENOSPC, WRITES | NAMES, True)
        )
        yield broker
        broker.stop()


@pytest.fixture
def own(spark, own_broker, world, request):
    """A job on this broker, with a topic of three partitions to read."""
    name = "in-" + "".join(c if c.isalnum() else "-" for c in request.node.name)[-60:]
    own_broker.create(name, 3)
    return Pipe(spark, own_broker, world, name)


@pytest.fixture
def in_process(monkeypatch):
    """Run the tasks in this process, as they would run on a worker."""

    def run(work, numbers):
        return [json.loads(json.dumps({"task": number, **work(number)})) for number in numbers]

    monkeypatch.setattr(open_source, "runner_of", lambda spark: run)
    yield
    task.disconnect()


def once(monkeypatch, name, action, *, before=False):
    """Do something at the first call of a method of a task's transactions, before it or after it."""
    real, calls = getattr(Transactions, name), []

    def patched(self, *given, **named):
        is_first = not calls and not self.transactional_id.endswith("-check")
        if is_first:
            calls.append(name)
        if is_first and before:
            action()
        done = real(self, *given, **named)
        if is_first and not before:
            action()
        return done

    monkeypatch.setattr(Transactions, name, patched)


def once_each(pipe, topic, count):
    """Assert that a reader of committed records finds each delivery once."""
    for found in (pipe.sent(topic), pipe.delivered()):
        assert len(found) == count and set(found.values()) == {1}, found
    assert audit(pipe.world.output).findings == []


@pytest.mark.parametrize(
    "end, step",
    after_first(
        NIGHTLY,
        (Broker.kill, "produce"),
        (Broker.kill, "commit"),
        (Broker.stop, "begin"),
        (Broker.stop, "produce"),
    ),
)
def test_a_broker_that_ends_in_the_middle_of_a_batch_and_comes_back(own, in_process, monkeypatch, step, end):
    comes_back(own, monkeypatch, step, end)


@NIGHTLY
@pytest.mark.parametrize("step", ["begin", "produce", "commit"])
def test_a_broker_whose_disk_is_full_in_the_middle_of_a_batch_and_gets_room(
    own, in_process, monkeypatch, step
):
    disk = own.broker.disk
    if isinstance(disk, str):
        missing(disk)

    def full(broker):
        disk.arm(1, broker.folder / "log", 0)

    comes_back(own, monkeypatch, step, full)
    assert disk.fired


def comes_back(own, monkeypatch, step, end):
    """Let something end the broker after a step of a batch, and start it again."""
    answer_within(monkeypatch, 2.0)
    out = own.to_topic(60)
    back = threading.Event()

    def up():
        while own.broker.is_alive():  # one whose disk is full ends at its next write
            time.sleep(0.1)
        time.sleep(1)
        if not isinstance(own.broker.disk, str):
            own.broker.disk.clear()
        own.broker.start()
        back.set()

    def down():
        end(own.broker)
        threading.Thread(target=up).start()

    once(monkeypatch, step, down)
    warnings = []
    (report,) = own.run(min_partitions=3, on_warning=warnings.append)
    assert back.wait(60)
    assert report.counts.sent == 60
    once_each(own, out, 60)
    assert len(warnings) == 1 and "the stream waits" in warnings[0], warnings


@NIGHTLY
def test_a_task_that_stood_still_for_longer_than_its_transaction_runs_again(own, in_process, monkeypatch):
    out = own.to_topic(60)

    once(monkeypatch, "commit", lambda: time.sleep(3), before=True)
    warnings = []
    cluster = KafkaCluster(own.broker.address, {"kafka.transaction.timeout.ms": "1000"})
    (report,) = own.run(cluster=cluster, on_warning=warnings.append)
    assert report.counts.sent == 60
    once_each(own, out, 60)
    (warning,) = warnings
    assert "open for more than 1 s: the stream waits" in warning


@pytest.mark.parametrize(
    "owner, step",
    after_first(
        NIGHTLY,
        (Transactions, "produce"),
        (Transactions, "flush"),
        (tokens, "tokens_of"),  # nothing was sent before
        (tokens, "write_token"),
    ),
)
def test_an_attempt_that_wakes_up_after_another_has_committed_commits_nothing(own, monkeypatch, owner, step):
    out = own.to_topic(60)
    opened, late = {}, {}
    stopped, wake = threading.Event(), threading.Event()

    def connected(cluster, *, to_write=False):
        key = threading.get_ident(), to_write
        if key not in opened:
            opened[key] = cluster.wire()
        return opened[key]

    monkeypatch.setattr(task, "connected", connected)
    monkeypatch.setattr(records, "connected", connected)
    real = getattr(owner, step)

    def stopping(*given, **named):
        done = real(*given, **named)
        if threading.current_thread().name == "first" and not stopped.is_set():
            stopped.set()
            assert wake.wait(60)
        return done

    monkeypatch.setattr(owner, step, stopping)

    def run(work, numbers):
        def first():
            late.update(work(0))

        thread = threading.Thread(target=first, name="first")
        thread.start()
        assert stopped.wait(60)
        reports = [json.loads(json.dumps({"task": number, **work(number)})) for number in numbers]
        wake.set()
        thread.join(60)
        return reports

    monkeypatch.setattr(open_source, "runner_of", lambda spark: run)
    (report,) = own.run()
    for one in opened.values():
        one.close()
    assert report.counts.sent == 60
    assert late["fenced"] and "another producer with the transactional id" in late["waits"]
    once_each(own, out, 60)
    assert len(own.broker.records(out, "read_uncommitted")) <= 120


def token_topic(pipe):
    """Return the name of the topic of the job's commit tokens."""
    return Location.of(pipe.world.output / "_job.json").read_json()["tokens"]


@pytest.mark.parametrize("again", after_first(NIGHTLY, True, False))
def test_a_topic_of_tokens_that_is_deleted_in_the_middle_of_a_batch_ends_the_job(
    own, in_process, monkeypatch, again
):
    answer_within(monkeypatch, 3.0)
    out = own.to_topic(6)
    own.run()
    own.broker.produce(own.name, cars(54, first=6))
    real = Transactions.commit

    def lost(self):  # what is committed is not known to the task, and its token is gone
        real(self)
        if not lost.done:
            lost.done = True
            topic = token_topic(own)
            own.broker.delete(topic)
            if again:
                own.broker.create(topic, tokens.PARTITIONS, cleanup_policy="compact")
            raise BrokerUnreachableError("Kafka does not answer")

    lost.done = False
    monkeypatch.setattr(Transactions, "commit", lost)
    with pytest.raises((StreamError, KafkaClientError), match="-tokens") as error:
        own.run(min_partitions=1)
    assert "\n" not in str(error.value) and "commit tokens" in str(error.value)
    ids = own.sent(out)
    assert set(ids.values()) == {1}


@NIGHTLY
@pytest.mark.parametrize("batches", [0, 1], ids=["first batch", "later batch"])
def test_a_topic_of_tokens_that_was_created_again_while_a_job_was_down_is_refused(own, in_process, batches):
    out = own.broker.create(own.name + "-out", 2)
    own.publish(1, all=("weight >= 0", out))
    for number in range(batches):
        own.broker.produce(own.name, cars(6, first=6 * number))
        own.run()
    own.broker.produce(own.name, cars(6, first=6 * batches))

    own.run_killed()
    count = len(own.broker.records(out))
    assert count == 6 * (batches + 1)
    topic = token_topic(own)
    own.broker.delete(topic)
    own.broker.create(topic, tokens.PARTITIONS, cleanup_policy="compact")
    said = {"fail": "was created again", "read": "is gone, so it is not known"}
    for policy, sentence in said.items():
        with pytest.raises(KafkaClientError, match=sentence) as error:
            own.run(cluster=KafkaCluster(own.broker.address, recreated=policy))
        assert "\n" not in str(error.value) and topic in str(error.value)
    assert len(own.broker.records(out)) == count


def allow(broker, user, *rights):
    """Give a user rights: each is the kind of a resource, its name, and an operation."""
    from confluent_kafka.admin import (
        AclBinding,
        AclOperation,
        AclPermissionType,
        AdminClient,
        ResourcePatternType,
        ResourceType,
    )

    to, allowed = (ResourcePatternType.PREFIXED, f"User:{user}", "*"), AclPermissionType.ALLOW
    bindings = [
        AclBinding(ResourceType[kind], name, *to, AclOperation[operation], allowed)
        for kind, name, operation in rights
    ]
    admin = AdminClient({"bootstrap.servers": broker.address})
    for answer in admin.create_acls(bindings).values():
        answer.result(60)
    time.sleep(0.3)  # until the broker applies them


def cluster_of(broker, user):
    return KafkaCluster(
        broker.secure["SASL_PLAINTEXT"],
        {
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.username": user,
            "kafka.sasl.password": SECRET,
        },
    )


def rights(pipe, out):
    """What a job needs."""
    return {
        "input": ("TOPIC", pipe.name, "READ"),
        "transactions": ("TRANSACTIONAL_ID", "selectroute-", "WRITE"),
        "create": ("TOPIC", "selectroute-", "CREATE"),
        "read": ("TOPIC", "selectroute-", "READ"),
        "write": ("TOPIC", "selectroute-", "WRITE"),
        "out": ("TOPIC", out, "WRITE"),
    }


@pytest.mark.parametrize(
    "user, lacking, instead, said",
    after_first(
        NIGHTLY,
        ("user3", "create", None, r"needs the rights? Create.* on the topic selectroute-\S+-tokens"),
        ("user0", "input", None, r"needs the right Read on the topic in-"),
        ("user1", "input", "DESCRIBE", r"needs the right Read on the topic in-"),
        ("user2", "transactions", None, r"needs the right Write on the transactional ids that begin with"),
        ("user4", "read", None, r"needs the right Read on the topic selectroute-\S+-tokens"),
        ("user5", "write", None, r"needs the right Write on the topic selectroute-\S+-tokens"),
    ),
)
def test_a_right_that_is_missing_is_named_before_the_stream_starts(
    own, in_process, monkeypatch, user, lacking, instead, said
):
    answer_within(monkeypatch, 5.0)
    out = own.to_topic(6, "sent-" + own.name)
    given = rights(own, out)
    kind, name, _ = given.pop(lacking)
    allow(own.broker, user, *given.values(), *([(kind, name, instead)] if instead else []))
    with pytest.raises(KafkaClientError, match=said) as error:
        own.run(cluster=cluster_of(own.broker, user))
    assert "\n" not in str(error.value)
    assert not own.broker.records(out) and not own.world.rows("deliveries")


def test_nothing_that_spark_gets_or_the_job_writes_has_a_password(own, monkeypatch):
    """Spark's ports were open to all users of the machine, and what is pickled is there in blocks."""
    pickled = []
    real = CloudPickleSerializer.dumps
    monkeypatch.setattr(
        CloudPickleSerializer, "dumps", lambda *given: pickled.append(real(*given)) or pickled[-1]
    )
    out = own.to_topic(6, "sent-" + own.name)
    allow(own.broker, "user8", *rights(own, out).values())
    (report,) = own.run(cluster=cluster_of(own.broker, "user8"))
    assert report.counts.deliveries == 6 and len(own.broker.records(out)) == 6
    assert any(own.broker.secure["SASL_PLAINTEXT"].encode() in one for one in pickled)
    assert not [one for one in pickled if SECRET.encode() in one]
    assert SECRET not in str(own.spark.sparkContext.getConf().getAll())
    written = [path for path in own.world.output.parent.rglob("*") if path.is_file()]
    assert written and not [path for path in written if SECRET.encode() in path.read_bytes()]


@NIGHTLY
def test_a_topic_that_this_client_may_not_write_to_costs_its_own_deliveries_only(own, in_process):
    out, closed = (own.broker.create(f"{one}-{own.name}", 2) for one in ("sent", "closed"))
    own.publish(1, all=("weight >= 0", out), closed=("", closed))
    own.broker.produce(own.name, cars(6))
    allow(own.broker, "user6", *rights(own, out).values(), ("TOPIC", closed, "DESCRIBE"))
    warnings = []
    (report,) = own.run(
        cluster=cluster_of(own.broker, "user6"), destination_wait=0.0, on_warning=warnings.append
    )
    assert (report.counts.sent, report.counts.refused) == (6, 6)
    reasons = Counter((row["reason"], row["subscription"]) for row in own.world.rows("dead-letters"))
    assert reasons == {("destination-refused", "closed"): 6}
    assert len(own.broker.records(out)) == 6 and not own.broker.records(closed)
    (warning,) = warnings
    assert closed in warning and "TOPIC_AUTHORIZATION_FAILED" in warning


@NIGHTLY
def test_a_cluster_that_can_coordinate_no_transactions_is_one_sentence_before_the_stream_starts(
    spark, world, monkeypatch
):
    answer_within(monkeypatch, 3.0)
    with tempfile.TemporaryDirectory(prefix="selectroute-outages-", ignore_cleanup_errors=True) as folder:
        broker = Broker(Path(folder), {"transaction.state.log.replication.factor": 3})
        broker.start()
        try:
            pipe = Pipe(spark, broker, world, broker.create("in", 3))
            pipe.publish(1, all=("weight >= 0", broker.create("out")))
            with pytest.raises(KafkaClientError, match=r"log\.replication\.factor are needed") as error:
                pipe.run()
            assert "\n" not in str(error.value) and "has no coordinator" in str(error.value)
        finally:
            broker.stop()
