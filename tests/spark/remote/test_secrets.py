"""Credentials of an object store are neither in the job's files nor in anything that its processes say."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

pytest.importorskip("deltalake", reason="deltalake is not installed (the extra `delta`)")

from selectroute.storage import Location
from tests.spark.remote.places import places_of
from tests.spark.store_job import RED, deliveries, drop, publish
from tests.support.servers.azure import KEY
from tests.support.servers.faulty_proxy import faulty_proxy
from tests.support.servers.gcs import PRIVATE_KEY
from tests.support.servers.s3 import SECRET, store_at

pytestmark = [pytest.mark.spark, pytest.mark.nightly]

PROGRAM = """
import sys
from pathlib import Path
from selectroute.spark import Job, local_session, start_fanout
from selectroute.spark.audit.audit import audit
from selectroute.storage import Location

base, switch = Location.of(sys.argv[1]), Path(sys.argv[2])
job = Job.of(base / "in", base / "snapshots", base / "out", max_files=1)
spark = local_session("secrets", cores=2, log_level="INFO")
deny = lambda report: switch.write_text(sys.argv[3]) if report.batch == 1 else None
options = {"available_now": True, "on_batch": deny, "on_warning": lambda text: print(text, flush=True)}
start_fanout(spark, job, **options).wait()
print(job, spark.conf.getAll, audit(base / "out", recount=True).findings)
"""


@pytest.mark.parametrize(
    ("name", "secret", "refusal"),
    [("s3", SECRET, "deny"), ("azure", KEY, "forbid"), ("gcs", PRIVATE_KEY, "forbid")],
)
def test_no_output_of_the_driver_the_jvm_and_the_workers_has_it(request, tmp_path, name, secret, refusal):
    found = request.getfixturevalue(name)
    store = store_at(found) if name == "s3" else found
    switch = tmp_path / "switch"
    with faulty_proxy(store.endpoint, tmp_path / "log", switch=switch) as proxy, store.client():
        base = Location.of(f"{store.root}/{tmp_path.name}")
        publish(base, red="color = 'red'")
        for number in range(4):
            drop(base, f"{number}.jsonl", RED, "{")
        environment = {**os.environ, **store.behind(proxy).environment}
        assert any(secret in one or in_file(secret, one) for one in environment.values())
        command = [sys.executable, "-c", PROGRAM, str(base), str(switch), refusal]
        with subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as program:
            said = []
            for line in program.stdout:
                said.append(line)
                if "the stream waits" in line:  # long enough that tasks fail, too
                    threading.Timer(5.0, switch.write_text, ["ok"]).start()
        whole = "".join(said)
        assert program.returncode == 0, whole[-3_000:]
        assert " INFO " in whole and "the stream waits" in whole and len(said) > 100
        assert len(deliveries(base)) == 4
        assert secret not in whole
        assert places_of(secret.encode(), base) == []


def in_file(secret, path):
    """Whether the environment names a file that has the secret."""
    return path.endswith(".json") and secret in Path(path).read_text()
