"""No module imports itself by way of others, however deep in a function the import is; and names load what
they need, no more.
"""

import subprocess
import sys
from graphlib import CycleError, TopologicalSorter

import grimp
import pytest


def test_no_imports_go_in_a_circle():
    graph = grimp.build_graph("selectroute")
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        raise AssertionError(" → ".join(error.args[1])) from None


NUMBA = ("Index", "Snapshot", "build_snapshot", "publish", "Publisher", "Registry", "connect", "SqlQueue")


@pytest.mark.parametrize(
    ("name", "heavy"), [*((name, "numba") for name in NUMBA), ("Registry", "httpx"), ("MemoryQueue", "numpy")]
)
def test_a_name_loads_nothing_that_it_does_not_need(name, heavy):
    """Half of the start of a command was a compiler and an HTTP client that it never used."""
    if name in ("Registry", "connect", "SqlQueue"):
        pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed (the extra `service`)")
    code = f"import sys, selectroute as sr; sr.{name}; sys.exit({heavy!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("planner", ["files.lister", "kafka.planner"])
def test_the_process_that_plans_a_stream_loads_no_compiler(planner):
    pytest.importorskip("pyspark", reason="PySpark is not installed (the extra `spark`)")
    code = f"import sys, selectroute.spark.sources.{planner}; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
