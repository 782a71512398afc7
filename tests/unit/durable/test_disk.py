"""Sealed files: what was written is read, and nothing else."""

from __future__ import annotations

import json

import pytest

from selectroute.durable.disk import DamagedFileError
from selectroute.storage import Location

CONTENT = {"batch": 3, "revision": 7, "digest": "5e" * 32, "name": "é\udcff", "list": [1, None], "none": {}}


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "3.json"
    Location.of(path).put_json(CONTENT)
    return path


def test_what_was_written_is_read(path):
    assert Location.of(path).read_json() == CONTENT
    assert Location.of(path.with_name("4.json")).read_json() is None
    assert json.loads(path.read_text())["revision"] == 7, "it is JSON to everybody else"


def test_every_turned_bit_is_named(path):
    data = path.read_bytes()
    for place in range(len(data)):
        for bit in range(8):
            path.write_bytes(data[:place] + bytes([data[place] ^ 1 << bit]) + data[place + 1 :])
            with pytest.raises(DamagedFileError, match=r"3\.json is damaged"):
                Location.of(path).read_json()


def test_every_truncation_is_named(path):
    data = path.read_bytes()
    for size in range(len(data)):
        path.write_bytes(data[:size])
        with pytest.raises(DamagedFileError, match=r"3\.json is damaged"):
            Location.of(path).read_json()


@pytest.mark.parametrize(
    "data",
    [b"[]", b"7", b"[" * 100_000, b"", b"{", b"{}", b"\xff", json.dumps(CONTENT, indent=1).encode() + b"\n"],
)
def test_what_is_no_sealed_object_is_named(path, data):
    path.write_bytes(data)
    with pytest.raises(DamagedFileError):
        Location.of(path).read_json()
