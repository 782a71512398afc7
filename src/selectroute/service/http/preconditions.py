"""Preconditions and preferences of a request: If-Match, If-None-Match, Prefer (RFC 9110, RFC 7240)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Final

from pydantic import Field

from selectroute.service.http.headers import Header
from selectroute.service.http.problems import ProblemError

_ETAG: Final = re.compile(r'\s*(W/)?"([\x21\x23-\x7e]*)"\s*(?:,|$)')


_REVISION: Final = re.compile(r"0|[1-9]\d{0,18}")


IfMatch = Annotated[
    str | None,
    Header(),
    Field(alias="If-Match", max_length=1_000, description="The ETag that must be current."),
]


IfNoneMatch = Annotated[
    str | None,
    Header(),
    Field(alias="If-None-Match", max_length=1_000, description="ETags known to the client."),
]


Prefer = Annotated[
    str | None,
    Header(),
    Field(alias="Prefer", max_length=1_000, description="`return=minimal`: the response needs no body."),
]


IdempotencyKey = Annotated[
    str | None,
    Header(),
    Field(
        alias="Idempotency-Key",
        min_length=1,
        max_length=255,
        pattern=r"^[\x21-\x7e]+$",
        description="A repeated request with the same key gets the same response, for 24 hours.",
    ),
]


def etag(revision: int) -> str:
    """Return the ETag of a subscription with this revision.

    >>> etag(7)
    '"7"'
    """
    return f'"{revision}"'


@dataclass(frozen=True, slots=True)
class Revisions:
    """Revisions that a header names; `any` for ``*``."""

    any: bool
    numbers: frozenset[int]

    def __contains__(self, revision: int) -> bool:
        return self.any or revision in self.numbers


def revisions(header: str | None, name: str, *, weak: bool = False) -> Revisions | None:
    """Parse If-Match (strong) or If-None-Match (`weak` ETags count too); return None without a header.

    An ETag that is not a revision is ignored. Raises a problem, 400, for an invalid list of ETags.
    """
    if header is None:
        return None
    if header.strip() == "*":
        return Revisions(True, frozenset())
    numbers, at = set(), 0
    while at < len(header) or not header:
        tag = _ETAG.match(header, at)
        if tag is None:
            raise ProblemError("invalid-request", f'{name} is * or a list of ETags such as "7"', place=name)
        if _REVISION.fullmatch(tag[2]) and (weak or not tag[1]):
            numbers.add(int(tag[2]))
        at = tag.end()
    return Revisions(False, frozenset(numbers))


def is_minimal(prefer: str | None) -> bool:
    """Return whether the client prefers no body.

    >>> is_minimal('respond-async, return="minimal"')
    True
    """
    preferences = (part.split(";")[0] for part in (prefer or "").split(","))
    return any(
        preference.replace('"', "").replace(" ", "").lower() == "return=minimal" for preference in preferences
    )
