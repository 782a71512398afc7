"""A real server on the loopback: waiting for changes, and stopping."""

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

from selectroute.registry.registry import Registry
from selectroute.service.app import create_app
from selectroute.service.limits import ServiceLimits
from selectroute.service.server import ServeError, bound
from tests.support.waiting import wait_until
from tests.unit.service.conftest import bearer, connected, meanwhile, problem, rest, running

pytestmark = pytest.mark.slow

IMPORT = "/v1/subscriptions:import"
NDJSON = {"Content-Type": "application/x-ndjson"}


def test_many_wait_for_one_change_without_holding_a_thread_each(registry):
    with running(registry) as (web, _):
        wait = [lambda: web.get("/v1/changes?wait=30").json()["revision"]]
        with meanwhile(*wait * 80) as found:  # more than the threads of the pool
            assert web.post("/v1/subscriptions", json={}).status_code == 201
        assert found == [1] * 80


def test_a_change_of_another_process_wakes_who_waits(registry, tmp_path):
    with running(registry) as (web, _):
        other = (
            "import selectroute as sr, sys; from selectroute.registry.registry import Registry;"
            "from selectroute.registry.model import SubscriptionSpec;"
            "Registry.open(sys.argv[1], verify=False).register(SubscriptionSpec())"
        )
        writer = subprocess.Popen([sys.executable, "-c", other, f"sqlite:///{tmp_path}/subscriptions.db"])
        changes, ended = [], False
        while not changes and not ended:  # it may take longer to start than anybody may wait
            ended = writer.poll() is not None
            changes = web.get("/v1/changes?wait=30").json()["changes"]
        assert ([one["op"] for one in changes], writer.wait()) == (["add"], 0)


def test_no_answer_waits_for_an_acknowledgement(registry):
    with running(registry) as (web, server):
        web.get("/healthz")
        (connection,) = server.server_state.connections
        accepted = connection.transport.get_extra_info("socket")
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_what_is_under_way_is_completed_when_the_server_stops(registry):
    with running(registry) as (web, server):
        entered = threading.Event()

        def parts():
            yield b'{"id": "a"}\n'
            wait_until(lambda: server.config.app.state.service.importers, 60, "the import is begun")
            entered.set()
            server.should_exit = True
            time.sleep(0.5)
            yield b'{"id": "b"}\n'

        answer = web.post(IMPORT, content=parts(), headers=NDJSON)
        assert entered.is_set() and answer.json()["rows"] == 2
    assert len(registry) == 2


@contextmanager
def unfinished(web, count, secret=""):
    """So many imports that have sent one line and send no more."""
    head = f"POST {IMPORT} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-ndjson\r\n"
    head += f"Authorization: Bearer {secret}\r\n" if secret else ""
    with ExitStack() as stack:
        made = [stack.enter_context(connected(web)) for _ in range(count)]
        for one in made:
            one.sendall(f'{head}Content-Length: 1000\r\n\r\n{{"id": "a"}}\n'.encode())
        yield made


def test_a_client_that_goes_away_in_an_import_leaves_nothing(registry, caplog):
    with running(registry) as (web, _):
        with unfinished(web, 1):
            pass
        assert web.post("/v1/subscriptions", json={}).json()["revision"] == 1
    assert len(registry) == 1
    assert "failed" not in caplog.text  # a client can do so as often as it likes
    assert "Traceback" not in caplog.text


def test_imports_that_come_slowly_take_no_thread_of_others(registry):
    with running(registry, limits=ServiceLimits(imports=50, imports_of_one=50)) as (web, server):
        importing = server.config.app.state.service.importing
        with unfinished(web, 45):  # more than the threads of the pool
            wait_until(lambda: importing.statistics().borrowed_tokens >= 45, 60, "45 imports")
            for path in ("/healthz", "/v1/subscriptions"):
                assert web.get(path).status_code == 200
    assert len(registry) == 0


def test_so_many_imports_and_no_more(registry):
    with running(registry, limits=ServiceLimits(imports=2)) as (web, server):
        importing = server.config.app.state.service.importing
        with unfinished(web, 2):
            wait_until(lambda: not importing.available_tokens, 60, "two imports")
            answer = web.post(IMPORT, headers=NDJSON)
            problem(answer, 429, "too-many-requests")
            assert answer.headers["retry-after"]
        wait_until(lambda: importing.available_tokens == 2, 60, "they hung up")
        assert web.post(IMPORT, headers=NDJSON).json()["rows"] == 0


def test_one_token_has_no_more_imports_than_its_own(registry):
    (_, mine), (_, other) = registry.tokens.add("writer"), registry.tokens.add("writer")
    with running(registry, limits=ServiceLimits(imports=3, imports_of_one=1)) as (web, server):
        importers = server.config.app.state.service.importers

        def import_(secret):
            return web.post(IMPORT, headers=NDJSON | bearer(secret), content=b"{}\n")

        with unfinished(web, 1, mine):
            wait_until(lambda: importers, 60, "the import is begun")
            problem(import_(mine), 429, "too-many-requests")
            assert import_(other).json()["rows"] == 1
        wait_until(lambda: not importers, 60, "the import is over")
        assert import_(mine).json()["rows"] == 1


def test_an_import_that_sends_no_more_is_broken_off(registry):
    with running(registry, limits=ServiceLimits(stall_seconds=0.2)) as (web, _), unfinished(web, 1) as (one,):
        answer = rest(one)
    assert answer.startswith(b"HTTP/1.1 408 ") and b"urn:selectroute:problem:timed-out" in answer
    assert len(registry) == 0


def test_lines_are_whole_wherever_the_parts_of_a_long_import_end(registry):
    lines = [f'{{"id": "a{n}", "labels": {{"note": "{"x" * (n % 250)}"}}}}\n' for n in range(16_000)]
    body = "".join(lines).encode()
    assert len(body) > 2 << 20  # more than the service reads at once

    def import_(body):
        parts = (body[start : start + 77_777] for start in range(0, len(body), 77_777))
        return web.post(IMPORT, content=parts, headers=NDJSON)

    with running(registry) as (web, _):
        answer = import_(body.replace(b'"id": "a15000"', b'"id": "a/"'))
        assert answer.json()["errors"][0]["pointer"] == "/15000/id"
        assert import_(body).json()["rows"] == 16_000
    assert {one["id"]: len(one["labels"]["note"]) for one in map(json.loads, registry.export())} == {
        f"a{n}": n % 250 for n in range(16_000)
    }


def test_who_waits_to_write_takes_no_thread_of_those_who_read(registry):
    with running(registry) as (web, _), ExitStack() as held:
        waiting = registry._commits._waiting
        write = [lambda: web.post("/v1/subscriptions", json={}).status_code]
        with registry._store.writing():  # as a large import does
            found = held.enter_context(meanwhile(*write * 60))
            wait_until(lambda: len(waiting) > 50, 60, "more wait to write than the pool has threads")
            assert web.get("/v1/subscriptions", timeout=20).json()["items"] == []
        held.close()
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
    with running(registry) as (web, _), connected(web) as connection:
        connection.sendall(request_)
        answer = rest(connection)
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
    with running(registry) as (web, _):
        for parts in requests:
            with connected(web) as connection:
                connection.settimeout(20)
                for part in parts:
                    connection.sendall(part)
                    time.sleep(0.1)
                answers.append(connection.recv(65_536)[:12])
    assert answers == [b"HTTP/1.1 200", b"HTTP/1.1 201", b"HTTP/1.1 400"]


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "registry.example"])
def test_without_tokens_only_the_loopback_is_listened_on(registry, host):
    with pytest.raises(ServeError, match="create a token with `selectroute token create`"):
        bound(create_app(registry), host, 0)


def test_with_a_token_others_are_answered_and_need_it(registry):
    _, secret = registry.tokens.add("reader")
    with running(registry, "0.0.0.0") as (web, _):
        assert web.get("/v1/subscriptions").status_code == 401
        assert web.get("/v1/subscriptions", headers=bearer(secret)).status_code == 200


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
from selectroute.service.subscriptions import publishing

def catch_up(self):
    print("publishing", file=sys.stderr, flush=True)
    threading.Event().wait()

RegistryPublisher.catch_up = catch_up
publishing.Publishing.stop.__defaults__ = (0.1,)
atexit.register(print, "the interpreter ends under the thread", file=sys.stderr)
from selectroute.__main__ import main
main()
"""
    options = f"serve --port 0 --registry sqlite:///{tmp_path}/r.db".split()
    with killed_at_last([sys.executable, "-c", program, *options]) as process:
        said = process.stderr.readline() + process.stderr.readline()
        assert "publishing" in said, said  # of two threads, so perhaps on one line
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        log = process.stderr.read()
    assert "a publication is abandoned" in log and "the interpreter ends" not in log


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
        with httpx.Client(base_url=found[1], timeout=60, trust_env=False) as web:
            assert web.post("/v1/subscriptions", json={"selector": "a = 1"}).status_code == 201
            assert web.get("/v1/limits").json()["page"] == 7
        process.send_signal(stop)
        assert process.wait(60) == 0
        log = process.stderr.read()
    lines = [json.loads(line) for line in log.splitlines()]
    assert [(one["event"], one["status"]) for one in lines] == [("request", 201), ("request", 200)]
    with Registry.open(url) as registry:
        assert len(registry) == 1
    assert list((tmp_path / "r.db.snapshots").glob("manifest-*.json"))
