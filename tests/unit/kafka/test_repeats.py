from __future__ import annotations

import json
import random
import sys
from collections import Counter
from types import SimpleNamespace

import pytest

from selectroute.kafka.headers import BATCH, DeliveryError, Place
from selectroute.kafka.repeats import Deduplicator, Origin, deduplicate


def place(batch: int, number: int = 0, task: int = 0, job: str = "job") -> bytes:
    return str(Place(job, batch, task, number)).encode()


def taken(*places: bytes, seen: Deduplicator | None = None) -> list[bytes]:
    return list(deduplicate(places, seen, lambda one: Origin("t", 0, one)))


def test_a_delivery_is_taken_once_however_often_and_in_whatever_order_its_batch_comes():
    first = [place(0, n, task) for task in (0, 1) for n in range(5)]
    assert taken(*first, *reversed(first), *first[::2]) == first


def test_what_comes_of_a_batch_after_a_later_one_is_a_repeat():
    assert taken(place(3, 0), place(4, 0), place(3, 0), place(3, 1), place(4, 1)) == [
        *(place(3, 0), place(4, 0), place(4, 1)),
    ]


def test_each_job_and_its_backfills_are_followed_on_their_own():
    mine, other, back = place(5), place(2, job="other"), place(-1)
    assert taken(mine, other, back, mine, other, back, place(-2), back, place(6)) == [
        *(mine, other, back, place(-2), place(6)),
    ]


def test_each_partition_is_followed_on_its_own():
    seen = Deduplicator()
    assert [seen.is_first(topic, partition, place(0)) for topic in "ab" for partition in (0, 1)] == [True] * 4
    assert not seen.is_first("b", 1, place(0))


def test_what_is_no_delivery_goes_through():
    records = [SimpleNamespace(topic="t", partition=0, headers=None)] * 3
    assert list(deduplicate(records)) == records


def test_records_of_clients_with_methods_and_with_attributes_are_read():
    headers = [(BATCH, b"job/0/0/8"), ("other", None), (BATCH, b"job/0/0/9")]
    attributes = SimpleNamespace(topic="t", partition=4, headers=headers)
    methods = SimpleNamespace(topic=lambda: "t", partition=lambda: 4, headers=lambda: headers)
    seen = Deduplicator()
    assert list(deduplicate([attributes, methods], seen)) == [attributes]
    assert not seen.is_first("t", 4, b"job/0/0/9")  # the last header of a name counts
    assert seen.is_first("t", 4, b"job/0/0/8")


def test_a_damaged_place_is_an_error_and_not_a_repeat():
    with pytest.raises(DeliveryError, match="job/batch/task/number"):
        taken(b"nonsense")


def test_the_state_of_a_partition_goes_with_its_offset():
    seen = Deduplicator()
    first = [place(7, n * 700, n % 3) for n in range(9)]
    taken(*first, place(-2, 4), seen=seen)
    state = seen.state("t", 0)
    assert json.loads(state)["format"] == 1
    other = Deduplicator()
    other.restore("t", 0, state)
    assert other.state("t", 0) == state
    assert taken(*first, place(-2, 4), place(6), place(7, 1), place(-3), seen=other) == [
        place(7, 1),
        place(-3),
    ]
    other.restore("t", 0, state)  # where it was restored to once more, it is as it was then
    assert taken(place(7, 1), seen=other) == [place(7, 1)]
    other.forget("t", 0)
    assert taken(first[0], seen=other) == [first[0]]
    other.restore("t", 0, None)
    assert other.state("t", 0) == Deduplicator().state("t", 0)


@pytest.mark.parametrize(
    "state", ["", "[]", "{}", '{"format": 2, "jobs": []}', '{"format": 1, "jobs": [{"job": "a"}]}', "7"]
)
def test_a_state_that_is_none_is_a_sentence(state):
    with pytest.raises(DeliveryError, match="partition 3 of cars is not a valid state"):
        Deduplicator().restore("cars", 3, state)


def test_a_partition_with_more_jobs_than_are_followed_is_an_error_until_some_are_forgotten():
    seen = Deduplicator(max_jobs=3)
    for n in range(3):
        seen.is_first("t", 0, place(0, job=f"job-{n}"))
    with pytest.raises(DeliveryError, match="3 jobs"):
        seen.is_first("t", 0, place(0, job="another"))
    seen.forget_job("job-1")
    assert seen.is_first("t", 0, place(0, job="another"))


def memory(seen: Deduplicator) -> int:
    """Bytes that the numbers of all newest batches take."""
    return sum(
        sys.getsizeof(numbers.blocks)
        + sum(sys.getsizeof(k) + sys.getsizeof(v) for k, v in numbers.blocks.items())
        for lanes in seen._partitions.values()
        for lane in lanes.values()
        for numbers in lane.tasks.values()
    )


@pytest.mark.parametrize(("apart", "bytes_each"), [(1, 0.3), (7, 2.0), (1_000_000, 330)])
def test_memory_is_that_of_one_batch_and_a_fraction_of_a_byte_where_deliveries_lie_close(apart, bytes_each):
    seen = Deduplicator()
    for batch in range(5):
        for n in range(20_000):
            assert seen.is_first("t", 0, place(batch, n * apart))
        assert memory(seen) <= bytes_each * 20_000


class Sender:
    """A job that sends its batches to a log, and is interrupted at any instant."""

    def __init__(self, chance: random.Random, name: str) -> None:
        self.chance = chance
        self.name = name
        self.late: list[bytes] = []  # copies that were on their way when an attempt died

    def send(self, log: list[bytes], batch: int) -> list[bytes]:
        """One batch, in as many attempts as it takes; returns its deliveries."""
        chance = self.chance
        all_of_it = [
            place(batch, n, task, self.name) for task in range(3) for n in range(chance.randrange(12))
        ]
        while True:
            # Tasks run side by side, and some twice: no order holds within an attempt.
            order = all_of_it + chance.sample(all_of_it, len(all_of_it) // 4)
            chance.shuffle(order)
            if chance.random() < 0.5:
                log += order
                return all_of_it
            cut = chance.randrange(len(order) + 1)
            log += order[:cut]
            self.late += chance.sample(order, len(order) // 5)
            if self.late and chance.random() < 0.7:
                log += self.late
                self.late = []


@pytest.mark.parametrize("seed", range(60))
def test_every_delivery_is_worked_on_exactly_once_though_sender_and_consumer_are_interrupted(seed):
    chance = random.Random(seed)
    log: list[bytes] = []
    sent: list[bytes] = []
    senders = [Sender(chance, name) for name in ("one", "two")[: chance.choice([1, 2])]]
    for batch in range(6):
        for sender in senders:
            sent += sender.send(log, batch)
            if chance.random() < 0.3:
                sent += sender.send(log, -1 - batch)
            if sender.late and chance.random() < 0.5:
                log += sender.late  # of whatever batch, after later ones
                sender.late = []
    assert len(log) > len(sent)

    # What was worked on, the next offset and the state are stored in one transaction; all else is lost.
    done: list[bytes] = []
    offset, state = 0, None
    while offset < len(log):
        seen = Deduplicator()
        seen.restore("t", 0, state)
        stop = min(len(log), offset + chance.randrange(1, 40))
        working = taken(*log[offset:stop], seen=seen)
        if chance.random() < 0.7:
            done += working
            offset, state = stop, seen.state("t", 0)
    assert Counter(done) == Counter(sent)


@pytest.mark.slow
@pytest.mark.xdist_group("spark")  # where the broker is
def test_a_consumer_that_starts_anew_between_two_attempts_takes_each_delivery_once(kafka):
    from confluent_kafka import Consumer, TopicPartition

    topic = kafka.create("deliveries", 2)
    attempts = [(0, range(40)), (0, range(100)), (1, range(30)), (1, range(60)), (1, range(60))]
    stored: dict[int, tuple[int, str | None]] = {0: (0, None), 1: (0, None)}
    done: list[bytes] = []
    for batch, numbers in attempts:
        kafka.produce(
            topic,
            [(n % 2, None, b"%d" % n, [("color", b"red"), (BATCH, place(batch, n))]) for n in numbers],
        )
        consumer = Consumer(
            {"bootstrap.servers": kafka.address, "group.id": "g", "enable.auto.commit": False}
        )
        consumer.assign([TopicPartition(topic, partition, at) for partition, (at, _) in stored.items()])
        seen = Deduplicator()
        for partition, (_, state) in stored.items():
            seen.restore(topic, partition, state)
        polled = []
        while len(polled) < len(numbers):
            message = consumer.poll(10)
            assert message is not None and message.error() is None
            polled.append(message)
            offset = message.offset() + 1
            done += [dict(one.headers())[BATCH] for one in deduplicate([message], seen)]
            stored[message.partition()] = (offset, seen.state(topic, message.partition()))
        consumer.close()
    assert Counter(done) == Counter(
        place(batch, n) for batch, count in ((0, 100), (1, 60)) for n in range(count)
    )
