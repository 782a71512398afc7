"""A short run of the killed service of queues."""

from __future__ import annotations

import pytest

pytest.importorskip("fastapi", reason="FastAPI is not installed (the extra `service`)")

from tests.crash.programs.queues import queue_service as crash

pytestmark = pytest.mark.slow


def test_a_service_of_queues_that_is_killed_loses_nothing_and_gives_nothing_twice(tmp_path):
    counts = crash.run(tmp_path, seed=1, kills=4)
    assert counts["kills"] == 4
    assert counts["acknowledged puts"] > 20
    assert counts["acknowledged gets"] > 5
