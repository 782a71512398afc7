"""Calls on tokens. Only for an admin without limits: a new token may have any permission."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Path, Response

from selectroute.registry.authorization.role import Role
from selectroute.registry.errors import NotFoundError
from selectroute.selector.explain.sentences import printable
from selectroute.service.context import CallerDep, ServiceDep
from selectroute.service.http.endpoint import Call, JsonAnswer, call
from selectroute.service.http.models import NewTokenAnswer, TokenBody, TokensAnswer
from selectroute.service.http.problems import ProblemError

PATH: Final = "/v1/tokens"

_TOKENS: Final = "creating and revoking tokens needs an admin's token"

router = APIRouter(route_class=Call, tags=["tokens"])


@call(
    router,
    "POST",
    PATH,
    Role.admin,
    "invalid-body",
    "invalid-subscription",
    "too-large",
    "unsupported-media-type",
    "read-only",
    titles={"invalid-subscription": "A topic filter or a pattern is invalid"},
    status_code=201,
    response_model=NewTokenAnswer,
)
def create(service: ServiceDep, by: CallerDep, body: TokenBody) -> Response:
    """Create a token. Its secret is only in this response. After the first, which must be an admin's, every
    caller needs a token. Needs a token for all topics and destinations, as do all calls on tokens.
    """
    by.check_unlimited(_TOKENS)
    if body.role != "admin" and not service.registry.had_tokens():
        sentence = (
            "the first token of a registry must be an admin's: from then on every caller needs a token, and "
            "only an admin can create one"
        )
        raise ProblemError("invalid-request", sentence, place="/role")
    token, secret = service.registry.add_token(
        body.role,
        topics=body.topics,
        queues=body.queues,
        kafka=body.kafka,
        name=body.name,
        by=by.permission,
    )
    service.callers.tokens_needed = True  # at once, before the next check of the registry
    return JsonAnswer({**token.to_json(), "secret": secret}, 201, {"Location": f"{PATH}/{token.id}"})


@call(router, "GET", PATH, Role.admin, response_model=TokensAnswer)
def listed(service: ServiceDep, by: CallerDep) -> Response:
    """Return all tokens, without their secrets."""
    by.check_unlimited(_TOKENS)
    return JsonAnswer({"items": [one.to_json() for one in service.registry.tokens()]})


@call(router, "DELETE", f"{PATH}/{{token}}", Role.admin, "not-found", "read-only", status_code=204)
def revoke(
    service: ServiceDep,
    by: CallerDep,
    token: Annotated[str, Path(max_length=128, description="A token's id.")],
) -> Response:
    """Revoke a token at once. The registry still requires tokens after the last one is revoked."""
    by.check_unlimited(_TOKENS)
    try:
        service.registry.revoke_token(token, by=by.permission)
    except NotFoundError:
        raise ProblemError("not-found", f"there is no token {printable(token, 128)!r}") from None
    return Response(status_code=204)
