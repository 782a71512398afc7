"""The part of a registry behind a service that only reads: subscriptions, the log, explanations."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from typing import Any, Final, Self, TypeVar
from urllib.parse import quote

import httpx

from selectroute.registry.changes import Change, ChangePage, EffectiveFrom, Op
from selectroute.registry.errors import NotFoundError, RegistryError
from selectroute.registry.exchange import Answer, Exchange, Params
from selectroute.registry.model import Page, Subscription, SubscriptionSpec
from selectroute.registry.problems import refusal
from selectroute.selector.errors import SelectRouteError
from selectroute.selector.message import Message

TIMEOUT_SECONDS: Final = 30.0
"""How long an answer may take."""

BULK_SECONDS: Final = 3600.0
"""How long an import may take once its last line is sent, and an export until its first line comes."""

MAX_WAIT_SECONDS: Final = 30.0
"""How long a service lets a request wait for a change or a batch."""

MOST_CHANGES: Final = 1_000
"""Changes that a service gives at once."""

PATH: Final = "/v1/subscriptions"

_LAST: Final = 2**63 - 1
"""No revision is behind it: the answer is only what the newest one is."""

_T = TypeVar("_T")


class RemoteReading:
    """What `RemoteRegistry` asks without changing anything.

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
        return f"{type(self).__name__}({self.url!r})"

    def close(self) -> None:
        """Close every connection."""
        self._exchange.close()

    @property
    def revision(self) -> int:
        """The newest revision; 0 before the first change."""
        params = {"after": str(_LAST), "limit": "1"}
        return self._read(self._ask("GET", "/v1/changes", params=params), lambda data: int(data["revision"]))

    def get(self, id: str) -> Subscription:
        """A subscription. Raises `NotFoundError`."""
        return self._one(self._ask("GET", path_of(id), id=id))

    def get_by_name(self, name: str) -> Subscription:
        """The subscription of a name. Raises `NotFoundError`."""
        found = self.list(limit=1, name=name).items
        if not found:
            raise NotFoundError(f"there is no subscription of the name {name!r}")
        return found[0]

    def effective_of(self, id: str, *, wait_seconds: float = 0) -> tuple[Subscription, list[EffectiveFrom]]:
        """A subscription, and the first batch of each query that used it as it is. Waits so many seconds for
        one if there is none, 30 at most.
        """
        wait = min(wait_seconds, MAX_WAIT_SECONDS)
        params = {"wait": f"{wait:g}"} if wait > 0 else None

        def take(data: Any) -> tuple[Subscription, list[EffectiveFrom]]:
            batches = [EffectiveFrom(str(one["query"]), int(one["batch"])) for one in data["effective_from"]]
            return Subscription.from_json(data), batches

        answer = self._exchange.ask(
            "GET", path_of(id), params=params, timeout_seconds=self._timeout_seconds + wait
        )
        return self._read(self._checked(answer, id=id), take)

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
        return self._read(self._ask("GET", PATH, params=params), _page)

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
        cursor: str | None = None
        newest: int | None = None
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
        with self._exchange.lines(f"{PATH}:export", params, BULK_SECONDS) as found:
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

    def match(self, message: Message, limit: int, near: bool = False) -> dict[str, Any]:
        """The subscriptions that get a message, at most so many of them by name, and with ``near`` those that
        one condition keeps from it: the answer of ``/v1/messages:match``.
        """
        body = {"message": message.to_json(), "limit": limit, **({"near": True} if near else {})}
        return self._read(self._ask("POST", "/v1/messages:match", body=body), dict)

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


def path_of(id: str) -> str:
    """Where a service has a subscription."""
    # ``.`` and ``..`` are ids, but would be steps of the path.
    step = quote(id, safe="") if id.strip(".") else id.replace(".", "%2E")
    return f"{PATH}/{step}"


def _change_page(data: Any) -> ChangePage:
    changes = [*map(Change.from_json, data["changes"])]
    return ChangePage(changes, data["next_cursor"], int(data["revision"]), int(data["complete"]))


def _page(data: Any) -> Page:
    return Page([*map(Subscription.from_json, data["items"])], data["next_cursor"])
