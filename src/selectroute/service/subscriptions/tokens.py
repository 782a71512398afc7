"""Calls on tokens. Only for an admin without limits: a new token may have any permission."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field
from starlette.responses import Response

from selectroute.registry.errors import NotFoundError
from selectroute.registry.model import Items, plain
from selectroute.registry.role import NewToken, Token
from selectroute.selector.sentences import printable
from selectroute.service.context import Service
from selectroute.service.http.call import JsonAnswer
from selectroute.service.http.callers import Caller
from selectroute.service.http.models import TokenBody
from selectroute.service.http.problems import ProblemError

PATH: Final = "/v1/tokens"

_TOKENS: Final = "creating and revoking tokens needs an admin's token"


def create(service: Service, by: Caller, body: TokenBody) -> Annotated[Response, NewToken]:
    """Create a token. Its secret is only in this response. After the first, which must be an admin's, every
    caller needs a token. Needs a token for all topics and destinations, as do all calls on tokens.
    """
    by.check_unlimited(_TOKENS)
    if body.role != "admin" and not service.registry.tokens.had_any():
        sentence = (
            "the first token of a registry must be an admin's: from then on every caller needs a token, and "
            "only an admin can create one"
        )
        raise ProblemError("invalid-request", sentence, place="/role")
    token, secret = service.registry.tokens.add(**body.model_dump(), by=by.permission)
    service.callers.tokens_needed = True  # at once, before the next check of the registry
    return JsonAnswer({**plain(token), "secret": secret}, 201, {"Location": f"{PATH}/{token.id}"})


def listed(service: Service, by: Caller) -> Items[Token]:
    """Return all tokens, without their secrets."""
    by.check_unlimited(_TOKENS)
    return Items([*service.registry.tokens.all()])


def revoke(
    service: Service, by: Caller, token: Annotated[str, Field(max_length=128, description="A token's id.")]
) -> Response:
    """Revoke a token at once. The registry still requires tokens after the last one is revoked."""
    by.check_unlimited(_TOKENS)
    try:
        service.registry.tokens.revoke(token, by=by.permission)
    except NotFoundError:
        raise ProblemError("not-found", f"there is no token {printable(token, 128)!r}") from None
    return Response(status_code=204)
