"""The OpenAPI document is true: requests generated from it meet no 5xx, and every refusal is a problem."""

import json
import re
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from selectroute.queues.errors import MQError
from selectroute.registry.registry import Registry
from selectroute.selector import DIALECTS
from selectroute.service.app import create_app
from selectroute.service.calls import CALLS
from selectroute.service.http.models import SpecBody
from selectroute.service.http.problems import PROBLEMS, TYPE, MqErrors, Problem
from selectroute.service.limits import ServiceLimits
from tests.support.components import NIGHTLY
from tests.unit.service.conftest import Job, service

schemathesis = pytest.importorskip("schemathesis", reason="Schemathesis is not installed (the extra `ci`)")
checks = pytest.importorskip("schemathesis.specs.openapi.checks")

pytestmark = pytest.mark.slow

DOCUMENT = create_app(None).openapi()  # it says the same of every registry
OPERATIONS = [(method, path) for path, methods in DOCUMENT["paths"].items() for method in methods]
GENERATED = 40 if NIGHTLY else 6
HEADERS = {"Host": "localhost"}


@schemathesis.serializer("application/x-ndjson")
def as_lines(_, value):
    """What is generated for an import: text, sent as it is."""
    return value if isinstance(value, bytes) else str(value).encode(errors="replace")


@pytest.fixture(scope="module")
def described(tmp_path_factory):
    path = tmp_path_factory.mktemp("openapi")
    with Registry.open(f"sqlite:///{path}/r.db") as registry:
        registry.import_([b'{"id": "a"}', b'{"id": "b", "selector": "a = 1", "topic": "t/#"}'])
        app = create_app(registry, limits=ServiceLimits(wait_seconds=0.01))
        # With a token: among the requests are some that make tokens, and then everybody needs one.
        HEADERS["Authorization"] = f"Bearer {registry.tokens.add('admin')[1]}"
        # Loading it starts the application, publisher and all.
        loaded = schemathesis.openapi.from_asgi("/openapi.json", app, headers={"Host": "localhost"})
        # Before its first publication it is not ready, which is a 503.
        assert app.state.service.publishing.caught_up(registry.revision, 60) is not None
        yield loaded


@pytest.mark.parametrize(("method", "path"), OPERATIONS, ids=map(" ".join, OPERATIONS))
def test_no_request_breaks_the_service_and_every_refusal_is_a_problem(described, method, path):
    queues = described.app.state.service.queues
    operation = described[path][method.upper()]
    # What is there is asked for as often as what is not.
    ids = st.sampled_from(["a", "b", None])
    named = {"name": "A", "queue": "A", "qmgr": "selectroute", "version": "v3"}

    @settings(
        max_examples=GENERATED, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True
    )
    @given(
        operation.as_strategy() | operation.as_strategy(generation_mode=schemathesis.GenerationMode.NEGATIVE),
        ids,
    )
    def generated(case, id):
        if id is not None and "{id}" in path:
            case.path_parameters["id"] = id
        if id is not None and case.path_parameters:
            case.path_parameters.update({name: named[name] for name in named if f"{{{name}}}" in path})
        with suppress(MQError):  # one of the requests deletes it
            queues.create("A")
        check(case)

    generated()


def check(case):
    answer = case.call(headers=HEADERS)
    assert answer.status_code < 500, answer.text
    if answer.status_code >= 400:
        if case.path.startswith("/ibmmq/"):
            assert answer.headers["content-type"] == ["application/json"]
            found = MqErrors.model_validate_json(answer.content).error[0].problem
        else:
            assert answer.headers["content-type"] == ["application/problem+json"]
            found = Problem.model_validate_json(answer.content)
        assert PROBLEMS[found.type.removeprefix(TYPE)].status == found.status == answer.status_code
    case.validate_response(answer, checks=[*CHECKS])


CHECKS = (checks.status_code_conformance, checks.content_type_conformance, checks.response_schema_conformance)


def test_the_document_has_the_destinations_and_dialects_there_are():
    kinds = DOCUMENT["components"]["schemas"]["DestinationBody"]["properties"]["kind"]
    assert kinds["enum"] == ["none", "queue", "kafka"]
    assert SpecBody.model_json_schema()["properties"]["dialect"]["anyOf"][0]["enum"] == list(DIALECTS)


def test_each_summary_is_one_sentence_of_its_own_that_begins_with_a_verb():
    summaries = [one["summary"] for path in DOCUMENT["paths"].values() for one in path.values()]
    assert len(set(summaries)) == len(summaries)
    verbs = {
        "Announce", "Browse", "Change", "Check", "Create", "Delete", "Describe", "Explain", "Export", "Get",
        "Import", "List", "Match", "Pause", "Put", "Read", "Register", "Remove", "Replace", "Replay",
        "Report", "Resume", "Revoke", "Show",
    }  # fmt: skip
    assert {one.split()[0] for one in summaries} <= verbs
    assert not [one for one in summaries if one.endswith(".") or len(one) > 60]


def test_responses_are_listed_in_order_with_each_reason_once_and_with_what_a_role_or_site_is_refused():
    for method, path in OPERATIONS:
        one = DOCUMENT["paths"][path][method]
        assert list(one["responses"]) == sorted(one["responses"])
        for answer in one["responses"].values():
            reasons = answer["description"].split("; ")
            assert len(set(reasons)) == len(reasons), (method, path, reasons)
        assert "403" in one["responses"] or (one["x-role"], method) == ("reader", "get"), path


def examples():
    """Each call that takes a body, with the example of each of its media types."""
    for path, methods in DOCUMENT["paths"].items():
        for method, one in methods.items():
            for media_type, content in one.get("requestBody", {}).get("content", {}).items():
                yield method, path, media_type, content["example"]


def test_the_calls_that_take_a_body_are_those_with_an_example():
    for row in [row for rows in CALLS.values() for row in rows]:
        assert (row.example is not None) == (row.takes.body is not None), row.path


@pytest.mark.parametrize(
    ("method", "path", "media_type", "example"),
    [pytest.param(*one, id=" ".join(one[:3])) for one in examples()],
)
def test_each_example_is_a_request_that_is_done(registry, method, path, media_type, example):
    registry.import_([b'{"id": "heavy"}'])
    registry.pause("heavy")
    named = {"id": "heavy", "query": "stream", "qmgr": "selectroute", "queue": "Q", "name": "ORDERS"}
    named |= {"job": "flights", "version": "v3", "topic": "cars/eu"}
    filled = re.sub(r"\{(\w+)\}", lambda found: named[found[1]], path)
    if "batches" in path:
        registry.streams.note_query("stream", source="files", can_replay=True)
    if path.endswith(":batch"):
        registry.resume("heavy")
    with service(registry, jobs={"flights": Job(3)}) as client:
        client.put("/v1/queues/Q")
        if "queues/{name}:" in path:
            client.put("/v1/queues/ORDERS")
        content = example if isinstance(example, str) else json.dumps(example)
        headers = {"Content-Type": media_type}
        if "{id}" in path:
            headers["If-Match"] = "*"
        answer = client.request(method, filled, content=content, headers=headers)
        assert answer.is_success, answer.text
        if path.endswith(":explain"):
            assert answer.json()["explanations"][0]["id"] == "heavy"
