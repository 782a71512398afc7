"""Short runs of the killed queue and of the killed service of queues, and that they would find a fault."""

from __future__ import annotations

import pytest

pytest.importorskip("starlette", reason="Starlette is not installed (the extra `service`)")

from tests.crash.programs.harness import sqlite_in
from tests.crash.programs.queues import queue as crash
from tests.crash.programs.queues import queue_service
from tests.support.components import DATABASES

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("database", DATABASES)
def test_a_queue_whose_processes_are_killed_loses_nothing_and_gives_nothing_twice(
    tmp_path, request, database
):
    database_in = sqlite_in if database == "sqlite" else request.getfixturevalue("postgres")
    counts = crash.run(tmp_path, seed=1, kills=12, database_in=database_in)
    assert counts["kills"] == 12
    assert counts["acknowledged puts"] > 20 and counts["acknowledged gets"] > 10


def test_a_service_of_queues_that_is_killed_loses_nothing_and_gives_nothing_twice(tmp_path):
    counts = queue_service.run(tmp_path, seed=1, kills=4)
    assert counts["kills"] == 4
    assert counts["acknowledged puts"] > 20 and counts["acknowledged gets"] > 5


def put(key):
    return [{"putting": key}, {"put": key}]


def test_what_is_got_once_or_is_there_is_in_order():
    got = [*put("a"), {"getting": "a"}, {"got": "a"}]
    assert crash.account([got, put("b"), [*put("c"), {"getting": "c"}]], ["b"])["acknowledged puts"] == 3
    for there in (["x", "y"], ["b"]):
        assert crash.account([[*put("b"), unit("x", "y", gets=["b"])]], there)["units cut off"] == 1


def unit(*puts, gets=()):
    return {"ending": "u", "gets": gets, "puts": puts}


FAULTS = {
    "a message is lost": ([put("a")], []),
    "a message is there twice": ([put("a")], ["a", "a"]),
    "a message was got twice": ([put("a"), [{"got": "a"}], [{"got": "a"}]], []),
    "a message was got and is there": ([put("a"), [{"got": "a"}]], ["a"]),
    "a message was never put": ([[]], ["a"]),
    "a part of a unit was done": ([[unit("x", "y")]], ["x"]),
    "a unit was done and its get is back": ([put("a"), [unit("x", gets=["a"])]], ["a", "x"]),
    "a committed put is lost": ([[unit("x"), {"ended": "u"}]], []),
    "another message was being got": ([put("a"), [{"getting": "b"}]], []),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found(fault):
    with pytest.raises(AssertionError):
        crash.account(*FAULTS[fault])
