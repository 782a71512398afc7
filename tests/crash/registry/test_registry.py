"""A short run of the killed registry, and that it would find a fault."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed (the extra `service`)")

from selectroute.registry.model import SubscriptionSpec
from selectroute.registry.registry import Registry
from tests.crash.programs.registry import registry as crash
from tests.crash.programs.registry.sides import check_log

pytestmark = pytest.mark.slow


def test_a_registry_that_is_killed_loses_nothing_that_it_acknowledged(tmp_path):
    counts = crash.run(tmp_path, seed=1, kills=6)
    assert counts["kills"] == 6
    assert counts["acknowledged changes"] > 20


def test_a_lost_change_is_found(tmp_path):
    with Registry.open(f"sqlite:///{tmp_path}/r.db") as registry:
        one = registry.register(SubscriptionSpec(labels={"key": "k"}))
        told = {"done": "k", "revision": one.revision, "ids": [one.id]}
        assert check_log(registry, [told])["acknowledged changes"] == 1
        for wrong in (
            {**told, "revision": 2},
            {**told, "ids": ["other"]},
            {"removed": one.id},
            {"done": "i", "revision": 1, "count": 2},
            {"about": "apply", "key": "k", "count": 3},
        ):
            with pytest.raises(AssertionError):
                check_log(registry, json.loads(json.dumps([wrong])))
