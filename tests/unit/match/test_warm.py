"""The kernel is compiled ahead by `warm`; who waits for it reads why."""

from __future__ import annotations

import os
import subprocess
import sys

import grimp
import pytest

import selectroute as sr
from selectroute.match import compiled

_MATCH = """
import pyarrow as pa, selectroute as sr
index = sr.Index()
for number in range(40):
    index.add(f"s{number}", f"color = 'c{number % 3}' AND weight > {number}")
index.add("like", "name LIKE 'a%b_' AND NOT name LIKE '%x%'")
for number in range(40):
    index.add(f"like-{number}", f"name LIKE '%{number}%b'")
index.add("range", "price BETWEEN 1 AND 3.5 OR weight * 2 <= price")
index.add("prefix", "name LIKE 'abc%'")
index.add("topic", None, topic="cars/+/#")
index.add("null", "color IS NULL AND JMSPriority IN (1, 2)" if False else "color IS NULL")
batch = pa.record_batch({
    "color": ["c1", None, "c2"], "weight": pa.array([3, 9, 50], pa.int32()), "name": ["aab1", "abcd", None],
    "price": [1.5, 2.0, None], "@topic": ["cars/eu", "cars/eu/de", None],
})
snapshot = index.freeze()
print(len(snapshot.match(batch).ordinals))
print(len(snapshot.match(pa.Table.from_batches([batch] * 50).combine_chunks().to_batches()[0]).ordinals))
print(len(snapshot.changed([sr.Remove("s1"), sr.Add("all")]).match(batch).ordinals))
from selectroute.match.compiled import compilations
print("compiled", compilations())
"""


def run(code, cache):
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache)}
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )


def test_every_room_that_is_compiled_into_the_kernel_makes_its_version():
    """Otherwise code that was compiled from other constants would go on running."""
    graph = grimp.build_graph("selectroute")
    kernel = {
        module
        for module in graph.find_modules_that_directly_import("selectroute.match.compiled")
        if module.startswith("selectroute.match.")
    }
    used = {
        used.split(".")[1] for module in kernel for used in graph.find_modules_directly_imported_by(module)
    }
    assert len(kernel) > 5 and used <= {*compiled.ROOMS}


@pytest.mark.slow
def test_after_warm_the_kernel_is_there_and_before_it_one_line_says_why(tmp_path):
    code = "import selectroute as sr; done = sr.warm(); print(done.compiled, done.folder); print(done)"
    first = run(code, tmp_path)
    assert first.stderr.count("compiling the matching kernel, once on this machine") == 1
    count, folder = first.stdout.splitlines()[0].split()
    assert int(count) > 20 and folder.startswith(str(tmp_path))
    assert f"kept in {folder}" in first.stdout and "compiled in" in first.stdout
    again = run("import selectroute as sr; print(sr.warm())", tmp_path)
    assert "was warm already" in again.stdout and not again.stderr
    matched = run(_MATCH, tmp_path)
    assert matched.stdout.splitlines()[-1] == "compiled 0"


def test_where_nothing_can_be_kept_it_says_so(monkeypatch):
    monkeypatch.setattr(compiled, "_CACHE", None)
    assert "in every process" in compiled._sentence() and "NUMBA_CACHE_DIR" in compiled._sentence()
    assert compiled.cache_folder() is None
    assert "kept nowhere" in str(sr.Warmed(None, 30.0, 60))
