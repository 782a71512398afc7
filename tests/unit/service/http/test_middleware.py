"""What every request passes: tokens, hosts, rates, sizes; and what is left behind."""

import gzip
import json
import logging
import re
import time

import anyio
import anyio.to_thread
import pytest

from selectroute.queues.sql.queue import SqlQueue
from selectroute.registry.errors import DamagedError, ReadOnlyError, UnavailableError
from selectroute.service.app import create_app
from selectroute.service.context import while_connected
from selectroute.service.http.middleware import KNOWN_SECONDS
from selectroute.service.http.problems import ProblemError
from selectroute.service.limits import ServiceLimits
from tests.unit.service.conftest import bearer, client_of, problem, service

PATH = "/v1/subscriptions"
QUEUE = "/ibmmq/rest/v3/messaging/qmgr/selectroute/queue/Q/message"
LOG = "selectroute.service"
CHALLENGE = 'Basic realm="selectroute", Bearer realm="selectroute"'


class TestTokens:
    def test_what_is_no_token_is_refused(self, registry):
        registry.tokens.add("admin")
        wrong = ("", "Bearer", "Bearer ", "Basic eA==", "Bearer srt_" + "x" * 43, "Bearer \xff", "bearer x y")
        with service(registry) as client:
            for header in wrong:
                answer = client.get(PATH, headers={"Authorization": header.encode("latin-1")})
                problem(answer, 401, "unauthorised")
                assert answer.headers["www-authenticate"] == CHALLENGE

    def test_two_are_refused(self, registry):
        _, secret = registry.tokens.add("admin")
        with service(registry) as client:
            headers = [("Authorization", f"Bearer {secret}")] * 2
            problem(client.get(PATH, headers=headers), 400, "invalid-request")

    def test_health_and_the_document_need_none(self, registry):
        with service(registry, tokens_needed=True) as client:
            for path in ("/healthz", "/openapi.json", "/", "/docs"):
                assert client.get(path).status_code == 200
            for path in (PATH, "/metrics", "/nowhere"):
                problem(client.get(path), 401, "unauthorised")


class TestHosts:
    @pytest.mark.parametrize("host", ["localhost", "127.0.0.1:8080", "[::1]:80", "LOCALHOST"])
    def test_without_tokens_this_machine_is_answered(self, shared, host):
        assert shared.get(PATH, headers={"Host": host}).status_code == 200

    @pytest.mark.parametrize("host", ["evil.example", "10.0.0.1:8080", "", "localhost.evil.example"])
    def test_a_name_that_only_points_here_is_not(self, shared, host):
        problem(shared.get(PATH, headers={"Host": host}), 421, "misdirected")

    def test_a_token_is_good_under_any_name(self, registry):
        with client_of(registry, "reader") as client:
            assert client.get(PATH, headers={"Host": "registry.example"}).status_code == 200


def test_a_caller_who_asks_too_often_is_told_when_to_ask_again(registry):
    limits = ServiceLimits(requests_per_second=0.01, burst=2)
    _, secret = registry.tokens.add("reader")
    _, other = registry.tokens.add("reader")
    with service(registry, limits=limits) as client:
        assert [client.get(PATH, headers=bearer(secret)).status_code for _ in range(2)] == [200, 200]
        answer = client.get(PATH, headers=bearer(secret))
        problem(answer, 429, "too-many-requests")
        assert 1 <= int(answer.headers["retry-after"]) <= 100
        assert client.get(PATH, headers=bearer(other)).status_code == 200


def test_a_body_beyond_the_limit_is_refused_also_without_its_length(registry):
    with service(registry, limits=ServiceLimits(body_bytes=1_000)) as client:
        large = json.dumps({"selector": "x" * 1_000}).encode()
        headers = {"Content-Type": "application/json"}
        problem(client.post(PATH, content=large, headers=headers), 413, "too-large")
        parts = (large[at : at + 10] for at in range(0, len(large), 10))
        problem(client.post(PATH, content=parts, headers=headers), 413, "too-large")
        lied = {**headers, "Content-Length": "9" * 30}
        problem(client.post(PATH, content=b"{}", headers=lied), 413, "too-large")
        assert client.post(PATH, content=b"{}", headers=headers).status_code == 201


@pytest.mark.parametrize(
    ("method", "path", "status", "kind"),
    [("GET", "/nothing", 404, "not-found"), ("GET", "/v2/subscriptions", 404, "not-found"),
     ("PUT", PATH, 405, "method-not-allowed"), ("DELETE", "/healthz", 405, "method-not-allowed"),
     ("GET", f"{PATH}/a%2Fb", 404, "not-found"), ("GET", f"{PATH}/", 404, "not-found")],
)  # fmt: skip
def test_what_is_not_there_is_a_problem_too(shared, method, path, status, kind):
    answer = shared.request(method, path)
    problem(answer, status, kind)
    assert status != 405 or answer.headers["allow"]


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (ReadOnlyError("the disk is full"), 503, "read-only"),
        (DamagedError("the table counter is damaged"), 500, "damaged"),
        (RuntimeError("canary"), 500, "internal"),
    ],
)
def test_what_the_store_says_becomes_a_problem(client, registry, monkeypatch, error, status, kind):
    def fails(*_, **__):
        raise error

    monkeypatch.setattr(registry, "submit", fails)
    answer = client.post(PATH, json={})
    problem(answer, status, kind)
    assert "canary" not in answer.text
    assert (answer.headers.get("retry-after") == "5") is (status == 503)
    monkeypatch.undo()
    assert client.post(PATH, json={}).status_code == 201


def test_each_request_is_a_line_of_the_log_and_a_count(client, caplog):
    with caplog.at_level(logging.INFO, LOG):
        answer = client.get(f"{PATH}/somebody")
    (line,) = [json.loads(record.message) for record in caplog.records if record.name == LOG]
    assert (line["event"], line["request"]) == ("request", answer.headers["x-request-id"])
    assert (line["method"], line["route"], line["status"]) == ("GET", "/v1/subscriptions/{id}", 404)
    assert line["caller"] == "anybody" and line["milliseconds"] > 0
    assert "somebody" not in caplog.text
    counted = 'selectroute_http_requests_total{method="GET",route="/v1/subscriptions/{id}",status="404"} 1.0'
    assert counted in client.get("/metrics").text


def test_methods_that_a_client_makes_up_are_no_series_each(client):
    for number in range(3):
        assert client.request(f"CANARY{number}", PATH).status_code == 405
    assert "CANARY" not in client.get("/metrics").text
    counted = 'selectroute_http_requests_total{method="any",route="/v1/subscriptions",status="405"} 3.0'
    assert counted in client.get("/metrics").text


@pytest.mark.parametrize("name", ["Authorization", "Content-Type", "Idempotency-Key"])
def test_a_header_that_says_two_things_is_refused(shared, name):
    given = {"Content-Type": "application/json", name: "application/json"}
    answer = shared.post(PATH, content=b"{}", headers=[*given.items(), (name, "other")])
    assert problem(answer, 400, "invalid-request")["errors"][0]["pointer"] == name
    assert len(shared.app.state.service.registry) == 0


@pytest.mark.parametrize("path", [PATH, f"{PATH}:import"])
def test_a_compressed_body_is_refused_as_one(client, path):
    media_type = "application/x-ndjson" if path.endswith("import") else "application/json"
    headers = {"Content-Type": media_type, "Content-Encoding": "gzip"}
    problem(client.post(path, content=gzip.compress(b"{}"), headers=headers), 415, "unsupported-media-type")
    headers["Content-Encoding"] = "identity"
    assert client.post(path, content=b"{}", headers=headers).is_success


class TestBodiesThatAreHeldBack:
    """A token that is revoked while a body comes is no token when it is whole."""

    @pytest.mark.parametrize(
        ("method", "path", "body", "media_type"),
        [
            ("POST", "/v1/tokens", b'{"role": "admin"}', "application/json"),
            ("POST", PATH, b'{"topic": "a"}', "application/json"),
            ("PUT", f"{PATH}/a", b'{"topic": "a"}', "application/json"),
            ("POST", f"{PATH}:import", b'{"id": "a"}\n', "application/x-ndjson"),
            ("PUT", "/v1/queues/NEW", b"{}", "application/json"),
            ("POST", QUEUE, b"message", "text/plain"),
        ],
    )
    @pytest.mark.parametrize("revoked", [False, True])
    def test_no_call_is_done_with_them(self, registry, method, path, body, media_type, revoked):
        with SqlQueue.create(registry.url, "Q") as queue:
            token, secret = registry.tokens.add("admin")
            with service(registry) as client:
                headers = {**bearer(secret), "Content-Type": media_type, "Host": "localhost"}

                def revoke():
                    time.sleep(2 * KNOWN_SECONDS)
                    if revoked:
                        registry.tokens.revoke(token.id)

                status = held_back(client.app, method, path, headers, body, revoke)
                if not revoked:
                    assert status in (200, 201)
                    return
                assert status == 401
                assert (registry.revision, registry.tokens.all(), queue.depth) == (0, [], 0)
                assert client.app.state.service.queues.names() == ["Q"]


def held_back(app, method, path, headers, body, meanwhile):
    """The status of a request whose last byte comes after something else was done."""
    status = []
    parts = iter([(body[:-1], True), (body[-1:], False)])

    async def receive():
        part, more = next(parts, (None, False))
        if part is None:
            await anyio.sleep_forever()
        if not more:
            await anyio.to_thread.run_sync(meanwhile)
        return {"type": "http.request", "body": part, "more_body": more}

    async def send(message):
        if message["type"] == "http.response.start":
            status.append(message["status"])

    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
        "path": path, "raw_path": path.encode(), "query_string": b"", "root_path": "", "state": {},
        "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
        "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80),
    }  # fmt: skip
    anyio.run(app, scope, receive, send)
    return status[0]


class TestOrigins:
    """Without tokens a browser would change things for whoever looks at some page."""

    FOREIGN = (
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost:3000"},
        {"Origin": "http://localhost.evil.example"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "http://localhost", "Sec-Fetch-Site": "cross-site"},
    )

    def test_a_page_of_another_site_changes_nothing(self, registry):
        registry.import_([b'{"id": "a"}'])
        document = create_app(registry).openapi()["paths"]
        with service(registry) as client:
            for headers in self.FOREIGN:
                for path, methods in document.items():
                    for method in {*methods} - {"get"}:
                        filled = re.sub(r"\{\w+\}", "a", path)
                        problem(client.request(method, filled, headers=headers), 403, "forbidden")
                assert client.get(PATH, headers=headers).status_code == 200
            assert registry.revision == 1

    def test_a_page_of_its_own_and_what_is_no_browser_do(self, client, add):
        id = add()["id"]
        for headers in (
            {},
            {"Origin": "http://localhost"},
            {"Origin": "http://LOCALHOST"},
            {"Sec-Fetch-Site": "none"},
            {"Sec-Fetch-Site": "same-origin", "Origin": "http://localhost"},
        ):
            assert client.post(f"{PATH}/{id}:pause", headers=headers).json()["status"] == "paused"
            client.post(f"{PATH}/{id}:resume")

    def test_a_token_is_not_sent_by_a_browser_of_itself(self, registry):
        registry.import_([b'{"id": "a"}'])
        with client_of(registry, "writer") as client:
            headers = {"Origin": "https://evil.example"}
            assert client.post(f"{PATH}/a:pause", headers=headers).status_code == 200


def test_who_is_let_in_by_nothing_is_not_told_where_the_database_is(registry, monkeypatch, caplog):
    def fails(*_):
        raise UnavailableError('connection to server at "10.1.2.3", port 15999 failed')

    monkeypatch.setattr(type(registry.tokens), "authenticate", fails)
    monkeypatch.setattr(type(registry), "get", fails)
    with service(registry) as client, caplog.at_level(logging.INFO, LOG):
        for path, headers in ((PATH, bearer("srt_" + "x" * 43)), (f"{PATH}/a", {})):
            found = problem(client.get(path, headers=headers), 503, "unavailable")
            assert "10.1.2.3" not in str(found) and "15999" not in str(found)
    assert caplog.text.count("10.1.2.3") == 2


def test_when_all_tokens_are_revoked_the_next_start_still_wants_one(registry):
    token, _ = registry.tokens.add("admin")
    registry.tokens.revoke(token.id)
    with service(registry) as client:
        problem(client.post("/v1/tokens", json={"role": "admin"}), 401, "unauthorised")
    _, secret = registry.tokens.add("admin")  # on the database itself, which is the way out
    with service(registry) as client:
        assert client.get("/v1/tokens", headers=bearer(secret)).status_code == 200


def test_head_is_answered_as_get_without_the_body(client, caplog):
    client.put(f"{PATH}/a", json={})
    for path in (PATH, f"{PATH}/a", "/healthz", "/metrics", "/openapi.json", f"{PATH}:export"):
        caplog.clear()
        with caplog.at_level(logging.INFO, LOG):
            head = client.head(path)
        (line,) = [json.loads(record.message) for record in caplog.records if record.name == LOG]
        assert (line["method"], line["route"], line["status"]) == ("HEAD", path.replace("/a", "/{id}"), 200)
        got = client.get(path)
        assert (head.status_code, head.content) == (got.status_code, b"")
        assert head.headers["content-type"] == got.headers["content-type"]
        assert head.headers.get("etag") == got.headers.get("etag")


@pytest.mark.parametrize("method", ["OPTIONS", "TRACE"])
@pytest.mark.parametrize(
    ("path", "methods"),
    [
        (PATH, "GET, HEAD, OPTIONS, POST"),
        (f"{PATH}/a", "DELETE, GET, HEAD, OPTIONS, PATCH, PUT"),
        ("/v1/queues/a%2Fb", "DELETE, GET, HEAD, OPTIONS, PUT"),
        (QUEUE, "DELETE, GET, HEAD, OPTIONS, POST"),
        ("/v1/subscriptions:import", "OPTIONS, POST"),
        (f"{PATH}/a:pause", "OPTIONS, POST"),
        ("/openapi.json", "GET, HEAD, OPTIONS"),
    ],
)
def test_allow_names_all_methods_of_a_path(shared, method, path, methods):
    answer = shared.request(method, path)
    assert answer.headers["allow"] == methods
    assert not any(name.startswith("access-control") for name in answer.headers)
    if method == "OPTIONS":
        assert (answer.status_code, answer.content) == (204, b"")
    else:
        problem(answer, 405, "method-not-allowed")


def test_options_of_nothing_is_not_there(client):
    problem(client.options("/v2"), 404, "not-found")


@pytest.mark.parametrize("path", ["/v1/queues/%0Aa", "/v1/queues/a%0A", f"{PATH}/a%0A", "/healthz%0A"])
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
def test_a_path_has_no_line_feed(shared, method, path):
    """`a%0A` made the queue `a`, and `%0Aa` was a path that the document does not know."""
    assert problem(shared.request(method, path), 400, "invalid-request")["errors"][0]["pointer"] == "path"
    assert shared.get("/v1/queues").json() == {"items": []}


def test_what_a_body_is_refused_for_is_told_to_a_request_that_waits():
    class Refused:
        async def receive(self):
            raise ProblemError("unauthorised", "revoked meanwhile")

    async def waits():
        async with while_connected(Refused()):
            await anyio.sleep(60)

    with pytest.raises(ProblemError, match="revoked meanwhile"):
        anyio.run(waits)


def test_large_bodies_have_a_budget_which_comes_back(registry):
    with service(registry, limits=ServiceLimits(open_body_bytes=1 << 17)) as client:
        large, small = ({"selector": "a = 1", "labels": {"a": "x" * size}} for size in (140_000, 70_000))
        refused = client.put(f"{PATH}/a", json=large)
        problem(refused, 503, "unavailable")
        assert refused.headers["connection"] == "close"
        for _ in range(20):
            assert client.put(f"{PATH}/a", json=small).status_code != 503
