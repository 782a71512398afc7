"""The OpenAPI document is true: requests generated from it meet no 5xx, and every refusal is a problem."""

from __future__ import annotations

from contextlib import suppress

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from selectroute.queues.errors import MQError
from selectroute.registry.registry import Registry
from selectroute.selector import DIALECTS
from selectroute.service.app import create_app
from selectroute.service.limits import ServiceLimits
from selectroute.service.models import SpecBody
from selectroute.service.problems import PROBLEMS, TYPE, Problem

pytestmark = pytest.mark.slow

DOCUMENT = create_app(None).openapi()  # it says the same of every registry
OPERATIONS = [(method, path) for path, methods in DOCUMENT["paths"].items() for method in methods]
EXAMPLES = 40
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
        HEADERS["Authorization"] = f"Bearer {registry.add_token('admin')[1]}"
        # Loading it starts the application, publisher and all.
        loaded = schemathesis.openapi.from_asgi("/openapi.json", app, headers={"Host": "localhost"})
        # Before its first publication it is not ready, which is a 503.
        assert app.state.service.publishing.caught_up(registry.revision, 60) is not None
        yield loaded


def test_a_destination_of_files_is_not_offered():
    kinds = DOCUMENT["components"]["schemas"]["DestinationBody"]["properties"]["kind"]
    assert kinds["enum"] == ["none", "queue", "kafka"]


@pytest.mark.parametrize(("method", "path"), OPERATIONS, ids=map(" ".join, OPERATIONS))
def test_no_request_breaks_the_service_and_every_refusal_is_a_problem(described, method, path):
    queues = described.app.state.service.queues
    operation = described[path][method.upper()]
    # What is there is asked for as often as what is not.
    ids = st.sampled_from(["a", "b", None])
    named = {"name": "A", "queue": "A", "qmgr": "selectroute"}

    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
    @given(operation.as_strategy() | operation.as_strategy(generation_mode=GenerationMode.NEGATIVE), ids)
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
        assert answer.headers["content-type"] == ["application/problem+json"]
        found = Problem.model_validate_json(answer.content)
        assert PROBLEMS[found.type.removeprefix(TYPE)].status == found.status == answer.status_code
    case.validate_response(answer, checks=[*CHECKS])


CHECKS = (status_code_conformance, content_type_conformance, response_schema_conformance)


def test_the_document_has_the_dialects_there_are():
    dialect = SpecBody.model_json_schema()["properties"]["dialect"]
    assert dialect["anyOf"][0]["enum"] == list(DIALECTS)
