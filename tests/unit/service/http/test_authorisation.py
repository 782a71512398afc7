"""The table of calls × callers, and of fields × ways to write them: what a token may do, and everything that
it may not. An operation of the OpenAPI document that is not in the table fails a test.
"""

from __future__ import annotations

import json
from contextlib import suppress
from itertools import product
from types import SimpleNamespace

import pytest

import selectroute as sr
from selectroute.queues.sql.queue import SqlQueue
from selectroute.registry.errors import NotFoundError
from selectroute.service.app import create_app
from selectroute.service.http.callers import Callers
from selectroute.service.http.endpoint import ROLE
from selectroute.service.limits import ServiceLimits
from tests.unit.service.conftest import CAR, problem, service

pytestmark = pytest.mark.slow

RANK = {"reader": 1, "writer": 2, "admin": 3}
PATH = "/v1/subscriptions"
NDJSON = {"Content-Type": "application/x-ndjson"}
ANY = {"If-Match": "*"}
QUEUES = "/v1/queues"
MANAGER = "/ibmmq/rest/{version}/messaging/qmgr/{qmgr}"
MESSAGES = f"{MANAGER}/queue/{{queue}}"
KEPT = MESSAGES.format(version="v3", qmgr="selectroute", queue="KEPT")
OWN = MESSAGES.format(version="v3", qmgr="selectroute", queue="CARS.IN")
PUBLISHED = f"{MANAGER}/topic/{{topic}}/message"

CALLERS = {
    "anonymous": None,
    "reader": ("reader", {}),
    "writer": ("writer", {}),
    "admin": ("admin", {}),
    "limited reader": ("reader", {"topics": ["cars/#"]}),
    "limited writer": ("writer", {"topics": ["cars/#"]}),
    "limited admin": ("admin", {"topics": ["cars/#"]}),
    "with destinations": ("writer", {"topics": ["cars/#"], "queues": ["CARS.*"], "kafka": ["cars.*"]}),
    "with queues alone": ("writer", {"queues": ["CARS.*"]}),
}

CALLS = {
    ("get", PATH): lambda c: c.get(PATH),
    ("post", PATH): lambda c: c.post(PATH, json={"topic": "cars/eu"}),
    ("get", f"{PATH}/{{id}}"): lambda c: c.get(f"{PATH}/seen"),
    ("put", f"{PATH}/{{id}}"): lambda c: c.put(f"{PATH}/seen", json={"topic": "cars/eu"}, headers=ANY),
    ("patch", f"{PATH}/{{id}}"): lambda c: c.patch(f"{PATH}/seen", json={"labels": {"a": "b"}}, headers=ANY),
    ("delete", f"{PATH}/{{id}}"): lambda c: c.delete(f"{PATH}/seen", headers=ANY),
    ("post", f"{PATH}/{{id}}:pause"): lambda c: c.post(f"{PATH}/seen:pause"),
    ("post", f"{PATH}/{{id}}:resume"): lambda c: c.post(f"{PATH}/seen:resume"),
    ("post", f"{PATH}:batch"): lambda c: c.post(
        f"{PATH}:batch", json={"operations": [{"op": "pause", "id": "seen"}]}
    ),
    ("post", f"{PATH}:import"): lambda c: c.post(
        f"{PATH}:import", content=b'{"topic": "cars/x"}', headers=NDJSON
    ),
    ("get", f"{PATH}:export"): lambda c: c.get(f"{PATH}:export"),
    ("get", "/v1/changes"): lambda c: c.get("/v1/changes"),
    ("get", "/v1/queries"): lambda c: c.get("/v1/queries"),
    ("post", "/v1/queries/{query}"): lambda c: c.post(
        "/v1/queries/q", json={"source": "s", "can_replay": True}
    ),
    ("post", "/v1/queries/{query}/batches"): lambda c: c.post(
        "/v1/queries/q/batches", json={"batch": 1, "revision": 1}
    ),
    ("post", "/v1/tokens"): lambda c: c.post("/v1/tokens", json={"role": "reader"}),
    ("get", "/v1/tokens"): lambda c: c.get("/v1/tokens"),
    ("delete", "/v1/tokens/{token}"): lambda c: c.delete(f"/v1/tokens/{spare(c)}"),
    ("post", "/v1/selectors:check"): lambda c: c.post("/v1/selectors:check", json={"selector": "a = 1"}),
    ("post", "/v1/messages:match"): lambda c: c.post("/v1/messages:match", json={"message": CAR}),
    ("post", "/v1/messages:explain"): lambda c: c.post(
        "/v1/messages:explain", json={"message": CAR, "subscriptions": ["seen"]}
    ),
    ("get", QUEUES): lambda c: c.get(QUEUES),
    ("get", f"{QUEUES}/{{name}}"): lambda c: c.get(f"{QUEUES}/KEPT"),
    ("put", f"{QUEUES}/{{name}}"): lambda c: c.put(f"{QUEUES}/SPARE"),
    ("delete", f"{QUEUES}/{{name}}"): lambda c: c.delete(f"{QUEUES}/{spare_queue(c)}"),
    ("post", f"{MESSAGES}/message"): lambda c: c.post(f"{KEPT}/message", content=b"x"),
    ("post", PUBLISHED): lambda c: c.post(
        PUBLISHED.format(version="v3", qmgr="selectroute", topic="cars/eu"), content=b"x"
    ),
    ("get", f"{MESSAGES}/message"): lambda c: c.get(f"{KEPT}/message"),
    ("delete", f"{MESSAGES}/message"): lambda c: c.delete(f"{KEPT}/message"),
    ("get", f"{MESSAGES}/messagelist"): lambda c: c.get(f"{KEPT}/messagelist"),
    ("get", f"{QUEUES}/{{name}}:count"): lambda c: c.get(f"{QUEUES}/KEPT:count"),
    ("post", f"{QUEUES}/{{name}}:purge"): lambda c: c.post(
        f"{QUEUES}/KEPT:purge", json={"expected": left(c)}
    ),
    ("post", f"{QUEUES}/{{name}}:move"): lambda c: c.post(f"{QUEUES}/KEPT:move", json={"to": "CARS.IN"}),
    ("get", "/v1/limits"): lambda c: c.get("/v1/limits"),
    ("get", "/v1/caller"): lambda c: c.get("/v1/caller"),
    ("get", f"{PATH}:search"): lambda c: c.get(f"{PATH}:search?text=a"),
    ("get", f"{PATH}/{{id}}/changes"): lambda c: c.get(f"{PATH}/seen/changes"),
    ("get", f"{PATH}/{{id}}/activity"): lambda c: c.get(f"{PATH}/seen/activity"),
    ("get", f"{PATH}:activity"): lambda c: c.get(f"{PATH}:activity?id=seen"),
    ("get", "/v1/streams"): lambda c: c.get("/v1/streams"),
    ("delete", "/v1/streams/{query}"): lambda c: c.delete(f"/v1/streams/{spare_stream(c)}"),
    ("get", "/v1/health"): lambda c: c.get("/v1/health"),
    ("get", "/v1/queries/{query}/reports"): lambda c: c.get("/v1/queries/q/reports"),
    ("post", "/v1/queries/{query}/reports"): lambda c: c.post("/v1/queries/q/reports", json={}),
    ("post", "/v1/queries/{query}/messages"): lambda c: c.post(
        "/v1/queries/q/messages", json={"messages": [CAR]}
    ),
    ("get", "/v1/messages"): lambda c: c.get("/v1/messages"),
    ("get", "/v1/messages/identifiers"): lambda c: c.get("/v1/messages/identifiers"),
    ("post", f"{PATH}:dry-run"): lambda c: c.post(f"{PATH}:dry-run", json={"id": "seen"}),
    ("get", "/v1/jobs"): lambda c: c.get("/v1/jobs"),
    ("get", "/v1/jobs/{job}/dead-letters"): lambda c: c.get("/v1/jobs/job/dead-letters"),
    ("get", "/v1/jobs/{job}/dead-letters:bytes"): lambda c: c.get(
        "/v1/jobs/job/dead-letters:bytes", params={"batch": 0, "source": "s", "partition": 0}
    ),
    ("post", "/v1/jobs/{job}/dead-letters:preview"): lambda c: c.post(
        "/v1/jobs/job/dead-letters:preview", json={}
    ),
    ("post", "/v1/jobs/{job}/replays"): lambda c: c.post("/v1/jobs/job/replays", json={"expected": 1}),
    ("post", "/v1/jobs/{job}/audits"): lambda c: c.post("/v1/jobs/job/audits"),
    ("get", "/v1/jobs/{job}/replays/{request}"): lambda c: c.get("/v1/jobs/job/replays/made"),
    ("get", "/metrics"): lambda c: c.get("/metrics"),
    ("get", "/healthz"): lambda c: c.get("/healthz"),
    ("get", "/readyz"): lambda c: c.get("/readyz"),
}
"""One request of each call, of a subscription or queue that all may see who may see any."""

OWN_CALLS = {
    ("get", f"{QUEUES}/{{name}}"): lambda c: c.get(f"{QUEUES}/CARS.IN"),
    ("put", f"{QUEUES}/{{name}}"): lambda c: c.put(f"{QUEUES}/CARS.SPARE"),
    ("delete", f"{QUEUES}/{{name}}"): lambda c: c.delete(f"{QUEUES}/{spare_queue(c, 'CARS.EMPTY')}"),
    ("post", f"{MESSAGES}/message"): lambda c: c.post(f"{OWN}/message", content=b"x"),
    ("get", f"{MESSAGES}/message"): lambda c: c.get(f"{OWN}/message"),
    ("delete", f"{MESSAGES}/message"): lambda c: c.delete(f"{OWN}/message"),
    ("get", f"{MESSAGES}/messagelist"): lambda c: c.get(f"{OWN}/messagelist"),
    ("get", f"{QUEUES}/{{name}}:count"): lambda c: c.get(f"{QUEUES}/CARS.IN:count"),
    ("post", f"{QUEUES}/{{name}}:purge"): lambda c: c.post(f"{QUEUES}/CARS.IN:purge"),
    ("post", f"{QUEUES}/{{name}}:move"): lambda c: c.post(
        f"{QUEUES}/CARS.IN:move", json={"to": spare_queue(c, "CARS.OUT")}
    ),
}
"""The same of a queue within the patterns of the tokens that have some."""

# One letter a caller, in their order: done, needs a token (401), forbidden (403).
TABLE = {
    ("get", PATH): "u ddd ddd dd",
    ("post", PATH): "u fdd fdd dd",
    ("get", f"{PATH}/{{id}}"): "u ddd ddd dd",
    ("put", f"{PATH}/{{id}}"): "u fdd fdd dd",
    ("patch", f"{PATH}/{{id}}"): "u fdd fdd dd",
    ("delete", f"{PATH}/{{id}}"): "u fdd fdd dd",
    ("post", f"{PATH}/{{id}}:pause"): "u fdd fdd dd",
    ("post", f"{PATH}/{{id}}:resume"): "u fdd fdd dd",
    ("post", f"{PATH}:batch"): "u fdd fdd dd",
    ("post", f"{PATH}:import"): "u fdd fdd dd",
    ("get", f"{PATH}:export"): "u ddd ddd dd",
    ("get", "/v1/changes"): "u ddd ddd dd",
    ("get", "/v1/queries"): "u fdd fff ff",
    ("post", "/v1/queries/{query}"): "u fdd fff ff",
    ("post", "/v1/queries/{query}/batches"): "u fdd fff ff",
    ("post", "/v1/tokens"): "u ffd fff ff",
    ("get", "/v1/tokens"): "u ffd fff ff",
    ("delete", "/v1/tokens/{token}"): "u ffd fff ff",
    ("post", "/v1/selectors:check"): "u ddd ddd dd",
    ("post", "/v1/messages:match"): "u ddd ddd dd",
    ("post", "/v1/messages:explain"): "u ddd ddd dd",
    ("get", QUEUES): "u ddd fff dd",
    ("get", f"{QUEUES}/{{name}}"): "u ddd fff ff",
    ("put", f"{QUEUES}/{{name}}"): "u ffd fff ff",
    ("delete", f"{QUEUES}/{{name}}"): "u ffd fff ff",
    ("post", f"{MESSAGES}/message"): "u fdd fff ff",
    ("post", PUBLISHED): "u fdd fff ff",
    ("get", f"{MESSAGES}/message"): "u ddd fff ff",
    ("delete", f"{MESSAGES}/message"): "u fdd fff ff",
    ("get", f"{MESSAGES}/messagelist"): "u ddd fff ff",
    ("get", f"{QUEUES}/{{name}}:count"): "u ddd fff ff",
    ("post", f"{QUEUES}/{{name}}:purge"): "u fdd fff ff",
    ("post", f"{QUEUES}/{{name}}:move"): "u fdd fff ff",
    ("get", "/v1/limits"): "u ddd ddd dd",
    ("get", "/v1/caller"): "u ddd ddd dd",
    ("get", f"{PATH}:search"): "u ddd ddd dd",
    ("get", f"{PATH}/{{id}}/changes"): "u ddd ddd dd",
    ("get", f"{PATH}/{{id}}/activity"): "u ddd ddd dd",
    ("get", f"{PATH}:activity"): "u ddd ddd dd",
    ("get", "/v1/streams"): "u ddd fff fd",
    ("delete", "/v1/streams/{query}"): "u fdd fff ff",
    ("get", "/v1/health"): "u ddd fff fd",
    ("get", "/v1/queries/{query}/reports"): "u ddd fff fd",
    ("post", "/v1/queries/{query}/reports"): "u fdd fff ff",
    ("post", "/v1/queries/{query}/messages"): "u fdd fff ff",
    ("get", "/v1/messages"): "u ddd ddd dd",
    ("get", "/v1/messages/identifiers"): "u ddd ddd dd",
    ("post", f"{PATH}:dry-run"): "u ddd ddd dd",
    ("get", "/v1/jobs"): "u ddd fff fd",
    ("get", "/v1/jobs/{job}/dead-letters"): "u ddd fff fd",
    ("get", "/v1/jobs/{job}/dead-letters:bytes"): "u ddd fff fd",
    ("post", "/v1/jobs/{job}/dead-letters:preview"): "u ddd fff fd",
    ("post", "/v1/jobs/{job}/replays"): "u fdd fff ff",
    ("post", "/v1/jobs/{job}/audits"): "u ddd fff fd",
    ("get", "/v1/jobs/{job}/replays/{request}"): "u ddd fff fd",
    ("get", "/metrics"): "u ddd fff fd",
    ("get", "/healthz"): "d ddd ddd dd",
    ("get", "/readyz"): "d ddd ddd dd",
}
"""What comes of each call for each caller."""

OWN_TABLE = {
    ("get", f"{QUEUES}/{{name}}"): "u ddd fff dd",
    ("put", f"{QUEUES}/{{name}}"): "u ffd fff ff",
    ("delete", f"{QUEUES}/{{name}}"): "u ffd fff ff",
    ("post", f"{MESSAGES}/message"): "u fdd fff dd",
    ("get", f"{MESSAGES}/message"): "u ddd fff dd",
    ("delete", f"{MESSAGES}/message"): "u fdd fff dd",
    ("get", f"{MESSAGES}/messagelist"): "u ddd fff dd",
    ("get", f"{QUEUES}/{{name}}:count"): "u ddd fff dd",
    ("post", f"{QUEUES}/{{name}}:purge"): "u fdd fff dd",
    ("post", f"{QUEUES}/{{name}}:move"): "u fdd fff dd",
}
"""The same of a queue within the patterns."""

HIDDEN = {
    "get": lambda c: c.get(f"{PATH}/hidden"),
    "put": lambda c: c.put(f"{PATH}/hidden", json={"topic": "cars/eu"}, headers=ANY),
    "patch": lambda c: c.patch(f"{PATH}/hidden", json={"topic": "cars/eu"}, headers=ANY),
    "delete": lambda c: c.delete(f"{PATH}/hidden", headers=ANY),
    "activity": lambda c: c.get(f"{PATH}/hidden/activity"),
    "pause": lambda c: c.post(f"{PATH}/hidden:pause"),
    "resume": lambda c: c.post(f"{PATH}/hidden:resume"),
    "explain": lambda c: c.post("/v1/messages:explain", json={"message": CAR, "subscriptions": ["hidden"]}),
    "batch": lambda c: c.post(f"{PATH}:batch", json={"operations": [{"op": "remove", "id": "hidden"}]}),
}
"""Requests about a subscription, each answered as if there were none."""

PAYROLL = {"destination": {"kind": "queue", "name": "PAYROLL"}}

WAYS = {
    "post": lambda c, spec: c.post(PATH, json=spec),
    "put": lambda c, spec: c.put(f"{PATH}/new", json=spec),
    "put over": lambda c, spec: c.put(f"{PATH}/seen", json=spec, headers=ANY),
    "patch": lambda c, spec: c.patch(
        f"{PATH}/seen", json={"topic": None, "destination": None, **spec}, headers=ANY
    ),
    "batch add": lambda c, spec: c.post(f"{PATH}:batch", json={"operations": [{"op": "add", **spec}]}),
    "batch replace": lambda c, spec: c.post(
        f"{PATH}:batch", json={"operations": [{"op": "replace", "id": "seen", **spec}]}
    ),
    "batch add, then replace": lambda c, spec: c.post(
        f"{PATH}:batch",
        json={
            "operations": [
                {"op": "add", "id": "new", "topic": "cars/eu"},
                {"op": "replace", "id": "new", **spec},
            ]
        },
    ),
    "import add": lambda c, spec: c.post(f"{PATH}:import", content=json.dumps(spec), headers=NDJSON),
    "import replace": lambda c, spec: c.post(
        f"{PATH}:import?mode=replace", content=json.dumps({"id": "seen", **spec}), headers=NDJSON
    ),
}
"""All ways to write a subscription."""

OUTSIDE = {
    "no topic": {},
    "all topics": {"topic": "#"},
    "another topic": {"topic": "boats/x"},
    "a wider topic": {"topic": "+/eu"},
    "a queue": {"topic": "cars/eu", **PAYROLL},
    "a queue whose name begins alike": {
        "topic": "cars/eu",
        "destination": {"kind": "queue", "name": "CARSOLD"},
    },
    "a queue in small letters": {"topic": "cars/eu", "destination": {"kind": "queue", "name": "cars.in"}},
    "a Kafka topic": {"topic": "cars/eu", "destination": {"kind": "kafka", "name": "payments"}},
    "a Kafka topic named like a queue": {
        "topic": "cars/eu",
        "destination": {"kind": "kafka", "name": "CARS.IN"},
    },
}
"""What is beyond the filters of every token that has some."""

WITHIN = [
    {"topic": "cars/x"},
    {"topic": "cars/x", "destination": {"kind": "queue", "name": "CARS.IN"}},
    {"topic": "cars/x", "destination": {"kind": "kafka", "name": "cars.eu"}},
]
"""What is within the filters of the token that has all of them; the first also without patterns."""


@pytest.fixture
def filled(registry):
    rows = [
        {"id": "seen", "topic": "cars/+/de"},
        {"id": "seen-too", "topic": "cars/#"},
        {"id": "hidden", "topic": "boats/#", "name": "hidden-name"},
        {"id": "hidden-all"},
        {"id": "hidden-wider", "topic": "#"},
    ]
    registry.import_(map(json.dumps, rows))
    for name in ("KEPT", "CARS.IN"):
        with SqlQueue.create(registry.url, name) as queue:
            for _ in CALLERS:
                queue.put(b"message")
    return registry


def left(client):
    """The number of messages on the queue that most calls are about."""
    return client.app.state.service.queues.open("KEPT").depth


def spare(client):
    """The id of a token that nobody uses."""
    return client.app.state.service.registry.add_token("reader", name="spare")[0].id


def spare_queue(client, name="EMPTY"):
    """The name of an empty queue that nobody uses."""
    with suppress(sr.MQError):
        client.app.state.service.queues.create(name)
    return name


def spare_stream(client):
    """The query of a stream that has ended."""
    client.app.state.service.registry.note_reports("spare", [], {"ended": "ended"})
    return "spare"


def client_of(registry, role, topics=(), **patterns):
    _, secret = registry.add_token(role, topics=topics, **patterns)
    return service(registry, headers={"Authorization": f"Bearer {secret}"})


@pytest.fixture(scope="module")
def documented():
    return create_app(None).openapi()["paths"]


def test_every_call_of_the_service_is_in_the_table(documented):
    calls = {(method, path) for path, methods in documented.items() for method in methods}
    assert calls == set(CALLS) == set(TABLE)
    assert set(OWN_CALLS) == set(OWN_TABLE) == {one for one in TABLE if "queue" in one[1]} - {("get", QUEUES)}


@pytest.mark.parametrize("who", CALLERS)
@pytest.mark.parametrize(("calls", "table"), [(CALLS, TABLE), (OWN_CALLS, OWN_TABLE)], ids=["calls", "own"])
def test_the_table_says_what_comes_of_a_call(filled, documented, who, calls, table):
    column = list(CALLERS).index(who)
    caller = CALLERS[who]
    filled.add_token("admin")  # nobody is let in without one
    with service(filled) if caller is None else client_of(filled, caller[0], **caller[1]) as client:
        client.app.state.service.jobs["job"] = OneLetter()
        queues = client.app.state.service.queues

        def state():
            return filled.revision, queues.open("KEPT").depth, queues.open("CARS.IN").depth

        for call, request in calls.items():
            outcome = table[call].replace(" ", "")[column]
            before = state()
            answer = request(client)
            if outcome == "d":
                # Whether it is ready is nothing to be refused.
                assert answer.status_code < 300 or call[1] == "/readyz", (call, answer.text)
                role = documented[call[1]][call[0]][ROLE]
                assert caller is None or RANK[caller[0]] >= RANK[role], call
            else:
                kinds = {"u": (401, "unauthorised"), "f": (403, "forbidden")}
                found = problem(answer, *kinds[outcome])
                assert outcome == "u" or found["mqrc"] == 2035
                assert state() == before, call
            if call == ("delete", f"{PATH}/{{id}}") and answer.status_code == 200:
                filled.import_([json.dumps({"id": "seen", "topic": "cars/+/de"})])


class OneLetter:
    """A job with a dead letter, of which the beginning is kept."""

    def has_run(self):
        return True

    def is_held(self):
        return False

    def letters(self, wanted, limit, **_):
        of_file = {"source": "a.jsonl", "partition": 0, "offset": 1, "revision": 1, "subscription": None}
        of_file |= {"raw": b"x", "replay": None, "place": "0.0"}
        return [{"batch": 0, "stage": "read", "reason": "too-large", "message": "long", **of_file}]

    def all_left(self):
        return [SimpleNamespace(batch=0, stage="read", reason="too-large", letters=1, asked=0)]

    def left(self, wanted):
        return self.all_left()

    def waiting(self):
        return []

    def replay(self, wanted, expected):
        return "made", expected

    def replayed(self, id):
        return {"state": "waiting", "letters": 3, "taken": 0, "batch": None, "batches": []}

    def audit(self):
        names = ("batches", "backfills", "replays", "messages", "routed", "unrouted", "dead_lettered")
        return {**dict.fromkeys((*names, "deliveries", "files", "bytes"), 0), "pending": [], "findings": []}


def depth(registry, name):
    with SqlQueue(registry.url, name) as queue:
        return queue.depth


@pytest.mark.parametrize("who", ["limited writer", "limited admin", "with destinations"])
def test_no_field_that_is_written_gets_beyond_a_tokens_filters(filled, who):
    before = filled.revision
    role, filters = CALLERS[who]
    with client_of(filled, role, **filters) as client:
        for spec, (way, write) in product(OUTSIDE.values(), WAYS.items()):
            place = "/destination" if "destination" in spec else "/topic"
            found = problem(write(client, spec), 403, "forbidden")
            assert found["mqrc"] == 2035
            assert found["errors"][0]["pointer"].endswith(place), (way, spec)
        assert filled.revision == before


@pytest.mark.parametrize("way", WAYS)
def test_within_its_filters_a_token_writes_in_every_way(filled, way):
    role, filters = CALLERS["with destinations"]
    with client_of(filled, role, **filters) as client:
        for spec in WITHIN:
            answer = WAYS[way](client, spec)
            assert answer.status_code in (200, 201), answer.text
            with suppress(NotFoundError):
                filled.remove("new")
    role, filters = CALLERS["limited writer"]
    with client_of(filled, role, **filters) as client:
        assert WAYS[way](client, WITHIN[0]).status_code in (200, 201)


def test_one_of_many_that_is_beyond_a_tokens_filters_is_named(filled):
    with client_of(filled, "writer", ["cars/#"]) as client:
        two = {"operations": [{"op": "add", "topic": "cars/x"}, {"op": "add", "topic": "boats/x"}]}
        found = problem(client.post(f"{PATH}:batch", json=two), 403, "forbidden")
        assert found["errors"][0]["pointer"] == "/operations/1/topic"
        lines = b'{"topic": "cars/x"}\n\n{"topic": "boats/x"}'
        found = problem(client.post(f"{PATH}:import", content=lines, headers=NDJSON), 403, "forbidden")
        assert found["errors"][0]["pointer"] == "/2/topic"


def test_a_foreign_destination_stays_under_pause_and_resume_and_under_nothing_else(filled):
    filled.change("seen", PAYROLL)
    with client_of(filled, "writer", ["cars/#"]) as client:
        assert client.post(f"{PATH}/seen:pause").json()["destination"]["name"] == "PAYROLL"
        assert client.post(f"{PATH}/seen:resume").status_code == 200
        patch = {"selector": "a = 1"}
        problem(client.patch(f"{PATH}/seen", json=patch, headers=ANY), 403, "forbidden")
        assert filled.get("seen").selector == ""


def test_a_listing_of_queues_has_those_that_the_token_may_use(filled):
    role, filters = CALLERS["with destinations"]
    with client_of(filled, role, **filters) as client:
        assert client.get(QUEUES).json()["items"] == [{"name": "CARS.IN"}]
        there = problem(client.get(f"{QUEUES}/KEPT"), 403, "forbidden")["detail"]
        assert problem(client.get(f"{QUEUES}/NOWHERE"), 403, "forbidden")["detail"] == there


class TestImportedLines:
    """What is checked of a line is what is stored of it: it is read once."""

    @pytest.fixture
    def client(self, filled):
        with client_of(filled, "writer", ["cars/#"]) as client:
            yield client

    def test_a_line_that_cannot_be_read_once_is_not_read_again(self, client, filled, monkeypatch):
        before = filled.revision
        real, failures = json.loads, iter([RecursionError("too deep")])

        def fails_once(given, **options):
            for error in failures if "all" in str(given) else ():
                raise error
            return real(given, **options)

        monkeypatch.setattr(json, "loads", fails_once)
        answer = client.post(f"{PATH}:import", content=b'{"id": "all"}', headers=NDJSON)
        monkeypatch.undo()
        assert answer.status_code in (403, 422)
        assert filled.revision == before

    def test_no_depth_of_nesting_hides_the_topic(self, client, filled):
        before = filled.revision
        shallow, deep = 1, 200_000
        while deep - shallow > 1:  # where reading begins to fail, on this version of Python
            depth = (shallow + deep) // 2
            shallow, deep = (shallow, depth) if self.sent(client, depth) == 422 else (depth, deep)
        found = [self.sent(client, depth) for depth in range(max(1, deep - 20), deep + 20)]
        assert set(found) <= {403, 422}
        assert filled.revision == before

    def sent(self, client, depth):
        line = b'{"id": "all", "created": ' + b"[" * depth + b"]" * depth + b"}"
        return client.post(f"{PATH}:import", content=line, headers=NDJSON).status_code


@pytest.mark.parametrize("role", RANK)
def test_what_a_token_may_not_see_does_not_exist_for_it(filled, role):
    before = filled.revision
    with client_of(filled, role, ["cars/#"]) as client:
        for name, request in HIDDEN.items():
            answer = request(client)
            if role == "reader" and name not in ("get", "activity", "explain"):
                problem(answer, 403, "forbidden")
                continue
            found = problem(answer, 404, "subscription-not-found")
            absent = problem(client.get(f"{PATH}/nobody-has-this"), 404, "subscription-not-found")
            assert found["detail"] == absent["detail"]
        assert filled.revision == before


@pytest.mark.parametrize("role", RANK)
def test_nothing_of_what_is_hidden_is_in_any_answer(filled, role):
    with client_of(filled, role, ["cars/#"]) as client:
        listed = client.get(PATH, params={"limit": 1})
        ids = [one["id"] for one in listed.json()["items"]]
        while "link" in listed.headers:
            listed = client.get(listed.headers["link"].partition("<")[2].partition(">")[0])
            ids += [one["id"] for one in listed.json()["items"]]
        assert sorted(ids) == ["seen", "seen-too"]
        for params in ({"name": "hidden-name"}, {"topic": "boats/#"}, {"topic": "#"}):
            assert client.get(PATH, params=params).json()["items"] == []
        exported = client.get(f"{PATH}:export").text.splitlines()
        assert sorted(json.loads(line)["id"] for line in exported) == ["seen", "seen-too"]
        matched = client.post("/v1/messages:match", json={"message": {"topic": "cars/eu/de"}}).json()
        assert sorted(matched["ids"]) == ["seen", "seen-too"]
        assert matched["total"] == 2
        changes = client.get("/v1/changes").json()["changes"]
        assert sorted(one["id"] for one in changes) == ["seen", "seen-too"]
        for path in (PATH, f"{PATH}:export", "/v1/changes"):
            assert "hidden" not in client.get(path).text


def test_to_a_token_what_leaves_its_topics_is_removed(filled):
    with client_of(filled, "reader", ["cars/#"]) as client:
        after = filled.revision
        filled.change("seen", {"topic": "boats/x"})
        filled.pause("seen")
        filled.change("hidden", {"topic": "cars/new"})
        filled.remove("hidden-all")
        filled.remove("seen-too")
        found = client.get("/v1/changes", params={"after": after}).json()
        assert [(one["op"], one["id"]) for one in found["changes"]] == [
            ("remove", "seen"),
            ("replace", "hidden"),
            ("remove", "seen-too"),
        ]
        assert found["changes"][0]["subscription"] is None
        # It is made of all that was there before, and would confirm a guess of it.
        assert not any("digest" in one for one in found["changes"])
        assert found["revision"] == filled.revision


def test_an_id_or_name_that_is_taken_is_said_to_be_and_nothing_else_of_its_subscription(filled):
    with client_of(filled, "writer", ["cars/#"]) as client:
        one = {"topic": "cars/x"}
        for request in (
            lambda id: client.put(f"{PATH}/{id}", json=one),
            lambda id: client.put(f"{PATH}/{id}", json=one, headers={"If-None-Match": "*"}),
            lambda id: client.post(f"{PATH}:batch", json={"operations": [{"op": "add", "id": id, **one}]}),
            lambda id: client.post(f"{PATH}:import", content=json.dumps({"id": id, **one}), headers=NDJSON),
            lambda id: client.post(
                f"{PATH}:import?mode=replace", content=json.dumps({"id": id, **one}), headers=NDJSON
            ),
        ):
            found = problem(request("hidden"), 409, "id-taken")
            assert "boats" not in str(found) and "hidden-name" not in str(found)
        named = {**one, "name": "hidden-name"}
        problem(client.post(PATH, json=named), 409, "name-taken")


def test_a_token_for_some_topics_does_not_learn_the_names_of_queries(filled):
    filled.note_query("finance", source="/srv/finance", can_replay=False, reason="/srv/finance is on tape")
    filled.note_query("sales", source="/srv/sales", can_replay=True)
    filled.note_batch("sales", 7, filled.revision)
    resume = {"from": "last-processed"}
    with client_of(filled, "writer", ["cars/#"]) as client:
        answer = client.get(f"{PATH}/seen")
        assert answer.json()["effective_from"] == [{"query": "1", "batch": 7}]
        client.post(f"{PATH}/seen:pause")
        resumed = client.post(f"{PATH}/seen:resume", json=resume)
        assert resumed.json()["backfill"] == [
            {"query": "1", "can_replay": False, "reason": None},
            {"query": "2", "can_replay": True, "reason": None},
        ]
        for text in (answer.text, resumed.text):
            assert "finance" not in text and "sales" not in text
    with client_of(filled, "writer") as client:
        assert client.get(f"{PATH}/seen").json()["effective_from"] == []
        client.post(f"{PATH}/seen:pause")
        found = client.post(f"{PATH}/seen:resume", json=resume).json()["backfill"]
        assert found[0] == {"query": "finance", "can_replay": False, "reason": "/srv/finance is on tape"}


@pytest.mark.parametrize("who", CALLERS)
def test_the_state_of_the_service_tells_revisions_to_who_sees_all(filled, who):
    caller = CALLERS[who]
    filled.add_token("admin")
    with service(filled) if caller is None else client_of(filled, caller[0], **caller[1]) as client:
        assert client.app.state.service.publishing.caught_up(filled.revision, 60) is not None
        found = client.get("/readyz").json()
        told = caller is not None and "topics" not in caller[1]
        assert found == {"status": "ready", **({"revision": 1, "published": 1} if told else {})}


def test_a_token_moves_messages_only_between_queues_that_it_may_use(filled):
    before = depth(filled, "KEPT"), depth(filled, "CARS.IN")
    with client_of(filled, "writer", queues=["CARS.*"]) as client:
        for source, to in (("CARS.IN", "KEPT"), ("KEPT", "CARS.IN"), ("CARS.IN", "NOTHING")):
            problem(client.post(f"{QUEUES}/{source}:move", json={"to": to}), 403, "forbidden")
    assert (depth(filled, "KEPT"), depth(filled, "CARS.IN")) == before


def test_nobody_is_taken_for_admitted_while_the_registry_is_still_read(registry):
    seen = []

    class Reading:
        def had_tokens(self):
            seen.append(callers.is_known_open())
            if len(seen) == 1:
                raise RuntimeError("the database cannot be read")
            return registry.had_tokens()

    callers = Callers(Reading(), tokens_needed=False)
    with pytest.raises(RuntimeError):
        callers.is_open()
    assert not callers.is_known_open()
    assert callers.is_open() and callers.is_known_open()
    assert seen == [False, False]


def test_a_token_adds_no_more_subscriptions_than_its_quota(registry):
    with service(registry, limits=ServiceLimits(subscriptions_of_one=2)) as client:
        ours, others = ({"Authorization": f"Bearer {registry.add_token('writer')[1]}"} for _ in range(2))

        def add(id, headers=ours):
            return client.put(f"/v1/subscriptions/{id}", json={}, headers={**headers, "If-None-Match": "*"})

        assert [add(id).status_code for id in ("a", "b")] == [201, 201]
        assert "a token may have 2 subscriptions" in problem(add("c"), 403, "forbidden")["detail"]
        lines = client.post("/v1/subscriptions:import", content=b'{"id": "c"}', headers=ours | NDJSON)
        problem(lines, 403, "forbidden")
        assert add("c", others).status_code == 201
        registry.remove("a")
        registry.remove("c")
        batch = {"operations": [{"op": "add", "id": id} for id in ("c", "d")]}
        problem(client.post("/v1/subscriptions:batch", json=batch, headers=ours), 403, "forbidden")
        assert add("c").status_code == 201
        assert add("d").status_code == 403
        assert [add(id, others).status_code for id in ("e", "f", "g")] == [201, 201, 403]
