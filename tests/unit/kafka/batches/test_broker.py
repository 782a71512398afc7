"""A real broker and librdkafka read what is encoded here, and what they write is decoded here; among it what
Kafka's own Java code has compressed.
"""

import socket
import struct
import time
import uuid

import numpy as np
import pyarrow as pa
import pytest

from selectroute.kafka.batches.codecs import NAMES
from selectroute.kafka.batches.decode import HEADERS, decode
from selectroute.kafka.batches.encode import Producer, encode, key_hashes
from tests.support.components import KAFKA

pytestmark = KAFKA

PRODUCE, FETCH, FIND_COORDINATOR = (0, 7), (1, 4), (10, 1)
INIT_PRODUCER, ADD_PARTITIONS, END = (22, 1), (24, 0), (26, 0)
NOT_YET = (14, 15, 16, 51)
"""Errors that pass: the coordinator is being found, or still writes the markers of the transaction before."""


def text(one):
    return struct.pack(">h", -1) if one is None else struct.pack(">h", len(one)) + one.encode()


class Wire:
    """Connection to a broker, one request at a time."""

    def __init__(self, address):
        host, port = address.split(":")
        self.socket = socket.create_connection((host, int(port)), 60)

    def ask(self, request, *parts):
        body = struct.pack(">hhi", *request, 0) + text("tests") + b"".join(parts)
        self.socket.sendall(struct.pack(">i", len(body)) + body)
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)[4:]

    def _exactly(self, size):
        found = bytearray()
        while len(found) < size:
            some = self.socket.recv(size - len(found))
            assert some
            found += some
        return bytes(found)

    def producer(self, transaction=None):
        for _ in range(600):
            if transaction:
                self.ask(FIND_COORDINATOR, text(transaction), b"\1")
            answer = self.ask(INIT_PRODUCER, text(transaction), struct.pack(">i", 60_000))
            _, error, number, epoch = struct.unpack(">ihqh", answer)
            if error not in NOT_YET:
                break
            time.sleep(0.05)
        assert error == 0
        return Producer(number, epoch, transaction is not None)

    def add_partition(self, transaction, producer, topic):
        own = struct.pack(">qhi", *producer[:2], 1)
        parts = text(transaction), own, text(topic), struct.pack(">ii", 1, 0)
        while (error := struct.unpack(">h", self.ask(ADD_PARTITIONS, *parts)[-2:])[0]) in NOT_YET:
            time.sleep(0.05)
        assert error == 0

    def end(self, transaction, producer, is_commit):
        answer = self.ask(END, text(transaction), struct.pack(">qhb", *producer[:2], is_commit))
        assert struct.unpack(">ih", answer)[1] == 0

    def produce(self, topic, batch, transaction=None):
        head = struct.pack(">hii", -1, 30_000, 1)
        where = text(topic) + struct.pack(">iii", 1, 0, len(batch.data))
        answer = self.ask(PRODUCE, text(transaction), head, where, batch.data)
        error, offset = struct.unpack_from(">hq", answer, 4 + 2 + len(topic) + 4 + 4)
        assert error == 0
        return offset

    def fetch(self, topic, offset, isolation=1):
        """Return the bytes of partition 0, and the aborted transactions."""
        head = struct.pack(">iiiibi", -1, 100, 1, 64 << 20, isolation, 1)
        answer = self.ask(FETCH, head, text(topic), struct.pack(">iiqi", 1, 0, offset, 64 << 20))
        at = 4 + 4 + 2 + len(topic) + 4
        _, error, _, _, count = struct.unpack_from(">ihqqi", answer, at)
        assert error == 0
        at += 26
        aborted = [struct.unpack_from(">qq", answer, at + 16 * k) for k in range(count)]
        at += 16 * max(count, 0)
        (size,) = struct.unpack_from(">i", answer, at)
        return answer[at + 4 : at + 4 + size], aborted


@pytest.fixture
def wire(kafka):
    one = Wire(kafka.address)
    yield one
    one.socket.close()


def fetched(wire, topic, end, isolation=1):
    """Return all records before an offset: offset, timestamp, key, value, headers."""
    offset, found = 0, []
    while offset < end:
        data, aborted = wire.fetch(topic, offset, isolation)
        for part in decode(data, topic, 0, offset, end, aborted):
            part.records.validate(full=True)
            for row in part.records.to_pylist():
                headers = [(one["key"], one["value"]) for one in row["headers"]]
                found.append((row["offset"], row["timestamp"], row["key"], row["value"], headers))
            offset = part.next_offset
    return found


def consumed(kafka, topic):
    """Return the same of a consumer, whose isolation level is read_committed."""
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": kafka.address,
            "group.id": "tests",
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",  # a busy broker may not know a new topic at first
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = []
    while True:
        one = consumer.poll(30)
        assert one is not None
        if one.error():
            assert one.error().code() == KafkaError._PARTITION_EOF, one.error()
            consumer.close()
            return found
        headers = [*(one.headers() or ())]
        found.append((one.offset(), one.timestamp()[1], one.key(), one.value(), headers))


def fresh(kafka, **config):
    return kafka.create(f"batches-{uuid.uuid4().hex[:8]}", **config)


def end_of(kafka, topic):
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": kafka.address, "group.id": "tests"})
    try:
        return consumer.get_watermark_offsets(TopicPartition(topic, 0), 30)[1]
    finally:
        consumer.close()


LISTS = [
    [{"key": "color", "value": b"red"}, {"key": "", "value": None}],
    [],
    [{"key": "größe", "value": b"x" * 200}],
]
MESSAGES = pa.RecordBatch.from_pydict(
    {
        "key": pa.array([b"key", None, b""], pa.binary()),
        "value": pa.array([b"value" * 40, b"", None], pa.binary()),
        "headers": pa.array(LISTS, HEADERS),
    }
)


@pytest.mark.parametrize("compression", NAMES)
def test_a_consumer_reads_what_is_encoded(kafka, wire, compression):
    topic = fresh(kafka)
    rows = np.arange(3_000) % 3
    times = 1_700_000_000_000 + rows * 7
    own = {"id": (b"n/", pa.array(np.arange(3_000))), "same": b"always"}
    options = {"producer": wire.producer(), "compression": compression, "batch_bytes": 200_000}
    batches = encode(MESSAGES, rows, times, own, **options)
    assert len(batches) > 1
    for batch in batches:
        assert wire.produce(topic, batch) == batch.first
    # A batch that comes again has the same sequence numbers: the broker keeps it once.
    assert wire.produce(topic, batches[-1]) == batches[-1].first
    found = consumed(kafka, topic)
    assert [one[:2] for one in found] == [*enumerate(times)]
    for (number, _, *content), row in zip(found, rows, strict=True):
        key, value, headers = MESSAGES.slice(row, 1).to_pylist()[0].values()
        together = [tuple(one.values()) for one in headers] + [("id", b"n/%d" % number), ("same", b"always")]
        assert content == [key, value, together]
    assert fetched(wire, topic, 3_000) == found


def test_transactions_that_are_encoded(kafka, wire):
    topic, transaction = fresh(kafka), f"tests-{uuid.uuid4().hex}"
    producer = wire.producer(transaction)
    sequence = 0
    for is_commit in (True, False, True):
        wire.add_partition(transaction, producer, topic)
        [batch] = encode(MESSAGES, np.arange(3), 5, producer=producer, sequences=[sequence])
        wire.produce(topic, batch, transaction)
        wire.end(transaction, producer, is_commit)
        sequence += 3
    deadline = time.monotonic() + 30
    while end_of(kafka, topic) < 12:
        assert time.monotonic() < deadline
    found = consumed(kafka, topic)
    assert [one[0] for one in found] == [0, 1, 2, 8, 9, 10]
    assert fetched(wire, topic, 12) == found
    assert [one[0] for one in fetched(wire, topic, 12, isolation=0)] == [0, 1, 2, 4, 5, 6, 8, 9, 10]


RECORDS = [
    (0, None if k % 7 == 0 else b"key-%d" % k, None if k % 11 == 0 else b"value " * (k % 50), headers)
    for k in range(2_000)
    for headers in [[("color", b"red"), ("n", b"%d" % k), ("none", None)][: k % 4]]
]


def compressions(batches):
    """The compression in the attributes of each record batch."""
    at = 0
    while at < len(batches):
        yield batches[at + 22] & 7
        at += 12 + int.from_bytes(batches[at + 8 : at + 12])


@pytest.mark.parametrize("compression", NAMES[1:])
def test_what_the_brokers_java_code_compresses(kafka, wire, compression):
    topic = fresh(kafka, compression_type=compression)
    kafka.produce(topic, RECORDS)
    assert wire.fetch(topic, 0)[0][22] & 7 == NAMES.index(compression)
    assert fetched(wire, topic, len(RECORDS)) == consumed(kafka, topic)


@pytest.mark.parametrize("compression", NAMES)
def test_what_librdkafka_writes(kafka, wire, compression):
    from confluent_kafka import Producer as Client

    topic = fresh(kafka)
    client = Client({"bootstrap.servers": kafka.address, "compression.type": compression, "linger.ms": 50})
    for partition, key, value, headers in RECORDS:
        client.produce(topic, value, key, partition, headers=headers)
    assert client.flush(60) == 0
    # What does not get shorter, as a batch of the first records alone, is left uncompressed by the client.
    assert NAMES.index(compression) in compressions(wire.fetch(topic, 0)[0])
    found = fetched(wire, topic, len(RECORDS))
    assert found == consumed(kafka, topic) and len(found) == len(RECORDS)


def test_the_time_of_the_log(kafka, wire):
    topic = fresh(kafka, message_timestamp_type="LogAppendTime")
    kafka.produce(topic, RECORDS)
    found = fetched(wire, topic, len(RECORDS))
    assert found == consumed(kafka, topic) and found[0][1] > 1_700_000_000_000


def test_transactions_of_librdkafka(kafka, wire):
    from confluent_kafka import Producer as Client

    topic = fresh(kafka)
    clients = [
        Client({"bootstrap.servers": kafka.address, "transactional.id": uuid.uuid4().hex, "linger.ms": 1})
        for _ in range(2)
    ]
    for client in clients:
        client.init_transactions(60)
    for number in range(6):
        for client in clients:
            client.begin_transaction()
        for k in range(10):
            for which, client in enumerate(clients):
                client.produce(topic, b"%d/%d/%d" % (number, k, which), partition=0)
                client.flush(60)
        for which, client in enumerate(clients):
            (client.abort_transaction if (number + which) % 3 == 0 else client.commit_transaction)(60)
    found = fetched(wire, topic, end_of(kafka, topic))
    assert found == consumed(kafka, topic) and len(found) == 80
    assert len(fetched(wire, topic, end_of(kafka, topic), isolation=0)) == 120


def test_keys_go_where_a_client_sends_them(kafka):
    from confluent_kafka import Producer as Client

    topic = fresh(kafka, partitions=7)
    client = Client({"bootstrap.servers": kafka.address, "partitioner": "murmur2_random"})
    keys = [b"%x" % (k**7) for k in range(500)]
    for key in keys:
        client.produce(topic, b"", key)
    assert client.flush(60) == 0
    partitions = {one.key(): one.partition() for one in kafka.records(topic)}
    assert [partitions[key] for key in keys] == [one % 7 for one in key_hashes(pa.array(keys)).to_pylist()]
