"""A short run of the killed service; that a lost change would be found is tested with the registry."""

from __future__ import annotations

import pytest

pytest.importorskip("uvicorn", reason="uvicorn is not installed (the extra `service`)")

from tests.crash.programs.registry import service

pytestmark = pytest.mark.slow


def test_a_service_that_is_killed_loses_nothing_and_repeats_nothing(tmp_path):
    counts = service.run(tmp_path, seed=3, kills=4)
    assert counts["kills"] == 4
    assert counts["acknowledged changes"] > 5
    assert counts["repeated, had arrived"] + counts["repeated, had not arrived"] > 0
