"""Hadoop on this machine: HDFS of one node, and YARN of one node, on loopback, with their files in a folder.

NameNode, DataNode, ResourceManager and NodeManager are those of Hadoop, each a process of its own, of the
version of the clients that PySpark ships. Their jar is fetched by name with the Ivy that PySpark ships, once,
into the cache of this user (56 MB). They end with the process that started them, even if that is killed.
Where Hadoop is missing, tests are skipped, or fail if nothing may be missing.
"""

from __future__ import annotations

import json
import os
import subprocess
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from xml.sax.saxutils import escape

import pytest

pytest.importorskip("pyspark", reason="PySpark, whose Ivy fetches Hadoop, is not installed")

from selectroute.selector.errors import SelectRouteError
from selectroute.spark.session import SHORT_LIVED, find_java
from selectroute.testing.broker import ServerError, ServerProcess, free_ports
from selectroute.testing.jars import JarError, Module, fetch, spark_jars
from tests.support.components import missing

_HOST: Final = "127.0.0.1"
_CLIENT: Final = "hadoop-client-api-"
_BOUNCY_CASTLE: Final = Module("org.bouncycastle", "bcpkix-jdk18on", "1.82")
"""Certificates of the ResourceManager; signed jars, which Hadoop's own jar does not contain."""

# The packages that bin/hadoop opens to its daemons.
_OPENED: Final = "io lang lang.reflect math net nio text util util.concurrent util.zip"
_LOGGING: Final = """\
appender.console.type=Console
appender.console.name=console
appender.console.layout.type=PatternLayout
appender.console.layout.pattern=%d{ISO8601} %p %c{1}: %m%n
rootLogger.level=info
rootLogger.appenderRef.console.ref=console
"""
_MAIN: Final = {
    "namenode": "org.apache.hadoop.hdfs.server.namenode.NameNode",
    "datanode": "org.apache.hadoop.hdfs.server.datanode.DataNode",
    "resourcemanager": "org.apache.hadoop.yarn.server.resourcemanager.ResourceManager",
    "nodemanager": "org.apache.hadoop.yarn.server.nodemanager.NodeManager",
}


class Hadoop:
    """HDFS of one node, and YARN of one node if wanted.

    Attributes:
        url: of the file system, ``hdfs://127.0.0.1:PORT``; its superuser is the user of this process.
        conf: folder for ``HADOOP_CONF_DIR``.
        web: URL of the NameNode's web interface.
        yarn: URL of the ResourceManager's web interface; empty without YARN.
        daemons: processes by name: namenode, datanode, resourcemanager, nodemanager.
    """

    def __init__(self, folder: Path, *, yarn: bool = False, memory_mb: int = 6144) -> None:
        """Format the file system. `folder` is empty; `memory_mb` are for all containers of YARN, MiB."""
        self.folder = folder
        self.conf = folder / "conf"
        ports = [f"{_HOST}:{port}" for port in free_ports(13)]
        self.url = f"hdfs://{ports[0]}"
        self.web = f"http://{ports[1]}"
        self._node = f"http://{ports[3]}"
        self.yarn = f"http://{ports[5]}" if yarn else ""
        home = find_java().home
        shipped = spark_jars()
        version = _version(shipped)
        hadoop = Module("org.apache.hadoop", "hadoop-client-minicluster", version)
        jars = [self.conf, *fetch(f"hadoop-{version}", [hadoop])]
        if yarn:
            jars += fetch(f"bouncycastle-{_BOUNCY_CASTLE.version}", [_BOUNCY_CASTLE], transitive=True)
        for kind in ("hadoop-client-*", "jcl-over-slf4j-*", "log4j-*", "slf4j-*"):
            jars += shipped.glob(f"{kind}.jar")
        path = os.pathsep.join(map(str, jars))
        opened = [f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in _OPENED.split()]
        self._java = [str(home / "bin" / "java"), *SHORT_LIVED, *opened, "-cp", path]
        self._environment = {
            **os.environ,
            "JAVA_HOME": str(home),  # containers of YARN inherit it
            "HADOOP_CONF_DIR": str(self.conf),
        }
        self._write_conf(ports, memory_mb)
        self.daemons = {
            name: ServerProcess(
                folder / f"{name}.log", [*self._java, "-Xmx512m", _MAIN[name]], self._environment
            )
            for name in list(_MAIN)[: 4 if yarn else 2]
        }
        self._format()

    def start(self) -> None:
        """Start all daemons, and wait until files can be written and containers started."""
        answers = {
            "namenode": lambda: self._state() is not None,
            "resourcemanager": lambda: self._metrics() is not None,
        }
        for name, daemon in self.daemons.items():
            daemon.start(answers.get(name, lambda: True))
        # The NameNode leaves safe mode when the DataNode has reported its blocks.
        self.daemons["datanode"].wait(self._has_node)
        if self.yarn:
            self.daemons["nodemanager"].wait(lambda: (self._metrics() or {}).get("activeNodes") == 1)

    def stop(self) -> None:
        """Stop all daemons, the containers of YARN first."""
        for daemon in reversed(self.daemons.values()):
            daemon.stop()

    def environment(self) -> dict[str, str]:
        """Return the environment for clients, ``spark-submit`` among them."""
        return dict(self._environment)

    def get(self, path: str) -> dict[str, Any]:
        """Return what the ResourceManager's REST interface answers, such as for ``cluster/apps/ID``."""
        with urllib.request.urlopen(f"{self.yarn}/ws/v1/{path}", timeout=30) as answer:
            found: dict[str, Any] = json.load(answer)
        return found

    def applications(self) -> list[dict[str, Any]]:
        """Return all applications of YARN, oldest first."""
        found = self.get("cluster/apps")["apps"] or {"app": []}
        return sorted(found["app"], key=lambda one: int(one["startedTime"]))

    def _has_node(self) -> bool:
        """Return whether the DataNode serves, and the NameNode has left safe mode and knows of it."""
        state = self._state()
        node = _bean(self._node, "Hadoop:service=DataNode,name=DataNodeInfo")
        return (
            state is not None
            and (state["FSState"], state["NumLiveDataNodes"]) == ("Operational", 1)
            and state["CapacityTotal"] > 0  # its volumes were reported
            and node is not None
            and [one["ActorState"] for one in json.loads(node.get("BPServiceActorInfo", "[]"))] == ["RUNNING"]
        )

    def _state(self) -> dict[str, Any] | None:
        return _bean(self.web, "Hadoop:service=NameNode,name=FSNamesystemState")

    def _metrics(self) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = self.get("cluster/metrics")["clusterMetrics"]
        except OSError:
            return None
        return found

    def _format(self) -> None:
        command = [*self._java, _MAIN["namenode"], "-format", "-nonInteractive"]
        done = subprocess.run(command, capture_output=True, text=True, env=self._environment)
        if done.returncode:
            lines = (done.stdout + done.stderr).strip().splitlines() or ["the NameNode said nothing"]
            raise ServerError(f"HDFS could not be formatted: {lines[-1]}")

    def _write_conf(self, ports: list[str], memory_mb: int) -> None:
        """Write the files of HADOOP_CONF_DIR."""
        self.conf.mkdir()
        (self.conf / "log4j2.properties").write_text(_LOGGING)
        files: dict[str, dict[str, object]] = {
            "core-site.xml": {
                "fs.defaultFS": self.url,
                "hadoop.tmp.dir": self.folder / "tmp",
                # The REST interfaces act as this user.
                "hadoop.http.staticuser.user": _user(),
            },
            "hdfs-site.xml": {
                "dfs.replication": 1,
                "dfs.namenode.name.dir": (self.folder / "name").as_uri(),
                "dfs.datanode.data.dir": (self.folder / "data").as_uri(),
                "dfs.namenode.http-address": ports[1],
                "dfs.datanode.address": ports[2],
                "dfs.datanode.http.address": ports[3],
                "dfs.datanode.ipc.address": ports[4],
                "dfs.heartbeat.interval": 1,
                "dfs.namenode.safemode.extension": 0,
                # A node that is not reached is given up soon, and there is no other to write to.
                "dfs.client.block.write.replace-datanode-on-failure.enable": "false",
            },
            "yarn-site.xml": {
                "yarn.resourcemanager.webapp.address": ports[5],
                "yarn.resourcemanager.address": ports[6],
                "yarn.resourcemanager.scheduler.address": ports[7],
                "yarn.resourcemanager.resource-tracker.address": ports[8],
                "yarn.resourcemanager.admin.address": ports[9],
                "yarn.resourcemanager.am.max-attempts": 10,  # the most that an application may ask for
                "yarn.nodemanager.address": ports[10],
                "yarn.nodemanager.localizer.address": ports[11],
                "yarn.nodemanager.webapp.address": ports[12],
                "yarn.nodemanager.local-dirs": self.folder / "local",
                "yarn.nodemanager.log-dirs": self.folder / "containers",
                "yarn.nodemanager.resource.memory-mb": memory_mb,
                "yarn.nodemanager.resource.cpu-vcores": 8,
                "yarn.nodemanager.delete.debug-delay-sec": 3600,  # logs stay for tests
                "yarn.nodemanager.disk-health-checker.enable": "false",  # the disk may be nearly full
                "yarn.nodemanager.vmem-check-enabled": "false",  # Java reserves far more than it uses
                "yarn.nodemanager.env-whitelist": "JAVA_HOME,HADOOP_CONF_DIR",
                "yarn.scheduler.minimum-allocation-mb": 256,
                "yarn.scheduler.maximum-allocation-mb": memory_mb,
            },
            "capacity-scheduler.xml": {
                "yarn.scheduler.capacity.root.queues": "default",
                "yarn.scheduler.capacity.root.default.capacity": 100,
                "yarn.scheduler.capacity.maximum-am-resource-percent": 1,
            },
        }
        for name, properties in files.items():
            _write(self.conf / name, properties)


@contextmanager
def hadoop(folders: pytest.TempPathFactory, *, yarn: bool = False) -> Iterator[Hadoop]:
    """HDFS with one node, and YARN if wanted."""
    folder = folders.mktemp("hadoop") / ("yarn" if yarn else "hdfs")
    folder.mkdir()
    try:
        cluster = Hadoop(folder, yarn=yarn)
        try:
            cluster.start()
            yield cluster
        finally:
            cluster.stop()
    except SelectRouteError as error:
        missing(str(error))


def _bean(web: str, name: str) -> dict[str, Any] | None:
    """Return a bean of a daemon that has a web interface there; None if it does not answer with one."""
    try:
        with urllib.request.urlopen(f"{web}/jmx?qry={name}", timeout=30) as answer:
            beans: list[dict[str, Any]] = json.load(answer)["beans"]
    except OSError:
        return None
    return beans[0] if beans else None


def _version(shipped: Path) -> str:
    """Return the version of the clients of Hadoop that PySpark ships."""
    client = next(shipped.glob(f"{_CLIENT}*.jar"), None)
    if client is None:
        raise JarError("this PySpark does not ship Hadoop's clients")
    return client.stem.removeprefix(_CLIENT)


def _user() -> str:
    import pwd

    return os.environ.get("HADOOP_USER_NAME") or pwd.getpwuid(os.getuid()).pw_name


def _write(path: Path, properties: Mapping[str, object]) -> None:
    texts = ((name, escape(str(value))) for name, value in properties.items())
    rows = (f"<property><name>{name}</name><value>{value}</value></property>" for name, value in texts)
    path.write_text("\n".join(["<configuration>", *rows, "</configuration>\n"]))
