"""A short run of many clients, and that it would find a lost update."""

from __future__ import annotations

import pytest

pytest.importorskip("uvicorn", reason="uvicorn is not installed (the extra `service`)")

from selectroute.index.specification import SubscriptionSpec
from selectroute.registry.registry import Registry
from tests.crash.programs.registry import clients

pytestmark = pytest.mark.slow


def test_many_clients_lose_no_update_and_stale_ones_are_told(tmp_path):
    counts = clients.run(2_500, 64, seed=1, folder=tmp_path)
    assert sum(counts.values()) == 2_500
    assert counts["changes"] > 50 and counts["412 on purpose"] > 20 and counts["412 overtaken"] > 50


def test_a_lost_update_is_found(tmp_path):
    with Registry.open(f"sqlite:///{tmp_path}/r.db") as registry:
        registry.register(SubscriptionSpec(labels={"count": "0"}), id="s")
        told = clients.Told()
        for _ in range(2):  # the second one has read what the first one wrote over
            told.changed("s", registry.replace("s", SubscriptionSpec(labels={"count": "1"})).revision)
        with pytest.raises(AssertionError, match="s lost an update"):
            clients.check(registry, told, ["s"])
        with pytest.raises(AssertionError, match="other changes than were acknowledged"):
            clients.check(registry, clients.Told(), ["s"])
