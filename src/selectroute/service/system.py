"""Calls on the service itself: limits, health, metrics, and pages of its facts and its API.

The pages have no scripts and no external resources.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape
from typing import Annotated, Any, Final

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from selectroute.loopback import is_loopback
from selectroute.registry.role import Role
from selectroute.selector.errors import SelectRouteError
from selectroute.service.context import Service
from selectroute.service.http.call import JsonAnswer
from selectroute.service.http.callers import Caller
from selectroute.service.http.models import StateAnswer
from selectroute.service.http.problems import ProblemError
from selectroute.service.limits import ServiceLimits
from selectroute.service.metrics import CONTENT_TYPE
from selectroute.store.errors import ReplacedError

_STYLE: Final = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}"
    "h2{margin-top:2.5rem}section{border-top:1px solid #ccc;margin-top:1.5rem}"
    "code,pre{font:14px/1.4 ui-monospace,monospace}pre{background:#f4f4f4;color:#111;padding:.6rem;"
    "overflow-x:auto}table{border-collapse:collapse}td,th{padding:.2rem .8rem .2rem 0;text-align:left;"
    "vertical-align:top}"
)
_HASH: Final = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()

HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": (
        f"default-src 'none'; style-src 'sha256-{_HASH}'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
}
"""Headers of every page: no scripts, no requests to other hosts, no embedding in other pages."""

_CODE: Final = re.compile(r"`([^`]+)`")


def front_page(facts: Mapping[str, str]) -> str:
    """Return the page of the path ``/``: facts of this service and links."""
    rows = "".join(f"<tr><th>{escape(name)}<td>{escape(value)}" for name, value in facts.items())
    links = (
        ("/docs", "documentation of each call"),
        ("/openapi.json", "OpenAPI document"),
        ("/metrics", "metrics for Prometheus"),
        ("/readyz", "readiness: the registry is readable and published"),
    )
    listed = "".join(f'<li><a href="{path}">{path}</a>: {text}' for path, text in links)
    table = f"<table>{rows}</table>" if rows else "<p>A token for all topics shows revision and counts."
    return _page("selectroute", f"<h1>selectroute</h1><p>Subscriptions and queues.{table}<ul>{listed}</ul>")


def docs_page(document: Mapping[str, Any]) -> str:
    """Return the OpenAPI document as an HTML page."""
    by_tag: dict[str, list[str]] = {}
    contents: dict[str, list[str]] = {}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            tag, anchor = operation["tags"][0], escape(operation["operationId"])
            by_tag.setdefault(tag, []).append("".join(_operation(method.upper(), path, operation)))
            contents.setdefault(tag, []).append(f'<li><a href="#{anchor}">{escape(operation["summary"])}</a>')
    listed = "".join(f"<li>{escape(tag)}<ul>{''.join(links)}</ul>" for tag, links in contents.items())
    parts = "".join(f"<h2>{escape(tag)}</h2>{''.join(sections)}" for tag, sections in by_tag.items())
    head = f"<h1>selectroute</h1>{_text(document['info']['description'])}"
    link = '<p>For programs: <a href="/openapi.json">/openapi.json</a>'
    return _page("selectroute: calls", f"{head}{link}<ul>{listed}</ul>{parts}")


def _operation(method: str, path: str, operation: Mapping[str, Any]) -> Iterator[str]:
    yield f'<section id="{escape(operation["operationId"])}"><h3>{escape(operation["summary"])}</h3>'
    yield f"<pre>{method} {escape(path)}</pre>{_text(operation.get('description', ''))}"
    yield f"<p>Role: {escape(operation['x-role'])}"
    if operation.get("parameters"):
        yield "<table><tr><th>parameter<th>in<th>"
        for parameter in operation["parameters"]:
            about = _inline(parameter.get("description", ""))
            yield f"<tr><td><code>{escape(parameter['name'])}</code><td>{escape(parameter['in'])}<td>{about}"
        yield "</table>"
    for media_type, text in body_examples(operation):
        yield f"<p>Body, for example, as <code>{escape(media_type)}</code>:<pre>{escape(text)}</pre>"
    yield "<table><tr><th>response<th>"
    for status, answer in operation["responses"].items():
        yield f"<tr><td>{escape(status)}<td>{_inline(answer['description'])}"
    yield "</table></section>"


def body_examples(operation: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the media types of an operation's bodies, each with an example as text."""
    for media_type, content in operation.get("requestBody", {}).get("content", {}).items():
        example = content.get("example")
        text = example if isinstance(example, str) else json.dumps(example, indent=2, ensure_ascii=False)
        yield media_type, text


def _text(text: str) -> str:
    return "".join(f"<p>{_inline(part)}" for part in text.split("\n\n"))


def _inline(text: str) -> str:
    return _CODE.sub(r"<code>\1</code>", escape(text))


def _page(title: str, body: str) -> str:
    head = f'<meta charset="utf-8"><title>{escape(title)}</title><style>{_STYLE}</style>'
    view = '<meta name="viewport" content="width=device-width">'
    return f'<!doctype html><html lang="en"><head>{head}{view}</head><body>{body}</body></html>'


def limits(service: Service) -> Annotated[Response, ServiceLimits]:
    """Return the limits of requests."""
    return JsonAnswer(service.limits.model_dump())


@dataclass(frozen=True, slots=True)
class CallerAnswer:
    """Caller of the service: a token's name, role and permitted topics (all if there are none); without
    tokens the name is null.
    """

    name: str | None
    role: Role
    topics: list[str]


def caller(by: Caller) -> CallerAnswer:
    """Return the name, the role and the topics of the caller's token."""
    return CallerAnswer(by.name, by.role, [topic.text for topic in by.permission.topics or ()])


def metrics(service: Service, by: Caller) -> Response:
    """Return the metrics for Prometheus. Needs a token for all topics, since metrics cover all callers."""
    by.check_all_topics("metrics need a token")
    return Response(service.metrics.text(), headers={"Content-Type": CONTENT_TYPE})


def health() -> Annotated[Response, StateAnswer]:
    """Return ok while the process is alive. Needs no token."""
    return JsonAnswer({"status": "ok"})


def ready(request: Request, service: Service) -> Annotated[Response, StateAnswer]:
    """Return whether the registry is readable and a revision is published. Needs no token; the revisions are
    shown only to callers who may see all subscriptions.
    """
    try:
        state = service.publishing.state()
        sees_all = _sees_all(service, request.headers.get("authorization"))
    except ReplacedError as error:
        return JsonAnswer({"status": "not ready", "reason": str(error)}, 503)
    except SelectRouteError:
        return JsonAnswer({"status": "not ready", "reason": "the registry cannot be read"}, 503)
    data: dict[str, int | str | None] = {"revision": state.revision} if sees_all else {}
    if state.snapshot is None:
        return JsonAnswer({"status": "not ready", **data, "reason": "no revision is published yet"}, 503)
    if sees_all:
        data["published"] = state.snapshot.revision
    reason = {} if state.failure is None else {"reason": "the newest changes cannot be published"}
    return JsonAnswer({"status": "ready", **data, **reason})


def front(request: Request, service: Service) -> Response:
    """Return the front page. Needs no token; shows counts to callers who may see all subscriptions."""
    facts: dict[str, str] = {}
    try:
        # Protects the counts from DNS rebinding if no token is needed.
        is_own = is_loopback(request.url.hostname or "") or not service.callers.is_open()
        if is_own and _sees_all(service, request.headers.get("authorization")):
            state = service.publishing.state()
            published = "none yet" if state.snapshot is None else str(state.snapshot.revision)
            facts = {
                "Revision": str(state.revision),
                "Published revision": published,
                "Subscriptions": f"{len(service.registry):,}",
                "Active ones, as published": "0" if state.snapshot is None else f"{len(state.snapshot):,}",
                "Queues": f"{len(service.queues.names()):,}",
            }
    except SelectRouteError:
        facts = {"State": "the database cannot be read; the service's log says why"}
    return HTMLResponse(front_page(facts), headers=HEADERS)


async def docs(request: Request) -> Response:
    """Return the OpenAPI document as an HTML page."""
    state = request.app.state
    if not hasattr(state, "docs"):
        state.docs = docs_page(request.app.openapi())
    return HTMLResponse(state.docs, headers=HEADERS)


async def openapi(request: Request) -> Response:
    """Return the OpenAPI document."""
    return JsonAnswer(request.app.openapi())


def _sees_all(service: Service, authorization: str | None) -> bool:
    """Return whether the caller of this Authorization header may see every subscription."""
    try:
        return service.callers.caller(authorization).sees_all
    except ProblemError:
        return False
