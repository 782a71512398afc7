"""The job on YARN in cluster mode as the page shows it, with all of its folders on HDFS.

Its driver is killed: YARN starts it again, and it goes on.
"""

import io
import os
import random
import re
import shlex
import signal
import subprocess
import sys
import tarfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pyspark
import pytest

import selectroute as sr
from selectroute.spark.audit.audit import audit
from selectroute.storage import Location
from tests.support.remote_world import RemoteWorld
from tests.support.servers.cluster import ROOT
from tests.support.servers.hadoop import hadoop

pytestmark = [pytest.mark.application, pytest.mark.nightly]
SELECTORS = {
    1: {"red": "color = 'red'", "heavy": "weight > 25", "both": "color = 'blue' AND weight < 10", "all": ""},
    2: {"red": "color = 'green'", "heavy": "weight > 40", "new": "weight BETWEEN 5 AND 7", "all": ""},
}
MESSAGES = [
    {"properties": {"color": ("red", "green", "blue")[n % 3], "weight": {"type": "int", "value": n}}}
    for n in range(50)
]
DRIVERS = ["java", "python"]
"""Both are the driver: the application master's JVM, and the Python process that it starts."""


@pytest.fixture(scope="module")
def yarn(tmp_path_factory):
    with hadoop(tmp_path_factory, yarn=True) as found:
        yield found


@pytest.fixture
def world(yarn, monkeypatch):
    monkeypatch.setenv("HADOOP_CONF_DIR", str(yarn.conf))
    return RemoteWorld(Location.of(yarn.url))


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    """A packed environment, as far as YARN sees it: it has this machine's Python, and the checkout."""
    script = (f'#!/bin/sh\nPYTHONPATH="{ROOT}/src:{ROOT}:$PYTHONPATH" exec {sys.executable} "$@"\n').encode()
    packed = tmp_path_factory.mktemp("archive") / "env.tar.gz"
    with tarfile.open(packed, "w:gz") as file:
        entry = tarfile.TarInfo("bin/python")
        entry.size, entry.mode = len(script), 0o755
        file.addfile(entry, io.BytesIO(script))
    return packed


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """A folder for PATH: a spark-submit whose containers fit on this machine."""
    smaller = {
        "spark.driver.memory": "1g",
        "spark.executor.instances": 1,
        "spark.executor.cores": 2,
        "spark.executor.memory": "768m",
        "spark.executor.memoryOverhead": "1g",
        "spark.yarn.jars": f"local:{Path(pyspark.__file__).parent}/jars/*",
        "spark.yarn.report.interval": "200ms",
        # One machine without a name that others could look up.
        "spark.yarn.appMasterEnv.SPARK_LOCAL_IP": "127.0.0.1",
        "spark.executorEnv.SPARK_LOCAL_IP": "127.0.0.1",
    }
    given = " ".join(f"--conf {shlex.quote(f'{name}={value}')}" for name, value in smaller.items())
    folder = tmp_path_factory.mktemp("programs")
    program = folder / "spark-submit"
    program.write_text(f'#!/bin/sh\nexec {Path(pyspark.__file__).parent}/bin/spark-submit {given} "$@"\n')
    program.chmod(0o755)
    return folder


def shown(yarn, world, archive, *options):
    """The page's commands, with the names of this cluster and more options."""
    page = (ROOT / "docs/how-to/clusters.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"<!-- yarn: [^>]*-->\n```shell\n(.*?)```", page, re.DOTALL)
    for there, here in {
        "/etc/hadoop/conf": str(yarn.conf),
        "hdfs://namenode/in ": f"{shlex.quote(str(world.input))} ",
        "hdfs://namenode": yarn.url,
        "env.tar.gz#": f"{archive}#",
        "/out\n": f"/out {shlex.join(map(str, options))}\n",
    }.items():
        assert there in code
        code = code.replace(there, here)
    # The environment is packed already.
    return "".join(line for line in code.splitlines(keepends=True) if not line.startswith("venv-pack"))


def submitted(yarn, world, log, archive, programs, *options):
    """Submit the job."""
    home = str(Path(pyspark.__file__).parent)
    environment = yarn.environment() | {
        "SPARK_HOME": home,
        "LC_ALL": "C.UTF-8",
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
    }
    environment.pop("PYSPARK_PYTHON", None)
    with log.open("ab") as lines:
        return subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", shown(yarn, world, archive, *options, "--available-now")],
            cwd=ROOT,
            env=environment,
            stdout=lines,
            stderr=lines,
        )


def said(yarn, log):
    """What the submitter and the containers have said, for the report of a failure."""
    logs = [log, *sorted((yarn.folder / "containers").rglob("std*"))]
    return "\n".join(f"== {one}\n{one.read_text(errors='replace')[-3_000:]}" for one in logs)


def commits(world):
    return [one.read_json() for one in committed(world)]


def committed(world):
    """The files of committed batches."""
    return [one for one in (world.output / "_commits").files() if one.stem.isdigit()]


def expected(world):
    """The deliveries by the reference evaluator, under the revision of each committed batch."""
    selectors = {
        revision: {id: sr.Selector(text) for id, text in those.items()}
        for revision, those in SELECTORS.items()
    }
    messages = [sr.Message.from_json(one) for one in MESSAGES]
    matches = {
        revision: [(row, id) for row, one in enumerate(messages) for id in those if those[id].matches(one)]
        for revision, those in selectors.items()
    }
    return Counter(
        (name, row, id, commit["revision"])
        for commit in commits(world)
        for name in commit["inputs"]["sizes"]
        for row, id in matches[commit["revision"]]
    )


def drop(world, numbers):
    for number in numbers:
        world.drop_json(f"{number:03}.jsonl", *MESSAGES)


def drivers(id, attempt):
    """The processes of the driver of an attempt: JVM and Python, as far as they run."""
    # The first container of an attempt is the application master's.
    container = f"{id.replace('application', 'container')}_{attempt:02}_000001"
    found = {}
    for entry in Path("/proc").iterdir():
        with suppress(OSError):  # it ended meanwhile
            words = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdecimal() else [b""]
            text = b" ".join(words).decode(errors="replace")
            if words[0].endswith(b"/java") and container in text and "ApplicationMaster" in text:
                found["java"] = int(entry.name)
            elif b"python" in words[0] and "submit.py stream run" in text and "spark-submit" not in text:
                found["python"] = int(entry.name)
    return found


def wait_for_commits(count, yarn, world, job, log):
    deadline = time.monotonic() + 300
    while len(committed(world)) < count:
        assert job.poll() is None and time.monotonic() < deadline, said(yarn, log)
        time.sleep(0.05)


@pytest.mark.parametrize("seed", [1])
def test_yarn_starts_a_killed_driver_again_and_nothing_is_lost_or_twice(
    yarn, world, archive, programs, tmp_path, seed
):
    log = tmp_path / "submit.log"
    chance = random.Random(seed)
    world.publish(1, **SELECTORS[1])
    drop(world, range(20))
    before = len(yarn.applications())
    job = submitted(yarn, world, log, archive, programs, "--max-files-per-trigger", 1)
    try:
        for attempt, driver in enumerate(DRIVERS, 1):
            wait_for_commits(len(committed(world)) + 3, yarn, world, job, log)
            time.sleep(chance.uniform(0, 1))
            (application,) = yarn.applications()[before:]
            os.kill(drivers(application["id"], attempt)[driver], signal.SIGKILL)
            if attempt == 1:
                world.publish(2, **SELECTORS[2])
                drop(world, range(20, 40))  # the driver that is started next finds them
        assert job.wait(600) == 0, said(yarn, log)
    finally:
        job.kill()
    (application,) = yarn.applications()[before:]
    attempts = yarn.get(f"cluster/apps/{application['id']}/appattempts")["appAttempts"]["appAttempt"]
    assert application["finalStatus"] == "SUCCEEDED"
    assert len(attempts) == len(DRIVERS) + 1
    found = commits(world)
    assert Counter(name for one in found for name in one["inputs"]["sizes"]) == Counter(
        f"{number:03}.jsonl" for number in range(40)
    )
    assert {one["revision"] for one in found} == {1, 2}
    assert world.deliveries() == expected(world)
    audited = audit(world.output, recount=True)
    assert (audited.findings, audited.counts.messages) == ([], 40 * len(MESSAGES))
