"""The kernel is compiled ahead by `warm`; who waits for it reads why."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from threading import Timer

import grimp
import pytest

import selectroute as sr
from selectroute.durable.lock import FileLock
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


def start(code, cache):
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, "-c", code], env=environment, **pipes)


def ended(process):
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    return out, err


def source(module):
    return Path(importlib.util.find_spec(module).origin).read_text(encoding="utf-8")


def test_every_room_that_is_compiled_into_the_kernel_makes_its_version():
    """Otherwise code that was compiled from other constants would go on running."""
    graph = grimp.build_graph("selectroute")
    kernel = {
        module
        for module in graph.find_modules_that_directly_import("selectroute.match.compiled")
        if module.startswith("selectroute.match.") and "@compiled" in source(module)
    }
    used = {
        used.split(".")[1] for module in kernel for used in graph.find_modules_directly_imported_by(module)
    }
    assert len(kernel) > 5 and used <= {*compiled.ROOMS}


@pytest.mark.nightly
def test_one_process_compiles_and_says_why_and_the_others_and_the_next_load_it(tmp_path):
    code = "import selectroute as sr; done = sr.warm(); print(done.compiled, done.folder); print(done)"
    found = [
        (int(out.split()[0]), out, err) for out, err in map(ended, [start(code, tmp_path) for _ in range(2)])
    ]
    [(waited, _, why_it_waited), (compiled_there, out, why)] = sorted(found)
    assert why.count("compiling the matching kernel, or a part of it that was not needed before") == 1
    assert why.count("once on this machine") == 1
    folder = out.splitlines()[0].split()[1]
    assert compiled_there > 20 and folder.startswith(str(tmp_path))
    assert f"kept in {folder}" in out and "compiled in" in out
    # What hashes keys, three functions, compiles while subscriptions are indexed: not under the lock.
    assert waited <= 3 and "waiting for another process" in why_it_waited
    again, quiet = ended(start("import selectroute as sr; print(sr.warm())", tmp_path))
    assert "was already compiled" in again and not quiet
    matched, _ = ended(start(_MATCH, tmp_path))
    assert matched.splitlines()[-1] == "compiled 0"


@pytest.mark.parametrize(("reminder", "says"), [(30.0, False), (0.3, True)])
def test_a_process_that_waits_for_long_says_for_what(tmp_path, monkeypatch, caplog, reminder, says):
    monkeypatch.setattr(compiled, "_CACHE", str(tmp_path))
    monkeypatch.setattr(compiled, "_REMINDER", reminder)
    monkeypatch.setattr(compiled, "_loaded", set())
    other = FileLock(tmp_path / "compiling.lock")
    Timer(1.0, other.close).start()
    with compiled.compiling_alone("a function of this test"):
        said = {record.message.partition(", for")[0] for record in caplog.records}
        assert said == (
            {"waiting for another process, which compiles a function of this test"} if says else set()
        )


def test_who_matches_single_messages_after_batches_waits_for_their_code_too(tmp_path, monkeypatch, caplog):
    index = sr.Index()
    index.add("any")
    snapshot = index.freeze()
    snapshot.match_one(sr.Message())
    monkeypatch.setattr(compiled, "_CACHE", str(tmp_path))
    monkeypatch.setattr(compiled, "_REMINDER", 0.3)
    monkeypatch.setattr(compiled, "_loaded", {compiled.KERNEL})
    other = FileLock(tmp_path / "compiling.lock")
    Timer(1.0, other.close).start()
    assert index.freeze().match_one(sr.Message()).ids() == ["any"]
    assert "waiting for another process" in caplog.text


def test_where_nothing_can_be_kept_it_says_so(monkeypatch):
    monkeypatch.setattr(compiled, "_CACHE", None)
    assert "in every process" in compiled._sentence() and "NUMBA_CACHE_DIR" in compiled._sentence()
    assert compiled.cache_folder() is None
    assert "not kept" in str(sr.Warmed(None, 30.0, 60))


def test_a_cache_that_can_only_be_read_is_copied_once_to_a_private_folder(tmp_path, monkeypatch):
    """numba refuses to use a cache that it cannot write to."""
    image, own = tmp_path / "image", tmp_path / "own"
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(image))
    monkeypatch.setenv("XDG_CACHE_HOME", str(own))
    kept = Path(compiled._cache())
    assert kept.parent == image
    (kept / "kernel").mkdir()
    (kept / "kernel" / "match.nbi").write_bytes(b"code")
    monkeypatch.setattr(compiled.os, "access", lambda *_: False)  # who runs as root may write everywhere
    for _ in range(2):
        copied = Path(compiled._cache())
        assert own in copied.parents and copied.parent.stat().st_mode & 0o077 == 0
        assert (copied / "kernel" / "match.nbi").read_bytes() == b"code"
        (kept / "kernel" / "match.nbi").write_bytes(b"changed later")
    assert [path.name for path in copied.parent.iterdir()] == [kept.name]


def test_where_the_chosen_cache_is_missing_and_cannot_be_made_the_private_one_serves(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "file" / "cache"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    found = Path(compiled._cache())
    assert tmp_path in found.parents and "file" not in found.parts and not found.exists()
