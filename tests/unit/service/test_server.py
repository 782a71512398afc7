"""A real server on the loopback: waiting for changes, and stopping."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, contextmanager

import httpx
import pytest

from selectroute.index.specification import SubscriptionSpec
from selectroute.registry.registry import Registry
from selectroute.service.limits import ServiceLimits
from selectroute.service.server import ServeError, bound
from tests.support.waiting import wait_until
from tests.unit.service.conftest import problem

pytestmark = pytest.mark.slow

MANY = httpx.Limits(max_connections=None)
"""For one client of many threads: to make one each takes longer than the first may wait."""


@contextmanager
def running(registry, **options):
    """The URL of a server in a thread of this process, and the server."""
    urls = []
    ready = threading.Event()

    def started(url):
        urls.append(url)
        ready.set()

    server = bound(registry, "127.0.0.1", 0, started=started, **options)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        assert ready.wait(60)
        yield urls[0], server
    finally:
        server.should_exit = True
        thread.join()


def test_many_wait_for_one_change_without_holding_a_thread_each(registry):
    with running(registry) as (url, _), httpx.Client(timeout=60, trust_env=False, limits=MANY) as client:
        found = []

        def wait():
            answer = client.get(f"{url}/v1/changes", params={"wait": 30})
            found.append(answer.json()["revision"])

        waiting = [threading.Thread(target=wait) for _ in range(80)]  # more than the threads of the pool
        for one in waiting:
            one.start()
        answer = client.post(f"{url}/v1/subscriptions", json={})
        assert answer.status_code == 201
        for one in waiting:
            one.join()
        assert found == [1] * 80


def test_who_hangs_up_while_he_waits_takes_nobodys_place(registry):
    with running(registry) as (url, server):
        watch = server.config.app.state.service.watch
        host, _, port = url.removeprefix("http://").partition(":")
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(b"GET /v1/changes?wait=30 HTTP/1.1\r\nHost: localhost\r\n\r\n")
            wait_until(lambda: len(watch), 60, "the request waits")
        wait_until(lambda: not len(watch), 28, "nobody waits for who is gone")


def test_a_token_that_is_revoked_while_it_waits_gets_no_change(registry):
    token, secret = registry.add_token("reader")
    with running(registry) as (url, server):
        watch = server.config.app.state.service.watch
        found = []

        def wait():
            headers = {"Authorization": f"Bearer {secret}"}
            found.append(httpx.get(f"{url}/v1/changes?wait=25", headers=headers, timeout=60, trust_env=False))

        waiting = threading.Thread(target=wait)
        waiting.start()
        wait_until(lambda: len(watch), 60, "the request waits")
        registry.revoke_token(token.id)
        registry.register(SubscriptionSpec("canary = 1"))
        waiting.join()
    assert found[0].status_code == 401
    assert "canary" not in found[0].text


def test_a_change_of_another_process_wakes_who_waits(registry, tmp_path):
    with running(registry) as (url, _):
        other = (
            "import selectroute as sr, sys; from selectroute.registry.registry import Registry;"
            "from selectroute.registry.model import SubscriptionSpec;"
            "Registry.open(sys.argv[1], verify=False).register(SubscriptionSpec())"
        )
        path = f"sqlite:///{tmp_path}/subscriptions.db"
        writer = subprocess.Popen([sys.executable, "-c", other, path])
        changes, ended = [], False
        while not changes and not ended:  # it may take longer to start than anybody may wait
            ended = writer.poll() is not None
            answer = httpx.get(f"{url}/v1/changes", params={"wait": 30}, timeout=60, trust_env=False)
            changes = answer.json()["changes"]
        assert [one["op"] for one in changes] == ["add"]
        assert writer.wait() == 0


def test_no_answer_waits_for_an_acknowledgement(registry):
    with (
        running(registry) as (url, server),
        httpx.Client(base_url=url, timeout=60, trust_env=False) as client,
    ):
        client.get("/healthz")
        (connection,) = server.server_state.connections
        accepted = connection.transport.get_extra_info("socket")
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_who_waits_is_answered_when_the_server_stops(registry):
    with running(registry) as (url, server):
        found = []

        def wait():
            answer = httpx.get(f"{url}/v1/changes", params={"wait": 30}, timeout=60, trust_env=False)
            found.append(answer)

        waiting = threading.Thread(target=wait)
        waiting.start()
        watch = server.config.app.state.service.watch
        wait_until(lambda: len(watch), 60, "the request waits")
        stopped = time.monotonic()
        server.should_exit = True
        waiting.join()
        assert time.monotonic() - stopped < 28  # nobody would wait longer than 30 anyway
        assert (found[0].json()["changes"], found[0].json()["revision"]) == ([], 0)


def test_what_is_under_way_is_completed_when_the_server_stops(registry):
    with running(registry) as (url, server):
        entered = threading.Event()

        def parts():
            yield b'{"id": "a"}\n'
            wait_until(lambda: server.config.app.state.service.importers, 60, "the import is begun")
            entered.set()
            server.should_exit = True
            time.sleep(0.5)
            yield b'{"id": "b"}\n'

        headers = {"Content-Type": "application/x-ndjson"}
        answer = httpx.post(
            f"{url}/v1/subscriptions:import", content=parts(), headers=headers, timeout=60, trust_env=False
        )
        assert entered.is_set()
        assert answer.json()["rows"] == 2
    assert len(registry) == 2


def test_a_client_that_goes_away_in_an_import_leaves_nothing(registry, caplog):
    with running(registry) as (url, _):
        host, _, port = url.removeprefix("http://").partition(":")
        with socket.create_connection((host, int(port))) as connection:
            head = (
                "POST /v1/subscriptions:import HTTP/1.1\r\nHost: localhost\r\n"
                "Content-Type: application/x-ndjson\r\nContent-Length: 1000\r\n\r\n"
            )
            connection.sendall(head.encode() + b'{"id": "a"}\n')
        answer = httpx.post(f"{url}/v1/subscriptions", json={}, timeout=60, trust_env=False)
        assert answer.json()["revision"] == 1
    assert len(registry) == 1
    assert "failed" not in caplog.text  # a client can do so as often as it likes
    assert "Traceback" not in caplog.text


IMPORT = (
    b"POST /v1/subscriptions:import HTTP/1.1\r\nHost: localhost\r\n"
    b"Content-Type: application/x-ndjson\r\nContent-Length: 1000\r\n\r\n"
)


@contextmanager
def unfinished(url, count):
    """So many imports that have sent one line and send no more."""
    host, _, port = url.removeprefix("http://").partition(":")
    with ExitStack() as stack:
        made = [stack.enter_context(socket.create_connection((host, int(port)))) for _ in range(count)]
        for one in made:
            one.sendall(IMPORT + b'{"id": "a"}\n')
        yield made


def test_imports_that_come_slowly_take_no_thread_of_others(registry):
    with running(registry, limits=ServiceLimits(imports=50, imports_of_one=50)) as (url, server):
        importing = server.config.app.state.service.importing
        with unfinished(url, 45):  # more than the threads of the pool
            wait_until(lambda: importing.statistics().borrowed_tokens >= 45, 60, "45 imports")
            for path in ("/healthz", "/v1/subscriptions"):
                assert httpx.get(f"{url}{path}", timeout=60, trust_env=False).status_code == 200
    assert len(registry) == 0


def test_so_many_imports_and_no_more(registry):
    with running(registry, limits=ServiceLimits(imports=2)) as (url, server):
        importing = server.config.app.state.service.importing
        headers = {"Content-Type": "application/x-ndjson"}
        with unfinished(url, 2):
            wait_until(lambda: not importing.available_tokens, 60, "two imports")
            answer = httpx.post(
                f"{url}/v1/subscriptions:import", headers=headers, timeout=60, trust_env=False
            )
            problem(answer, 429, "too-many-requests")
            assert answer.headers["retry-after"]
        wait_until(lambda: importing.available_tokens == 2, 60, "they hung up")
        answer = httpx.post(f"{url}/v1/subscriptions:import", headers=headers, timeout=60, trust_env=False)
        assert answer.json()["rows"] == 0


def test_one_token_has_no_more_imports_than_its_own(registry):
    (_, mine), (_, other) = registry.add_token("writer"), registry.add_token("writer")
    with running(registry, limits=ServiceLimits(imports=3, imports_of_one=1)) as (url, server):
        importers = server.config.app.state.service.importers
        host, _, port = url.removeprefix("http://").partition(":")

        def import_(secret):
            headers = {"Content-Type": "application/x-ndjson", "Authorization": f"Bearer {secret}"}
            path = f"{url}/v1/subscriptions:import"
            return httpx.post(path, headers=headers, content=b"{}\n", timeout=60, trust_env=False)

        with socket.create_connection((host, int(port))) as slow:
            head = "POST /v1/subscriptions:import HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n"
            slow.sendall(
                f"{head}Content-Type: application/x-ndjson\r\nAuthorization: Bearer {mine}\r\n\r\n{{".encode()
            )
            wait_until(lambda: importers, 60, "the import is begun")
            problem(import_(mine), 429, "too-many-requests")
            assert import_(other).json()["rows"] == 1
        wait_until(lambda: not importers, 60, "the import is over")
        assert import_(mine).json()["rows"] == 1


def test_an_import_that_sends_no_more_is_broken_off(registry):
    limits = ServiceLimits(stall_seconds=0.2)
    with running(registry, limits=limits) as (url, _), unfinished(url, 1) as (one,):
        one.settimeout(60)
        answer = b""
        while part := one.recv(65_536):  # until the service closes
            answer += part
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"urn:selectroute:problem:timed-out" in answer
    assert len(registry) == 0


def test_lines_are_whole_wherever_the_parts_of_a_long_import_end(registry):
    lines = [f'{{"id": "a{n}", "labels": {{"note": "{"x" * (n % 250)}"}}}}\n' for n in range(16_000)]
    body = "".join(lines).encode()
    assert len(body) > 2 << 20  # more than the service reads at once
    headers = {"Content-Type": "application/x-ndjson"}

    def import_(body):
        parts = (body[start : start + 77_777] for start in range(0, len(body), 77_777))
        path = f"{url}/v1/subscriptions:import"
        return httpx.post(path, content=parts, headers=headers, timeout=60, trust_env=False)

    with running(registry) as (url, _):
        answer = import_(body.replace(b'"id": "a15000"', b'"id": "a/"'))
        assert answer.json()["errors"][0]["pointer"] == "/15000/id"
        assert import_(body).json()["rows"] == 16_000
    assert {one["id"]: len(one["labels"]["note"]) for one in map(json.loads, registry.export())} == {
        f"a{n}": n % 250 for n in range(16_000)
    }


def test_who_waits_to_write_takes_no_thread_of_those_who_read(registry):
    with running(registry) as (url, server), httpx.Client(timeout=60, trust_env=False, limits=MANY) as client:
        commits = server.config.app.state.service.commits
        found = []

        def write():
            found.append(client.post(f"{url}/v1/subscriptions", json={}).status_code)

        waiting = [threading.Thread(target=write) for _ in range(60)]  # more than the threads of the pool
        with registry._store.writing():  # as a large import does
            for one in waiting:
                one.start()
            wait_until(lambda: len(commits) == 60, 60, "all wait to write")
            answer = httpx.get(f"{url}/v1/subscriptions", timeout=20, trust_env=False)
            assert answer.json()["items"] == []
        for one in waiting:
            one.join()
        assert found == [201] * 60


@pytest.mark.parametrize(
    "request_",
    [
        b"\x16\x03\x01\x02\x00\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"POST /v1/subscriptions HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"POST /v1/subscriptions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        # An upgrade, whose body would be read as the next request.
        b"POST /v1/subscriptions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Connection: Upgrade\r\nUpgrade: foo\r\nContent-Length: 45\r\n\r\n",
        b"GET /v1/limits HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        b"CONNECT localhost:1 HTTP/1.1\r\nHost: localhost\r\nUpgrade: h2c\r\n\r\n",
    ],
)
def test_what_is_no_http_is_a_problem_too(registry, request_):
    with running(registry) as (url, _):
        host, _, port = url.removeprefix("http://").partition(":")
        with socket.create_connection((host, int(port)), timeout=60) as connection:
            connection.sendall(request_)
            answer = b""
            while part := connection.recv(65_536):  # until the service closes
                answer += part
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert b"content-type: application/problem+json" in head
    assert b"content-length: %d" % len(body) in head
    found = json.loads(body)
    assert (found["type"], found["status"]) == ("urn:selectroute:problem:invalid-request", 400)
    assert len(registry) == 0


def test_an_offer_of_http_2_is_ignored_and_is_none_in_a_body(registry):
    """As Java's HttpClient makes it with each request, unless told otherwise."""
    offer = b"Connection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AA\r\nUpgrade: h2c\r\n"
    json_body = b"Host: localhost\r\nContent-Type: application/json\r\nContent-Length: 19\r\n"
    post = b"POST /v1/subscriptions HTTP/1.1\r\n" + json_body
    requests = [
        [b"GET /v1/limits HTTP/1.1\r\nHost: localhost\r\n" + offer + b"\r\n"],
        [post + offer + b'\r\n{"selector": "a=1"}'],
        [post + b"\r\n", b"\r\nUpgrade: h2c\r\n\r\n "],  # it would be cut, and waited for
    ]
    answers = []
    with running(registry) as (url, _):
        host, _, port = url.removeprefix("http://").partition(":")
        for parts in requests:
            with socket.create_connection((host, int(port)), timeout=20) as connection:
                for part in parts:
                    connection.sendall(part)
                    time.sleep(0.1)
                answers.append(connection.recv(65_536)[:12])
    assert answers == [b"HTTP/1.1 200", b"HTTP/1.1 201", b"HTTP/1.1 400"]


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "registry.example"])
def test_without_tokens_only_the_loopback_is_listened_on(registry, host):
    with pytest.raises(ServeError, match="create a token with `selectroute token create`"):
        bound(registry, host, 0)


def test_an_address_that_is_taken_is_one_sentence(registry):
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(
            ServeError, match="cannot be listened on: Address already in use: choose another --port"
        ),
    ):
        bound(registry, "127.0.0.1", taken.getsockname()[1])


def test_with_a_token_others_are_answered_and_need_it(registry):
    _, secret = registry.add_token("reader")
    urls = []
    server = bound(registry, "0.0.0.0", 0, started=urls.append)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        wait_until(lambda: urls or not thread.is_alive(), 60, "the server has started")
        port = urls[0].rpartition(":")[2]
        url = f"http://127.0.0.1:{port}/v1/subscriptions"
        assert httpx.get(url, timeout=60, trust_env=False).status_code == 401
        headers = {"Authorization": f"Bearer {secret}"}
        assert httpx.get(url, headers=headers, timeout=60, trust_env=False).status_code == 200
    finally:
        server.should_exit = True
        thread.join()


@contextmanager
def killed_at_last(command, **options):
    """A process that also ends when the test fails, so that the test does."""
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, **options) as process:
        try:
            yield process
        finally:
            process.kill()


def test_the_command_ends_well_while_it_publishes(tmp_path):
    program = """
import atexit, sys, threading
from selectroute.registry.publisher import RegistryPublisher
from selectroute.service.subscriptions.publication import publishing

def catch_up(self):
    print("publishing", file=sys.stderr, flush=True)
    threading.Event().wait()

RegistryPublisher.catch_up = catch_up
publishing.Publishing.stop.__defaults__ = (0.1,)
atexit.register(print, "the interpreter ends under the thread", file=sys.stderr)
from selectroute.__main__ import main
main()
"""
    given = f"serve --port 0 --registry sqlite:///{tmp_path}/r.db".split()
    command = [sys.executable, "-c", program, *given]
    with killed_at_last(command) as process:
        said = process.stderr.readline() + process.stderr.readline()
        assert "publishing" in said, said  # of two threads, so perhaps on one line
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        log = process.stderr.read()
    assert "a publication is abandoned" in log
    assert "the interpreter ends" not in log


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
def test_the_command_serves_until_it_is_told_to_stop(tmp_path, stop):
    url = f"sqlite:///{tmp_path}/r.db"
    environment = {**os.environ, "SELECTROUTE_LIMITS__PAGE": "7", "XDG_CONFIG_HOME": str(tmp_path)}
    command = [sys.executable, "-m", "selectroute", "serve", "--registry", url, "--port", "0"]
    with killed_at_last(command, env=environment) as process:
        said = process.stderr.readline()
        found = re.fullmatch(
            r"selectroute: (http://127\.0\.0\.1:\d+) serves (.*), tokens: none; Ctrl-C ends it\n", said
        )
        if not found or found[2] != url:
            process.kill()
            pytest.fail(said + process.stderr.read())
        service = found[1]
        made = httpx.post(
            f"{service}/v1/subscriptions", json={"selector": "a = 1"}, timeout=60, trust_env=False
        )
        assert made.status_code == 201
        assert httpx.get(f"{service}/v1/limits", timeout=60, trust_env=False).json()["page"] == 7
        process.send_signal(stop)
        assert process.wait(60) == 0
        log = process.stderr.read()
    lines = [json.loads(line) for line in log.splitlines()]
    assert [(one["event"], one["status"]) for one in lines] == [("request", 201), ("request", 200)]
    with Registry.open(url) as registry:
        assert len(registry) == 1
    snapshots = tmp_path / "r.db.snapshots"
    assert list(snapshots.glob("manifest-*.json"))
