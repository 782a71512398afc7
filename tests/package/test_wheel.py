"""The wheel as a stranger gets it: built, installed where there is no checkout, imported, typed and run.

The environment has the wheel and its plain dependencies. For the demo it finds all else where these tests
run, so that a gigabyte is not installed again.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import sysconfig
import venv
import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest
from packaging.metadata import Metadata

import selectroute
from docs.site.pages import ROOT
from selectroute.extras import the_extra
from tests.support.components import missing

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("wheel")]

PACKAGE = ROOT / "src" / "selectroute"


class Environment(NamedTuple):
    """Virtual environment, a folder outside of the checkout for its commands, and their PYTHONPATH."""

    root: Path
    folder: Path
    path: Path | None = None

    def run(self, command, *arguments, code=0, timeout=600):
        """Run a command; return its output and errors. No variable of the tests leads it to the sources."""
        left_out = ("PYTHON", "SELECTROUTE_", "VIRTUAL_ENV")
        variables = {name: text for name, text in os.environ.items() if not name.startswith(left_out)}
        if self.path is not None:
            variables["PYTHONPATH"] = str(self.path)
        variables["PATH"] = f"{self.root / 'bin'}{os.pathsep}{os.environ['PATH']}"
        ran = subprocess.run(
            [self.root / "bin" / command, *map(str, arguments)],
            cwd=self.folder, env=variables, capture_output=True, text=True, timeout=timeout,
        )  # fmt: skip
        assert ran.returncode == code, f"{ran.stdout}\n{ran.stderr}"
        return ran.stdout, ran.stderr

    def python(self, code, *arguments):
        """Run some Python, which sees the environment only; return what it printed."""
        return self.run("python", "-I", "-c", code, *arguments)[0].strip()


def build(*arguments):
    """Build by what is installed here, without a network."""
    command = [sys.executable, "-m", "build", "--no-isolation", *map(str, arguments)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert ran.returncode == 0, f"{ran.stdout}\n{ran.stderr}"


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A folder with the sdist, and the wheel that was made of it."""
    for module in ("build", "hatchling"):
        if find_spec(module) is None:
            missing(f"{module} is not installed (the extra `ci`)")
    folder = tmp_path_factory.mktemp("built")
    build("--outdir", folder, ROOT)
    return folder


@pytest.fixture(scope="module")
def wheel(built):
    (found,) = built.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def base(tmp_path_factory, wheel):
    """The wheel and its plain dependencies, without an extra."""
    folder = tmp_path_factory.mktemp("base")
    venv.create(folder / "venv", symlinks=True)
    (folder / "elsewhere").mkdir()
    made = Environment(folder / "venv", folder / "elsewhere")
    python = made.root / "bin" / "python"
    command = [sys.executable, "-m", "uv", "pip", "install", "-q", "--python", python]
    command += ["-c", ROOT / "constraints.txt", wheel]
    ran = subprocess.run(command, cwd=made.folder, capture_output=True, text=True, timeout=600)
    if ran.returncode:
        missing(f"the wheel can't be installed here: {ran.stderr[-1000:]}")
    return made


@pytest.fixture(scope="module")
def everything(tmp_path_factory, base):
    """The same environment, in which the dependencies that these tests have are found, too, behind its own.

    They are not added as a folder of packages, whose ``.pth`` files would be read: one may lead to a
    checkout.
    """
    folder = tmp_path_factory.mktemp("dependencies")
    here = sorted({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})
    (folder / "sitecustomize.py").write_text(f"import sys\nsys.path += {here}\n", encoding="utf-8")
    return base._replace(path=folder)


def contents(path):
    """The SHA-256 of each file of a wheel."""
    with zipfile.ZipFile(path) as archive:
        return {name: hashlib.sha256(archive.read(name)).hexdigest() for name in archive.namelist()}


def test_sdist_builds_the_same_wheel_as_the_checkout(wheel, tmp_path):
    build("--wheel", "--outdir", tmp_path, ROOT)
    (other,) = tmp_path.glob("*.whl")
    assert other.name == wheel.name
    assert contents(other) == contents(wheel)


def test_wheel_has_every_file_of_the_package_and_nothing_else(wheel):
    here = {
        path.relative_to(PACKAGE.parent).as_posix()
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    found = {name for name in contents(wheel) if ".dist-info/" not in name}
    assert found == here
    assert {"selectroute/py.typed", "selectroute/spark/log4j2.properties"} <= found


def test_metadata_is_valid_and_has_version_licence_and_readme(wheel):
    with zipfile.ZipFile(wheel) as archive:
        folder = f"selectroute-{selectroute.__version__}.dist-info"
        read = Metadata.from_email(archive.read(f"{folder}/METADATA"), validate=True)
        assert f"{folder}/licenses/LICENSE" in archive.namelist()
    assert str(read.version) == selectroute.__version__
    assert read.license_expression == "Apache-2.0"
    assert read.description == (ROOT / "README.md").read_text(encoding="utf-8")


ROUTE = """
import sys, json
from importlib.metadata import version
import selectroute as sr
heavy = {name for name in ("numpy", "numba", "pyarrow", "pyspark") if name in sys.modules}
index = sr.Index()
index.add("heavy", "JMSType = 'car' AND weight > 2500", topic="cars/+")
message = sr.Message(headers={"JMSType": "car"}, properties={"weight": sr.Int(3000)}, topic="cars/eu")
found = [sr.__file__, sr.__version__, version("selectroute"), sorted(heavy), index.match(message)]
print(json.dumps(found))
"""

KERNEL = """
import json
import pyarrow as pa, selectroute as sr
snapshot = sr.build_snapshot([("all", "weight > 2500"), ("none", "weight > 4000")])
print(json.dumps(snapshot.match(pa.Table.from_pylist([{"weight": 3000}])).ids().to_pylist()))
"""


def test_wheel_routes_a_message_without_extras(base):
    file, *found = json.loads(base.python(ROUTE))
    assert Path(file).is_relative_to(base.root)
    version = selectroute.__version__
    assert found == [version, version, [], ["heavy"]]


@pytest.mark.nightly  # compiles the kernel, whose sources are those of the checkout
def test_wheel_routes_a_table_without_extras(base):
    assert json.loads(base.python(KERNEL)) == [["all"]]


NAMES = """
import json, sys, importlib
package = importlib.import_module(sys.argv[1])
found = {}
for name in {*package.__all__} - {"warm"}:  # which compiles for a minute, and needs no extra
    try:
        getattr(package, name)()
    except ModuleNotFoundError as error:
        found[name] = str(error)
    except Exception:
        pass
print(json.dumps(found))
"""


def test_public_names_are_there_or_say_what_to_install(base):
    found = json.loads(base.python(NAMES, "selectroute"))
    extras = {"Registry": "service", "SqlQueue": "service", "SqlQueues": "service"}
    extras |= dict.fromkeys(("RemoteQueue", "RemoteRegistry", "connect"), "client")
    assert found.keys() == extras.keys()
    for name, sentence in found.items():
        assert sentence.endswith(f"it comes with {the_extra(extras[name])}")
    assert json.loads(base.python(NAMES, "selectroute.kafka")) == {}


def test_spark_without_its_extra_says_what_to_install(base):
    _, printed = base.run("python", "-I", "-c", "import selectroute.spark", code=1)
    sentence = f"pyspark is not installed; it comes with {the_extra('spark')}"
    assert printed.splitlines()[-1] == f"selectroute.extras.MissingExtraError: {sentence}"


WITHOUT = {
    "demo": "demo",
    "stream run --input in --snapshots s --output out": "spark",
    "stream audit out": "spark",
    "serve --registry sqlite:///r.db": "service",
    "subscription list --registry sqlite:///r.db": "service",
    "subscription list --registry http://localhost:1": "service",
    "queue depth A --queues sqlite:///q.db": "service",
    "registry verify --registry sqlite:///r.db": "service",
    "token list --registry sqlite:///r.db": "service",
    "dead-letter list out": "spark",
}
"""Commands, each with the extra that it needs."""

COMMANDS = """
import contextlib, io, json, sys
from selectroute.__main__ import main
said = []
for command in sys.argv[1:]:
    sys.argv = ["selectroute", *command.split()]
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
            code = 0
        except SystemExit as ended:
            code = ended.code
    said.append([code, out.getvalue(), err.getvalue()])
print(json.dumps(said))
"""
"""Runs commands one after another: a process for each takes a second."""


def test_commands_without_their_extra_say_what_to_install(base):
    found = json.loads(base.python(COMMANDS, *WITHOUT))
    for (command, extra), (code, printed, sentence) in zip(WITHOUT.items(), found, strict=True):
        told = rf"selectroute: \w+ is not installed; it comes with {re.escape(the_extra(extra))}\n"
        assert (code, printed) == (1, ""), command
        assert re.fullmatch(told, sentence), command


def test_commands_that_need_no_extra_run(base):
    version = f"selectroute {selectroute.__version__}\n"
    assert base.run("selectroute", "--version")[0] == version
    assert base.run("python", "-m", "selectroute", "--version")[0] == version
    base.run("selectroute", "selector", "check", "JMSType = 'car' AND weight > 2500")
    (base.folder / "subscriptions.jsonl").write_text('{"id": "a", "selector": "weight > 2500"}\n')
    base.run("selectroute", "index", "build", "subscriptions.jsonl", "snapshots")
    base.run("selectroute", "index", "verify", "snapshots")


TYPED = '''"""Use of the package from outside."""

import selectroute as sr

index = sr.Index()
message = sr.Message(properties={"weight": sr.Int(3000)})
reveal_type(index.match(message))
reveal_type(message)
reveal_type(index.freeze())
reveal_type(sr.__version__)
index.add(1)
sr.nope
'''


@pytest.fixture
def typed(base):
    path = base.folder / "typed.py"
    path.write_text(TYPED, encoding="utf-8")
    return path


def checked(module, base, *arguments):
    """What a type checker, installed where these tests run, says of the file beside the wheel."""
    if find_spec(module) is None:
        missing(f"{module} is not installed (the extra `ci`)")
    command = [sys.executable, "-m", module, *map(str, arguments), "typed.py"]
    return subprocess.run(command, cwd=base.folder, capture_output=True, text=True, timeout=600).stdout


@pytest.mark.usefixtures("typed")
def test_mypy_sees_types_from_outside(base):
    python = base.root / "bin" / "python"
    found = checked(
        "mypy", base, "--strict", "--config-file=", "--cache-dir=.mypy", "--python-executable", python
    )
    assert re.findall(r'Revealed type is "(.*)"', found) == [
        "list[str]",
        "selectroute.selector.message.Message",
        "selectroute.index.snapshot.Snapshot",
        "str",
    ], found
    assert re.findall(r"typed.py:(\d+): error: .*\[(.*)\]", found) == [
        ("11", "arg-type"),
        ("12", "attr-defined"),
    ], found


@pytest.mark.usefixtures("typed")
def test_pyright_sees_types_from_outside(base):
    found = checked("basedpyright", base, "--outputjson", "--pythonpath", base.root / "bin" / "python")
    said = json.loads(found)["generalDiagnostics"]
    types = [one["message"].rpartition(" is ")[2] for one in said if one["severity"] == "information"]
    assert types == ['"list[str]"', '"Message"', '"Snapshot"', '"str"'], found
    errors = [(one["rule"], one["range"]["start"]["line"]) for one in said if one["severity"] == "error"]
    assert errors == [("reportArgumentType", 10), ("reportAttributeAccessIssue", 11)], found


@pytest.mark.nightly  # that of the checkout runs in tests/unit/demo
def test_demo_runs_from_the_wheel(everything, java):
    where, _ = everything.run("python", "-c", "import pyspark, selectroute; print(selectroute.__file__)")
    assert Path(where).is_relative_to(everything.root)
    printed, _ = everything.run(
        "selectroute", "demo", "--messages", "2000", "--subscriptions", "300", "--out", "out"
    )
    assert "2,000" in printed
    assert (everything.folder / "out" / "report.html").exists()
