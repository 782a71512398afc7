"""A registry behind a service: the methods of `Registry` over HTTP, and the same errors."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Literal, Self, TypeVar
from urllib.parse import quote

import httpx

from selectroute.registry.changes import (
    Applied,
    Backfill,
    Change,
    ChangePage,
    EffectiveFrom,
    From,
    Idempotency,
    Imported,
    Op,
    Operation,
    Resumed,
)
from selectroute.registry.errors import (
    IdTakenError,
    ImportLineError,
    NotFoundError,
    OperationError,
    RegistryError,
)
from selectroute.registry.exchange import Answer, Exchange, Params
from selectroute.registry.model import Page, Subscription, SubscriptionSpec
from selectroute.registry.problems import refusal
from selectroute.registry.sent import Sent
from selectroute.registry.specification import check_id
from selectroute.selector.errors import SelectRouteError
from selectroute.selector.message import Message

TIMEOUT_SECONDS: Final = 30.0
"""How long an answer may take."""

BULK_SECONDS: Final = 3600.0
"""How long an import may take once its last line is sent, and an export until its first line comes."""

MAX_WAIT_SECONDS: Final = 30.0
"""How long a service lets a request wait for a change."""

MOST_CHANGES: Final = 1_000
"""Changes that a service gives at once."""

_ALL: Final = "/v1/subscriptions"
_LAST: Final = 2**63 - 1
"""No revision is behind it: the answer is only what the newest one is."""

_INVALID: Final = 422
_PRECONDITION_REQUIRED: Final = 428

_T = TypeVar("_T")


class RemoteRegistry:
    """A registry behind a service. Thread-safe; close it, or use it in a ``with``.

    A request that is lost on the way is sent again, but for an import. It is done once: what registers has
    an ``Idempotency-Key``; of the rest either the ETag holds only once, or doing it twice is doing it once.
    Where a repeated attempt is refused, a note of the error says that the first one may have been done.

    Besides what the methods of `Registry` raise, all raise `UnreachableError`, `AuthError` for a token that
    is none or may not do this, and `RegistryError` for an answer that no service of this kind gives.

    Args:
        url: of the service, ``http(s)://host:port``.
        token: the secret of a bearer token; None where the service wants none.
        timeout_seconds: how long an answer may take.
        transport: instead of the network, for tests.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        timeout_seconds: float = TIMEOUT_SECONDS,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._exchange = Exchange(url, token, timeout_seconds, transport=transport)
        self._timeout_seconds = timeout_seconds
        self.url = self._exchange.url

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"RemoteRegistry({self.url!r})"

    def close(self) -> None:
        """Close every connection."""
        self._exchange.close()

    # ---- reading

    @property
    def revision(self) -> int:
        """The newest revision; 0 before the first change."""
        params = {"after": str(_LAST), "limit": "1"}
        return self._read(self._ask("GET", "/v1/changes", params=params), lambda data: int(data["revision"]))

    def get(self, id: str) -> Subscription:
        """A subscription. Raises `NotFoundError`."""
        return self._one(self._ask("GET", _path(id), id=id))

    def get_by_name(self, name: str) -> Subscription:
        """The subscription of a name. Raises `NotFoundError`."""
        found = self.list(limit=1, name=name).items
        if not found:
            raise NotFoundError(f"there is no subscription of the name {name!r}")
        return found[0]

    def effective_of(self, id: str) -> tuple[Subscription, list[EffectiveFrom]]:
        """A subscription, and the first batch of each query that used it as it is."""

        def take(data: Any) -> tuple[Subscription, list[EffectiveFrom]]:
            batches = [EffectiveFrom(str(one["query"]), int(one["batch"])) for one in data["effective_from"]]
            return Subscription.from_json(data), batches

        return self._read(self._ask("GET", _path(id), id=id), take)

    def list(
        self,
        *,
        limit: int = 50,
        cursor: str | None = None,
        topic: str | None = None,
        status: str | None = None,
        dialect: str | None = None,
        name: str | None = None,
        label: str | None = None,
    ) -> Page:
        """A page of subscriptions; see `Registry.list`."""
        asked = {"topic": topic, "status": status, "dialect": dialect, "name": name, "label": label}
        params = {"limit": str(limit)}
        for key, value in (asked | {"cursor": cursor}).items():
            if value is not None:
                params[key] = str(value)
        return self._read(self._ask("GET", _ALL, params=params), _page)

    def changes(
        self,
        after: int = 0,
        *,
        limit: int = MOST_CHANGES,
        cursor: str | None = None,
        ops: Collection[Op] | None = None,
        wait_seconds: float = 0,
    ) -> ChangePage:
        """The changes behind a revision, see `Registry.changes`. Waits 30 seconds at most, and gives 1,000
        changes at most.
        """
        wait = min(wait_seconds, MAX_WAIT_SECONDS)
        limit = min(limit, MOST_CHANGES)
        params: dict[str, str | Sequence[str]] = {"after": str(after), "limit": str(limit)}
        params |= {"wait": f"{wait:g}"}
        if cursor is not None:
            params["cursor"] = cursor
        if ops is not None:
            params["op"] = sorted(ops)
        answer = self._exchange.ask(
            "GET", "/v1/changes", params=params, timeout_seconds=self._timeout_seconds + wait
        )
        return self._read(self._checked(answer), _change_page)

    def follow_changes(self, after: int, *, ops: Collection[Op] | None = None) -> Generator[Change]:
        """All changes behind a revision that the token may see, up to the newest when this began; in bounded
        memory. With `ops` only those of these kinds.
        """
        cursor, newest = None, None
        while True:
            page = self.changes(after, cursor=cursor, ops=ops)
            newest = page.revision if newest is None else newest
            for change in page:
                if change.revision > newest:
                    return
                yield change
            cursor = page.next_cursor
            if cursor is None or page.complete >= newest:
                return

    def export(self, *, revision: int | None = None) -> Iterator[str]:
        """All subscriptions as lines of JSON, as they come; see `Registry.export`."""
        params = {} if revision is None else {"revision": str(revision)}
        with self._exchange.lines(f"{_ALL}:export", params, BULK_SECONDS) as found:
            if isinstance(found, Answer):
                raise refusal(found, self.url)
            for line in found:
                yield line.decode()

    def explain(self, id: str, message: Message) -> dict[str, Any]:
        """Why a subscription gets a message or does not, by the delivery matcher: the answer of
        ``/v1/messages:explain`` for it, with the ``revision``. Raises `NotFoundError`.
        """
        body = {"message": message.to_json(), "subscriptions": [id]}
        answer = self._ask("POST", "/v1/messages:explain", body=body, id=id)
        return self._read(answer, lambda data: {"revision": data["revision"], **data["explanations"][0]})

    # ---- changing

    def register(
        self, spec: SubscriptionSpec, *, id: str | None = None, idempotency: Idempotency | None = None
    ) -> Subscription:
        """Register a subscription; see `Registry.register`. Of `idempotency` only the key counts."""
        if id is None:
            return self._one(
                self._ask("POST", _ALL, body=spec.to_json(), headers=_key(idempotency), spec=spec)
            )
        check_id(id)  # as part of the path it would be one that is not there
        # Without If-Match a PUT never replaces: where there is one already, the answer is 428.
        answer = self._exchange.ask("PUT", _path(id), body=spec.to_json())
        if answer.status != _PRECONDITION_REQUIRED:
            return self._one(self._checked(answer, id=id, spec=spec))
        if answer.repeated and _is(found := self.get(id), spec):
            return found  # registered by the attempt whose answer was lost
        raise IdTakenError(f"there is a subscription {id!r} already")

    def replace(self, id: str, spec: SubscriptionSpec, *, expected: int | None = None) -> Subscription:
        """Give a subscription another specification; see `Registry.replace`."""
        body, headers = spec.to_json(), _if_match(expected)
        return self._one(self._ask("PUT", _path(id), body=body, headers=headers, id=id, spec=spec))

    def change(self, id: str, patch: Mapping[str, Any], *, expected: int | None = None) -> Subscription:
        """Change some fields by a JSON merge patch; see `Registry.change`."""
        headers = {**_if_match(expected), "Content-Type": "application/merge-patch+json"}
        answer = self._exchange.ask("PATCH", _path(id), body=dict(patch), headers=headers)
        spec = None
        if answer.status == _INVALID:  # to show its selector, the dialect is needed too
            spec = self.get(id).spec
            text, dialect = patch.get("selector", spec.selector), patch.get("dialect", spec.dialect)
            spec = replace(spec, selector=str(text), dialect=str(dialect))
        return self._one(self._checked(answer, id=id, spec=spec))

    def remove(self, id: str, *, expected: int | None = None) -> Subscription:
        """Remove a subscription; see `Registry.remove`."""
        return self._one(self._ask("DELETE", _path(id), headers=_if_match(expected), id=id))

    def pause(self, id: str, *, expected: int | None = None) -> Subscription:
        """Stop a subscription's messages; see `Registry.pause`."""
        return self._one(self._ask("POST", f"{_path(id)}:pause", headers=_if_match(expected), id=id))

    def resume(self, id: str, *, from_: From = "latest", expected: int | None = None) -> Resumed:
        """Let a paused subscription have messages again; see `Registry.resume`."""
        body, headers = {"from": from_}, _if_match(expected)
        answer = self._ask("POST", f"{_path(id)}:resume", body=body, headers=headers, id=id)
        return self._read(
            answer,
            lambda data: Resumed(
                Subscription.from_json(data), [Backfill(**one) for one in data.get("backfill", [])]
            ),
        )

    def apply(self, operations: Iterable[Operation], *, idempotency: Idempotency | None = None) -> Applied:
        """Several changes as one revision; see `Registry.apply`."""
        given = [*operations]
        if not given:
            return Applied(self.revision, [])  # the service takes no empty batch
        body = {"operations": [*map(_operation, given)]}
        answer = self._exchange.ask("POST", f"{_ALL}:batch", body=body, headers=_key(idempotency))

        def spec(index: int) -> SubscriptionSpec | None:
            return given[index].spec if index < len(given) else None

        return self._read(
            self._checked(answer, several=OperationError, asked=spec),
            lambda data: Applied(
                int(data["revision"]), [*map(Subscription.from_json, data["subscriptions"])]
            ),
        )

    def import_(
        self,
        lines: Iterable[str | bytes],
        *,
        mode: Literal["add", "replace"] = "add",
        progress: Callable[[int, int], None] | None = None,
    ) -> Imported:
        """Register what lines of JSON say, all or none; see `Registry.import_`. The lines are sent once."""
        sent = Sent(lines, progress)
        answer = self._exchange.upload(
            f"{_ALL}:import", sent, params={"mode": mode}, timeout_seconds=BULK_SECONDS
        )
        return self._read(
            self._checked(answer, several=ImportLineError, asked=sent.spec),
            lambda data: Imported(int(data["rows"]), int(data["revision"])),
        )

    def note_query(self, query: str, *, source: str, can_replay: bool, reason: str | None = None) -> None:
        """Make a query known; see `Registry.note_query`."""
        body = {"source": source, "can_replay": can_replay, "reason": reason}
        self._ask("POST", f"/v1/queries/{quote(query, safe='')}", body=body)

    def note_batch(self, query: str, batch: int, revision: int) -> None:
        """Say that a batch of a query was delivered by a revision; see `Registry.note_batch`."""
        body = {"batch": batch, "revision": revision}
        self._ask("POST", f"/v1/queries/{quote(query, safe='')}/batches", body=body)

    # ---- inside

    def _ask(
        self,
        method: str,
        path: str,
        *,
        params: Params | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        id: str = "",
        spec: SubscriptionSpec | None = None,
    ) -> Answer:
        answer = self._exchange.ask(method, path, params=params, body=body, headers=headers)
        return self._checked(answer, id=id, spec=spec)

    def _checked(self, answer: Answer, **about: Any) -> Answer:
        """The answer, if it is one of success; otherwise the error that it stands for is raised."""
        if 200 <= answer.status < 300:
            return answer
        error = refusal(answer, self.url, **about)
        if answer.repeated:
            error.add_note("an attempt before it lost its connection: it may have been done")
        raise error

    def _one(self, answer: Answer) -> Subscription:
        return self._read(answer, Subscription.from_json)

    def _read(self, answer: Answer, take: Callable[[Any], _T]) -> _T:
        try:
            return take(json.loads(answer.body))
        except (ValueError, KeyError, IndexError, TypeError, RecursionError, SelectRouteError) as error:
            raise RegistryError(f"{self.url} answers, and not as a registry does") from error


def _path(id: str) -> str:
    # ``.`` and ``..`` are ids, but would be steps of the path.
    step = quote(id, safe="") if id.strip(".") else id.replace(".", "%2E")
    return f"{_ALL}/{step}"


def _key(idempotency: Idempotency | None) -> dict[str, str]:
    return {"Idempotency-Key": uuid.uuid4().hex if idempotency is None else idempotency.key}


def _if_match(expected: int | None) -> dict[str, str]:
    return {"If-Match": "*" if expected is None else f'"{expected}"'}


def _operation(one: Operation) -> dict[str, Any]:
    data: dict[str, Any] = {"op": one.op, **({} if one.spec is None else one.spec.to_json())}
    if one.id is not None:
        data["id"] = one.id
    if one.expected is not None:
        data["expected"] = one.expected
    if one.op == "resume":
        data["from"] = one.resume_from
    return data


def _is(found: Subscription, spec: SubscriptionSpec) -> bool:
    """Whether a subscription is what was asked for."""
    asked = replace(spec, name=spec.name or found.id, seltype=spec.seltype or found.seltype)
    return replace(found.spec, seltype=found.seltype) == asked


def _change_page(data: Any) -> ChangePage:
    changes = [*map(Change.from_json, data["changes"])]
    return ChangePage(changes, data["next_cursor"], int(data["revision"]), int(data["complete"]))


def _page(data: Any) -> Page:
    return Page([*map(Subscription.from_json, data["items"])], data["next_cursor"])
