"""Unchanged Qpid JMS clients of both APIs, jakarta and javax, against a broker: `Scenarios.java`."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.components import after_first, missing

SOURCE = Path(__file__).with_name("Scenarios.java")
CLIENTS = {"2.10.0": "jakarta.jms", "1.14.0": "javax.jms"}
"""Versions of Qpid JMS, with the package of the API."""

NAMES = re.findall(r'SCENARIOS\.put\("([^"]+)"', SOURCE.read_text(encoding="utf-8"))

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("qpid-jms")]


@pytest.fixture(scope="session")
def jars():
    """A function that returns the jars of a version of the client."""
    jar_cache = pytest.importorskip(
        "selectroute.testing.jars", reason="PySpark is not installed (the extra `spark`)"
    )
    from selectroute.spark.session import JavaError

    def fetched(version: str) -> list[str]:
        module = jar_cache.Module("org.apache.qpid", "qpid-jms-client", version)
        try:
            return [*map(str, jar_cache.fetch(f"qpid-jms-{version}", [module], transitive=True))]
        except (jar_cache.JarError, JavaError) as error:
            missing(str(error))

    return fetched


@pytest.mark.parametrize("version", after_first(pytest.mark.nightly, *CLIENTS))
def test_scenarios(broker, jars, tmp_path, version):
    if shutil.which("javac") is None:
        missing("there is no javac, which compiles a JMS client")
    source = SOURCE.read_text(encoding="utf-8").replace("jakarta.jms", CLIENTS[version])
    (tmp_path / SOURCE.name).write_text(source, encoding="utf-8")
    path = os.pathsep.join([*jars(version), str(tmp_path)])
    subprocess.run(["javac", "-d", tmp_path, "-cp", path, tmp_path / SOURCE.name], check=True)
    command = ["java", "-cp", path, "Scenarios", f"amqp://127.0.0.1:{broker.port}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    lines = [line.split("\t")[1:] for line in done.stdout.splitlines() if line.startswith("scenario\t")]
    assert [name for name, _ in lines] == NAMES, done.stderr
    assert [(name, result) for name, result in lines if result != "ok"] == []
    assert done.returncode == 0
