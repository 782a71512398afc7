"""Real Kafka broker on a port of this machine: one node, with its files in a folder of its own.

Its jars are fetched by name with the Ivy that PySpark ships, once, into the cache of this user. The broker
ends with the process that started it, even if that is killed. As with Kafka's own scripts,
``KAFKA_JVM_PERFORMANCE_OPTS`` are options of its Java.
"""

from __future__ import annotations

import os
import random
import shlex
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from selectroute.spark.session import SHORT_LIVED, find_java
from selectroute.testing.jars import Module, fetch

# The shell ends with the server, or ends it: its input ends with the process that started it.
_GUARDED = """
exec 3<&0
"$@" >>"$SERVER_LOG" 2>&1 3<&- & server=$!
echo $server
{ read -r _ <&3; kill $server; } & reader=$!
wait $server; code=$?
kill $reader 2>/dev/null
exit $code
"""


class ServerError(Exception):
    """Failed start of a server. The text is the last line of its log."""


class ServerProcess:
    """Process of a server, whose output is appended to a file.

    Attributes:
        log: the file.
        pid: process id of the newest start, which may have ended; 0 before the first.
    """

    def __init__(
        self, log: Path, command: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> None:
        self.log = log
        self.pid = 0
        self._command = command
        self._environment = environment
        self._guard: subprocess.Popen[str] | None = None

    def start(self, serves: Callable[[], bool], seconds: float = 300.0) -> None:
        """Start the process, and wait until it serves.

        Raises:
            ServerError: it ended, or does not serve within these seconds; it is stopped.
        """
        self._launch()
        self.wait(serves, seconds)

    def wait(self, serves: Callable[[], bool], seconds: float = 300.0) -> None:
        """Wait until it serves.

        Raises:
            ServerError: it ended, or does not serve within these seconds; it is stopped.
        """
        deadline = time.monotonic() + seconds
        while self.is_alive() and time.monotonic() < deadline:
            if serves():
                return
            time.sleep(0.1)
        self.stop()
        lines = self.log.read_text(errors="replace").strip().splitlines() or [f"the log {self.log} is empty"]
        raise ServerError(lines[-1])

    def _launch(self) -> None:
        self.log.touch()
        self._guard = subprocess.Popen(
            ["sh", "-c", _GUARDED, "sh", *self._command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # shells report signals there
            text=True,
            env={**(self._environment or os.environ), "SERVER_LOG": str(self.log)},
            start_new_session=True,
        )
        assert self._guard.stdout is not None
        self.pid = int(self._guard.stdout.readline())

    def is_alive(self) -> bool:
        """Return whether the process runs."""
        return self._guard is not None and self._guard.poll() is None

    def stop(self, seconds: float = 300.0) -> None:
        """End the process with SIGTERM, and wait for its end. Idempotent."""
        if self._guard is not None and self._guard.stdin is not None:
            self._guard.stdin.close()
            self._guard.wait(seconds)
        self._guard = None

    def kill(self) -> None:
        """Kill the process with SIGKILL."""
        if self.is_alive():
            os.kill(self.pid, signal.SIGKILL)
        self.stop()


def free_ports(count: int) -> list[int]:
    """Return free ports below the ephemeral range, so that a stopped server does not lose its own."""
    ports: list[int] = []
    while len(ports) < count:
        port = random.randrange(20_000, 32_000)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            if port not in ports:
                ports.append(port)
    return ports


KAFKA = Module("org.apache.kafka", "kafka_2.13", "4.1.1")
LARGEST_MESSAGE = 120 << 20
CLUSTER = "c2VsZWN0cm91dGUtdGVzdA"

Header = tuple[str, bytes | None]

_CONFIGURATION = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}{secure}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}{secure}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT{protocols}
log.dirs={folder}/log
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=false
message.max.bytes={largest}
socket.request.max.bytes={request}
"""


class BrokerError(ServerError):
    """Failed preparation of a broker's files."""


class Broker:
    """Kafka broker of one node. A restart keeps its address and topics.

    Attributes:
        address: host and port of clients without TLS and SASL.
        secure: host and port by security protocol, of clients with it.
        jars: folder of Kafka's jars, its Java clients' among them.
    """

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, str | int] | None = None,
        *,
        secure: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Format the broker's files.

        Args:
            folder: an empty folder for them.
            settings: additional lines of ``server.properties``.
            secure: security protocols, such as ``SASL_SSL``, that get a listener of this name on localhost.
            environment: environment of the broker; by default this process's.
        """
        self.folder = folder
        self.jars = fetch(f"kafka-{KAFKA.version}", [KAFKA], transitive=True)[0].parent
        port, controller, *ports = free_ports(2 + len(secure))
        self.address = f"127.0.0.1:{port}"
        self.secure = {name: f"localhost:{own}" for name, own in zip(secure, ports, strict=True)}
        self._java = [str(find_java().home / "bin" / "java"), "-cp", f"{self.jars}/*"]
        self._properties = folder / "server.properties"
        self._properties.write_text(
            _CONFIGURATION.format(
                port=port,
                controller=controller,
                protocols="".join(f",{name}:{name}" for name in self.secure),
                secure="".join(f",{name}://{address}" for name, address in self.secure.items()),
                folder=folder,
                largest=LARGEST_MESSAGE,
                request=2 * LARGEST_MESSAGE,
            )
            + "".join(f"{name}={value}\n" for name, value in (settings or {}).items())
        )
        options = shlex.split(os.environ.get("KAFKA_JVM_PERFORMANCE_OPTS", "-XX:+UseSerialGC"))
        command = [*self._java, "-Xmx1g", *options, "kafka.Kafka", str(self._properties)]
        self._server = ServerProcess(folder / "broker.log", command, environment)
        format_command = [*self._java, *SHORT_LIVED, "kafka.tools.StorageTool", "format"]
        done = subprocess.run(
            [*format_command, "-t", CLUSTER, "-c", str(self._properties)],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise BrokerError(done.stderr.strip() or done.stdout.strip())

    def start(self, seconds: float = 300.0) -> None:
        """Start the broker, and wait until it serves all of its topics."""
        self._server.start(self._serves, seconds)

    def is_alive(self) -> bool:
        """Return whether the broker runs."""
        return self._server.is_alive()

    def stop(self) -> None:
        """Stop the broker in an orderly way; acknowledged records are kept."""
        self._server.stop()

    def kill(self) -> None:
        """Kill the broker with SIGKILL."""
        self._server.kill()

    def create(self, topic: str, partitions: int = 1, **config: str) -> str:
        """Create a topic; return its name."""
        from confluent_kafka.cimpl import NewTopic

        settings = {name.replace("_", "."): value for name, value in config.items()}
        admin = self._admin()  # kept: its futures end with it
        futures = admin.create_topics([NewTopic(topic, partitions, 1, config=settings)])
        futures[topic].result(60)
        self._wait_for(topic, partitions)
        return topic

    def produce(
        self, topic: str, records: Iterable[tuple[int, bytes | None, bytes | None, Sequence[Header]]]
    ) -> None:
        """Write (partition, key, value, headers) and wait until all are acknowledged."""
        from confluent_kafka import Producer

        refused: list[Any] = []

        def delivered(error: Any, _: Any) -> None:
            if error is not None:
                refused.append(error)

        producer = Producer(
            {
                "bootstrap.servers": self.address,
                "enable.idempotence": True,
                "message.max.bytes": LARGEST_MESSAGE,
                "queue.buffering.max.messages": 1_000_000,
            }
        )
        for partition, key, value, headers in records:
            producer.produce(topic, value, key, partition, headers=list(headers), on_delivery=delivered)
            producer.poll(0)
        assert producer.flush(60) == 0
        assert not refused, refused[0]

    def topics(self) -> set[str]:
        """Return the names of all topics."""
        return set(self._admin().list_topics(timeout=60).topics)

    def delete(self, topic: str, seconds: float = 60.0) -> None:
        """Remove a topic, and wait until it is gone."""
        admin = self._admin()
        admin.delete_topics([topic])[topic].result(60)
        _wait(lambda: topic not in admin.list_topics(timeout=60).topics, seconds)

    def drop(self, topic: str, partition: int, before: int) -> None:
        """Remove the records before an offset, as retention does."""
        from confluent_kafka import TopicPartition

        admin = self._admin()
        for answer in admin.delete_records([TopicPartition(topic, partition, before)]).values():
            answer.result(60)

    def widen(self, topic: str, partitions: int) -> None:
        """Give a topic more partitions."""
        from confluent_kafka.cimpl import NewPartitions

        admin = self._admin()
        admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(60)
        self._wait_for(topic, partitions)

    def configure(self, topic: str, name: str, value: str) -> None:
        """Change one setting of a topic, and wait until the broker reports it."""
        import confluent_kafka.admin

        kafka: Any = confluent_kafka.admin
        entry = kafka.ConfigEntry(name, value, incremental_operation=kafka.AlterConfigOpType.SET)
        resource = kafka.ConfigResource(kafka.ResourceType.TOPIC, topic, incremental_configs=[entry])
        admin = self._admin()
        for answer in admin.incremental_alter_configs([resource]).values():
            answer.result(60)
        asked = kafka.ConfigResource(kafka.ResourceType.TOPIC, topic)
        _wait(lambda: admin.describe_configs([asked])[asked].result(60)[name].value == value)

    def records(self, topic: str, isolation: str = "read_committed") -> list[Any]:
        """Return the current records of a topic, in order within each partition."""
        from confluent_kafka import Consumer, KafkaError, TopicPartition

        consumer = Consumer(
            {
                "bootstrap.servers": self.address,
                "group.id": "tests",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",  # a busy broker may not know a new topic at first
                "enable.partition.eof": True,  # an offset at the end may be that of a transaction's marker
                "isolation.level": isolation,
                "fetch.message.max.bytes": LARGEST_MESSAGE,
                "receive.message.max.bytes": 2 * LARGEST_MESSAGE,
            }
        )
        messages: list[Any] = []
        try:
            for partition in consumer.list_topics(topic, 30).topics[topic].partitions:
                place = TopicPartition(topic, partition)
                place.offset, _ = consumer.get_watermark_offsets(place, 30)
                consumer.assign([place])
                while True:
                    message = consumer.poll(30)
                    assert message is not None
                    error = message.error()
                    if error is not None and error.code() == KafkaError._PARTITION_EOF:
                        break
                    assert error is None, error
                    messages.append(message)
        finally:
            consumer.close()
        return messages

    def _wait_for(self, topic: str, partitions: int) -> None:
        """Wait until a topic has this many partitions: the controller answers before the broker has them."""
        _wait(lambda: self._serves(topic, partitions))

    def _serves(self, topic: str | None = None, partitions: int = 0) -> bool:
        """Return whether each partition of a topic, or of all topics, is served, and there are that many.

        The offsets are asked for because a leader in the metadata may not have taken over yet.
        """
        from confluent_kafka import KafkaException, TopicPartition
        from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

        admin = self._admin()
        try:
            asked = {
                TopicPartition(name, number): OffsetSpec.latest()  # type: ignore[no-untyped-call]
                for name, metadata in admin.list_topics(topic, timeout=1).topics.items()
                for number in metadata.partitions
            }
            for answer in (admin.list_offsets(asked, request_timeout=5) if asked else {}).values():
                answer.result(10)
        except KafkaException:
            return False
        return len(asked) >= partitions

    def _admin(self) -> Any:
        from confluent_kafka.admin import AdminClient

        return AdminClient({"bootstrap.servers": self.address, "log_level": 0})


def _wait(holds: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@contextmanager
def running(folder: Path) -> Iterator[Broker]:
    """Run a broker, with its files in a new folder, for the duration of a block."""
    folder.mkdir()
    broker = Broker(folder)
    broker.start()
    try:
        yield broker
    finally:
        broker.stop()
