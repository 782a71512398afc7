"""A registry behind a service: the methods of `Registry` over HTTP, and the same errors."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, Literal
from urllib.parse import quote

from selectroute.registry.changes import (
    Applied,
    Backfill,
    From,
    Idempotency,
    Imported,
    Operation,
    Resumed,
)
from selectroute.registry.errors import IdTakenError, ImportLineError, OperationError
from selectroute.registry.model import Subscription, SubscriptionSpec
from selectroute.registry.remote_reading import BULK_SECONDS, PATH, RemoteReading, path_of
from selectroute.registry.sent import Sent
from selectroute.registry.specification import check_id
from selectroute.registry.tokens import Token

_INVALID: Final = 422
_PRECONDITION_REQUIRED: Final = 428


class RemoteRegistry(RemoteReading):
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

    def register(
        self, spec: SubscriptionSpec, *, id: str | None = None, idempotency: Idempotency | None = None
    ) -> Subscription:
        """Register a subscription; see `Registry.register`. Of `idempotency` only the key counts."""
        if id is None:
            return self._one(
                self._ask("POST", PATH, body=spec.to_json(), headers=_key(idempotency), spec=spec)
            )
        check_id(id)  # as part of the path it would be one that is not there
        # Without If-Match a PUT never replaces: where there is one already, the answer is 428.
        answer = self._exchange.ask("PUT", path_of(id), body=spec.to_json())
        if answer.status != _PRECONDITION_REQUIRED:
            return self._one(self._checked(answer, id=id, spec=spec))
        if answer.repeated and _is(found := self.get(id), spec):
            return found  # registered by the attempt whose answer was lost
        raise IdTakenError(f"there is a subscription {id!r} already")

    def replace(self, id: str, spec: SubscriptionSpec, *, expected: int | None = None) -> Subscription:
        """Give a subscription another specification; see `Registry.replace`."""
        body, headers = spec.to_json(), _if_match(expected)
        return self._one(self._ask("PUT", path_of(id), body=body, headers=headers, id=id, spec=spec))

    def change(self, id: str, patch: Mapping[str, Any], *, expected: int | None = None) -> Subscription:
        """Change some fields by a JSON merge patch; see `Registry.change`."""
        headers = {**_if_match(expected), "Content-Type": "application/merge-patch+json"}
        answer = self._exchange.ask("PATCH", path_of(id), body=dict(patch), headers=headers)
        spec = None
        if answer.status == _INVALID:  # to show its selector, the dialect is needed too
            spec = self.get(id).spec
            text, dialect = patch.get("selector", spec.selector), patch.get("dialect", spec.dialect)
            spec = replace(spec, selector=str(text), dialect=str(dialect))
        return self._one(self._checked(answer, id=id, spec=spec))

    def remove(self, id: str, *, expected: int | None = None) -> Subscription:
        """Remove a subscription; see `Registry.remove`."""
        return self._one(self._ask("DELETE", path_of(id), headers=_if_match(expected), id=id))

    def pause(self, id: str, *, expected: int | None = None) -> Subscription:
        """Stop a subscription's messages; see `Registry.pause`."""
        return self._one(self._ask("POST", f"{path_of(id)}:pause", headers=_if_match(expected), id=id))

    def resume(self, id: str, *, from_: From = "latest", expected: int | None = None) -> Resumed:
        """Let a paused subscription have messages again; see `Registry.resume`."""
        body, headers = {"from": from_}, _if_match(expected)
        answer = self._ask("POST", f"{path_of(id)}:resume", body=body, headers=headers, id=id)
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
        answer = self._exchange.ask("POST", f"{PATH}:batch", body=body, headers=_key(idempotency))

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
            f"{PATH}:import", sent, params={"mode": mode}, timeout_seconds=BULK_SECONDS
        )
        return self._read(
            self._checked(answer, several=ImportLineError, asked=sent.spec),
            lambda data: Imported(int(data["rows"]), int(data["revision"])),
        )

    def note_query(self, query: str, *, source: str, can_replay: bool, reason: str | None = None) -> None:
        """Make a query known; see `Registry.note_query`."""
        body = {"source": source, "can_replay": can_replay, "reason": reason}
        self._ask("POST", f"/v1/queries/{quote(query, safe='')}", body=body)

    def queries(self) -> list[Backfill]:
        """The queries that are known; see `Registry.queries`. Needs the token of a job."""
        answer = self._ask("GET", "/v1/queries")
        return self._read(answer, lambda data: [Backfill(**one) for one in data["items"]])

    def note_batch(self, query: str, batch: int, revision: int) -> None:
        """Say that a batch of a query was delivered by a revision; see `Registry.note_batch`."""
        body = {"batch": batch, "revision": revision}
        self._ask("POST", f"/v1/queries/{quote(query, safe='')}/batches", body=body)

    # ---- tokens

    def add_token(
        self,
        role: str,
        *,
        topics: Iterable[str] = (),
        queues: Iterable[str] = (),
        kafka: Iterable[str] = (),
        name: str | None = None,
    ) -> tuple[Token, str]:
        """Make a token; see `Registry.add_token`. Needs an admin's token. If the answer is lost and it is
        asked again, there are two of them, one of which nobody has the secret of.
        """
        body: dict[str, Any] = {"role": role, "topics": [*topics], "name": name}
        patterns = {"queues": [*queues], "kafka": [*kafka]}
        body |= {field: given for field, given in patterns.items() if given}  # as before without them
        answer = self._ask("POST", "/v1/tokens", body=body)
        return self._read(answer, lambda data: (Token.from_json(data), str(data["secret"])))

    def tokens(self) -> list[Token]:
        """All tokens. Needs an admin's token."""
        answer = self._ask("GET", "/v1/tokens")
        return self._read(answer, lambda data: [*map(Token.from_json, data["items"])])

    def revoke_token(self, id: str) -> None:
        """Revoke a token. Needs an admin's token. Raises `NotFoundError`."""
        self._ask("DELETE", f"/v1/tokens/{quote(id, safe='')}")


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
