"""Three Kafka brokers, each behind a network of its own, which can be cut off from the others alone."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from selectroute.testing.broker import Broker, ServerProcess
from tests.support.components import missing

NODES = (1, 2, 3)
PORT, CONTROLLER = 9092, 9093

SETTINGS: dict[str, str | int] = {
    "controller.quorum.voters": ",".join(f"{n}@10.78.0.{n}:{CONTROLLER}" for n in NODES),
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.min.isr": 2,
    "transaction.state.log.num.partitions": 3,
    # Who does not answer is deposed within seconds.
    "replica.lag.time.max.ms": 4_000,
    "broker.session.timeout.ms": 4_000,
    "broker.heartbeat.interval.ms": 1_000,
    "controller.quorum.election.timeout.ms": 1_500,
    "controller.quorum.fetch.timeout.ms": 2_500,
    "auto.leader.rebalance.enable": "false",
}


class Cluster:
    """The brokers. A namespace and a pair of interfaces each; the bridge between them has an address, too."""

    def __init__(self, folder: Path) -> None:
        self.addresses = {n: f"10.78.0.{n}:{PORT}" for n in NODES}
        self.servers = ",".join(self.addresses.values())
        self._name = f"sr{os.getpid() % 100_000}"  # an interface's name has 15 characters
        self.brokers: dict[int, Broker] = {}
        self._folder = folder

    def start(self) -> None:
        bridge = self._name
        _run(f"ip link add {bridge} type bridge")
        _run(f"ip addr add 10.78.0.254/24 dev {bridge}")
        _run(f"ip link set {bridge} up")
        for n in NODES:
            space = f"{bridge}n{n}"
            _run(f"ip netns add {space}")
            _run(f"ip link add {bridge}v{n} type veth peer name eth0 netns {space}")
            _run(f"ip link set {bridge}v{n} master {bridge} up")
            for command in (f"addr add 10.78.0.{n}/24 dev eth0", "link set eth0 up", "link set lo up"):
                _run(f"ip netns exec {space} ip {command}")
            self.brokers[n] = self._broker(n, space)
        for broker in self.brokers.values():
            broker._server.start(lambda: True)
        self.until(self._is_whole)

    def _broker(self, n: int, space: str) -> Broker:
        listeners = f"PLAINTEXT://10.78.0.{n}:{PORT}"
        own = {
            "node.id": n,
            "listeners": f"{listeners},CONTROLLER://10.78.0.{n}:{CONTROLLER}",
            "advertised.listeners": listeners,
        }
        folder = self._folder / str(n)
        folder.mkdir()
        broker = Broker(folder, SETTINGS | own)
        broker.address = self.servers
        command = [one.replace("-Xmx1g", "-Xmx400m") for one in broker._server._command]
        broker._server = ServerProcess(folder / "broker.log", ["ip", "netns", "exec", space, *command])
        return broker

    def _is_whole(self) -> bool:
        """Return whether all brokers are there, with all replicas in sync."""
        from confluent_kafka import KafkaException

        try:
            found = self.brokers[1]._admin().list_topics(timeout=3)
        except KafkaException:
            return False
        replicas = [one.isrs for topic in found.topics.values() for one in topic.partitions.values()]
        return all(len(one) == len(NODES) for one in (found.brokers, *replicas))

    def cut_off(self, node: int) -> None:
        """Cut a broker off from the other two, and from nobody else: they depose it."""
        self._route(node, "add")

    def join(self, node: int) -> None:
        """Undo `cut_off`, and wait until the broker has what it missed."""
        self._route(node, "del")
        self.until(self._is_whole)

    def _route(self, node: int, verb: str) -> None:
        for other in NODES:
            if other != node:
                _run(f"ip netns exec {self._name}n{node} ip route {verb} blackhole 10.78.0.{other}/32")

    @staticmethod
    def until(holds, seconds: float = 120.0) -> None:  # type: ignore[no-untyped-def]
        deadline = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < deadline
            time.sleep(0.2)

    def stop(self) -> None:
        for broker in self.brokers.values():
            broker.kill()
        for n in NODES:
            _run(f"ip netns del {self._name}n{n}", check=False)
            _run(f"ip link del {self._name}v{n}", check=False)
        _run(f"ip link del {self._name}", check=False)


@contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    """Run three brokers. Skips where networks can't be made: that takes root, and Linux."""
    if not hasattr(os, "geteuid") or os.geteuid() or shutil.which("ip") is None:
        missing("networks of their own for brokers take root, and the command ip of Linux")
    one = Cluster(folder)
    try:
        try:
            one.start()
        except subprocess.CalledProcessError as error:
            missing(f"no networks can be made here: {error.stderr.strip()}")
        yield one
    finally:
        one.stop()


def _run(command: str, check: bool = True) -> None:
    subprocess.run(command.split(), check=check, capture_output=True, text=True)
