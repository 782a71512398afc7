"""OpenAPI document, made from the table of calls and the types of their functions."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final, get_type_hints

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode
from pydantic_core.core_schema import DataclassSchema
from starlette.responses import Response

from selectroute.registry.role import Role
from selectroute.service.http.call import JSON, Call
from selectroute.service.http.problems import IBM, IBM_MEDIA_TYPE, MEDIA_TYPE, PROBLEMS, MqErrors, Problem

ROLE: Final = "x-role"
"""Member of an operation that names the required role."""

_ALWAYS: Final = (
    "invalid-request",
    "unauthorised",
    "misdirected",
    "timed-out",
    "too-many-requests",
    "unavailable",
)
_OF_BODIES: Final = ("invalid-body", "unsupported-media-type", "too-large")
_EMPTY: Final = (HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED)
_ABOUT: Final = (
    "Subscriptions with selectors: register them, change them while messages flow, ask why. And queues: put "
    "messages, get each once, by its ids or by a selector."
)
_SECURITY: Final = {"token": "bearer", "password": "basic"}

_Schemas = Mapping[tuple[Any, JsonSchemaMode], Any]
"""Schema of each type: of parameters by the call, of bodies and responses by their types."""


def document(calls: Mapping[str, Sequence[Call]]) -> dict[str, Any]:
    """Return the OpenAPI document of calls by their tags."""
    shown = [(tag, call) for tag, rows in calls.items() for call in rows if call.summary]
    types: dict[tuple[Any, JsonSchemaMode], TypeAdapter[Any]] = {
        (kind.__name__, "serialization"): TypeAdapter(kind) for kind in (Problem, MqErrors)
    }
    for _, call in shown:
        types[call, "validation"] = TypeAdapter(call.takes.model)
        if call.takes.body is not None:
            types[call.takes.body, "validation"] = call.takes.body.adapter
        if (answer := _answer_of(call)) is not None:
            types[call, "serialization"] = TypeAdapter(answer)
    schemas, rest = TypeAdapter.json_schemas(
        [(key, mode, adapter) for (key, mode), adapter in types.items()],
        ref_template="#/components/schemas/{model}",
        schema_generator=_SchemaGenerator,
    )
    components = rest["$defs"]
    paths: dict[str, dict[str, Any]] = {}
    for tag, call in shown:
        parameters = components.pop(schemas[call, "validation"]["$ref"].rpartition("/")[2])
        operation = {"tags": [tag], **_operation(call, parameters, schemas)}
        paths.setdefault(call.shown_path, {})[call.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {"title": "selectroute", "description": _ABOUT, "version": "1"},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                name: {"type": "http", "scheme": scheme} for name, scheme in _SECURITY.items()
            },
        },
        "security": [{}, *({name: []} for name in _SECURITY)],
    }


class _SchemaGenerator(GenerateJsonSchema):
    """Generator for whom each field of a dataclass is in its JSON, also one with a default, as `JsonAnswer`
    writes it.
    """

    def dataclass_schema(self, schema: DataclassSchema) -> dict[str, Any]:
        described = super().dataclass_schema(schema)
        if self.mode == "serialization" and not hasattr(schema["cls"], "to_json"):
            described["required"] = [*described["properties"]]
        return described


def _answer_of(call: Call) -> Any:
    """Return the type of a call's response in JSON; None if it has another."""
    hint = get_type_hints(call.function, include_extras=True)["return"]
    return getattr(hint, "__metadata__", (None if hint is Response else hint,))[0]


def _operation(call: Call, parameters: Mapping[str, Any], schemas: _Schemas) -> dict[str, Any]:
    name = re.sub(r"\W", "_", f"{call.function.__name__}{call.shown_path}")
    operation: dict[str, Any] = {
        "summary": call.summary,
        "description": inspect.getdoc(call.function),
        "operationId": f"{name}_{call.method.lower()}",
        "parameters": [*_parameters(call, parameters)],
        "responses": {str(status): answer for status, answer in sorted(_responses(call, schemas).items())},
        ROLE: call.role.name,
    }
    body = call.takes.body
    if body is not None:
        content = {body.media_type: {"schema": schemas[body, "validation"], "example": call.example}}
        operation["requestBody"] = {"required": body.is_required, "content": content}
    elif call.content:
        operation["requestBody"] = {"content": call.content}
    return operation


def _parameters(call: Call, model: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for name, place in call.takes.places.items():
        schema = dict(model["properties"][name])
        described = {"description": schema.pop("description")} if "description" in schema else {}
        required = name in model.get("required", ())
        yield {"name": name, "in": place, "required": required, **described, "schema": schema}
    for name, description in call.headers.items():
        schema = {"type": "string"}
        yield {"name": name, "in": "header", "required": False, "description": description, "schema": schema}


def _responses(call: Call, schemas: _Schemas) -> dict[int, dict[str, Any]]:
    """Return the responses of a call, by their status codes."""
    responses: dict[int, dict[str, Any]] = {}
    kinds: list[str | tuple[str, str]] = [*_ALWAYS, *call.problems]
    if call.role is not Role.reader or call.method != "GET":
        kinds.append("forbidden")  # without tokens, a cross-site request is refused if it is not a GET
    if call.takes.body is not None:
        kinds += _OF_BODIES
    errors, media_type = (MqErrors, IBM_MEDIA_TYPE) if call.path.startswith(IBM) else (Problem, MEDIA_TYPE)
    problem = {media_type: {"schema": schemas[errors.__name__, "serialization"]}}
    for entry in dict.fromkeys(kinds):
        kind, title = entry if isinstance(entry, tuple) else (entry, PROBLEMS[entry].title)
        status = PROBLEMS[kind].status
        before = responses[status]["description"] + "; " if status in responses else ""
        responses[status] = {"description": before + title, "content": problem}
    for status, answer in {call.status: "The call succeeded.", **call.responses}.items():
        responses[status] = {"description": answer} if isinstance(answer, str) else answer
        if isinstance(answer, str) and status not in _EMPTY and (call, "serialization") in schemas:
            responses[status]["content"] = {JSON: {"schema": schemas[call, "serialization"]}}
    return responses
