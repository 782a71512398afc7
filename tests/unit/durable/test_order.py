"""Files are flushed before they are named, and their folder after: only this survives a loss of power."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from selectroute.durable import disk


@pytest.fixture
def events(monkeypatch):
    """(what was done, path) of every flush and every new name, in order; a flush with the file's size."""
    found = []

    fsync = os.fsync

    def flushed(descriptor):
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        found.append(("folder" if os.path.isdir(path) else f"{os.fstat(descriptor).st_size} bytes", path))
        fsync(descriptor)

    def noting(call):
        def named(source, target, **options):
            found.append(("named", str(target)))
            call(source, target, **options)

        return named

    monkeypatch.setattr(os, "fsync", flushed)
    for name in ("replace", "rename", "link"):
        monkeypatch.setattr(os, name, noting(getattr(os, name)))
    return found


def written(path):
    """Each function that makes a file, by its name."""
    data = b"0123456789"

    def digesting():
        with disk.DigestingFile(path) as file:
            file.write(data)
        disk.sync_folder(path.parent)

    def if_absent():
        new = path.with_name("new")
        new.write_bytes(data)
        disk.name_if_absent(new, path)

    return {
        "replace_bytes": lambda: disk.replace_bytes(path, data),
        "append_line": lambda: disk.append_line(path, data.decode()),
        "write_new": lambda: disk.write_new(path, data),
        "link_new": lambda: disk.link_new(path, data),
        "name_if_absent": if_absent,
        "write_file": lambda: disk.write_file(path, lambda file: file.write(data)),
        "DigestingFile": digesting,
    }


NAMED = ("replace_bytes", "link_new", "name_if_absent")
SYNCED = (*NAMED, "write_file", "DigestingFile")
"""What flushes the folder; the others leave that to callers, who write several files."""


@pytest.mark.parametrize("name", written(Path()))
def test_a_file_is_flushed_whole_before_its_name_and_the_folder_after_it(tmp_path, events, name):
    path = tmp_path / "file"
    written(path)[name]()
    kinds = [kind for kind, _ in events]
    size = 11 if name == "append_line" else 10
    assert kinds[0] == f"{size} bytes", "all of the file is flushed first"
    assert (("named", str(path)) in events) is (name in NAMED)
    assert kinds[1:] == ["named"] * (name in NAMED) + ["folder"] * (name in SYNCED)
    assert name not in SYNCED or events[-1] == ("folder", str(tmp_path))


def test_a_renamed_file_and_each_new_folder_are_in_folders_that_are_flushed(tmp_path, events):
    disk.make_folder(tmp_path / "a" / "b")
    assert {path for _, path in events} == {str(tmp_path), str(tmp_path / "a")}
    events.clear()
    (tmp_path / "file").touch()
    disk.rename(tmp_path / "file", tmp_path / "a" / "file")
    assert events == [("named", str(tmp_path / "a" / "file")), ("folder", str(tmp_path / "a"))]
