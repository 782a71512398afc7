"""Peers on the JVM, driven by `peers/`: fetched by name from Maven Central, compiled, asked line by line.

A peer needs a JDK (`javac`), and once the network: PySpark's own Ivy fetches its jars into a cache folder,
``$XDG_CACHE_HOME/selectroute-bench`` or ``~/.cache/selectroute-bench``. Where something is missing the peer
is skipped with its reason. The harness makes the rules and the messages anew from the workload's definition,
so that what crosses is a question and a line of JSON; the clock that counts is that of the process here.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from bench.engine import Engine, SkippedError
from bench.workloads.oracle import Expected

SOURCES: Final = Path(__file__).with_name("peers")
HARNESS: Final = ("Workload.java", "Peer.java", "Harness.java")
OPTIONS: Final = ("-XX:+UseSerialGC", "-Xmx6g")
"""One thread for matching and none for the collector; what peers say of their own start is left out."""
WARM_UP: Final = 4
_FETCH_SECONDS: Final = 600


@dataclass(frozen=True, slots=True)
class Peer:
    """An engine on the JVM: its class in `peers/`, what it is fetched as, and the Java it needs."""

    source: str
    modules: tuple[str, ...]
    java: int = 17


PEERS: Final = {
    "event-ruler": Peer("EventRuler", ("software.amazon.event.ruler:event-ruler:2.0.1",)),
    "event-ruler-eq": Peer("EventRulerEquality", ("software.amazon.event.ruler:event-ruler:2.0.1",)),
    # The selectors are in the broker's client, which Ivy leaves out of its dependencies, being a bundle.
    "activemq": Peer(
        "ActiveMq", ("org.apache.activemq:activemq-broker:6.2.0", "org.apache.activemq:activemq-client:6.2.0")
    ),
    "artemis": Peer("Artemis", ("org.apache.artemis:artemis-server:2.50.0",)),
    "lucene-monitor": Peer("LuceneMonitor", ("org.apache.lucene:lucene-monitor:10.3.0",), java=21),
}


class JvmEngine(Engine):
    """See `bench.engine.Engine`. A process that lives until `close`."""

    def __init__(self, name: str, workload: str, rules: int, count: int, fetch: bool = True) -> None:
        """Raises `SkippedError`. Jars that are not in the cache are fetched only if `fetch` says so."""
        self.name = name
        self.messages = count
        peer = PEERS[name]
        java, classes = _compiled(name, fetch)
        command = [str(java / "bin" / "java"), *OPTIONS, "-cp", classes, "Harness", peer.source]
        self._process = subprocess.Popen(
            [*command, workload, str(rules), str(count)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        built = self._answer()
        self.build_seconds: float = built["seconds"]
        self.bytes_a_rule: float = built["bytes"] / rules
        for _ in range(WARM_UP):
            self.run()

    def judge(self) -> Expected:
        """See `bench.engine.Engine`."""
        found = self._ask("judge 2000")
        return Expected(found["matches"], found["rule_sum"])

    def run(self) -> int:
        """See `bench.engine.Engine`."""
        return int(self._ask("run")["matches"])

    def close(self) -> None:
        """End the process."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _ask(self, line: str) -> dict[str, Any]:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{line}\n")
            self._process.stdin.flush()
        except OSError as error:
            raise SkippedError(f"it ended: {error}") from error
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line.startswith("{"):
            self.close()
            raise SkippedError(f"it ended with code {self._process.returncode}, most likely out of memory")
        answer: dict[str, Any] = json.loads(line)
        return answer


def jdk_version() -> str:
    """The Java that peers run on, for the record; empty without one."""
    found = _jdks()
    return str(max(found)) if found else ""


@cache
def _compiled(name: str, fetch: bool) -> tuple[Path, str]:
    """Return the JDK's folder and the class path of a peer."""
    peer = PEERS[name]
    java = jdk(peer.java)
    jars = [jar for module in peer.modules for jar in fetched(module, java, fetch)]
    return java, compiled(name, (*HARNESS, f"{peer.source}.java"), jars, java)


def jdk(oldest: int) -> Path:
    """Return the folder of the newest JDK here. Raises `SkippedError` if it is older than that."""
    jdks = _jdks()
    newest = max(jdks, default=0)
    if newest < oldest:
        seen = f"only JDK {newest}" if newest else "none"
        raise SkippedError(f"needs a JDK of Java {oldest} or later, found {seen}: set JAVA_HOME to one")
    return jdks[newest]


def compiled(name: str, sources: Iterable[str], jars: Iterable[Path], java: Path) -> str:
    """Compile sources of `peers/` that need some jars; return the class path. Raises `SkippedError`."""
    classes = _cache_folder() / "classes" / name
    classes.mkdir(parents=True, exist_ok=True)
    path = os.pathsep.join(map(str, jars))
    command = [str(java / "bin" / "javac"), "-nowarn", "-d", str(classes), "-cp", path]
    command += [str(SOURCES / file) for file in sources]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SkippedError(f"javac failed: {(done.stderr.strip() or 'no message').splitlines()[0]}")
    return os.pathsep.join([str(classes), path])


def fetched(module: str, java: Path, fetch: bool) -> list[Path]:
    """Return the jars of a module and of what it depends on. Raises `SkippedError` if they can't be had."""
    folder = _cache_folder() / "jars" / module.replace(":", "_")
    if not folder.is_dir():
        if not fetch:
            raise SkippedError("its jars are not here: --full fetches them")
        _fetch(module, java, folder)
    return sorted(folder.glob("*.jar"))


def _fetch(module: str, java: Path, folder: Path) -> None:
    """Let Ivy fetch a module and what it depends on into a folder, which is there only when complete."""
    spark = find_spec("pyspark")
    jars = Path(spark.origin).parent / "jars" if spark and spark.origin else Path()
    ivy = next(jars.glob("ivy-*.jar"), None)
    if ivy is None:
        raise SkippedError("PySpark, whose Ivy fetches it, is not installed")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        fetched = Path(scratch) / "jars"
        command = [
            *(str(java / "bin" / "java"), "-jar", str(ivy), "-cache", str(Path(scratch) / "ivy")),
            *("-confs", "default", "-dependency", *module.split(":")),
            *("-retrieve", f"{fetched}/[artifact]-[revision](-[classifier]).[ext]"),
        ]
        try:
            done = subprocess.run(command, capture_output=True, check=False, timeout=_FETCH_SECONDS)
        except subprocess.TimeoutExpired:
            raise SkippedError(f"fetching {module} took too long") from None
        artifact, version = module.split(":")[1:]
        if done.returncode or not (fetched / f"{artifact}-{version}.jar").is_file():
            raise SkippedError(f"{module} could not be fetched: no network, or a registry without it")
        fetched.rename(folder)


@cache
def _jdks() -> dict[int, Path]:
    """The JDKs here by their version: JAVA_HOME, ``javac`` on PATH, and where systems keep them."""
    homes = [Path(os.environ["JAVA_HOME"])] if os.environ.get("JAVA_HOME") else []
    if on_path := shutil.which("javac"):
        homes.append(Path(on_path).resolve().parent.parent)
    homes += sorted(Path("/usr/lib/jvm").glob("*"))
    found: dict[int, Path] = {}
    for home in homes:
        if all((home / "bin" / tool).is_file() for tool in ("javac", "java")):
            try:
                said = subprocess.run(
                    [home / "bin" / "javac", "-version"], capture_output=True, text=True, check=False
                )
            except OSError:
                continue
            if version := re.search(r"javac (\d+)", said.stdout + said.stderr):
                found.setdefault(int(version[1]), home)
    return found


def _cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "selectroute-bench"
