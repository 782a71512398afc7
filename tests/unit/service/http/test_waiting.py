"""Requests that wait for a change, a message or a batch: how long, how many, and who gets nothing."""

import time

import pytest

from selectroute.index.specification import SubscriptionSpec
from selectroute.queues.sql.queue import SqlQueue
from selectroute.service.limits import ServiceLimits
from tests.support.waiting import wait_until
from tests.unit.service.conftest import bearer, connected, meanwhile, problem, running, service

QUEUE = "/ibmmq/rest/v3/messaging/qmgr/selectroute/queue/Q/message"
DOORS = {
    "a change": ("GET", "/v1/changes?after=1&wait={:g}", 1, "watch"),
    "a message": ("DELETE", f"{QUEUE}?wait={{:g}}", 1_000, "queue_waiting"),
    "a browsed message": ("GET", f"{QUEUE}?wait={{:g}}", 1_000, "queue_waiting"),
    "a batch": ("GET", "/v1/subscriptions/a?wait={:g}", 1, "batch_waiting"),
}
"""Method, path, the parts of a second that it counts, and where the service has those who wait."""

each_door = pytest.mark.parametrize("door", DOORS)


@pytest.fixture
def filled(registry):
    registry.import_([b'{"id": "a"}'])
    SqlQueue.create(registry.url, "Q").close()
    return registry


def ask(client, door, seconds=25):
    method, path, unit, _ = DOORS[door]
    return client.request(method, path.format(seconds * unit))


def waiting(state, *doors):
    return sum(len(getattr(state, name)) for name in {DOORS[door][-1] for door in doors})


def is_nothing(answer):
    """Whether an answer tells that nothing has come."""
    found = answer.json() if answer.status_code == 200 else {}
    return answer.is_success and not found.get("changes") and not found.get("effective_from")


@each_door
def test_a_request_waits_as_long_as_it_says_and_no_longer_than_the_limit(filled, door):
    for limit, seconds in ((0.3, 30), (30, 0.3)):
        with service(filled, limits=ServiceLimits(wait_seconds=limit)) as client:
            begun = time.monotonic()
            assert is_nothing(ask(client, door, seconds))
            assert 0.3 <= time.monotonic() - begun < 20


@each_door
def test_so_many_wait_and_no_more_and_none_when_the_service_stops(filled, door):
    with service(filled, limits=ServiceLimits(waiting=1)) as client:
        state = client.app.state.service
        with meanwhile(lambda: ask(client, door)) as answers:
            wait_until(lambda: waiting(state, door), 60, "the request waits")
            refused = ask(client, door)
            problem(refused, 429, "too-many-requests")
            assert refused.headers["retry-after"] == "1"
            begun = time.monotonic()
            client.portal.call(state.release)
        assert is_nothing(answers[0]) and time.monotonic() - begun < 20


@each_door
def test_a_token_that_is_revoked_while_it_waits_learns_nothing(filled, door):
    token, secret = filled.tokens.add("writer")
    with service(filled, bearer(secret)) as client:
        state = client.app.state.service
        with meanwhile(lambda: ask(client, door)) as answers:
            wait_until(lambda: waiting(state, door), 60, "the request waits")
            filled.tokens.revoke(token.id)
            filled.register(SubscriptionSpec("canary = 1"))
            filled.streams.note_batch("stream", 4, 1)
            queue = state.queues.open("Q")
            queue.put(b"canary")
        problem(answers[0], 401, "unauthorised")
        assert "canary" not in answers[0].text and queue.get().body == b"canary"


@pytest.mark.slow
@each_door
def test_who_hangs_up_while_he_waits_takes_no_message_and_nobodys_place(filled, door):
    method, path, unit, _ = DOORS[door]
    with running(filled) as (web, server):
        state = server.config.app.state.service
        for _ in range(3):
            with connected(web) as connection:
                head = f"{method} {path.format(30 * unit)} HTTP/1.1\r\nHost: localhost\r\n\r\n"
                connection.sendall(head.encode())
                wait_until(lambda: waiting(state, door), 60, "the request waits")
            wait_until(lambda: not waiting(state, door), 28, "nobody waits for who is gone")
        state.queues.open("Q").put(b"kept")
        assert web.delete(QUEUE).content == b"kept"


@pytest.mark.slow
def test_who_waits_is_answered_when_the_server_stops(filled):
    with running(filled) as (web, server):
        state = server.config.app.state.service
        with meanwhile(*(lambda door=door: ask(web, door, 30) for door in DOORS)) as answers:
            wait_until(lambda: waiting(state, *DOORS) == len(DOORS), 60, "all wait")
            stopped = time.monotonic()
            server.should_exit = True
        assert time.monotonic() - stopped < 28  # nobody would wait longer than 30 anyway
        assert [is_nothing(answer) for answer in answers] == [True] * len(DOORS)
