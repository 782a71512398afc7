"""Queues of a real server on the loopback: who waits, who hangs up, who stops, who is first."""

import socket
import threading

import pytest

import selectroute as sr
from selectroute.queues.sql.queue import SqlQueue
from selectroute.queues.unit import UnitOfWork
from selectroute.registry.registry import Registry
from selectroute.service.limits import ServiceLimits
from tests.support.queue_calls import hex_of, id_of
from tests.support.waiting import wait_until
from tests.unit.service.conftest import connected, meanwhile, rest, running

pytestmark = pytest.mark.slow

QUEUE = "/ibmmq/rest/v3/messaging/qmgr/selectroute/queue/Q"
PATH = f"{QUEUE}/message"


@pytest.fixture
def queue(registry):
    with SqlQueue.create(registry.url, "Q") as made:
        yield made


def asked(web, **params):
    return web.delete(PATH, params=params)


def all_get_theirs(web, server, queue, count):
    """Let so many wait for a message each, put these from another process, and compare what each got."""
    waiting = server.config.app.state.service.queue_waiting

    def ask(number):
        return number, asked(web, correlationId=hex_of(id_of(str(number))), wait=30_000).content

    with meanwhile(*(lambda number=number: ask(number) for number in range(count))) as found:
        wait_until(lambda: len(waiting) == count, 60, "all wait")
        assert web.get("/v1/subscriptions").status_code == 200
        for number in reversed(range(count)):
            queue.put(str(number).encode(), correl_id=id_of(str(number)))
    assert dict(found) == {number: str(number).encode() for number in range(count)} and queue.depth == 0


def one_wins(web, count, **lookup):
    """Let so many get the same message at once."""
    barrier = threading.Barrier(count, timeout=60)

    def ask():
        barrier.wait()
        return asked(web, **lookup).status_code

    with meanwhile(*[ask] * count) as codes:
        pass
    assert sorted(codes) == [200] + [204] * (count - 1)


def test_many_wait_without_holding_a_thread_each_and_each_gets_its_own(registry, queue):
    with running(registry) as (web, server):
        all_get_theirs(web, server, queue, 80)


def test_a_message_is_lost_by_hanging_up_only_while_it_is_taken_off_its_queue(registry, queue, monkeypatch):
    """However a message and a client who hangs up meet: it is sent, on the queue, or was just committed."""
    begun = []
    commit = UnitOfWork.commit

    def commits(unit):
        begun.append(unit)
        commit(unit)

    monkeypatch.setattr(UnitOfWork, "commit", commits)
    with running(registry) as (web, server):
        service = server.config.app.state.service
        own = service.queues.open("Q")
        for number in range(40):
            with connected(web) as connection:
                connection.sendall(f"DELETE {PATH}?wait=30000 HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
                wait_until(lambda: len(service.queue_waiting) == 1, 60, "all wait")
                putting = threading.Thread(target=own.put, args=(str(number).encode(),))
                putting.start()
                if number % 2:
                    putting.join()
                connection.shutdown(socket.SHUT_WR)
                answer = rest(connection)
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


def test_of_many_who_get_the_same_one_is_the_winner(registry, queue):
    with running(registry) as (web, _):
        for number in range(5):
            queue.put(str(number).encode(), correl_id=id_of("c"))
            one_wins(web, 32, correlationId="c")
        assert queue.depth == 0


def test_requests_and_replies_meet_by_their_ids(registry, queue):
    """A server replies to what it gets, and each client waits for the reply to its own request."""
    path = PATH.replace("/Q/", "/REPLIES/")
    with running(registry) as (web, _), SqlQueue.create(registry.url, "REPLIES") as replies:
        done = threading.Event()

        def serve():
            while not done.is_set():
                answer = asked(web, wait=200)
                if answer.status_code == 200:
                    headers = {"ibm-mq-md-correlationId": answer.headers["ibm-mq-md-messageId"]}
                    web.post(path, content=answer.content[::-1], headers=headers)

        with meanwhile(serve):
            for text in (b"abc", b"def", b"ghi"):
                id = web.post(PATH, content=text).headers["ibm-mq-md-messageId"]
                assert web.delete(path, params={"correlationId": id, "wait": 20_000}).content == text[::-1]
            done.set()
        assert (queue.depth, replies.depth) == (0, 0)


def test_a_large_message_goes_through_and_a_larger_one_is_refused(registry, queue):
    with running(registry, limits=ServiceLimits(message_bytes=4 << 20)) as (web, _):
        body = bytes(range(256)) * (4 << 12)
        assert web.post(PATH, content=body).status_code == 201
        answer = web.post(PATH, content=body + b"x")
        assert (answer.status_code, answer.json()["error"][0]["reasonCode"]) == (413, 2030)
        assert asked(web).content == body


def test_what_a_header_cannot_be_is_refused(registry, queue):
    with running(registry) as (web, _):
        answer = web.post(PATH, content=b"x", headers={"ibm-mq-md-correlationId": b"\xff"})
        assert (answer.status_code, answer.json()["error"][0]["msgId"]) == (400, "MQWB0302E")
        with pytest.raises(sr.MQError):
            queue.get()


@pytest.mark.xdist_group("postgres")
def test_queues_in_postgresql_are_the_same_over_http(postgres, tmp_path):
    """In the registry's own database: put, wait, win once, hang up, delete."""
    with Registry.open(postgres()) as registry, running(registry, snapshots=tmp_path / "s") as (web, server):
        waiting = server.config.app.state.service.queue_waiting
        assert web.put("/v1/queues/Q", json={"max_depth": 50}).status_code == 201
        with SqlQueue(registry.url, "Q") as other:
            all_get_theirs(web, server, other, 20)
            with connected(web) as connection:
                connection.sendall(f"DELETE {PATH}?wait=30000 HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
                wait_until(lambda: len(waiting) == 1, 60, "all wait")
            wait_until(lambda: not len(waiting), 28, "nobody waits")
            other.put(b"kept", properties={"weight": sr.Int(3000)})
            one_wins(web, 16, selector="weight > 1")
            other.put(b"x")
        assert web.delete("/v1/queues/Q").status_code == 409
        assert web.delete("/v1/queues/Q?purge=true").status_code == 204
        assert asked(web).json()["error"][0]["reasonCode"] == 2085
