"""Transactions of Kafka: record batches that consumers with ``read_committed`` see together, or never.

A transactional id has one producer at a time: `Transactions.begin` aborts any open transaction of the id and
*fences* its previous producer, which can commit nothing more. So a repeat is safe: after `begin` it is
decided what earlier attempts have committed.

Sources: Kafka's protocol guide; KIP-98 (transactions), KIP-360 (safe epochs), KIP-890 (its second version).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import kafka.errors as codes
from kafka.future import Future
from kafka.protocol.producer import (
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    ProduceRequest,
)

from selectroute.kafka.batches.encode import NOT_IDEMPOTENT, Producer
from selectroute.kafka.cluster import (
    COORDINATOR_NOT_READY,
    MOVED,
    PASSING,
    Partition,
    Wire,
    by_topic,
    produced_part,
)
from selectroute.kafka.errors import BrokerUnreachableError, FencedError, KafkaClientError, RefusedError

_ROUNDS: Final = 4
"""Produce requests to one node that are not answered yet; the broker keeps the last five batches of each
partition, by which it recognises a repeat."""

_FENCED_CODES: Final = frozenset((22, 47, 48, 49, 52, 59, 90))
"""Codes of an epoch or transaction that has ended."""

_DUPLICATE: Final = 46
_RETRY_SECONDS: Final = 0.005

Batches: TypeAlias = Mapping[Partition, Sequence[memoryview]]
"""Record batches of each partition, in order."""


class Transactions:
    """Producer with a transactional id.

    Args:
        wire: the connections.
        transactional_id: id of the producer.
        seconds: how long a transaction may stay open before the broker aborts it.

    Every call raises `KafkaClientError`; after one, only `begin` and `abort` may follow. `FencedError` means
    that another producer of this id has begun.
    """

    def __init__(self, wire: Wire, transactional_id: str, seconds: float = 60.0) -> None:
        self._wire = wire
        self.transactional_id = transactional_id
        self._seconds = seconds
        self._coordinator: int | None = None
        self._has_begun = False
        self._partitions: set[Partition] = set()
        self._sequences: dict[Partition, int] = {}
        self._left: dict[Partition, list[memoryview]] = {}
        self._sent: list[tuple[Future, list[Partition]]] = []
        self.producer = NOT_IDEMPOTENT
        """The producer, for `encode`."""

    def begin(self) -> None:
        """Make this the only producer of the id: abort what another one has open, and fence it."""
        self._partitions.clear()
        self._left, self._sent = {}, []
        self._has_begun = False
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=int(self._seconds * 1_000),
            producer_id=-1,
            producer_epoch=-1,
            max_version=5,
        )
        answer = self._of_coordinator(request, "a producer can't begin")
        self._becomes(answer)

    def sequences(self, partitions: Iterable[Partition]) -> list[int]:
        """Return the sequence number of the next record of each partition."""
        return [self._sequences.get(partition, 0) for partition in partitions]

    def produce(self, batches: Batches, records: Mapping[Partition, int]) -> None:
        """Send batches, after all replicas in sync have those before; `flush` waits for these.

        They must be encoded with `producer` and the numbers of `sequences`. A request that was not answered
        is sent again: the broker recognises a repeat. A refusal is raised by the next call, or by `flush`,
        `commit`.

        Args:
            batches: the batches of each partition, in order. The bytes must not change until then.
            records: the number of records of each partition, in all of its batches.
        """
        self.flush()
        if not batches:
            return
        if not self._wire.is_new_protocol:
            self._add(batches.keys() - self._partitions)
        self._has_begun = True
        self._partitions |= batches.keys()
        self._left = {partition: list(of_partition) for partition, of_partition in batches.items()}
        self._sent = self._send(time.monotonic() + self._wire.delivery_seconds)
        for partition, count in records.items():
            self._sequences[partition] = (self._sequences.get(partition, 0) + count) & 0x7FFFFFFF

    def flush(self) -> None:
        """Wait until all replicas in sync have what was sent."""
        deadline = time.monotonic() + self._wire.delivery_seconds
        while self._left:
            self._receive(deadline)
            if self._left:
                self._sent = self._send(deadline)

    def commit(self) -> None:
        """Commit the open transaction, if there is one."""
        self.flush()
        self._end(True)

    def abort(self) -> None:
        """Abort the open transaction, if there is one."""
        # What comes after the end of a transaction could become part of the next one.
        self._wire.responses([future for future, _ in self._sent], time.monotonic() + self._wire.seconds)
        self._left, self._sent = {}, []
        self._end(False)

    # ---- inside

    def _becomes(self, answer: Any) -> None:
        """Take the producer of an answer; one with a new epoch counts its records anew."""
        before = self.producer
        self.producer = Producer(answer.producer_id, answer.producer_epoch, is_transactional=True)
        if before != self.producer:
            self._sequences.clear()

    def _send(self, deadline: float) -> list[tuple[Future, list[Partition]]]:
        """Send the next batches of each partition; return the requests and of which partitions they are."""
        requests: list[tuple[int | str, Any]] = []
        sent: list[list[Partition]] = []
        left = self._left
        for node, partitions in self._wire.leaders(left).items():
            for number in range(_ROUNDS):
                if round_ := [partition for partition in partitions if len(left[partition]) > number]:
                    requests.append((node, self._request([(place, left[place][number]) for place in round_])))
                    sent.append(round_)
        return list(zip(self._wire.send_all(requests, deadline), sent, strict=True))

    def _receive(self, deadline: float) -> None:
        """Wait for the answers to what was sent; leave what is left, or must be sent again."""
        sent, self._sent = self._sent, []
        left = self._left
        failed: set[Partition] = set()
        problem = ""
        responses = self._wire.responses([future for future, _ in sent], deadline)
        for (_, of_request), response in zip(sent, responses, strict=True):
            if isinstance(response, RefusedError):
                raise response
            if isinstance(response, KafkaClientError):
                problem = str(response)
                failed.update(of_request)
                continue
            for partition, reply in self._wire.parts_of(response):
                if reply.error_code in (0, _DUPLICATE):
                    # A later batch may only be accepted after those before it.
                    if partition not in failed:
                        left[partition].pop(0)
                    continue
                shown = f"{partition[0]}/{partition[1]}"
                if reply.error_code not in MOVED | PASSING and partition not in failed:
                    self._check(reply.error_code, shown, partition[0], reply.error_message)
                problem = f"{shown}: {codes.for_code(reply.error_code).__name__}"
                failed.add(partition)
        if failed:
            self._wire.forget(failed)
            self._wire.pause(deadline, problem, _RETRY_SECONDS)
        self._left = {partition: batches for partition, batches in left.items() if batches}

    def _request(self, batches: Sequence[tuple[Partition, memoryview]]) -> ProduceRequest:
        parts = by_topic((topic, produced_part(number, data)) for (topic, number), data in batches)
        return self._wire.produce_request(parts, self._wire.delivery_seconds, self.transactional_id)

    def _add(self, partitions: Iterable[Partition]) -> None:
        """Add partitions to the transaction (its first version only)."""
        of_topics = by_topic(sorted(partitions))
        if not of_topics:
            return
        topic_of = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
        request = AddPartitionsToTxnRequest(
            max_version=3,
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer.id,
            v3_and_below_producer_epoch=self.producer.epoch,
            v3_and_below_topics=[
                topic_of(name=topic, partitions=numbers) for topic, numbers in of_topics.items()
            ],
        )
        self._of_coordinator(request, "partitions can't be added to a transaction")

    def _end(self, is_commit: bool) -> None:
        if not self._has_begun:
            return
        request = EndTxnRequest(
            max_version=5 if self._wire.is_new_protocol else 4,
            transactional_id=self.transactional_id,
            producer_id=self.producer.id,
            producer_epoch=self.producer.epoch,
            committed=is_commit,
        )
        answer = self._of_coordinator(request, "a transaction can't end")
        self._partitions.clear()
        self._has_begun = False
        if answer.producer_id >= 0:  # the second version of transactions
            self._becomes(answer)

    def _of_coordinator(self, request: Any, what: str) -> Any:
        """Send a request to the coordinator, again until it is ready; return the response."""
        deadline = time.monotonic() + self._wire.seconds
        topic: str | None
        while True:
            self._coordinator = self._coordinator or self._wire.coordinator(self.transactional_id)
            try:
                answer = self._wire.ask(request, self._coordinator)
                code, topic = _worst(answer)
                problem = codes.for_code(code).__name__
            except BrokerUnreachableError as error:
                code, topic, problem = 16, None, str(error)
            if code in COORDINATOR_NOT_READY | MOVED:
                if code != 51:
                    self._coordinator = None
                self._wire.pause(deadline, f"{what}: {problem}", _RETRY_SECONDS)
                continue
            self._check(code, what, topic, None)
            return answer

    def _check(self, code: int, what: str, topic: str | None, more: str | None) -> None:
        if code in _FENCED_CODES:
            self._has_begun = False
            raise FencedError(
                f"Kafka at {self._wire.servers}: {what} ({codes.for_code(code).__name__}): another producer "
                f"with the transactional id {self.transactional_id} has begun, or the transaction was open "
                f"for more than {self._seconds:g} s"
            )
        self._wire.check(code, what, topic, more)


def _worst(answer: Any) -> tuple[int, str | None]:
    """Return the first error code of an answer, and its topic."""
    if code := getattr(answer, "error_code", 0):
        return int(code), None
    for topic in getattr(answer, "results_by_topic_v3_and_below", None) or ():
        for result in topic.results_by_partition:
            if result.partition_error_code:
                return int(result.partition_error_code), topic.name
    return 0, None
