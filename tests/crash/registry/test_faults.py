"""Short runs of the disk that fails."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

pytest.importorskip("uvicorn", reason="uvicorn is not installed (the extra `service`)")

from selectroute.index.specification import SubscriptionSpec
from selectroute.registry.registry import Registry
from tests.crash.programs import failing
from tests.crash.programs.command import ROOT
from tests.crash.programs.registry import faults
from tests.crash.programs.registry.sides import TARGET, InProcess

pytestmark = pytest.mark.slow


def test_what_fails_leaves_nothing_and_is_done_when_the_disk_works():
    command = [sys.executable, "-m", "tests.crash.programs.registry.faults", "--step", "31"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
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

        clear = arm

    class HalfDone(InProcess):
        def attempt(self, operation, key):
            super().attempt("register", key)
            return False

    with Registry.open(f"sqlite:///{tmp_path}/r.db") as registry:
        registry.register(SubscriptionSpec(), id=TARGET)
        with pytest.raises(AssertionError, match="import, write 1: 1 of 0 are there"):
            faults.fail_in_turn(HalfDone(registry), Never(), "import", tmp_path, 1)
