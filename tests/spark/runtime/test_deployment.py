"""The job as it is deployed: by spark-submit, with the files of streaming/conf, on a cluster of its own."""

import subprocess
from collections import Counter

import pytest

from selectroute.spark import JavaError
from selectroute.spark.audit.audit import audit
from selectroute.spark.session import find_java
from tests.support.components import missing
from tests.support.servers.cluster import PROPERTIES, ROOT, environment, running, submit_command

pytestmark = [pytest.mark.application, pytest.mark.slow]
CONF = ROOT / "streaming" / "conf"
RED = {"properties": {"color": "red"}}


@pytest.fixture(autouse=True)
def java():
    try:
        find_java()
    except JavaError as error:
        missing(str(error))


def submit(world, *arguments):
    folders = ["--input", world.input, "--snapshots", world.snapshots, "--output", world.output]
    command = [*submit_command(*arguments), *map(str, folders), "--available-now"]
    return subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)


def check_routed(done, world, files):
    assert done.returncode == 0, done.stderr[-4_000:]
    expected = Counter({(f"{n}.jsonl", 0, "red", 1): 1 for n in range(files)})
    assert world.deliveries() == expected
    found = audit(world.output, recount=True)
    assert (found.findings, found.counts.messages) == ([], 2 * files)


@pytest.fixture
def messages(world):
    world.publish(1, red="color = 'red'")
    for number in range(6):
        world.drop_json(f"{number}.jsonl", RED, {})
    return world


def test_spark_submit_on_one_machine(messages):
    done = submit(messages, "--properties-file", CONF / "local.conf")
    check_routed(done, messages, 6)


@pytest.mark.nightly
def test_spark_submit_on_a_standalone_cluster_and_an_upgrade_between_batches(messages, tmp_path):
    with running(tmp_path) as url:
        arguments = ("--properties-file", tmp_path / PROPERTIES, "--master", url)
        local = ("--conf", "spark.driver.host=127.0.0.1")
        done = submit(messages, *arguments, *local)
        check_routed(done, messages, 6)
        # Another start, as after an upgrade: it goes on behind what was committed.
        for number in range(6, 8):
            messages.drop_json(f"{number}.jsonl", RED, {})
        done = submit(messages, *arguments, *local)
        check_routed(done, messages, 8)
    assert list((tmp_path / "work").iterdir())  # an executor ran there
