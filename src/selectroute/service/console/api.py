"""Calls of the service's API by its console, in the same process, with the token that the browser has."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx
from starlette.types import ASGIApp

from selectroute.selector.errors import SelectRouteError


class ApiError(SelectRouteError):
    """Problem document (RFC 9457) with which the API refused a call.

    Args:
        status: the status code.
        problem: the document.
    """

    def __init__(self, status: int, problem: Mapping[str, Any]) -> None:
        super().__init__(str(problem.get("detail") or problem.get("title") or f"the API answered {status}"))
        self.status = status
        self.problem = problem

    @property
    def kind(self) -> str:
        """Last part of the problem's type, such as ``stale-revision``."""
        return str(self.problem.get("type", "")).rpartition(":")[2]

    @property
    def faults(self) -> list[dict[str, Any]]:
        """Faults of the request, each with its ``pointer`` and ``reason``."""
        errors: list[dict[str, Any]] = self.problem.get("errors") or []
        return errors


@dataclass(frozen=True, slots=True)
class ApiAnswer:
    """Answer of the API: its data, None if it has no JSON, and its headers and body."""

    data: Any
    headers: httpx.Headers
    body: bytes


@dataclass(frozen=True, slots=True)
class Api:
    """API of a service, as one caller may use it.

    Args:
        app: the service's application.
        host: the Host header that the browser sent.
        client: the browser's address and port.
        token: the caller's secret; None without one.
    """

    app: ASGIApp
    host: str
    client: tuple[str, int]
    token: str | None = field(default=None, repr=False)

    async def get(self, path: str, params: Mapping[str, Any] | None = None) -> Any:
        """Return the data of a GET. Raises `ApiError`."""
        return (await self.call("GET", path, params=params)).data

    async def post(self, path: str, body: Any = None) -> Any:
        """Return the data of a POST. Raises `ApiError`."""
        return (await self.call("POST", path, body=body)).data

    async def call(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        body: Any = None,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> ApiAnswer:
        """Return the answer to a call. ``body`` is sent as JSON, ``content`` as it is.

        Raises:
            ApiError: the API refused the call.
        """
        sent = {"Host": self.host, **(headers or {})}
        if self.token is not None:
            sent["Authorization"] = f"Bearer {self.token}"
        if body is not None:
            content = json.dumps(body).encode()
            sent.setdefault("Content-Type", "application/json")
        query = {name: value for name, value in (params or {}).items() if value not in (None, "")}
        request = httpx.Request(method, f"http://service{path}", params=query, content=content, headers=sent)
        transport = httpx.ASGITransport(self.app, raise_app_exceptions=False, client=self.client)
        response = await transport.handle_async_request(request)
        data = await response.aread()
        is_json = response.headers.get("content-type", "").partition(";")[0].endswith("json")
        parsed = json.loads(data) if is_json and data else None
        if isinstance(parsed, dict) and response.status_code >= 400 and "error" in parsed:
            parsed = parsed["error"][0]["problem"]  # in IBM's form
        if response.status_code >= 400:
            raise ApiError(response.status_code, parsed if isinstance(parsed, dict) else {})
        return ApiAnswer(parsed, response.headers, data)
