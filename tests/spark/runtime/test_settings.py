"""What is deployed names only what there is: settings of Spark, options of the job, fields of operators."""

import json
import re
import shlex
from pathlib import Path

import pytest
import typer
import yaml

from selectroute.cli import app
from selectroute.storage import Location
from tests.spark.runtime.spark_settings import is_known, known_settings
from tests.support.servers.cluster import ROOT

STREAMING = ROOT / "streaming"
MANIFESTS = ["kubeflow-operator", "apache-operator"]
FIELDS = json.loads((Path(__file__).parent / "operator_fields.json").read_text())


def conf(name):
    lines = (STREAMING / "conf" / f"{name}.conf").read_text().splitlines()
    found = [re.fullmatch(r"(spark(?:\.\w+)+) +(\S+)", line) for line in lines if not line.startswith("#")]
    assert all(found), lines
    return dict(one.groups() for one in found)


def manifest(name):
    (found,) = yaml.safe_load_all((STREAMING / "kubernetes" / f"{name}.yaml").read_text())
    return found


def arguments(found):
    return found["spec"].get("arguments") or found["spec"]["driverArgs"]


def settings(found):
    """The settings of Spark that a manifest has, those of the operator's own fields by Spark's names."""
    spec = found["spec"]
    given = dict(spec["sparkConf"])
    for kind in ("driver", "executor"):
        for field, name in (("cores", "cores"), ("memory", "memory"), ("memoryOverhead", "memoryOverhead")):
            if field in spec.get(kind, {}):
                given[f"spark.{kind}.{name}"] = str(spec[kind][field])
    if "executor" in spec:
        given["spark.executor.instances"] = str(spec["executor"]["instances"])
        given["spark.kubernetes.container.image"] = spec["image"]
        account = "spark.kubernetes.authenticate.driver.serviceAccountName"
        given[account] = spec["driver"]["serviceAccount"]
    return given


def options_of(words):
    """The options of a command line, which must be those of the command that it names."""
    command = typer.main.get_command(app)
    words = list(words)
    while hasattr(command, "commands"):
        command = command.commands[words.pop(0)]
    known = {name for parameter in command.params for name in parameter.opts}
    given = {word.split("=", 1)[0] for word in words if word.startswith("--")}
    assert given <= known, given - known
    return dict(word.split("=", 1) for word in words if "=" in word)


def test_settings_are_found_in_the_jars_and_mistyped_ones_are_not():
    assert len(known_settings()) > 1_000
    for name in ("spark.yarn.maxAppAttempts", "spark.yarn.appMasterEnv.JAVA_HOME", "spark.hadoop.fs.x"):
        assert is_known(name)
    for name in ("spark.yarn.maxAppAttempt", "spark.kubernetes.driver.restartPolicy", "spark.nothing"):
        assert not is_known(name)


@pytest.mark.parametrize("name", ["local", "standalone", "yarn", "kubernetes"])
def test_each_setting_of_a_conf_file_is_one_of_spark(name):
    assert not [setting for setting in conf(name) if not is_known(setting)]


@pytest.mark.parametrize("name", MANIFESTS)
def test_each_setting_of_a_manifest_is_one_of_spark(name):
    assert not [setting for setting in manifest(name)["spec"]["sparkConf"] if not is_known(setting)]


@pytest.mark.parametrize("name", MANIFESTS)
def test_a_manifest_has_the_settings_of_the_conf_file(name):
    given, expected = settings(manifest(name)), conf("kubernetes")
    assert expected.pop("spark.submit.deployMode") == "cluster"  # the operators submit in no other
    # The driver's cores are one by default; the operators want to be told.
    assert given == {**expected, "spark.driver.cores": "1"}


@pytest.mark.parametrize("name", MANIFESTS)
def test_each_field_of_a_manifest_is_one_of_its_operator(name):
    found = manifest(name)
    known = FIELDS[found["apiVersion"]]
    assert set(known["required"]) <= set(found["spec"])

    def walk(path, value):
        if isinstance(value, dict) and path in known["fields"]:
            assert set(value) <= set(known["fields"][path]), path
            for field, below in value.items():
                walk(f"{path}.{field}".strip("."), below)
        elif isinstance(value, list) and path in known["fields"]:
            for one in value:
                assert set(one) <= set(known["fields"][path]), path
        elif path in known["values"]:
            assert value in known["values"][path]
        else:
            # The rest are texts and numbers, lists of texts, and settings by name.
            assert not isinstance(value, dict) or path == "spec.sparkConf", path

    walk("", found)


@pytest.mark.parametrize("name", MANIFESTS)
def test_each_argument_of_a_manifest_is_one_of_the_command(name):
    found = manifest(name)
    given = options_of(arguments(found))
    for option in ("--input", "--snapshots", "--output"):
        assert not Location.of(given[option]).is_local


def test_both_operators_run_the_same_command():
    first, second = map(manifest, MANIFESTS)
    assert arguments(first) == arguments(second)
    assert first["spec"]["mainApplicationFile"] == second["spec"]["pyFiles"]


@pytest.mark.parametrize("name", ["local", "standalone", "yarn", "kubernetes"])
def test_the_usage_of_a_conf_file_is_a_command_that_there_is(name):
    text = (STREAMING / "conf" / f"{name}.conf").read_text()
    usage = " ".join(re.match(r"((?:# .*\\\n#? *)*# .*)", text)[1].replace("\\\n#", " ").split())
    words = shlex.split(usage.removeprefix("# "))
    assert words[0] == "spark-submit"
    start = next(place for place, word in enumerate(words) if word.endswith("submit.py"))
    options_of([word for word in words[start + 1 :] if word != "…"])


def test_the_account_and_the_secret_of_the_manifests_are_those_of_the_page():
    made = list(yaml.safe_load_all((STREAMING / "kubernetes" / "access.yaml").read_text()))
    names = {one["kind"]: one["metadata"]["name"] for one in made}
    page = (ROOT / "docs" / "how-to" / "clusters.md").read_text(encoding="utf-8")
    [(secret, variables)] = re.findall(r"create secret generic (\S+) --from-env-file=\S+ +# (.*)", page)
    for name in MANIFESTS:
        given = settings(manifest(name))
        for who in ("driver", "executor"):
            account = f"spark.kubernetes.authenticate.{who}.serviceAccountName"
            assert given[account] == names["ServiceAccount"]
            prefix = f"spark.kubernetes.{who}.secretKeyRef."
            keys = {key.removeprefix(prefix): value for key, value in given.items() if key.startswith(prefix)}
            assert keys == {key: f"{secret}:{key}" for key in re.findall(r"(\w+)=…", variables)}
    (binding,) = (one for one in made if one["kind"] == "RoleBinding")
    assert binding["roleRef"]["name"] == names["Role"]
    assert [one["name"] for one in binding["subjects"]] == [names["ServiceAccount"]]
