"""Spark's own cluster on loopback: a master, and workers that each are a host of their own."""

from __future__ import annotations

import os
import re
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

from selectroute.spark.session import find_java

ROOT = Path(__file__).parents[3]
PROPERTIES = "cluster.conf"
_DEPLOY = "org.apache.spark.deploy"


def environment() -> dict[str, str]:
    """What processes of Spark find. Raises JavaError."""
    home = Path(pyspark.__file__).parent
    return {
        **os.environ,
        "JAVA_HOME": str(find_java().home),
        "SPARK_HOME": str(home),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        # The checkout's package, as an installation on every machine would have it.
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT), *filter(None, sys.path)]),
    }


def submit_command(*arguments: object) -> list[str]:
    """What starts the streaming application by ``spark-submit``, up to its own options."""
    program = f"{Path(pyspark.__file__).parent}/bin/spark-submit"
    return [program, *map(str, arguments), str(ROOT / "streaming" / "submit.py"), "stream", "run"]


@contextmanager
def running(folder: Path, hosts: Sequence[str] = ("127.0.0.1",), cores: int = 2) -> Iterator[str]:
    """Start a master and a worker on each of these addresses, which keep their files in a folder; yield the
    master's URL. The file `PROPERTIES` of the folder is for `submit_command`: it has the cluster's secret.
    """
    with ExitStack() as started:
        secret = f"spark.authenticate.secret {secrets.token_hex()}\n"
        (folder / PROPERTIES).write_text((ROOT / "streaming/conf/standalone.conf").read_text() + secret)
        properties = ("--properties-file", str(folder / PROPERTIES))
        log = folder / "master.log"
        own = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0", *properties)
        started.enter_context(_daemon(log, f"{_DEPLOY}.master.Master", *own))
        url = _waited(log, r"Starting Spark master at (spark://\S+)")[1]
        for number, host in enumerate(hosts):
            log = folder / f"worker-{number}.log"
            own = ("--host", host, "--webui-port", "0", "--cores", str(cores), "--memory", "4g", *properties)
            work = ("--work-dir", str(folder / "work"))
            started.enter_context(_daemon(log, f"{_DEPLOY}.worker.Worker", *own, *work, url))
            _waited(log, "Successfully registered with master")
        yield url


@contextmanager
def _daemon(log: Path, *arguments: str) -> Iterator[None]:
    """A process of Spark's own that runs until the end; what it says goes to a file."""
    found = environment()
    command = [f"{found['SPARK_HOME']}/bin/spark-class", *arguments]
    with open(log, "wb") as said:
        started = subprocess.Popen(command, env=found, stdout=said, stderr=said)
    try:
        yield
    finally:
        started.terminate()
        started.wait()


def _waited(log: Path, pattern: str) -> re.Match[str]:
    """What a process has said, when it has said that."""
    for _ in range(600):
        found = re.search(pattern, log.read_text(errors="replace"))
        if found:
            return found
        time.sleep(0.2)
    raise AssertionError(log.read_text(errors="replace")[-2_000:])
