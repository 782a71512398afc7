"""Whatever part is not installed, the error is one sentence with the command that installs it."""

import ast
import pickle
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions

import pytest

from docs.site.pages import ROOT
from selectroute.extras import EXTRAS, MissingExtraError, importing, the_extra

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PARTS = PROJECT["optional-dependencies"]

WITHOUT = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {absent!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
try:
    exec({code!r})
except Exception as error:
    print(type(error).__mro__[0].__name__, isinstance(error, ImportError), error)
"""


def without(absent, code):
    """The error of some code where these modules are absent: its type, if it is an ImportError, its text."""
    code = WITHOUT.format(absent=set(absent), code=code)
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return found.stdout.strip()


def test_the_extra_spark_is_enough_for_streams():
    others = {module for module, extra in EXTRAS.items() if extra != "spark"}
    rooms = "job_administration, audit.outcomes, replay.replay, stream.fan_out"
    code = "; ".join(f"import selectroute.spark.{room}" for room in rooms.split(", "))
    assert without(others, f"{code}; import selectroute.cli.commands.stream_run") == ""


def test_the_extra_client_is_enough_for_a_service_elsewhere():
    others = {module for module, extra in EXTRAS.items() if extra != "client"}
    code = "import selectroute as sr; sr.connect('http://localhost:1', token='srt_x').queues()"
    assert without(others, code) == ""


def test_names_can_be_looked_at_without_any_extra():
    code = "import inspect, pydoc, selectroute as sr; pydoc.render_doc(sr); from selectroute import *; "
    looks = "len(inspect.getmembers(sr)) > 40 and hasattr(sr, 'Registry') and not hasattr(sr, 'nope')"
    assert without(EXTRAS, f"{code}assert {looks} and set(dir(sr)) == set(sr.__all__)") == ""


def name(requirement):
    return re.match(r"[\w-]+", requirement)[0].replace("_", "-").lower()


POSTGRESQL = "import selectroute as sr; sr.Registry.open('postgresql+psycopg://h/d')"
KAFKA = "from selectroute.spark import kafka_cluster; kafka_cluster('localhost:1').wire()"
SCHEMAS = "import selectroute.kafka as k; k.SchemaRegistry('http://localhost:1').client()"


@pytest.mark.parametrize(
    ("absent", "code", "module", "extra"),
    [
        (["pyspark"], "import selectroute.spark", "pyspark", "spark"),
        (["pyspark"], "from selectroute.spark.job import Job", "pyspark", "spark"),
        (["sqlalchemy"], "import selectroute as sr; sr.Registry.open('x')", "sqlalchemy", "service"),
        (["sqlalchemy"], "from selectroute import SqlQueue; SqlQueue('x', 'Q')", "sqlalchemy", "service"),
        (["httpx"], "import selectroute as sr; sr.connect('http://localhost:1')", "httpx", "client"),
        (["psycopg"], POSTGRESQL, "psycopg", "service"),
        (["kafka"], KAFKA, "kafka", "kafka"),
        (["confluent_kafka"], SCHEMAS, "confluent_kafka", "schemas"),
        (["fastavro"], SCHEMAS, "fastavro", "schemas"),
    ],
)  # fmt: skip
def test_missing_part_names_the_command_that_installs_it(absent, code, module, extra):
    for needed in ("pyspark",) if "spark" in code else ("sqlalchemy", "httpx", "psycopg", "confluent_kafka"):
        pytest.importorskip(needed, reason=f"{needed} is not installed")
    assert without(absent, code) == (
        f"MissingExtraError True {module} is not installed; it comes with the extra `{extra}` of "
        f"selectroute: pip install 'selectroute[{extra}]'"
    )


@pytest.mark.parametrize(
    ("absent", "url"), [("obstore", "s3://bucket/folder"), ("hdfs_native", "hdfs://localhost:1/folder")]
)
def test_folder_elsewhere_names_the_extra_of_its_client(absent, url):
    code = f"from selectroute.storage import Location; Location.of({url!r}).read()"
    assert without([absent], code).endswith(f"needs {the_extra('storage')}")


def test_module_that_no_extra_brings_stays_what_it_is():
    with pytest.raises(ModuleNotFoundError) as error, importing():
        import no_such_module  # noqa: F401
    assert not isinstance(error.value, MissingExtraError)


def test_extra_of_a_whole_part_goes_before_that_of_one_of_its_modules():
    sentence = "^pyspark is .* the extra `demo` "
    with pytest.raises(MissingExtraError, match=sentence) as error, importing("demo"), importing():
        raise ModuleNotFoundError("No module named 'pyspark'", name="pyspark")
    assert error.value.name == "pyspark"


def test_error_crosses_processes_whole():
    with pytest.raises(MissingExtraError) as error, importing("demo"):
        raise ModuleNotFoundError("No module named 'pyspark'", name="pyspark")
    there = pickle.loads(pickle.dumps(error.value))  # noqa: S301
    assert (str(there), there.name) == (str(error.value), "pyspark")


def test_missing_module_of_this_package_is_not_blamed_on_an_extra():
    with pytest.raises(ModuleNotFoundError) as error, importing("demo"):
        import selectroute.no_such_module  # noqa: F401
    assert not isinstance(error.value, MissingExtraError)


def test_every_module_that_the_sources_import_is_a_dependency_or_of_an_extra():
    base = {"llvmlite", "numba", "numpy", "pyarrow", "rich", "sortedcontainers", "typer"}
    assert base == {name(one) for one in PROJECT["dependencies"]}
    unknown = []
    known = {*sys.stdlib_module_names, *base, "selectroute", *EXTRAS}
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = []
            if isinstance(node, ast.Import):
                names = [one.name for one in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module]
            for one in names:
                if not known & {one.partition(".")[0], ".".join(one.split(".")[:2])}:
                    unknown.append(f"{path.relative_to(ROOT)}: {one}")
    assert not unknown


def test_extra_of_each_module_has_its_distribution():
    distributions = packages_distributions()
    direct = {"google.protobuf": "protobuf", "psycopg": "psycopg"}
    transitive = {"anyio", "fastavro", "google.protobuf", "py4j", "pydantic", "pydantic_core", "starlette"}
    for module, extra in EXTRAS.items():
        assert extra in PARTS
        if module in transitive or (module not in distributions and module not in direct):
            continue
        found = {name(one) for one in distributions.get(module, [direct.get(module)])}
        assert found & {name(one) for one in PARTS[extra]}, f"{module} is not in the extra `{extra}`"


def test_every_command_shown_to_install_a_part_names_an_extra():
    """In errors, docstrings and pages; ``'.[…]'`` is for a clone."""
    shown = re.compile(r"selectroute\[([\w,]+)\]")
    for folder, kind in (("src", "*.py"), ("docs", "*.md"), ("streaming", "*.md")):
        for path in sorted((ROOT / folder).rglob(kind)):
            for found in shown.findall(path.read_text(encoding="utf-8")):
                assert set(found.split(",")) <= {*PARTS}, f"{path}: {found}"


def test_no_text_of_the_sources_wants_a_clone():
    for path in sorted((ROOT / "src").rglob("*.py")):
        assert "install '.[" not in path.read_text(encoding="utf-8"), path
