"""The job on YARN in cluster mode, whose driver is killed: YARN starts it again, and it goes on."""

from __future__ import annotations

import io
import json
import os
import random
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
from tests.support.cluster import ROOT, submit_command
from tests.support.hadoop import hadoop

pytestmark = [pytest.mark.spark, pytest.mark.nightly]
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


def submitted(yarn, world, archive, *options):
    """Submit the job with the settings of the conf file, only smaller, and Spark's jars where they are."""
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
    given = ["--properties-file", ROOT / "streaming" / "conf" / "yarn.conf", "--archives", f"{archive}#env"]
    for name, value in smaller.items():
        given += ["--conf", f"{name}={value}"]
    folders = ["--input", world.input, "--snapshots", world.snapshots, "--output", world.output]
    home = str(Path(pyspark.__file__).parent)
    environment = yarn.environment() | {"SPARK_HOME": home, "LC_ALL": "C.UTF-8"}
    environment.pop("PYSPARK_PYTHON", None)
    with (world.root / "submit.log").open("ab") as log:
        return subprocess.Popen(
            [*submit_command(*given), *map(str, folders), *map(str, options), "--available-now"],
            env=environment,
            stdout=log,
            stderr=log,
        )


def said(yarn, world):
    """What the submitter and the containers have said, for the report of a failure."""
    logs = [world.root / "submit.log", *sorted((yarn.folder / "containers").rglob("std*"))]
    return "\n".join(f"== {log}\n{log.read_text(errors='replace')[-3_000:]}" for log in logs)


def commits(world):
    return [json.loads(path.read_text()) for path in (world.output / "_commits").glob("*.json")]


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


def wait_for_commits(count, yarn, world, job):
    deadline = time.monotonic() + 300
    while len(commits(world)) < count:
        assert job.poll() is None and time.monotonic() < deadline, said(yarn, world)
        time.sleep(0.05)


@pytest.mark.parametrize("seed", [1])
def test_yarn_starts_a_killed_driver_again_and_nothing_is_lost_or_twice(yarn, world, archive, seed):
    chance = random.Random(seed)
    world.publish(1, **SELECTORS[1])
    drop(world, range(20))
    before = len(yarn.applications())
    job = submitted(yarn, world, archive, "--max-files-per-trigger", 1)
    try:
        for attempt, driver in enumerate(DRIVERS, 1):
            wait_for_commits(len(commits(world)) + 3, yarn, world, job)
            time.sleep(chance.uniform(0, 1))
            (application,) = yarn.applications()[before:]
            os.kill(drivers(application["id"], attempt)[driver], signal.SIGKILL)
            if attempt == 1:
                world.publish(2, **SELECTORS[2])
                drop(world, range(20, 40))  # the driver that is started next finds them
        assert job.wait(600) == 0, said(yarn, world)
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
    assert not list((world.output / "_staging").iterdir())
