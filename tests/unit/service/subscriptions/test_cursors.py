"""Cursors that say nothing to whom they are given."""

import base64

import pytest

from selectroute.index.errors import InvalidSpecError
from selectroute.service.http.callers import HiddenCursors
from tests.unit.service.conftest import client_of, problem

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
