"""Limits of callers, and cursors that reveal nothing to callers who may not see all subscriptions."""

import base64

import anyio
import pytest

from selectroute.index.errors import InvalidSpecError
from selectroute.service.http import callers
from selectroute.service.http.callers import FairLimiter, HiddenCursors, OpenBodies, Rates
from selectroute.service.http.problems import ProblemError
from tests.unit.service.conftest import client_of, problem


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


# ---- cursors

PATH = "/v1/subscriptions"
CURSOR = "MS5hYmMuaGlkZGVuLWlk"


def test_a_cursor_comes_back_and_shows_nothing_of_itself():
    cursors = HiddenCursors(lambda: "one")
    given = cursors.hidden(CURSOR)
    assert cursors.read(given) == CURSOR and CURSOR not in given
    assert CURSOR.encode() not in base64.urlsafe_b64decode(given + "=" * (-len(given) % 4))


def test_no_cursor_is_one_that_was_changed_or_made_elsewhere():
    cursors = HiddenCursors(lambda: "one")
    given = cursors.hidden(CURSOR)
    turned = [
        given[:at] + ("B" if given[at] != "B" else "C") + given[at + 1 :] for at in range(len(given) - 1)
    ]
    for wrong in ["", "A", "AAAA", CURSOR, given[:-4], HiddenCursors(lambda: "two").hidden(CURSOR), *turned]:
        with pytest.raises(InvalidSpecError):
            cursors.read(wrong)


def test_no_cursor_tells_the_id_of_what_the_caller_may_not_see(registry):
    lines = [f'{{"id": "canary-{n:03}", "topic": "boats/{n}"}}' for n in range(90)]
    registry.import_(['{"id": "a", "topic": "cars/a"}', *lines, '{"id": "z", "topic": "cars/z"}'])
    with client_of(registry, "reader", topics=["cars/#"]) as client:
        found, shown, url = [], [], f"{PATH}?limit=1"
        while url:
            answer = client.get(url)
            found += [one["id"] for one in answer.json()["items"]]
            shown.append(answer.json()["next_cursor"])
            link = answer.headers.get("link")
            url = link and link.partition("<")[2].partition(">")[0]
        assert found == ["a", "z"]
        assert len(shown) > 3 and shown.pop() is None
        for one in shown:
            assert b"canary" not in base64.urlsafe_b64decode(one + "=" * (-len(one) % 4))
        whole = registry.list(limit=1).next_cursor
        problem(client.get(f"{PATH}?limit=1&cursor={whole}"), 422, "invalid-subscription")
