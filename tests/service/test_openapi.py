"""The OpenAPI document is true: requests generated from it meet no 5xx, and every refusal is a problem."""

from __future__ import annotations

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from selectroute.registry.registry import Registry
from selectroute.selector import DIALECTS
from selectroute.service.app import create_app
from selectroute.service.limits import ServiceLimits
from selectroute.service.models import SpecBody
from selectroute.service.problems import PROBLEMS, TYPE, Problem

KNOWN = ["one", "two", "three"]


@pytest.fixture(scope="module")
def app(tmp_path_factory):
    path = tmp_path_factory.mktemp("openapi")
    with Registry.open(f"sqlite:///{path}/r.db") as registry:
        yield create_app(registry, limits=ServiceLimits(wait_seconds=0.01))


schema = schemathesis.pytest.from_fixture("document")


@pytest.fixture(scope="module")
def document(app):
    from tests.service.conftest import TestClient

    # Its lifespan: what it does without the publisher is shown in test_system.
    with TestClient(app, base_url="http://localhost"):
        yield schemathesis.openapi.from_asgi("/openapi.json", app, headers={"Host": "localhost"})


@schema.parametrize()
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
def test_no_request_breaks_the_service_and_every_refusal_is_a_problem(case):
    if "id" in (case.path_parameters or {}) and len(str(case.path_parameters["id"])) % 2:
        case.path_parameters["id"] = KNOWN[len(str(case.path_parameters["id"])) % 3]
    answer = case.call(headers={"Host": "localhost"})
    assert answer.status_code < 500 or answer.status_code == 503, answer.text
    if answer.status_code >= 400 and case.path != "/readyz":
        assert answer.headers["content-type"] == ["application/problem+json"]
        found = Problem.model_validate_json(answer.content)
        assert PROBLEMS[found.type.removeprefix(TYPE)].status == found.status == answer.status_code
    case.validate_response(
        answer,
        checks=[
            status_code_conformance,
            content_type_conformance,
            response_schema_conformance,
            response_headers_conformance,
        ],
    )


def test_the_document_has_the_dialects_there_are():
    dialect = SpecBody.model_json_schema()["properties"]["dialect"]
    assert dialect["anyOf"][0]["enum"] == list(DIALECTS)
