import anyio
import pytest

from selectroute.service.http import callers
from selectroute.service.http.callers import FairLimiter, OpenBodies, Rates
from selectroute.service.http.problems import ProblemError


def test_a_bucket_fills_again_and_no_further_than_its_size():
    now = [0.0]
    limited = Rates(2.0, 3, clock=lambda: now[0])
    assert [limited.wait_seconds("a") for _ in range(4)] == [0, 0, 0, 1]
    now[0] = 0.5
    assert [limited.wait_seconds("a") for _ in range(2)] == [0, 1]
    now[0] = 100.0
    assert [limited.wait_seconds("a") for _ in range(4)] == [0, 0, 0, 1]
    assert Rates(0.1, 1, clock=lambda: 0.0).wait_seconds("b") == 0


def test_without_a_rate_nobody_waits():
    assert {Rates(None, 1).wait_seconds("a") for _ in range(1_000)} == {0}


def test_so_many_callers_are_remembered(monkeypatch):
    monkeypatch.setattr(callers, "REMEMBERED", 2)
    limited = Rates(1.0, 1, clock=lambda: 0.0)
    assert [limited.wait_seconds(caller) for caller in "abca"] == [0, 0, 0, 0]
    assert limited.wait_seconds("a") == 1


def test_a_caller_has_half_of_the_places_at_most():
    entered = []

    async def enter(limiter, caller):
        async with limiter.of(caller):
            entered.append(caller)

    async def main():
        limiter = FairLimiter(2)
        async with anyio.create_task_group() as group, limiter.of("a"):
            for caller in "ab":
                group.start_soon(enter, limiter, caller)
            await anyio.wait_all_tasks_blocked()
            assert entered == ["b"]
        assert entered == ["b", "a"]

    anyio.run(main)


def test_open_bodies_share_a_budget_of_which_a_caller_has_half():
    free, bodies = callers.UNCOUNTED_BYTES, OpenBodies(100)
    with bodies.of("b") as b:
        with bodies.of("a") as a, bodies.of("a") as other:
            a(free)
            a(free + 50)
            other(free)  # small ones are always received
            b(free + 50)
            for grow in (other, b, bodies.of("c").__enter__()):
                with pytest.raises(ProblemError, match="large bodies"):
                    grow(free + 51)
        with bodies.of("a") as a:
            a(free + 50)
