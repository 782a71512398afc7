"""Unchanged Qpid JMS clients of both APIs, jakarta and javax, against a broker: `Scenarios.java`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.components import after_first
from tests.support.running_broker import run_client

SOURCE = Path(__file__).with_name("Scenarios.java").read_text(encoding="utf-8")
NAMES = re.findall(r'SCENARIOS\.put\("([^"]+)"', SOURCE)

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("qpid-jms")]


@pytest.mark.parametrize(
    ("version", "api"), after_first(pytest.mark.nightly, ("2.10.0", "jakarta.jms"), ("1.14.0", "javax.jms"))
)
def test_scenarios(broker, tmp_path, version, api):
    source = SOURCE.replace("jakarta.jms", api)
    done = run_client(tmp_path, "Scenarios", source, version, f"amqp://127.0.0.1:{broker.port}")
    lines = [line.split("\t")[1:] for line in done.stdout.splitlines() if line.startswith("scenario\t")]
    assert [name for name, _ in lines] == NAMES, done.stderr
    assert [(name, result) for name, result in lines if result != "ok"] == []
    assert done.returncode == 0
