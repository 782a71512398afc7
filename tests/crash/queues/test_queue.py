"""Short runs of the killed queue and of the killed service of queues, and that they would find a fault."""

from __future__ import annotations

import pytest

pytest.importorskip("fastapi", reason="FastAPI is not installed (the extra `service`)")

from tests.crash.programs.queues import queue as crash
from tests.crash.programs.queues import queue_service

pytestmark = pytest.mark.slow


def test_a_queue_whose_processes_are_killed_loses_nothing_and_gives_nothing_twice(tmp_path):
    counts = crash.run(tmp_path, seed=1, kills=12)
    assert counts["kills"] == 12
    assert counts["acknowledged puts"] > 20
    assert counts["acknowledged gets"] > 10


@pytest.mark.xdist_group("postgres")
def test_in_postgresql_either(tmp_path, postgres):
    counts = crash.run(tmp_path, seed=2, kills=12, database_in=postgres)
    assert counts["kills"] == 12
    assert counts["acknowledged puts"] > 20


def test_a_service_of_queues_that_is_killed_loses_nothing_and_gives_nothing_twice(tmp_path):
    counts = queue_service.run(tmp_path, seed=1, kills=4)
    assert counts["kills"] == 4
    assert counts["acknowledged puts"] > 20
    assert counts["acknowledged gets"] > 5


def put(key):
    return [{"putting": key}, {"put": key}]


def test_what_is_got_once_or_is_there_is_in_order():
    got = [*put("a"), {"getting": "a"}, {"got": "a"}]
    assert crash.account([got, put("b"), [*put("c"), {"getting": "c"}]], ["b"])["acknowledged puts"] == 3
    unit = {"ending": "u", "gets": ["b"], "puts": ["x", "y"]}
    assert crash.account([[*put("b"), unit]], ["x", "y"])["units cut off"] == 1
    assert crash.account([[*put("b"), unit]], ["b"])["units cut off"] == 1


@pytest.mark.parametrize(
    ("journals", "there"),
    [
        pytest.param([put("a")], [], id="a message is lost"),
        pytest.param([put("a")], ["a", "a"], id="a message is there twice"),
        pytest.param([put("a"), [{"got": "a"}], [{"got": "a"}]], [], id="a message was got twice"),
        pytest.param([put("a"), [{"got": "a"}]], ["a"], id="a message was got and is there"),
        pytest.param([[]], ["a"], id="a message was never put"),
        pytest.param(
            [[{"ending": "u", "gets": [], "puts": ["x", "y"]}]], ["x"], id="a part of a unit was done"
        ),
        pytest.param(
            [put("a"), [{"ending": "u", "gets": ["a"], "puts": ["x"]}]],
            ["a", "x"],
            id="a unit was done and its get is back",
        ),
        pytest.param(
            [[{"ending": "u", "gets": [], "puts": ["x"]}, {"ended": "u"}]], [], id="a committed put is lost"
        ),
        pytest.param([put("a"), [{"getting": "b"}]], [], id="another message was being got"),
    ],
)
def test_a_fault_is_found(journals, there):
    with pytest.raises(AssertionError):
        crash.account(journals, there)
