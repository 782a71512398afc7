"""Connections to a Kafka cluster, and the requests that reading and writing need.

kafka-python does the protocol: connections, TLS, logins, and the messages of each version. Its consumer and
producer make an object of each record, so they are not used: here the records of a request are bytes, which
``kafka/batches`` reads and writes. Who leads a partition is asked again whenever a broker says that it does
not. Every call ends after `Wire.seconds`.

A topic is its id, not its name (KIP-516), and a leader has an epoch (KIP-320): requests name the id where the
broker takes one, and the newest epoch that is known. So a leader that was deposed and does not know it, such
as one that is cut off from the other brokers, refuses instead of answering with offsets of its past.

Create a `Wire` after a process was forked, and use it in one thread at a time.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar
from uuid import UUID

import kafka.errors as codes
from kafka.future import Future
from kafka.net.manager import KafkaConnectionManager
from kafka.net.sasl import register_sasl_mechanism
from kafka.net.sasl.scram import SaslMechanismScram, ScramClient
from kafka.protocol.admin import CreateTopicsRequest, DescribeConfigsRequest
from kafka.protocol.consumer import FetchRequest, ListOffsetsRequest, OffsetForLeaderEpochRequest
from kafka.protocol.metadata import ApiVersionsRequest, FindCoordinatorRequest, MetadataRequest
from kafka.protocol.producer import ProduceRequest

from selectroute.kafka.config import PLAINTEXT_CREDENTIALS, SECONDS, TokenError
from selectroute.kafka.errors import (
    GO_ON,
    BrokerUnreachableError,
    KafkaClientError,
    RefusedError,
    TopicChangedError,
)
from selectroute.loopback import is_loopback

try:
    from kafka.net.selector import NetworkSelector
except ModuleNotFoundError:  # where kafka-python 3.1 has it
    from kafka.net.backend.selector import NetworkSelector

Partition: TypeAlias = tuple[str, int]
"""Topic and number."""

ALL_REPLICAS: Final = -1
"""Number of acknowledgements of a write: those of all replicas in sync."""

EARLIEST: Final = -2
LATEST: Final = -1
"""Sentinel timestamps of ListOffsets: the first offset of a partition, and the next one."""

_RETRY_SECONDS: Final = 0.05
_MOST_RESPONSE: Final = 1 << 30
_CONNECT_SECONDS: Final = 5.0

_BY_ID: Final = 13
"""Version of Fetch and of Produce from which on a request names topics by their ids alone."""

_MIX_SECONDS: Final = 30.0
_APPEND_SECONDS: Final = 5.0
"""How often brokers without a connection are asked, too; how long a leader may wait for its replicas before
another leader is looked for."""

_TOPIC: Final = 2
_TRANSACTION: Final = 1
_BY_DEFAULT: Final = -1
"""Kafka's numbers of a topic's settings, of the coordinators of transactions, and of the cluster's default
number of replicas."""

MOVED: Final = frozenset((3, 5, 6, 9, 56, 74, 75, 78, 100, 103))
"""Codes of errors after which the leader of a partition is asked again: unknown partition, no leader yet, not
the leader, replica not available, disk failed, leader epochs, offset not available yet, ids of topics."""

PASSING: Final = frozenset((7, 19, 20, 51))
"""Retriable errors of a write: too few replicas in time, or in sync; the previous transaction still ends."""

_NOT_VISIBLE: Final = frozenset((3, 17, 29))
"""Codes of topics that do not exist, have an invalid name, or may not be seen."""

COORDINATOR_NOT_READY: Final = frozenset((14, 15, 16, 51))
"""Retriable errors of a coordinator: it is loading, not known yet, or another node, or it still ends the
previous transaction."""

_OUT_OF_RANGE: Final = 1

_HIDDEN: Final = 29
_RIGHTS: Final = {"Read": 3, "Write": 4}
_DESCRIBE: Final = 8
"""Code of a topic that this client may not see; numbers of rights. A topic that is seen may be described."""

_FEWEST_ITERATIONS: Final = 4096
"""Iterations of SCRAM below which Java's client refuses, too: a false broker could ask for a proof that is
cheap to guess the password by."""


class _ScramClient(ScramClient):  # type: ignore[misc]  # it has no types
    def create_salted_password(self, salt: bytes, iterations: int) -> None:
        if iterations < _FEWEST_ITERATIONS:
            raise codes.SaslAuthenticationFailedError(
                f"the broker asks for {iterations} iterations of SCRAM, fewer than {_FEWEST_ITERATIONS:,}"
            )
        super().create_salted_password(salt, iterations)


class _Scram(SaslMechanismScram):  # type: ignore[misc]  # it has no types
    def __init__(self, **config: Any) -> None:
        super().__init__(**config)
        self._scram_client = _ScramClient(
            config["sasl_plain_username"], config["sasl_plain_password"], config["sasl_mechanism"]
        )


for _mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
    register_sasl_mechanism(_mechanism, _Scram, overwrite=True)


class _Manager(KafkaConnectionManager):  # type: ignore[misc]  # it has no types
    """Connections that do not lose what comes with the end of a stream: the reason of a refused login.

    kafka-python 3.1 does not call this method: there a wrong password is a connection that ends.
    """

    async def _build_transport(self, node: Any, timeout_at: float | None = None) -> Any:
        transport = await super()._build_transport(node, timeout_at=timeout_at)
        receive = transport._sock_recv

        def received() -> tuple[bytes, Exception | None]:
            data, error = receive()
            return data, None if data else error

        transport._sock_recv = received
        return transport


# What goes wrong is raised: without a handler, Python would print kafka-python's warnings of it, too.
logging.getLogger("kafka").addHandler(logging.NullHandler())


class Fetched(NamedTuple):
    """Answer to a fetch of one partition.

    Attributes:
        records: the bytes of record batches, for `selectroute.kafka.batches.decode`.
        aborted: producer id and first offset of the aborted transactions among them.
        after: the offset after the last record that may be read.
        is_out_of_range: True if Kafka has not, or no longer, the wanted offset.
    """

    records: Any
    aborted: tuple[tuple[int, int], ...]
    after: int
    is_out_of_range: bool = False


_Answer = TypeVar("_Answer")

Parts: TypeAlias = Mapping[str, Sequence[Any]]
"""What a request has of partitions, by topic."""

_NUMBERS: Final = ("partition_index", "partition", "index")

Answers: TypeAlias = Callable[[], dict[Partition, _Answer]]
"""Function that waits for the answers to a request of partitions."""


class Wire:
    """Client of one cluster; a context manager.

    Args:
        servers: ``host:port,host:port``, of any of the brokers.
        settings: settings of kafka-python's connections, such as ``security_protocol``. Passwords and tokens
            go unencrypted to this machine only, unless ``allow_plaintext_credentials`` is among them.
        seconds: timeout of a call, with all retries.
        request_seconds: longest wait for the answer to a request, which is then sent again; that of a call
            unless given.
        delivery_seconds: longest time of retries until records are acknowledged; that of a call unless given.

    Every call raises `KafkaClientError`: `BrokerUnreachableError` if no broker answers, `RefusedError` if one
    refuses.
    """

    def __init__(
        self,
        servers: str,
        settings: Mapping[str, Any] | None = None,
        seconds: float | None = None,
        *,
        request_seconds: float | None = None,
        delivery_seconds: float | None = None,
    ) -> None:
        self.servers = servers
        self.seconds = SECONDS if seconds is None else seconds
        self.request_seconds = self.seconds if request_seconds is None else request_seconds
        self.delivery_seconds = self.seconds if delivery_seconds is None else delivery_seconds
        self._net = NetworkSelector(slow_task_threshold_secs=0)
        options: dict[str, Any] = {
            "client_id": "selectroute",
            "receive_message_max_bytes": _MOST_RESPONSE,
            "reconnect_backoff_max_ms": 1_000,
            "socket_connection_setup_timeout_ms": _CONNECT_SECONDS * 1_000,
            **(settings or {}),
        }
        hosts = [host.strip() for host in servers.split(",") if host.strip()]
        may_be_read = options.pop("allow_plaintext_credentials", False)
        self._manager = _Manager(self._net, bootstrap_servers=hosts, **options)
        self._hides_login = (
            not may_be_read
            and options.get("security_protocol") == "SASL_PLAINTEXT"
            and options.get("sasl_mechanism") != "GSSAPI"  # which sends no password
        )
        self._leaders: dict[Partition, int] = {}
        self._stale: int | str | None = None
        self._answered: int | str | None = None
        self._mixed = time.monotonic()
        self._bound: set[str] = set()
        self._names: dict[str, str] = {}
        self._protocol: tuple[bool, int] | None = None
        self.ids: dict[str, str] = {}
        """Kafka's id of each topic, as of the newest answer; none of a broker before Kafka 2.8."""
        self.epochs: dict[Partition, int] = {}
        """The highest known epoch of the leader of each partition."""

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._manager.close()
        self._net.poll(timeout_ms=0)
        self._net.close()

    # ---- what there is

    def cluster_id(self) -> str:
        """Return the unique id of the cluster."""
        return str(self._metadata([]).cluster_id)

    def topics(self) -> set[str]:
        """Return the topics visible to this client, without Kafka's internal ones."""
        metadata = self._metadata(None).topics
        return {
            topic.name for topic in metadata if not topic.is_internal and topic.error_code not in _NOT_VISIBLE
        }

    def partitions(self, topics: Iterable[str]) -> dict[str, int]:
        """Return the number of partitions of each topic, without topics that are gone or not visible."""
        wanted = sorted(set(topics))
        if not wanted:
            return {}
        metadata = self._metadata(wanted).topics
        return {
            topic.name: len(topic.partitions) for topic in metadata if topic.error_code not in _NOT_VISIBLE
        }

    def topic_settings(self, topics: Iterable[str], *names: str) -> dict[str, dict[str, str]]:
        """Return these settings of each topic, without topics that are gone or not visible."""
        asked = [(_TOPIC, topic, list(names)) for topic in sorted(set(topics))]
        if not asked:
            return {}
        settings = {}
        for result in self.ask(DescribeConfigsRequest(resources=asked)).results:
            if result.error_code in _NOT_VISIBLE:
                continue
            self.check(
                result.error_code, f"settings of the topic {result.resource_name}", result.resource_name
            )
            settings[result.resource_name] = {config.name: config.value for config in result.configs}
        return settings

    def identify(
        self, topic: str, id: str, epochs: Mapping[int, int] | None = None, *, must_stay: bool = True
    ) -> None:
        """Record what is known of a topic: its id, and an epoch that the leader of each partition has had.

        Leaders of earlier epochs are not believed from then on. With ``must_stay``, each call that meets a
        topic of this name with another id raises `TopicChangedError`.
        """
        (self._bound.add if id and must_stay else self._bound.discard)(topic)
        if id and id != self.ids.get(topic):
            self._is_another(topic, id)
        for number, epoch in (epochs or {}).items():
            if epoch > self.epochs.get((topic, number), -1):
                self.epochs[topic, number] = epoch
                self._leaders.pop((topic, number), None)

    def _is_another(self, topic: str, id: str) -> None:
        """Forget what is known of a topic that has another id."""
        self.ids[topic], self._names[id] = id, topic
        for known in (self.epochs, self._leaders):
            for partition in [partition for partition in known if partition[0] == topic]:
                del known[partition]

    def check_rights(self, topics: Iterable[str], *rights: str) -> None:
        """Raise `RefusedError` if this client lacks one of these rights to a topic: ``Read``, ``Write``."""
        for topic in self._metadata(sorted(topics), with_rights=True).topics:
            granted = topic.authorized_operations or ()
            lacking: list[str] = []
            if topic.error_code == _HIDDEN:
                lacking = list(rights)
            elif _DESCRIBE in granted:  # otherwise the broker does not say
                lacking = [right for right in rights if _RIGHTS[right] not in granted]
            if lacking:
                name = _name(_HIDDEN)
                needed = ("right " if len(lacking) == 1 else "rights ") + " and ".join(lacking)
                raise RefusedError(
                    f"Kafka at {self.servers}: this client needs the {needed} on the topic {topic.name} "
                    f"({name})",
                    name,
                    topic.name,
                )

    def create(self, topic: str, partitions: int, settings: Mapping[str, str]) -> bool:
        """Create a topic with the cluster's default number of replicas; return whether it is new."""
        wanted: Any = (topic, partitions, _BY_DEFAULT, [], list(settings.items()))
        request = CreateTopicsRequest(topics=[wanted], timeout_ms=int(self.seconds * 1_000))
        (created,) = self.ask(request, self._controller()).topics
        if created.error_code == codes.TopicAlreadyExistsError.errno:
            return False
        self.check(created.error_code, f"the topic {topic} can't be created", topic, created.error_message)
        self._until(lambda: self.partitions([topic]) or None, f"the new topic {topic} has no leader")
        return True

    # ---- reading

    def offsets(
        self, partitions: Iterable[Partition], at: int, *, committed: bool = False
    ) -> dict[Partition, int]:
        """Return the first or next offset (`EARLIEST`, `LATEST`) of each of these partitions.

        With ``committed`` the next one is that of the oldest transaction that has not ended.
        """
        kind = ListOffsetsRequest.ListOffsetsTopic

        def part(topic: str, number: int) -> Any:
            epoch = self._epoch(topic, number)
            return kind.ListOffsetsPartition(partition_index=number, timestamp=at, current_leader_epoch=epoch)

        def request(parts: Parts) -> Any:
            topics = [kind(name=topic, partitions=of_topic) for topic, of_topic in parts.items()]
            return ListOffsetsRequest(replica_id=-1, isolation_level=int(committed), topics=topics)

        return self._asked(partitions, part, request, lambda reply: int(reply.offset))()

    def epoch_ends(self, epochs: Mapping[Partition, int]) -> dict[Partition, int]:
        """Return the offset of each partition up to which its records are of this leader's epoch, or earlier.

        What was read beyond it in that epoch is lost. -1 if the epoch is not known.
        """
        kind = OffsetForLeaderEpochRequest.OffsetForLeaderTopic

        def part(topic: str, number: int) -> Any:
            now, epoch = self._epoch(topic, number), epochs[topic, number]
            return kind.OffsetForLeaderPartition(
                partition=number, current_leader_epoch=now, leader_epoch=epoch
            )

        def request(parts: Parts) -> Any:
            topics = [kind(topic=topic, partitions=of_topic) for topic, of_topic in parts.items()]
            return OffsetForLeaderEpochRequest(replica_id=-1, topics=topics)

        return self._asked(epochs, part, request, lambda reply: int(reply.end_offset))()

    def append(self, batches: Mapping[Partition, Any]) -> dict[Partition, int]:
        """Write a record batch to each of these partitions, outside of any transaction; return its offset.

        All replicas in sync have it then, so only the true leader can answer. An answer that is lost leaves
        the batch there twice.
        """

        def part(topic: str, number: int) -> Any:
            return produced_part(number, batches[topic, number])

        def request(parts: Parts) -> Any:
            return self.produce_request(parts, _APPEND_SECONDS)

        return self._asked(batches, part, request, lambda reply: int(reply.base_offset))()

    def produce_request(
        self, parts: Parts, seconds: float, transactional_id: str | None = None
    ) -> ProduceRequest:
        """Return the request that writes these `produced_part` to all replicas in sync, within a time."""
        kind = ProduceRequest.TopicProduceData
        return ProduceRequest(
            max_version=self._produce_version(parts, transactional_id is not None),
            transactional_id=transactional_id,
            acks=ALL_REPLICAS,
            timeout_ms=int(min(self.request_seconds, seconds) * 1_000),
            topic_data=[
                kind(name=topic, topic_id=self.uuid(topic), partition_data=of_topic)
                for topic, of_topic in parts.items()
            ],
        )

    def fetching(
        self, wanted: Mapping[Partition, int], *, committed: bool, most_bytes: int, wait_ms: int = 500
    ) -> Answers[Fetched]:
        """Ask for records of partitions, each from an offset on; return the function that waits for them.

        At least one batch is fetched if there is one.

        Args:
            wanted: an offset of each partition.
            committed: leave out, by ``aborted``, what was not committed.
            most_bytes: limit of the bytes of one partition; a longer batch is returned all the same.
            wait_ms: how long a broker may wait for the first record.
        """
        kind = FetchRequest.FetchTopic

        def part(topic: str, number: int) -> Any:
            return kind.FetchPartition(
                partition=number,
                current_leader_epoch=self._epoch(topic, number),
                fetch_offset=wanted[topic, number],
                partition_max_bytes=most_bytes,
            )

        def request(parts: Parts) -> Any:
            return FetchRequest(
                max_version=_BY_ID if all(topic in self.ids for topic in parts) else _BY_ID - 1,
                max_wait_ms=min(wait_ms, int(self.request_seconds * 500)),
                min_bytes=1,
                max_bytes=min(most_bytes * sum(map(len, parts.values())), _MOST_RESPONSE // 2),
                isolation_level=int(committed),
                topics=[
                    kind(topic=topic, topic_id=self.uuid(topic), partitions=of_topic)
                    for topic, of_topic in parts.items()
                ],
                forgotten_topics_data=[],
            )

        def answer(reply: Any) -> Fetched:
            return Fetched(
                reply.records or b"",
                tuple((ended.producer_id, ended.first_offset) for ended in reply.aborted_transactions or ()),
                reply.last_stable_offset if committed else reply.high_watermark,
                reply.error_code == _OUT_OF_RANGE,
            )

        return self._asked(wanted, part, request, answer, {_OUT_OF_RANGE})

    def _asked(
        self,
        partitions: Iterable[Partition],
        part: Callable[[str, int], Any],
        request: Callable[[Parts], Any],
        answer: Callable[[Any], _Answer],
        accepted: Collection[int] = (),
    ) -> Answers[_Answer]:
        """Ask the leader of each partition; return the function that waits for the answers.

        If a partition has moved, its new leader is asked.

        Args:
            partitions: the partitions.
            part: returns what a request has of a partition.
            request: returns the request to a leader, with the parts of its partitions by topic.
            answer: returns the answer from what a response has of a partition.
            accepted: codes of errors that are answers.
        """
        left = sorted(set(partitions))

        def ask(deadline: float) -> list[Future]:
            requests = []
            for node, of_node in self.leaders(left).items():
                requests.append((node, request(by_topic((place[0], part(*place)) for place in of_node))))
            return self.send_all(requests, deadline)

        asked = ask(time.monotonic() + self.seconds)

        def answers() -> dict[Partition, _Answer]:
            nonlocal left, asked
            own: dict[Partition, _Answer] = {}
            deadline = time.monotonic() + self.seconds
            problem = "no leader"
            while True:
                for response in self.responses(asked, deadline):
                    if isinstance(response, KafkaClientError):
                        problem = str(response)
                        continue
                    self.check(getattr(response, "error_code", 0), "a request")
                    for partition, reply in self.parts_of(response):
                        if reply.error_code in MOVED | PASSING:
                            problem = _name(reply.error_code)
                            continue
                        if reply.error_code not in accepted:
                            self.check(reply.error_code, f"{partition[0]}/{partition[1]}", partition[0])
                        own[partition] = answer(reply)
                left = [place for place in left if place not in own]
                if not left:
                    return own
                self.forget(left, doubt=True)
                self.pause(deadline, f"{left[0][0]}/{left[0][1]}: {problem}")
                asked = ask(deadline)

        return answers

    # ---- nodes and requests

    def leaders(self, partitions: Iterable[Partition]) -> dict[int, list[Partition]]:
        """Return the partitions that each node leads. Raises `RefusedError` for one that does not exist."""
        wanted = list(partitions)
        deadline = time.monotonic() + self.seconds
        while unknown := {topic for topic, number in wanted if (topic, number) not in self._leaders}:
            metadata = self._metadata(sorted(unknown)).topics
            for described in metadata:
                if described.error_code in _NOT_VISIBLE and time.monotonic() > deadline - self.seconds / 2:
                    self.check(described.error_code, f"the topic {described.name}", described.name)
            missing = next((place for place in wanted if place not in self._leaders), None)
            if missing is not None:
                epoch = self._epoch(*missing)
                doubt = f" of epoch {epoch}, which it has had, or of a later one" if epoch > 0 else ""
                self.pause(deadline, f"{missing[0]}/{missing[1]} has no leader{doubt}")
        of_node: dict[int, list[Partition]] = {}
        for described in wanted:
            of_node.setdefault(self._leaders[described], []).append(described)
        return of_node

    def forget(self, partitions: Iterable[Partition], doubt: bool = False) -> None:
        """Ask for the leaders of these partitions again when they are next needed.

        In doubt of what a leader has said, other nodes are asked.
        """
        for partition in partitions:
            leader = self._leaders.pop(partition, None)
            self._stale = leader if doubt and leader is not None else self._stale

    def _epoch(self, topic: str, number: int) -> int:
        return self.epochs.get((topic, number), -1)

    def uuid(self, topic: str) -> UUID:
        """Return the id of a topic for a request; zero if it is not known."""
        return UUID(self.ids[topic]) if topic in self.ids else UUID(int=0)

    def parts_of(self, response: Any) -> Iterator[tuple[Partition, Any]]:
        """Yield what a response has of each partition. Its fields are named otherwise in each request."""
        for topic in response.responses if hasattr(response, "responses") else response.topics:
            name = getattr(topic, "topic", None) or getattr(topic, "name", None)
            name = str(name) if name else self._names.get(str(topic.topic_id), "")
            replies = topic.partition_responses if hasattr(topic, "partition_responses") else topic.partitions
            for reply in replies:
                yield (name, next(getattr(reply, key) for key in _NUMBERS if hasattr(reply, key))), reply

    def coordinator(self, transactional_id: str) -> int:
        """Return the node that coordinates the transactions of this id."""

        def ready_node() -> int | None:
            request = FindCoordinatorRequest(
                key_type=_TRANSACTION, key=transactional_id, coordinator_keys=[transactional_id]
            )
            response = self.ask(request)
            coordinator = response.coordinators[0] if response.coordinators else response
            if coordinator.error_code in COORDINATOR_NOT_READY:
                return None
            self.check(coordinator.error_code, f"the transactional id {transactional_id}")
            if self._manager.cluster.broker_metadata(coordinator.node_id) is None:
                self._metadata([])
            return int(coordinator.node_id)

        return self._until(
            ready_node,
            f"the transactional id {transactional_id} has no coordinator: the brokers that are up can't have "
            "the topic __transaction_state, for which transaction.state.log.replication.factor are needed",
        )

    @property
    def is_new_protocol(self) -> bool:
        """True if the cluster has the second version of transactions (KIP-890).

        A produce request adds its partitions to the transaction itself, and each transaction has an
        epoch of its own.
        """
        return self._protocols()[0]

    def _produce_version(self, topics: Iterable[str], is_transactional: bool) -> int:
        """Return the highest version of Produce that can name these topics.

        From 12 on a request adds its partitions to the transaction.
        """
        if is_transactional and not self.is_new_protocol:
            return _BY_ID - 2
        return _BY_ID if all(topic in self.ids for topic in topics) else _BY_ID - 1

    @property
    def produces_by_id(self) -> bool:
        """True if a topic that was created again refuses records for the one before."""
        return self.is_new_protocol and self._protocols()[1] >= _BY_ID

    def _protocols(self) -> tuple[bool, int]:
        if self._protocol is None:
            response = self.ask(
                ApiVersionsRequest(client_software_name="selectroute", client_software_version="1")
            )
            levels = {
                feature.name: feature.max_version_level for feature in response.finalized_features or ()
            }
            produce = max(api.max_version for api in response.api_keys if api.api_key == 0)
            self._protocol = levels.get("transaction.version", 0) >= 2, produce
        return self._protocol

    def ask(self, request: Any, node: int | str | None = None) -> Any:
        """Send a request to a node, or to any; return the response."""
        deadline = time.monotonic() + self.seconds
        if node is not None:
            response = self._response(node, request, deadline)
            if isinstance(response, KafkaClientError):
                raise response
            return response
        while True:
            response = None
            for any_node in self._nodes():
                response = self._response(
                    any_node, request, min(deadline, time.monotonic() + _CONNECT_SECONDS)
                )
                if not isinstance(response, KafkaClientError):
                    self._answered = any_node
                    return response
                if isinstance(response, RefusedError):
                    raise response
            self.pause(deadline, str(response))

    def _response(self, node: int | str, request: Any, deadline: float) -> Any:
        (response,) = self.responses(self.send_all([(node, request)], deadline), deadline)
        return response

    def send_all(self, requests: Sequence[tuple[int | str, Any]], deadline: float) -> list[Future]:
        """Send each request to its node, for `responses`; the system goes on sending and receiving."""
        sent = [self._send(node, request, deadline) for node, request in requests]
        self._net.poll(timeout_ms=0)
        return sent

    def responses(self, sent: Sequence[Future], deadline: float) -> list[Any]:
        """Wait for the responses to requests that were sent; return them, or errors in their places."""
        for future in sent:
            while not future.is_done and (left := deadline - time.monotonic()) > -1.0:
                self._net.poll(timeout_ms=max(left, 0.01) * 1_000, future=future)
        return [self._answer(future) for future in sent]

    def _send(self, node: int | str, request: Any, deadline: float) -> Future:
        """Send a request as soon as the node's connection takes one."""
        broker = self._manager.cluster.broker_metadata(node)
        if self._hides_login and broker is not None and not is_loopback(broker.host):
            problem = (
                f"SASL_PLAINTEXT would send the login to {broker.host} unencrypted: use SASL_SSL, or, in a "
                f"network that is trusted, set {PLAINTEXT_CREDENTIALS}=true"
            )
            return Future().failure(codes.SaslAuthenticationFailedError(problem))
        while True:
            left = deadline - time.monotonic()
            try:
                connection = self._manager.get_connection(node, refresh_metadata_on_err=False)
                if left <= 0 or not connection.paused:
                    most = min(left, self.request_seconds)
                    return connection.send_request(request, request_timeout_ms=max(1, most * 1_000))
                pause = left
            except codes.NodeNotReadyError as error:
                if left <= 0:
                    return Future().failure(error)
                pause = min(left, self._manager.connection_delay(node) + 0.001)
            except codes.KafkaError as error:
                return Future().failure(error)
            self._net.poll(timeout_ms=min(pause, 1.0) * 1_000)

    def _answer(self, future: Future) -> Any:
        error = future.exception if future.is_done else codes.KafkaTimeoutError()
        if error is None:
            answer = future.value
            return answer if _is_whole(answer, answer.version) else self._not_kafka()
        return self._error(error)

    def _not_kafka(self) -> KafkaClientError:
        return BrokerUnreachableError(f"Kafka at {self.servers}: the broker's answer is not Kafka's")

    def _error(self, error: Exception) -> KafkaClientError:
        """Return an error of kafka-python as one of ours."""
        if isinstance(error, TokenError):
            return (
                BrokerUnreachableError(str(error)) if error.retriable else RefusedError(str(error), "TOKEN")
            )
        text = " ".join(str(part) for part in error.args if part is not None).split("\n")[0]
        if isinstance(error, codes.BrokerResponseError) and not isinstance(error, codes.RetriableError):
            name = _name(error.errno)
            return RefusedError(f"Kafka at {self.servers}: {name}" + (f": {text}" if text else ""), name)
        if isinstance(error, codes.InvalidReceiveError):
            return BrokerUnreachableError(
                f"Kafka at {self.servers} answers in another protocol: is it a listener with TLS?"
            )
        if isinstance(error, codes.KafkaConnectionError) and ("Handshake" in text or "DNS" in text):
            return BrokerUnreachableError(f"Kafka at {self.servers}: {text}")
        return BrokerUnreachableError(f"Kafka at {self.servers} does not answer within {self.seconds:g} s")

    def check(self, code: int, what: str, topic: str | None = None, more: str | None = None) -> None:
        """Raise `RefusedError` if the code of an answer is an error."""
        if code:
            name = _name(code)
            kind = codes.for_code(code)
            text = more or getattr(kind, "description", "") or ""
            sentence = f"Kafka at {self.servers}: {what}: {name}" + (
                f": {text.strip().rstrip('.')}" if text else ""
            )
            raise RefusedError(sentence, name, topic)

    def _nodes(self) -> list[int | str]:
        """Return the nodes for a request to any: connected ones, known ones, then the bootstrap servers.

        Last comes the node that was in doubt last, since the others may know better. Now and then
        known nodes are asked like connected ones: if the only connection is to a node that is cut
        off, all that it says is old.
        """
        cluster = self._manager.cluster
        known = [broker.node_id for broker in cluster.brokers()]
        random.shuffle(known)
        if time.monotonic() < self._mixed + _MIX_SECONDS:
            connected = {connection.node_id for connection in self._manager.least_used_connections()}
            known.sort(key=lambda node: node not in connected)
        else:
            self._mixed = time.monotonic()
        bootstrap = [broker.node_id for broker in cluster.bootstrap_brokers()]
        return sorted(dict.fromkeys((*known, *bootstrap)), key=lambda node: node == self._stale)

    def _controller(self) -> int | None:
        self._metadata([])
        controller = self._manager.cluster.controller
        return None if controller is None else controller.node_id

    def _metadata(self, topics: Collection[str] | None, with_rights: bool = False) -> Any:
        """Return the metadata of these topics, of all with None; remember brokers and leaders."""
        kind = MetadataRequest.MetadataRequestTopic
        wanted = None if topics is None else [kind(name=name, topic_id=None) for name in topics]
        response = self.ask(
            MetadataRequest(
                topics=wanted,
                allow_auto_topic_creation=False,
                include_topic_authorized_operations=with_rights,
            )
        )
        if any(topic.name is None for topic in response.topics):
            raise self._not_kafka()
        self._manager.cluster.update_metadata(response)
        for topic in response.topics:
            self._learn(topic)
        return response

    def _learn(self, topic: Any) -> None:
        """Remember the id and the leaders of a topic. Raises `TopicChangedError`."""
        name, known = topic.name, self.ids.get(topic.name)
        id = str(topic.topic_id) if topic.topic_id and topic.topic_id.int else ""
        if id and id != known:
            if known is not None and name in self._bound:
                raise TopicChangedError(
                    f"the topic {name} was created again: its id was {known}, and is {id}; {GO_ON}", name
                )
            self._is_another(name, id)
        for partition in topic.partitions:
            place = name, partition.partition_index
            if 0 <= partition.leader_epoch < self._epoch(*place):
                # What this broker knows is old.
                self._leaders.pop(place, None)
                self._stale = self._answered
            elif partition.leader_id >= 0:
                self.epochs[place] = partition.leader_epoch
                self._leaders[place] = partition.leader_id

    def _until(self, attempt: Callable[[], _Answer | None], problem: str) -> _Answer:
        """Call until there is an answer."""
        deadline = time.monotonic() + self.seconds
        while (answer := attempt()) is None:
            self.pause(deadline, problem)
        return answer

    def pause(self, deadline: float, problem: str, seconds: float = _RETRY_SECONDS) -> None:
        """Sleep before another try. Raises `BrokerUnreachableError`, with the problem, after the deadline."""
        if time.monotonic() >= deadline:
            beginning = f"Kafka at {self.servers}"
            raise BrokerUnreachableError(
                problem if problem.startswith(beginning) else f"{beginning}: {problem}"
            )
        time.sleep(seconds)


def produced_part(partition: int, records: memoryview) -> Any:
    """Return what a produce request has of a partition."""
    return ProduceRequest.TopicProduceData.PartitionProduceData(index=partition, records=records)


def by_topic(parts: Iterable[tuple[str, _Answer]]) -> dict[str, list[_Answer]]:
    """Return the parts of each topic, in their order."""
    of_topics: dict[str, list[_Answer]] = {}
    for topic, part in parts:
        of_topics.setdefault(topic, []).append(part)
    return of_topics


def _name(code: int) -> str:
    kind = codes.for_code(code)
    return str(getattr(kind, "message", None) or kind.__name__)


def _is_whole(answer: Any, version: int) -> bool:
    """Return whether an answer has all texts and arrays that Kafka's protocol asks for.

    kafka-python decodes any null as None, also a UUID of zeros and a set of rights that the broker leaves
    out.
    """
    for name, field in answer.fields.items():
        value = getattr(answer, name)
        if value is None:
            may_lack = field.tag is not None or field.type_str in ("uuid", "bitfield")
            may_lack |= field.nullable_for_version_q(version) or not field.for_version_q(version)
            if not may_lack:
                return False
        elif field.is_struct_array() and not all(_is_whole(part, version) for part in value):
            return False
    return True
