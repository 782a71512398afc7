"""A leader that was deposed and does not know it answers offsets of its past: it is not believed."""

import uuid
from types import SimpleNamespace as Answer

import pytest

pytest.importorskip("kafka.net.manager", reason="kafka-python is not installed (the extra `kafka`)")

from kafka.future import Future

from selectroute.kafka.cluster import LATEST, Wire
from selectroute.kafka.errors import BrokerUnreachableError, LostRecordsError, TopicChangedError
from selectroute.kafka.reading import kept, read
from selectroute.kafka.record import Range
from selectroute.kafka.tokens import CommitToken, TokenTopic, scan, tokens_of
from tests.support.record_batches import Record, batch_bytes

OLD, NEW = 1, 2
PLACE = ("t", 0)
ID, OTHER = uuid.UUID(int=7), uuid.UUID(int=8)
TOKEN = CommitToken("stream", 1, 0, 0, "plan", 1)
TOKENS = TokenTopic("t", 1, id=str(ID))


class TwoLeaders(Wire):
    """Connections to two brokers, each of which takes itself for the leader of ``t/0``: `OLD` of epoch 1,
    with the records that it had, and `NEW` of epoch 2. `OLD` is asked first, unless there is a doubt of it.
    """

    def __init__(self, count, old_count, seconds=1.5):
        super().__init__("127.0.0.1:1", seconds=seconds)
        self.logs = {NEW: [(TOKEN.key, TOKEN.value())] * count}
        self.logs[OLD] = self.logs[NEW][:old_count]
        self.id, self.truncated, self.is_up = ID, 1 << 40, True
        self._manager.cluster.update_metadata = lambda _: None

    def _nodes(self):
        nodes = [OLD, NEW] if self.is_up else [OLD]
        return sorted(nodes, key=lambda one: one == self._stale)

    def _send(self, node, request, deadline):
        kind = type(request).__name__.removesuffix("Request")
        answer = self._metadata_of(node) if kind == "Metadata" else self._of(node, kind, request)
        answer.version, answer.fields = 0, {}
        return Future().success(answer)

    def _metadata_of(self, node):
        one = Answer(partition_index=0, leader_id=node, leader_epoch=node)
        topic = Answer(name="t", error_code=0, topic_id=self.id, is_internal=False, partitions=[one])
        return Answer(topics=[topic], brokers=[])

    def _of(self, node, kind, request):
        """Answer for the one partition of a request, with an error if it knows another epoch."""
        if kind == "Produce":
            is_new, self.logs[NEW] = node == NEW, [*self.logs[NEW], ("barrier", None)]
            one = Answer(index=0, error_code=0 if is_new else 7, base_offset=len(self.logs[NEW]) - 1)
            return Answer(responses=[Answer(name="", topic_id=self.id, partition_responses=[one])])
        (asked,) = request.topics[0].partitions
        epoch, log = asked.current_leader_epoch, self.logs[node]
        one = Answer(
            partition=0,
            partition_index=0,
            error_code=75 if epoch > node else 74 if 0 <= epoch < node else 0,
            offset=0 if getattr(asked, "timestamp", 0) == -2 else len(log),
            end_offset=min(len(log), self.truncated),
            high_watermark=len(log),
            last_stable_offset=len(log),
            log_start_offset=0,
            aborted_transactions=(),
            records=b"",
        )
        if kind == "Fetch" and not one.error_code:
            start = asked.fetch_offset
            records = [
                Record(start + n, key=key and key.encode(), value=value and value.encode())
                for n, (key, value) in enumerate(log[start:])
            ]
            one.error_code = int(start > len(log))
            one.records = batch_bytes(records) if records else b""
        topic = Answer(name="t", topic="t", topic_id=self.id, partitions=[one])
        return Answer(error_code=0, topics=[topic])


def read_offsets(wire, start, end, **known):
    parts = read(wire, [Range("t", 0, start, end, str(ID), **known)])
    return [offset for part in parts for offset in part.records["offset"].to_pylist()]


def test_tokens_that_a_deposed_leader_has_not_are_found():
    wire = TwoLeaders(3, 2)
    assert wire.offsets([PLACE], LATEST) == {PLACE: 2}  # what the worker knew before
    found, to = tokens_of(wire, TOKENS, "stream", 1, 0)
    assert found == [TOKEN] and to >= 3
    assert scan(TwoLeaders(3, 0), TOKENS)[1] == [TOKEN]


def test_a_deposed_leader_alone_answers_no_tokens():
    wire = TwoLeaders(3, 2, seconds=0.3)
    wire.is_up = False
    with pytest.raises(BrokerUnreachableError, match="REQUEST_TIMED_OUT"):
        tokens_of(wire, TOKENS, "stream", 1, 0)


@pytest.mark.parametrize("epoch", [2, -1])
@pytest.mark.parametrize("start", [10, 15])
def test_records_above_the_end_of_a_deposed_leader_are_read_from_the_new_one(start, epoch):
    wire = TwoLeaders(20, 10)
    assert wire.offsets([PLACE], LATEST) == {PLACE: 10}
    assert read_offsets(wire, start, 20, epoch=epoch) == list(range(start, 20))


def test_records_that_no_leader_has_are_lost():
    with pytest.raises(LostRecordsError, match="ends at offset 20"):
        read_offsets(TwoLeaders(20, 10), 25, 30, epoch=2)


def test_a_topic_of_another_id_is_named_and_none_of_its_records_is_read():
    wire = TwoLeaders(20, 10)
    wire.id = OTHER
    with pytest.raises(TopicChangedError, match=f"its id was {ID}, and is {OTHER}"):
        read_offsets(wire, 0, 5)
    assert list(read(wire, [Range("t", 0, 0, 5, str(ID))], may_change=True)) == []
    one = Range("t", 0, 0, 5, str(ID))
    assert kept(wire, [one]) == {one: one._replace(start=5)}


def test_what_is_left_after_an_unclean_election_ends_where_the_new_leader_began():
    wire = TwoLeaders(20, 10)
    wire.truncated = 8
    one = Range("t", 0, 5, 12, str(ID), epoch=1)
    wire.identify("t", str(ID), {0: 2})
    assert kept(wire, [one]) == {one: one._replace(end=8)}


@pytest.mark.parametrize("place", ["partition", "topic"])
def test_a_batch_is_planned_on_only_from_what_was_read(place):
    pytest.importorskip("pyspark", reason="PySpark is not installed (the extra `spark`)")
    from selectroute.spark.cluster import KafkaCluster
    from selectroute.spark.sources.kafka.config import KafkaInput
    from selectroute.spark.sources.kafka.offsets import Identity, offsets_with, ranges_between
    from selectroute.spark.sources.kafka.planner import KafkaPlanner, ReadMaxRows

    wire, identity = TwoLeaders(20, 10), Identity(str(ID), epochs={"0": 1})
    start = offsets_with({"t": {"0": 10}}, {"t": identity})
    wire.identify("t", str(ID), {0: 2}, must_stay=False)
    plans = {}
    for policy in ("fail", "read"):
        cluster = KafkaCluster("127.0.0.1:1", recreated=policy)
        plans[policy] = KafkaPlanner(KafkaInput(cluster, ("t",)), start)
        plans[policy]._opened = wire
    assert ranges_between(start, plans["fail"].latestOffset(start, ReadMaxRows(3)))[0][2:4] == (10, 13)
    if place == "topic":
        wire.id = OTHER
    else:
        wire.truncated = 8
        plans["fail"]._checked.clear()  # as of a leader of another epoch
    with pytest.raises(TopicChangedError, match="--kafka-recreated read"):
        plans["fail"].latestOffset(start, ReadMaxRows(3))
    (one,) = ranges_between(start, plans["read"].latestOffset(start, ReadMaxRows(3)))
    first = 0 if place == "topic" else 8
    assert one == Range("t", 0, first, first + 3, str(wire.id), 2, 2) and one.source == "t@2"
