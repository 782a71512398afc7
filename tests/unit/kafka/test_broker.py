"""The client on a real broker: ranges of offsets, transactions committed, aborted and fenced, and tokens."""

import numpy as np
import pyarrow as pa
import pytest

pytest.importorskip("kafka.net.manager", reason="kafka-python is not installed (the extra `kafka`)")

from kafka.errors import KafkaTimeoutError
from kafka.future import Future
from kafka.net.connection import KafkaConnection

from selectroute.kafka.batches.decode import HEADERS
from selectroute.kafka.batches.encode import encode
from selectroute.kafka.cluster import EARLIEST, LATEST, Wire
from selectroute.kafka.errors import BrokerUnreachableError, FencedError, LostRecordsError, RefusedError
from selectroute.kafka.reading import kept, read, records_at
from selectroute.kafka.record import Range
from selectroute.kafka.tokens import CommitToken, TokenTopicError, open_topic, scan, tokens_of, write_token
from selectroute.kafka.transactions import Transactions
from selectroute.spark.cluster import KafkaCluster
from tests.support.components import KAFKA

pytestmark = KAFKA


@pytest.fixture
def wire(kafka):
    with Wire(kafka.address, seconds=20) as one:
        yield one


@pytest.fixture
def topic(kafka, request):
    return kafka.create("client-" + "".join(c if c.isalnum() else "-" for c in request.node.name)[-80:], 2)


def send(transactions, topic, *values, partition=0):
    begin_to_send(transactions, topic, *values, partition=partition)
    transactions.flush()


def begin_to_send(transactions, topic, *values, partition=0):
    """Send records with these values."""
    place = (topic, partition)
    rows = pa.RecordBatch.from_arrays(
        [pa.array([b"k"] * len(values)), pa.array(values), pa.array([[]] * len(values), HEADERS)],
        names=["key", "value", "headers"],
    )
    own = {"sequences": transactions.sequences([place]), "producer": transactions.producer}
    batches = encode(rows, np.arange(len(values)), 1_000, **own)
    transactions.produce({place: [one.data for one in batches]}, {place: len(values)})


def begun(wire, name):
    transactions = Transactions(wire, name)
    transactions.begin()
    return transactions


def values(wire, topic, start=0, end=None, **options):
    end = wire.offsets([(topic, 0)], LATEST)[topic, 0] if end is None else end
    parts = read(wire, [Range(topic, 0, start, end)], **options)
    return [value for part in parts for value in part.records["value"].to_pylist()]


def test_what_there_is(wire, kafka, topic):
    assert topic in wire.topics() and len(wire.cluster_id()) > 10
    assert wire.partitions([topic, "no-such-topic"]) == {topic: 2}
    settings = wire.topic_settings([topic, "no-such-topic"], "max.message.bytes")
    assert int(settings[topic]["max.message.bytes"]) > 0 and len(settings) == 1
    assert wire.offsets([(topic, 0), (topic, 1)], EARLIEST) == {(topic, 0): 0, (topic, 1): 0}
    assert not wire.create(topic, 1, {})


def test_what_is_committed_is_read_and_what_is_aborted_is_not(wire, kafka, topic):
    transactions = begun(wire, f"{topic}-t")
    send(transactions, topic, b"one", b"two")
    transactions.commit()
    send(transactions, topic, b"gone")
    transactions.abort()
    send(transactions, topic, b"three")
    transactions.commit()
    assert values(wire, topic, committed=True) == [b"one", b"two", b"three"]
    assert values(wire, topic) == [b"one", b"two", b"gone", b"three"]
    assert [one.value() for one in kafka.records(topic)] == [b"one", b"two", b"three"]


def test_an_open_transaction_holds_back_the_stable_end_and_a_new_producer_aborts_it(wire, topic):
    first = begun(wire, f"{topic}-t")
    send(first, topic, b"open")
    place = (topic, 0)
    assert wire.offsets([place], LATEST)[place] == 1
    assert wire.offsets([place], LATEST, committed=True)[place] == 0
    second = begun(wire, f"{topic}-t")
    send(second, topic, b"mine")
    second.commit()
    with pytest.raises(FencedError, match="another producer with the transactional id"):
        send(first, topic, b"late")
        first.commit()
    assert values(wire, topic, committed=True) == [b"mine"]


def test_a_batch_that_is_sent_again_is_written_once(wire, topic):
    producer = begun(wire, f"{topic}-t")
    send(producer, topic, b"a", b"b")
    before = dict(producer._sequences)
    send(producer, topic, b"c")
    producer._sequences = before
    send(producer, topic, b"c")  # the same batch again, as after an answer that was lost
    producer.commit()
    assert values(wire, topic) == [b"a", b"b", b"c"]


def test_ranges_of_a_partition_are_read_one_after_the_other(wire, kafka, topic):
    kafka.produce(topic, [(n % 2, None, b"%d" % n, []) for n in range(20)])
    ranges = [Range(topic, 0, 6, 8), Range(topic, 0, 1, 3), Range(topic, 1, 9, 10)]
    found = [
        (part.partition, row["offset"], row["value"])
        for part in read(wire, ranges, most_bytes=1)
        for row in part.records.to_pylist()
    ]
    assert sorted(found) == [(0, n, b"%d" % (2 * n)) for n in (1, 2, 6, 7)] + [(1, 9, b"19")]
    assert [offset for partition, offset, _ in found if partition == 0] == [1, 2, 6, 7]


def test_records_that_kafka_dropped_are_an_error_unless_they_may_lack(wire, kafka, topic):
    kafka.produce(topic, [(0, None, b"%d" % n, []) for n in range(6)])
    kafka.drop(topic, 0, 4)
    with pytest.raises(LostRecordsError, match="its records begin at offset 4"):
        values(wire, topic, start=2)
    assert values(wire, topic, start=2, may_lack=True) == [b"4", b"5"]
    for epoch in (0, -1):  # without an epoch, other leaders are asked for as long as a call may take
        wire.seconds = 20 if epoch == 0 else 0.5
        with pytest.raises(LostRecordsError, match="which ends at offset 6"):
            list(read(wire, [Range(topic, 0, 50, 60, epoch=epoch)]))
    wire.seconds = 20
    asked = Range(topic, 0, 1, 9)
    gone = [Range(topic, 9, 0, 2), Range("no-such-topic", 0, 0, 2)]
    wanted = {asked: Range(topic, 0, 4, 6)} | {one: one._replace(start=2) for one in gone}
    assert kept(wire, [asked, *gone]) == wanted
    found = records_at(wire, [Range(topic, 0, n, n + 1) for n in (1, 5, 6)])
    assert {place.start: record.value for place, record in found.items()} == {5: b"5"}


def test_what_is_being_sent_is_part_of_the_transaction_that_ends(wire, kafka, topic):
    transactions = begun(wire, f"{topic}-t")
    begin_to_send(transactions, topic, b"gone")
    transactions.abort()
    begin_to_send(transactions, topic, b"one")
    begin_to_send(transactions, topic, b"two")
    transactions.commit()
    assert values(wire, topic, committed=True) == [b"one", b"two"]


def test_a_refusal_is_raised_by_the_next_call_and_names_the_topic(wire, kafka, topic):
    kafka.configure(topic, "max.message.bytes", "100")
    for follow in (Transactions.flush, Transactions.commit, lambda one: begin_to_send(one, topic, b"next")):
        transactions = begun(wire, f"{topic}-t")
        begin_to_send(transactions, topic, b"x" * 200)
        with pytest.raises(RefusedError, match="MESSAGE_SIZE_TOO_LARGE") as error:
            follow(transactions)
        assert error.value.topic == topic
        transactions.abort()
    assert values(wire, topic, committed=True) == []
    with pytest.raises(RefusedError, match="no-such-topic") as error:
        wire.offsets([("no-such-topic", 0)], LATEST)
    assert error.value.topic == "no-such-topic"


def test_a_long_answer_is_read_in_pieces_of_any_size(wire, kafka, topic):
    bodies = [bytes([65 + n]) * size for n, size in enumerate((1, 70_000, 65_535, 65_537, 300_000, 2))]
    kafka.produce(topic, [(0, None, body, []) for body in bodies])
    for most_bytes in (1, 1 << 16, 1 << 20):
        assert values(wire, topic, most_bytes=most_bytes) == bodies


def test_tokens_are_those_of_committed_transactions_and_of_their_batch(wire, kafka, topic):
    name = f"{topic}-tokens"
    opened = open_topic(wire, name, must_exist=False)
    assert wire.topic_settings([name], "cleanup.policy") == {name: {"cleanup.policy": "compact"}}
    first, found = scan(wire, opened)
    assert found == []
    kept_token = CommitToken("stream", 7, 3, 0, "plan", 5, ("held",))
    transactions = begun(wire, f"{topic}-3")
    send(transactions, topic, b"sent")
    write_token(transactions, first, kept_token)
    transactions.commit()
    write_token(transactions, first, CommitToken("stream", 7, 3, 1, "plan"))
    transactions.abort()
    transactions.begin()
    assert tokens_of(wire, first, "stream", 7, 3)[0] == [kept_token]
    assert tokens_of(wire, first, "stream", 8, 3)[0] == []
    assert tokens_of(wire, first, "side", 7, 3)[0] == []
    again, found = scan(wire, opened)
    assert found == [kept_token]
    assert again.since[again.partition(3)] > first.since[first.partition(3)]


def test_a_topic_of_tokens_that_is_gone_or_may_lose_them_is_one_sentence(wire, kafka, topic):
    with pytest.raises(TokenTopicError, match="commit tokens is gone"):
        open_topic(wire, f"{topic}-none", must_exist=True)
    with pytest.raises(TokenTopicError, match=r"cleanup\.policy=delete"):
        open_topic(wire, topic, must_exist=True)


def test_times_of_the_settings_are_those_of_the_connections():
    times = {"default.api.timeout.ms": "8000", "request.timeout.ms": "1500", "delivery.timeout.ms": "45000"}
    cluster = KafkaCluster("127.0.0.1:1", {f"kafka.{name}": value for name, value in times.items()})
    for seconds in (None, 5):
        with cluster.wire(seconds) as one:
            assert (one.seconds, one.request_seconds, one.delivery_seconds) == (seconds or 8, 1.5, 45)
    with Wire("127.0.0.1:1", seconds=0.5) as one, pytest.raises(BrokerUnreachableError) as error:
        one.topics()
    assert str(error.value) == "Kafka at 127.0.0.1:1 does not answer within 0.5 s"


def test_a_request_that_is_not_answered_in_time_is_sent_again(wire, topic, monkeypatch):
    assert wire.offsets([(topic, 0)], LATEST) == {(topic, 0): 0}
    wire.request_seconds = 7.0
    waits, send_request = [], KafkaConnection.send_request

    def slow(self, request, request_timeout_ms=None):
        waits.append(request_timeout_ms)
        if len(waits) == 1:
            return Future().failure(KafkaTimeoutError("timed out"))
        return send_request(self, request, request_timeout_ms=request_timeout_ms)

    monkeypatch.setattr(KafkaConnection, "send_request", slow)
    assert wire.offsets([(topic, 0)], LATEST) == {(topic, 0): 0}
    assert len(waits) >= 2 and max(waits) == 7_000
