"""The table of calls × callers, and of fields × ways to write them: what a token may do, and everything that
it may not. An operation of the OpenAPI document that is not in the table fails a test.
"""

import json
from contextlib import suppress
from itertools import product
from types import SimpleNamespace

import pytest

import selectroute as sr
from selectroute.job_output import DeadLetter
from selectroute.queues.sql.queue import SqlQueue
from selectroute.registry.errors import NotFoundError
from selectroute.service.app import create_app
from selectroute.service.http.callers import Callers
from selectroute.service.http.openapi import ROLE
from selectroute.service.limits import ServiceLimits
from tests.unit.service.conftest import CAR, Job, bearer, client_of, problem, service

pytestmark = pytest.mark.slow

RANK = {"reader": 1, "writer": 2, "admin": 3}
PATH = "/v1/subscriptions"
NDJSON = {"Content-Type": "application/x-ndjson"}
ANY = {"If-Match": "*"}
QUEUES = "/v1/queues"
MANAGER = "/ibmmq/rest/{version}/messaging/qmgr/{qmgr}"
MESSAGES = f"{MANAGER}/queue/{{queue}}"

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


def left(client, queue):
    """The number of messages on a queue, as a purge expects it."""
    return {"expected": client.app.state.service.queues.open(queue).depth}


def spare_token(client, _):
    """The id of a token that nobody uses."""
    return client.app.state.service.registry.tokens.add("reader", name="spare")[0].id


def spare_queue(client, queue):
    """The name of an empty queue that nobody uses, within the patterns of tokens if the other one is."""
    name = f"{queue}.EMPTY"
    with suppress(sr.MQError):
        client.app.state.service.queues.create(name)
    return name


def spare_stream(client, _):
    """The query of a stream that has ended."""
    client.app.state.service.registry.streams.note_reports("spare", [], {"ended": "ended"})
    return "spare"


def call(outcomes, own=None, named=None, **options):
    """A row of the table. Outcomes have one letter a caller, in their order: done, needs a token (401),
    forbidden (403). Beside them those of a queue within the patterns of the tokens that have some, names in
    the path, and what is sent; functions are called with the client and the name of the queue.
    """
    return outcomes.replace(" ", ""), own and own.replace(" ", ""), named or {}, options


TABLE = {
    ("get", PATH): call("u ddd ddd dd"),
    ("post", PATH): call("u fdd fdd dd", json={"topic": "cars/eu"}),
    ("get", f"{PATH}/{{id}}"): call("u ddd ddd dd"),
    ("put", f"{PATH}/{{id}}"): call("u fdd fdd dd", json={"topic": "cars/eu"}, headers=ANY),
    ("patch", f"{PATH}/{{id}}"): call("u fdd fdd dd", json={"labels": {"a": "b"}}, headers=ANY),
    ("delete", f"{PATH}/{{id}}"): call("u fdd fdd dd", headers=ANY),
    ("post", f"{PATH}/{{id}}:pause"): call("u fdd fdd dd"),
    ("post", f"{PATH}/{{id}}:resume"): call("u fdd fdd dd"),
    ("post", f"{PATH}:batch"): call("u fdd fdd dd", json={"operations": [{"op": "pause", "id": "seen"}]}),
    ("post", f"{PATH}:import"): call("u fdd fdd dd", content=b'{"topic": "cars/x"}', headers=NDJSON),
    ("get", f"{PATH}:export"): call("u ddd ddd dd"),
    ("get", "/v1/changes"): call("u ddd ddd dd"),
    ("get", "/v1/queries"): call("u fdd fff ff"),
    ("post", "/v1/queries/{query}"): call("u fdd fff ff", json={"source": "s", "can_replay": True}),
    ("post", "/v1/queries/{query}/batches"): call("u fdd fff ff", json={"batch": 1, "revision": 1}),
    ("post", "/v1/tokens"): call("u ffd fff ff", json={"role": "reader"}),
    ("get", "/v1/tokens"): call("u ffd fff ff"),
    ("delete", "/v1/tokens/{token}"): call("u ffd fff ff", named={"token": spare_token}),
    ("post", "/v1/selectors:check"): call("u ddd ddd dd", json={"selector": "a = 1"}),
    ("post", "/v1/messages:match"): call("u ddd ddd dd", json={"message": CAR}),
    ("post", "/v1/messages:explain"): call("u ddd ddd dd", json={"message": CAR, "subscriptions": ["seen"]}),
    ("get", QUEUES): call("u ddd fff dd"),
    ("get", f"{QUEUES}/{{name}}"): call("u ddd fff ff", "u ddd fff dd"),
    ("put", f"{QUEUES}/{{name}}"): call(
        "u ffd fff ff", "u ffd fff ff", {"name": lambda _, queue: f"{queue}.SPARE"}
    ),
    ("delete", f"{QUEUES}/{{name}}"): call("u ffd fff ff", "u ffd fff ff", {"name": spare_queue}),
    ("post", f"{MESSAGES}/message"): call("u fdd fff ff", "u fdd fff dd", content=b"x"),
    ("post", f"{MANAGER}/topic/{{topic}}/message"): call("u fdd fff ff", content=b"x"),
    ("get", f"{MESSAGES}/message"): call("u ddd fff ff", "u ddd fff dd"),
    ("delete", f"{MESSAGES}/message"): call("u fdd fff ff", "u fdd fff dd"),
    ("get", f"{MESSAGES}/messagelist"): call("u ddd fff ff", "u ddd fff dd"),
    ("get", f"{QUEUES}/{{name}}:count"): call("u ddd fff ff", "u ddd fff dd"),
    ("post", f"{QUEUES}/{{name}}:purge"): call("u fdd fff ff", "u fdd fff dd", json=left),
    ("post", f"{QUEUES}/{{name}}:move"): call(
        "u fdd fff ff", "u fdd fff dd", json=lambda *given: {"to": spare_queue(given[0], "CARS")}
    ),
    ("get", "/v1/limits"): call("u ddd ddd dd"),
    ("get", "/v1/caller"): call("u ddd ddd dd"),
    ("get", f"{PATH}:search"): call("u ddd ddd dd", params={"text": "a"}),
    ("get", f"{PATH}/{{id}}/changes"): call("u ddd ddd dd"),
    ("get", f"{PATH}/{{id}}/activity"): call("u ddd ddd dd"),
    ("get", f"{PATH}:activity"): call("u ddd ddd dd", params={"id": "seen"}),
    ("get", "/v1/streams"): call("u ddd fff fd"),
    ("delete", "/v1/streams/{query}"): call("u fdd fff ff", named={"query": spare_stream}),
    ("get", "/v1/health"): call("u ddd fff fd"),
    ("get", "/v1/queries/{query}/reports"): call("u ddd fff fd"),
    ("post", "/v1/queries/{query}/reports"): call("u fdd fff ff", json={}),
    ("post", "/v1/queries/{query}/messages"): call("u fdd fff ff", json={"messages": [CAR]}),
    ("get", "/v1/messages"): call("u ddd ddd dd"),
    ("get", "/v1/messages/identifiers"): call("u ddd ddd dd"),
    ("post", f"{PATH}:dry-run"): call("u ddd ddd dd", json={"id": "seen"}),
    ("get", "/v1/jobs"): call("u ddd fff fd"),
    ("get", "/v1/jobs/{job}/dead-letters"): call("u ddd fff fd"),
    ("get", "/v1/jobs/{job}/dead-letters:bytes"): call(
        "u ddd fff fd", params={"batch": 0, "source": "s", "partition": 0}
    ),
    ("post", "/v1/jobs/{job}/dead-letters:preview"): call("u ddd fff fd", json={}),
    ("post", "/v1/jobs/{job}/replays"): call("u fdd fff ff", json={"expected": 1}),
    ("post", "/v1/jobs/{job}/audits"): call("u ddd fff fd"),
    ("get", "/v1/jobs/{job}/replays/{request}"): call("u ddd fff fd"),
    ("get", "/metrics"): call("u ddd fff fd"),
    ("get", "/healthz"): call("d ddd ddd dd"),
    ("get", "/readyz"): call("d ddd ddd dd"),
}
"""One request of each call, of a subscription or queue that all may see who may see any."""

LETTER = DeadLetter(
    **{"batch": 0, "stage": "read", "reason": "too-large", "message": "long", "source": "a.jsonl"},
    **{"partition": 0, "offset": 1, "revision": 1, "subscription": None, "raw": b"x"},
)

NAMED = {"id": "seen", "query": "q", "version": "v3", "qmgr": "selectroute", "topic": "cars/eu", "job": "job"}
NAMED |= {"request": "made"}


def requested(client, key, queue):
    """The answer to the request of a row."""
    method, path = key
    *_, named, options = TABLE[key]

    def filled(values):
        return {name: v(client, queue) if callable(v) else v for name, v in values.items()}

    path = path.format(**{**NAMED, "name": queue, "queue": queue, **filled(named)})
    return client.request(method, path, **filled(options))


def batch(client, *operations):
    return client.post(f"{PATH}:batch", json={"operations": operations})


def import_(client, row, **params):
    return client.post(f"{PATH}:import", params=params, content=json.dumps(row), headers=NDJSON)


HIDDEN = {
    "get": lambda c: c.get(f"{PATH}/hidden"),
    "put": lambda c: c.put(f"{PATH}/hidden", json={"topic": "cars/eu"}, headers=ANY),
    "patch": lambda c: c.patch(f"{PATH}/hidden", json={"topic": "cars/eu"}, headers=ANY),
    "delete": lambda c: c.delete(f"{PATH}/hidden", headers=ANY),
    "activity": lambda c: c.get(f"{PATH}/hidden/activity"),
    "pause": lambda c: c.post(f"{PATH}/hidden:pause"),
    "resume": lambda c: c.post(f"{PATH}/hidden:resume"),
    "explain": lambda c: c.post("/v1/messages:explain", json={"message": CAR, "subscriptions": ["hidden"]}),
    "batch": lambda c: batch(c, {"op": "remove", "id": "hidden"}),
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
    "batch add": lambda c, spec: batch(c, {"op": "add", **spec}),
    "batch replace": lambda c, spec: batch(c, {"op": "replace", "id": "seen", **spec}),
    "batch add, then replace": lambda c, spec: batch(
        c, {"op": "add", "id": "new", "topic": "cars/eu"}, {"op": "replace", "id": "new", **spec}
    ),
    "import add": lambda c, spec: import_(c, spec),
    "import replace": lambda c, spec: import_(c, {"id": "seen", **spec}, mode="replace"),
}
"""All ways to write a subscription."""

OUTSIDE = {
    "no topic": {},
    "all topics": {"topic": "#"},
    "another topic": {"topic": "boats/x"},
    "a wider topic": {"topic": "+/eu"},
    "a queue": {"topic": "cars/eu", **PAYROLL},
    **{
        f"the {kind} {name}": {"topic": "cars/eu", "destination": {"kind": kind, "name": name}}
        for kind, name in (
            ("queue", "CARSOLD"),
            ("queue", "cars.in"),
            ("kafka", "payments"),
            ("kafka", "CARS.IN"),
        )
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


@pytest.fixture(scope="module")
def documented():
    return create_app(None).openapi()["paths"]


def test_every_call_of_the_service_is_in_the_table(documented):
    assert set(TABLE) == {(method, path) for path, methods in documented.items() for method in methods}
    of_queues = {one for one in TABLE if "queue" in one[1]} - {("get", QUEUES)}
    assert {one for one, (_, own, *_) in TABLE.items() if own} == of_queues


@pytest.mark.parametrize("who", CALLERS)
@pytest.mark.parametrize("queue", ["KEPT", "CARS.IN"])
def test_the_table_says_what_comes_of_a_call(filled, documented, who, queue):
    column, caller = list(CALLERS).index(who), CALLERS[who]
    filled.tokens.add("admin")  # nobody is let in without one
    with service(filled) if caller is None else client_of(filled, caller[0], **caller[1]) as client:
        client.app.state.service.jobs["job"] = Job(1, LETTER)
        queues = client.app.state.service.queues

        def state():
            return filled.revision, queues.open("KEPT").depth, queues.open("CARS.IN").depth

        for key, outcomes in TABLE.items():
            if (letters := outcomes[queue == "CARS.IN"]) is None:
                continue
            outcome, before = letters[column], state()
            answer = requested(client, key, queue)
            if outcome == "d":
                # Whether it is ready is nothing to be refused.
                assert answer.status_code < 300 or key[1] == "/readyz", (key, answer.text)
                role = documented[key[1]][key[0]][ROLE]
                assert caller is None or RANK[caller[0]] >= RANK[role], key
            else:
                found = problem(answer, *{"u": (401, "unauthorised"), "f": (403, "forbidden")}[outcome])
                assert outcome == "u" or found["mqrc"] == 2035
                assert state() == before, key
            if key == ("delete", f"{PATH}/{{id}}") and answer.status_code == 200:
                filled.import_([json.dumps({"id": "seen", "topic": "cars/+/de"})])


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
        two = [{"op": "add", "topic": "cars/x"}, {"op": "add", "topic": "boats/x"}]
        assert problem(batch(client, *two), 403, "forbidden")["errors"][0]["pointer"] == "/operations/1/topic"
        lines = b'{"topic": "cars/x"}\n\n{"topic": "boats/x"}'
        found = problem(client.post(f"{PATH}:import", content=lines, headers=NDJSON), 403, "forbidden")
        assert found["errors"][0]["pointer"] == "/2/topic"


def test_a_foreign_destination_stays_under_pause_and_resume_and_under_nothing_else(filled):
    filled.change("seen", PAYROLL)
    with client_of(filled, "writer", ["cars/#"]) as client:
        assert client.post(f"{PATH}/seen:pause").json()["destination"]["name"] == "PAYROLL"
        assert client.post(f"{PATH}/seen:resume").status_code == 200
        problem(client.patch(f"{PATH}/seen", json={"selector": "a = 1"}, headers=ANY), 403, "forbidden")
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
        assert {self.sent(client, depth) for depth in range(max(1, deep - 20), deep + 20)} <= {403, 422}
        assert filled.revision == before

    def sent(self, client, depth):
        line = b'{"id": "all", "created": ' + b"[" * depth + b"]" * depth + b"}"
        return client.post(f"{PATH}:import", content=line, headers=NDJSON).status_code


@pytest.mark.parametrize("role", RANK)
def test_what_a_token_may_not_see_does_not_exist_for_it(filled, role):
    before = filled.revision
    with client_of(filled, role, ["cars/#"]) as client:
        absent = problem(client.get(f"{PATH}/nobody-has-this"), 404, "subscription-not-found")
        for name, request in HIDDEN.items():
            if role == "reader" and name not in ("get", "activity", "explain"):
                problem(request(client), 403, "forbidden")
            else:
                assert problem(request(client), 404, "subscription-not-found")["detail"] == absent["detail"]
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
        assert sorted(matched["ids"]) == ["seen", "seen-too"] and matched["total"] == 2
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
        changes = [("remove", "seen"), ("replace", "hidden"), ("remove", "seen-too")]
        assert [(one["op"], one["id"]) for one in found["changes"]] == changes
        assert found["changes"][0]["subscription"] is None
        # It is made of all that was there before, and would confirm a guess of it.
        assert not any("digest" in one for one in found["changes"])
        assert found["revision"] == filled.revision


def test_an_id_or_name_that_is_taken_is_said_to_be_and_nothing_else_of_its_subscription(filled):
    with client_of(filled, "writer", ["cars/#"]) as client:
        one, row = {"topic": "cars/x"}, {"id": "hidden", "topic": "cars/x"}
        for answer in (
            client.put(f"{PATH}/hidden", json=one),
            client.put(f"{PATH}/hidden", json=one, headers={"If-None-Match": "*"}),
            batch(client, {"op": "add", **row}),
            import_(client, row),
            import_(client, row, mode="replace"),
        ):
            found = problem(answer, 409, "id-taken")
            assert "boats" not in str(found) and "hidden-name" not in str(found)
        problem(client.post(PATH, json={**one, "name": "hidden-name"}), 409, "name-taken")


def test_a_token_for_some_topics_does_not_learn_the_names_of_queries(filled):
    filled.streams.note_query(
        "finance", source="/srv/finance", can_replay=False, reason="/srv/finance is on tape"
    )
    filled.streams.note_query("sales", source="/srv/sales", can_replay=True)
    filled.streams.note_batch("sales", 7, filled.revision)
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
    filled.tokens.add("admin")
    with service(filled) if caller is None else client_of(filled, caller[0], **caller[1]) as client:
        assert client.app.state.service.publishing.caught_up(filled.revision, 60) is not None
        found = client.get("/readyz").json()
        told = caller is not None and "topics" not in caller[1]
        assert found == {"status": "ready", **({"revision": 1, "published": 1} if told else {})}


def test_a_token_moves_messages_only_between_queues_that_it_may_use(filled):
    with client_of(filled, "writer", queues=["CARS.*"]) as client:
        before = left(client, "KEPT"), left(client, "CARS.IN")
        for source, to in (("CARS.IN", "KEPT"), ("KEPT", "CARS.IN"), ("CARS.IN", "NOTHING")):
            problem(client.post(f"{QUEUES}/{source}:move", json={"to": to}), 403, "forbidden")
        assert (left(client, "KEPT"), left(client, "CARS.IN")) == before


def test_nobody_is_taken_for_admitted_while_the_registry_is_still_read(registry):
    seen = []

    class Reading:
        def had_any(self):
            seen.append(callers.is_known_open())
            if len(seen) == 1:
                raise RuntimeError("the database cannot be read")
            return registry.tokens.had_any()

    callers = Callers(SimpleNamespace(tokens=Reading()), tokens_needed=False)
    with pytest.raises(RuntimeError):
        callers.is_open()
    assert not callers.is_known_open()
    assert callers.is_open() and callers.is_known_open()
    assert seen == [False, False]


def test_a_token_adds_no_more_subscriptions_than_its_quota(registry):
    with service(registry, limits=ServiceLimits(subscriptions_of_one=2)) as client:
        ours, others = (bearer(registry.tokens.add("writer")[1]) for _ in range(2))

        def add(id, headers=ours):
            return client.put(f"/v1/subscriptions/{id}", json={}, headers={**headers, "If-None-Match": "*"})

        assert [add(id).status_code for id in ("a", "b")] == [201, 201]
        assert "a token may have 2 subscriptions" in problem(add("c"), 403, "forbidden")["detail"]
        lines = client.post("/v1/subscriptions:import", content=b'{"id": "c"}', headers=ours | NDJSON)
        problem(lines, 403, "forbidden")
        assert add("c", others).status_code == 201
        registry.remove("a")
        registry.remove("c")
        two = {"operations": [{"op": "add", "id": id} for id in ("c", "d")]}
        problem(client.post("/v1/subscriptions:batch", json=two, headers=ours), 403, "forbidden")
        assert [add(id).status_code for id in ("c", "d")] == [201, 403]
        assert [add(id, others).status_code for id in ("e", "f", "g")] == [201, 201, 403]
