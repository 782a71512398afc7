"""The container files name only what there is, and their health checks tell whether what they start runs.

No image is built here: hadolint reads the files, and the rest is held against the code.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

from docs.site.pages import ROOT
from selectroute.service.http.middleware import FREE
from selectroute.testing.broker import free_ports
from streaming.containers import entrypoint
from tests.docs.shell import find_command
from tests.support.components import missing

FOLDER = ROOT / "streaming" / "containers"
NAMES = ["job", "service"]
BIN = Path(sys.executable).parent


def instructions(name):
    """The instructions of a file in their order: name and value, with lines joined."""
    text = (FOLDER / f"{name}.Dockerfile").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ").splitlines()
    return [tuple(line.strip().split(maxsplit=1)) for line in joined if line.strip()]


def values(name, instruction):
    return [value for found, value in instructions(name) if found == instruction]


def variables(name):
    return dict(one.split("=", 1) for value in values(name, "ENV") for one in value.split())


def health_command(name):
    (value,) = values(name, "HEALTHCHECK")
    command = json.loads(re.search(r"CMD (\[.*\])", value)[1])
    assert command[0] == "python"
    return [sys.executable, *command[1:]]


def lint(path):
    if not (BIN / "hadolint").exists():
        missing("hadolint is not installed (the extra `ci`)")
    return subprocess.run([BIN / "hadolint", "--no-color", path], capture_output=True, text=True)


@pytest.mark.parametrize("name", NAMES)
def test_the_linter_has_nothing_to_say(name):
    found = lint(FOLDER / f"{name}.Dockerfile")
    assert (found.stdout, found.returncode) == ("", 0)


def test_the_linter_finds_a_base_without_a_tag(tmp_path):
    (tmp_path / "Dockerfile").write_text("FROM python\n")
    found = lint(tmp_path / "Dockerfile")
    assert "DL3006" in found.stdout and found.returncode == 1


@pytest.mark.parametrize("name", NAMES)
def test_the_base_is_the_python_of_the_checks_by_its_tag(name):
    base, extras = (value for value in values(name, "ARG"))
    checked = re.search(r"Python (\d+\.\d+)", (ROOT / "constraints.txt").read_text())[1]
    assert re.fullmatch(rf"BASE=python:{re.escape(checked)}-slim-\w+", base)
    assert values(name, "FROM") == ["${BASE} AS build", "${BASE}"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert set(extras.removeprefix("EXTRAS=").split(",")) <= set(project["optional-dependencies"])


@pytest.mark.parametrize("name", NAMES)
def test_what_is_copied_exists_and_is_sent_to_the_builder(name):
    sent = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    for value in values(name, "COPY"):
        if not value.startswith("--from"):
            for source in value.split()[:-1]:
                assert source in sent and (ROOT / source).exists(), source


@pytest.mark.parametrize("name", NAMES)
def test_it_does_not_run_as_root_and_holds_no_secret(name):
    users = values(name, "USER")
    assert len(users) == 1 and re.fullmatch(r"[1-9]\d*:[1-9]\d*", users[0])
    (created,) = (value for value in values(name, "RUN") if "useradd" in value)
    uid, _ = users[0].split(":")
    assert f"--uid {uid} " in created and f"-o {uid} -g {uid} " in created
    assert not [key for key in variables(name) if re.search("TOKEN|SECRET|PASSWORD|KEY", key)]


@pytest.mark.parametrize(("name", "port"), [("service", "PORT"), ("job", "METRICS_PORT")])
def test_it_starts_a_command_that_there_is_with_settings_that_there_are(name, port):
    (entry,), (given,) = (map(json.loads, values(name, kind)) for kind in ("ENTRYPOINT", "CMD"))
    command, rest = find_command(given)
    if name == "service":
        assert (entry, rest) == (["selectroute"], [])
    else:
        assert Path(entry[1]).name == Path(entrypoint.__file__).name
        assert (command.name, rest) == ("run", ["--help"])
    known = {parameter.name for parameter in command.params}
    chosen = [key for key in variables(name) if key.startswith("SELECTROUTE_")]
    assert {key.removeprefix("SELECTROUTE_").lower() for key in chosen} <= known
    assert values(name, "EXPOSE") == [variables(name)[f"SELECTROUTE_{port}"]]


def test_the_health_checks_ask_for_paths_that_need_no_token():
    assert "/readyz" in health_command("service")[-1] and "/readyz" in FREE
    assert "/metrics" in health_command("job")[-1]


def test_the_job_has_what_the_manifests_start():
    (copied,) = (value.split() for value in values("job", "COPY") if "submit.py" in value)
    script = f"{copied[-1]}{Path(copied[0]).name}"
    first = (FOLDER / "job.Dockerfile").read_text(encoding="utf-8").splitlines()[0]
    image = re.search(r"-t (\S+) \.$", first)[1]
    for path in (ROOT / "streaming" / "kubernetes").glob("*-operator.yaml"):
        spec = yaml.safe_load(path.read_text())["spec"]
        assert spec.get("mainApplicationFile", spec.get("pyFiles")) == f"local://{script}"
        assert spec.get("image", spec["sparkConf"].get("spark.kubernetes.container.image")) == image


EXECUTOR = {
    "JAVA_HOME": "/java",
    "SPARK_CONF_DIR": "/conf",
    "SPARK_EXECUTOR_MEMORY": "2g",
    "SPARK_JAVA_OPT_10": "-Dten",
    "SPARK_JAVA_OPT_2": "-Dtwo words",
    **{name: name.lower() for name in entrypoint.EXECUTOR.values()},
}


def test_the_entry_point_becomes_driver_executor_or_command():
    spark = Path("/spark")
    driver = entrypoint.command(["driver", "a", "b"], {"SPARK_DRIVER_BIND_ADDRESS": "10.0.0.1"}, spark)
    assert driver == [
        "/spark/bin/spark-submit", "--deploy-mode", "client",
        "--conf", "spark.driver.bindAddress=10.0.0.1", "a", "b",
    ]  # fmt: skip
    executor = entrypoint.command(["executor"], EXECUTOR, spark)
    assert executor[:8] == [
        "/java/bin/java", "-Dtwo words", "-Dten", "-Xms2g", "-Xmx2g",
        "-cp", "/conf:/spark/jars/*", entrypoint.BACKEND,
    ]  # fmt: skip
    assert executor[8:10] == ["--driver-url", "spark_driver_url"]
    command = entrypoint.command(["stream", "run"], {}, spark)
    assert command == [str(BIN / "selectroute"), "stream", "run"]


def test_spark_on_kubernetes_knows_each_name_of_the_entry_point():
    found = importlib.util.find_spec("pyspark")
    if found is None:
        pytest.skip("PySpark is not installed (the extra `spark`)")
    jars = Path(found.origin).parent / "jars"
    (kubernetes,) = jars.glob("spark-kubernetes_*.jar")
    with zipfile.ZipFile(kubernetes) as opened:
        folder = "org/apache/spark/"
        names = opened.read(f"{folder}deploy/k8s/Constants$.class")
        backend = b"".join(
            opened.read(name)
            for name in opened.namelist()
            if name.startswith(entrypoint.BACKEND.replace(".", "/"))
        )
    for name in (*entrypoint.EXECUTOR.values(), "SPARK_DRIVER_BIND_ADDRESS", "SPARK_EXECUTOR_MEMORY"):
        assert name.encode() in names
    assert entrypoint.JAVA_OPTION.encode() in names and b"SPARK_CONF_DIR" in names
    assert backend and all(option.encode() in backend for option in entrypoint.EXECUTOR)


def healthy(name, environment):
    return subprocess.run(health_command(name), env=environment, capture_output=True).returncode == 0


@pytest.mark.slow
def test_the_service_needs_a_token_and_its_health_check_tells_whether_it_runs(tmp_path):
    """Its variables and commands, run on this machine: no container."""
    own = variables("service")
    chosen = {key: value for key, value in own.items() if key.startswith("SELECTROUTE_")}
    changed = {
        "SELECTROUTE_REGISTRY": f"sqlite:///{tmp_path}/registry.db",
        "SELECTROUTE_PORT": str(*free_ports(1)),
    }
    environment = {**os.environ, **chosen, **changed, "XDG_CONFIG_HOME": os.devnull}
    serve = [str(BIN / "selectroute"), *json.loads(values("service", "CMD")[0])]
    refused = subprocess.run(serve, env=environment, capture_output=True, text=True, timeout=120)
    assert refused.returncode != 0 and "token create" in refused.stderr
    token = [str(BIN / "selectroute"), "token", "create", "--role", "admin"]
    subprocess.run(token, env=environment, check=True, capture_output=True)
    assert not healthy("service", environment)
    with subprocess.Popen(serve, env=environment, cwd=tmp_path, stderr=subprocess.DEVNULL) as running:
        try:
            end = time.monotonic() + 120
            while not healthy("service", environment):
                assert running.poll() is None and time.monotonic() < end
                time.sleep(0.5)
        finally:
            running.terminate()
        assert running.wait(timeout=60) == 0
    assert not healthy("service", environment)


def test_the_health_check_of_the_job_tells_whether_its_metrics_are_served():
    pytest.importorskip("prometheus_client", reason="prometheus-client is not installed")
    pytest.importorskip("pyspark", reason="PySpark is not installed (the extra `spark`)")
    from selectroute.spark.stream.metrics import StreamMetrics

    port = str(StreamMetrics().serve(0))
    assert healthy("job", {**os.environ, "SELECTROUTE_METRICS_PORT": port})
    assert not healthy("job", {**os.environ, "SELECTROUTE_METRICS_PORT": str(*free_ports(1))})


def test_the_files_are_where_the_page_names_them():
    page = (ROOT / "docs" / "how-to" / "containers.md").read_text(encoding="utf-8")
    for name in NAMES:
        assert f"docker build -f streaming/containers/{name}.Dockerfile " in page
    assert shutil.which("hadolint", path=str(BIN)) is None or "hadolint" in page
