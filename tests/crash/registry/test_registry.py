"""Short runs of the programs of the registry, and that each would find a fault."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

pytest.importorskip("uvicorn", reason="uvicorn is not installed (the extra `service`)")

from selectroute.registry.errors import UnavailableError
from selectroute.registry.model import SubscriptionSpec
from selectroute.registry.registry import Registry
from tests.crash.programs import failing
from tests.crash.programs.harness import ROOT, sqlite_in
from tests.crash.programs.registry import clients, faults, registry, service, several
from tests.crash.programs.registry.sides import InProcess, check_log
from tests.support.components import POSTGRES

pytestmark = pytest.mark.slow


def test_a_registry_that_is_killed_loses_nothing_that_it_acknowledged(tmp_path):
    counts = registry.run(tmp_path, seed=1, kills=6)
    assert counts["kills"] == 6
    assert counts["acknowledged changes"] > 20


def test_a_service_that_is_killed_loses_nothing_and_repeats_nothing(tmp_path):
    counts = service.run(tmp_path, seed=3, kills=4)
    assert counts["kills"] == 4
    assert counts["acknowledged changes"] > 5
    assert counts["repeated, had arrived"] + counts["repeated, had not arrived"] > 0


@pytest.mark.parametrize(
    "database", ["sqlite", pytest.param("postgresql", marks=[*POSTGRES, pytest.mark.nightly])]
)
def test_a_service_that_is_killed_is_replaced_by_another(tmp_path, request, database):
    database_in = sqlite_in if database == "sqlite" else request.getfixturevalue("postgres")
    counts = several.run(tmp_path, seed=1, kills=2, database_in=database_in)
    assert counts["kills"] == 2
    assert counts["kills of the publisher"] >= 1
    assert counts["acknowledged changes"] > 20


def test_a_lost_change_is_found(tmp_path):
    with Registry.open(sqlite_in(tmp_path)) as opened:
        added = opened.register(SubscriptionSpec(labels={"key": "k"}))
        told = {"done": "k", "revision": added.revision, "ids": [added.id]}
        assert check_log(opened, [told])["acknowledged changes"] == 1
        for wrong in (
            {**told, "revision": 2},
            {**told, "ids": ["other"]},
            {"removed": added.id},
            {"done": "i", "revision": 1, "count": 2},
            {"about": "apply", "key": "k", "count": 3},
        ):
            with pytest.raises(AssertionError):
                check_log(opened, [wrong])


def test_many_clients_lose_no_update_and_stale_ones_are_told(tmp_path):
    counts = clients.run(tmp_path, seed=1, operations=2_500, clients=64)
    assert sum(counts.values()) == 2_500
    assert counts["changes"] > 50 and counts["412 on purpose"] > 20 and counts["412 overtaken"] > 50


def test_a_lost_update_is_found(tmp_path):
    with Registry.open(sqlite_in(tmp_path)) as opened:
        opened.register(SubscriptionSpec(labels={"count": "0"}), id="s")
        told = clients.Told()
        for _ in range(2):  # the second one has read what the first one wrote over
            told.changed("s", opened.replace("s", SubscriptionSpec(labels={"count": "1"})).revision)
        with pytest.raises(AssertionError, match="s lost an update"):
            clients.check(opened, told, ["s"])
        with pytest.raises(AssertionError, match="other changes than were acknowledged"):
            clients.check(opened, clients.Told(), ["s"])


def test_what_fails_leaves_nothing_and_is_done_when_the_disk_works():
    command = [sys.executable, "-m", faults.__name__, "--step", "31"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1_800)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    refused = {side: int(number) for number, side in re.findall(r"(\d+) (\S[a-z ]*), refused", ended.stdout)}
    assert refused["in process"] > 10 and refused["service"] > 10, ended.stdout


def test_without_a_compiler_it_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "no C compiler" in failing.compiled(tmp_path)


def test_a_change_that_is_there_in_part_is_found(tmp_path):
    class Never:
        name, fired = "never", None

        def arm(self, *_):
            pass

        def clear(self):
            pass

    class HalfDone(InProcess):
        def import_(self, lines, mode):
            self.keyed("register", json.loads(lines[0])["labels"]["key"])
            raise UnavailableError("the disk is full")

    with Registry.open(sqlite_in(tmp_path)) as opened:
        opened.register(SubscriptionSpec(), id=faults.TARGET)
        with pytest.raises(AssertionError, match="import, write 1: 1 of 0 are there"):
            faults.attempt_one(HalfDone(opened), Never(), "import", tmp_path, 1)
