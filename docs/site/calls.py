"""Reference of the HTTP calls, made of the service's OpenAPI document."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, cast

from docs.site.tables import cell, table
from selectroute.registry.registry import Registry
from selectroute.service.app import create_app
from selectroute.service.system import body_examples, docs_page


def document() -> dict[str, Any]:
    """Return the OpenAPI document, which is the same for every registry."""
    return create_app(cast(Registry, None)).openapi()


def viewer() -> str:
    """Return the page that a service has at ``/docs``: the whole document as HTML, without scripts."""
    return docs_page(document()).replace('href="/openapi.json"', 'href="openapi.json"')


def calls() -> str:
    """Return the reference as Markdown: a heading for each tag, and below it one for each call."""
    tags: dict[str, list[str]] = {}
    whole = document()
    for path, operations in whole["paths"].items():
        for method, one in operations.items():
            text = "\n".join(_call(method.upper(), path, one, whole["components"]["schemas"])).strip()
            tags.setdefault(one["tags"][0], []).append(text)
    return "\n\n".join("\n\n".join([f"## {tag}", *found]) for tag, found in tags.items())


def _call(method: str, path: str, one: Mapping[str, Any], schemas: Mapping[str, Any]) -> Iterator[str]:
    yield f"### {one['summary']}"
    yield f"\n`{method} {path}` (role `{one['x-role']}`)\n"
    yield one.get("description", "").strip() + "\n"
    if one.get("parameters"):
        rows = (
            (
                f"`{given['name']}`" + (", required" if given.get("required") else ""),
                given["in"],
                _values(given.get("schema", {}), schemas),
                cell(given.get("description", "")),
            )
            for given in one["parameters"]
        )
        yield table(("parameter", "in", "values", ""), rows) + "\n"
    for media_type, text in body_examples(one):
        language = "json" if "json" in media_type else "text"
        yield f"Body, for example, as `{media_type}`:\n\n```{language}\n{text.strip()}\n```\n"
    answers = ((status, cell(answer["description"])) for status, answer in one["responses"].items())
    yield table(("response", ""), answers) + "\n"


def _values(schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> str:
    """Return the values that a parameter may have, in words."""
    if "$ref" in schema:
        schema = {**schemas[schema["$ref"].rpartition("/")[2]], **schema}
    if "anyOf" in schema:
        kinds = [_values(one, schemas) for one in schema["anyOf"] if one.get("type") != "null"]
        text = " or ".join(kinds)
    elif "enum" in schema:
        text = ", ".join(f"`{one}`" for one in schema["enum"])
    elif schema.get("type") == "array":
        text = f"{_values(schema.get('items', {}), schemas)}, several times"
    else:
        text = schema.get("type", "")
    if "minimum" in schema and "maximum" in schema:
        text += f", {schema['minimum']:,} to {schema['maximum']:,}"
    if (default := schema.get("default")) not in (None, "", []):
        text += f"; `{default if isinstance(default, str) else json.dumps(default)}` unless given"
    return text
