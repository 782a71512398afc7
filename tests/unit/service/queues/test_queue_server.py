"""Queues of a real server on the loopback: who waits, who hangs up, who stops, who is first."""

from __future__ import annotations

import socket
import threading
import time

import httpx
import pytest

import selectroute as sr
from selectroute.queues.sql.queue import SqlQueue
from selectroute.queues.unit import UnitOfWork
from selectroute.registry.registry import Registry
from selectroute.service.limits import ServiceLimits
from tests.support.queue_calls import hex_of, id_of
from tests.support.waiting import wait_until
from tests.unit.service.test_server import MANY, running

pytestmark = pytest.mark.slow

QUEUE = "/ibmmq/rest/v3/messaging/qmgr/selectroute/queue/Q"
PATH = f"{QUEUE}/message"


@pytest.fixture
def queue(registry):
    with SqlQueue.create(registry.url, "Q") as made:
        yield made


def asked(url, method="DELETE", **params):
    return httpx.request(method, f"{url}{PATH}", params=params, timeout=60, trust_env=False)


def test_many_wait_without_holding_a_thread_each_and_each_gets_its_own(registry, queue):
    with running(registry) as (url, server), httpx.Client(timeout=60, trust_env=False, limits=MANY) as client:
        waiting = server.config.app.state.service.queue_waiting
        found = {}

        def ask(number):
            params = {"correlationId": hex_of(id_of(str(number))), "wait": 30_000}
            found[number] = client.delete(f"{url}{PATH}", params=params).content

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(80)]
        for one in threads:
            one.start()
        wait_until(lambda: len(waiting) == 80, 60, "all wait")
        assert httpx.get(f"{url}/v1/subscriptions", timeout=60, trust_env=False).status_code == 200
        for number in reversed(range(80)):  # by another process, as far as the service knows
            queue.put(str(number).encode(), correl_id=id_of(str(number)))
        for one in threads:
            one.join()
        assert found == {number: str(number).encode() for number in range(80)}
        assert queue.depth == 0


@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_who_hangs_up_while_he_waits_takes_no_message_and_nobodys_place(registry, queue, method):
    with running(registry) as (url, server):
        service = server.config.app.state.service
        host, _, port = url.removeprefix("http://").partition(":")
        for _ in range(3):
            with socket.create_connection((host, int(port))) as connection:
                head = f"{method} {PATH}?wait=30000 HTTP/1.1\r\nHost: localhost\r\n\r\n"
                connection.sendall(head.encode())
                wait_until(lambda: len(service.queue_waiting) == 1, 60, "all wait")
            wait_until(lambda: not len(service.queue_waiting), 60, "nobody waits")
        service.queues.open("Q").put(b"kept")
        assert asked(url).content == b"kept"


def test_a_message_is_lost_by_hanging_up_only_while_it_is_taken_off_its_queue(registry, queue, monkeypatch):
    """However a message and a client who hangs up meet: it is sent, on the queue, or was just committed."""
    begun = []
    commit = UnitOfWork.commit

    def commits(unit):
        begun.append(unit)
        commit(unit)

    monkeypatch.setattr(UnitOfWork, "commit", commits)
    with running(registry) as (url, server):
        service = server.config.app.state.service
        host, _, port = url.removeprefix("http://").partition(":")
        own = service.queues.open("Q")
        for number in range(40):
            with socket.create_connection((host, int(port)), timeout=60) as connection:
                head = f"DELETE {PATH}?wait=30000 HTTP/1.1\r\nHost: localhost\r\n\r\n"
                connection.sendall(head.encode())
                wait_until(lambda: len(service.queue_waiting) == 1, 60, "all wait")
                putting = threading.Thread(target=own.put, args=(str(number).encode(),))
                putting.start()
                if number % 2:
                    putting.join()
                connection.shutdown(socket.SHUT_WR)
                answer = b""
                while part := connection.recv(65_536):
                    answer += part
                putting.join()
            wait_until(lambda: not server.server_state.tasks, 60, "the server has seen to his message")
            is_sent = answer.startswith(b"HTTP/1.1 200 ")
            assert is_sent or not answer
            is_taken = bool(begun)
            begun.clear()
            assert is_taken or not is_sent
            assert own.depth == (0 if is_taken else 1)
            if not is_taken:
                assert own.get().body == str(number).encode()


def test_who_waits_is_answered_when_the_server_stops(registry, queue):
    with running(registry) as (url, server):
        found = []
        threads = [
            threading.Thread(target=lambda method=method: found.append(asked(url, method, wait=30_000)))
            for method in ("GET", "DELETE")
        ]
        for one in threads:
            one.start()
        wait_until(lambda: len(server.config.app.state.service.queue_waiting) == 2, 60, "all wait")
        stopped = time.monotonic()
        server.should_exit = True
        for one in threads:
            one.join()
        assert time.monotonic() - stopped < 28  # nobody would wait longer than 30 anyway
        assert [answer.status_code for answer in found] == [204, 204]


def test_of_many_who_get_the_same_one_is_the_winner(registry, queue):
    with running(registry) as (url, _):
        for number in range(5):
            queue.put(str(number).encode(), correl_id=id_of("c"))
            codes = []
            barrier = threading.Barrier(32, timeout=60)

            def ask(codes=codes, barrier=barrier):
                barrier.wait()
                codes.append(asked(url, correlationId="c").status_code)

            threads = [threading.Thread(target=ask) for _ in range(32)]
            for one in threads:
                one.start()
            for one in threads:
                one.join()
            assert sorted(codes) == [200] + [204] * 31
        assert queue.depth == 0


def test_requests_and_replies_meet_by_their_ids(registry, queue):
    """A server replies to what it gets, and each client waits for the reply to its own request."""
    with running(registry) as (url, _), SqlQueue.create(registry.url, "REPLIES") as replies:
        done = threading.Event()

        def serve():
            while not done.is_set():
                answer = asked(url, wait=200)
                if answer.status_code == 200:
                    headers = {"ibm-mq-md-correlationId": answer.headers["ibm-mq-md-messageId"]}
                    reply = f"{url}{PATH.replace('/Q/', '/REPLIES/')}"
                    httpx.post(
                        reply, content=answer.content[::-1], headers=headers, timeout=60, trust_env=False
                    )

        serving = threading.Thread(target=serve)
        serving.start()
        for text in (b"abc", b"def", b"ghi"):
            sent = httpx.post(f"{url}{PATH}", content=text, timeout=60, trust_env=False)
            answer = httpx.delete(
                f"{url}{PATH.replace('/Q/', '/REPLIES/')}",
                params={"correlationId": sent.headers["ibm-mq-md-messageId"], "wait": 20_000},
                timeout=60,
                trust_env=False,
            )
            assert answer.content == text[::-1]
        done.set()
        serving.join()
        assert (queue.depth, replies.depth) == (0, 0)


def test_a_large_message_goes_through_and_a_larger_one_is_refused(registry, queue):
    with running(registry, limits=ServiceLimits(message_bytes=4 << 20)) as (url, _):
        body = bytes(range(256)) * (4 << 12)
        assert httpx.post(f"{url}{PATH}", content=body, timeout=60, trust_env=False).status_code == 201
        answer = httpx.post(f"{url}{PATH}", content=body + b"x", timeout=60, trust_env=False)
        assert (answer.status_code, answer.json()["error"][0]["reasonCode"]) == (413, 2030)
        assert asked(url).content == body


def test_what_a_header_cannot_be_is_refused(registry, queue):
    with running(registry) as (url, _):
        headers = {"ibm-mq-md-correlationId": b"\xff"}
        answer = httpx.post(f"{url}{PATH}", content=b"x", headers=headers, timeout=60, trust_env=False)
        assert (answer.status_code, answer.json()["error"][0]["msgId"]) == (400, "MQWB0302E")
        with pytest.raises(sr.MQError):
            queue.get()


@pytest.mark.xdist_group("postgres")
def test_queues_in_postgresql_are_the_same_over_http(postgres, tmp_path):
    """In the registry's own database: put, wait, win once, hang up, delete."""
    with Registry.open(postgres()) as registry, running(registry, snapshots=tmp_path / "s") as (url, server):
        service = server.config.app.state.service
        made = httpx.put(f"{url}/v1/queues/Q", json={"max_depth": 50}, timeout=60, trust_env=False)
        assert made.status_code == 201
        found = {}

        def ask(number):
            found[number] = asked(url, correlationId=f"c{number}", wait=29_000).content

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(20)]
        for one in threads:
            one.start()
        wait_until(lambda: len(service.queue_waiting) == 20, 60, "all wait")
        with SqlQueue(registry.url, "Q") as other:
            for number in range(20):
                other.put(str(number).encode(), correl_id=id_of(f"c{number}"))
            for one in threads:
                one.join()
            assert found == {number: str(number).encode() for number in range(20)}
            host, _, port = url.removeprefix("http://").partition(":")
            with socket.create_connection((host, int(port))) as connection:
                head = f"DELETE {PATH}?wait=30000 HTTP/1.1\r\nHost: localhost\r\n\r\n"
                connection.sendall(head.encode())
                wait_until(lambda: len(service.queue_waiting) == 1, 60, "all wait")
            wait_until(lambda: not len(service.queue_waiting), 60, "nobody waits")
            other.put(b"kept", properties={"weight": sr.Int(3000)})
            codes = []
            threads = [
                threading.Thread(target=lambda: codes.append(asked(url, selector="weight > 1").status_code))
                for _ in range(16)
            ]
            for one in threads:
                one.start()
            for one in threads:
                one.join()
            assert sorted(codes) == [200] + [204] * 15
            other.put(b"x")
        assert httpx.delete(f"{url}/v1/queues/Q", timeout=60, trust_env=False).status_code == 409
        assert httpx.delete(f"{url}/v1/queues/Q?purge=true", timeout=60, trust_env=False).status_code == 204
        assert asked(url).json()["error"][0]["reasonCode"] == 2085
