"""Headers of a request: If-Match, If-None-Match and Prefer (RFC 9110, RFC 7240), and those of a body."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final

from pydantic import Field
from starlette.types import Scope

from selectroute.service.http.problems import ProblemError

Headers = Mapping[bytes, bytes]
"""Values by names in lower case; of a repeated header the first."""


class Header:
    """Mark of a parameter of a call that is a header."""


def _field(name: str, description: str, **bounds: Any) -> Any:
    return Field(alias=name, description=description, **{"max_length": 1_000, **bounds})


def request_headers(scope: Scope) -> Headers:
    """Return the headers of a request; they are read once."""
    state = scope["state"]
    if "headers" not in state:
        state["headers"] = dict(reversed(scope["headers"]))
    headers: Headers = state["headers"]
    return headers


def header_text(headers: Headers, name: bytes) -> str | None:
    """Return the value of a header; None without it."""
    value = headers.get(name)
    return None if value is None else value.decode("latin-1")


def media_type_of(headers: Headers) -> str:
    """Return the media type of the body, in lower case and without parameters; empty without the header."""
    # As bytes, of which only white space of ASCII is stripped.
    return headers.get(b"content-type", b"").partition(b";")[0].strip().lower().decode("latin-1")


def check_json(headers: Headers) -> None:
    """Raise a problem, 415, for a body that is not JSON by its headers, or compressed."""
    kind, _, subtype = media_type_of(headers).partition("/")
    if kind != "application" or (subtype != "json" and not subtype.endswith("+json")):
        raise _unsupported("the body must be application/json")
    check_not_encoded(headers)


def check_utf8(headers: Headers) -> None:
    """Raise a problem, 415, for a body in another character set than UTF-8, by its Content-Type."""
    for parameter in headers.get(b"content-type", b"").split(b";")[1:]:
        name, _, value = parameter.partition(b"=")
        is_charset = name.strip().lower() == b"charset"
        if is_charset and value.strip().strip(b'"').lower() not in (b"utf-8", b"utf8"):
            raise _unsupported("the charset of a body must be utf-8", place="Content-Type")


def check_not_encoded(headers: Headers) -> None:
    """Raise a problem, 415, for a compressed body: a small one could decompress to any size."""
    if headers.get(b"content-encoding", b"identity").strip().lower() != b"identity":
        raise _unsupported("a body must not have a Content-Encoding", place="Content-Encoding")


def _unsupported(detail: str, place: str | None = None) -> ProblemError:
    return ProblemError("unsupported-media-type", detail, place=place)


_ETAG: Final = re.compile(r'\s*(W/)?"([\x21\x23-\x7e]*)"\s*(?:,|$)')
_REVISION: Final = re.compile(r"0|[1-9]\d{0,18}")

IfMatch = Annotated[str | None, Header(), _field("If-Match", "The ETag that must be current.")]
IfNoneMatch = Annotated[str | None, Header(), _field("If-None-Match", "ETags known to the client.")]
Prefer = Annotated[str | None, Header(), _field("Prefer", "`return=minimal`: the response needs no body.")]

_REPEATED: Final = "A repeated request with the same key gets the same response, for 24 hours."
IdempotencyKey = Annotated[
    str | None,
    Header(),
    _field("Idempotency-Key", _REPEATED, min_length=1, max_length=255, pattern=r"^[\x21-\x7e]+$"),
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
    plain = (preference.replace('"', "").replace(" ", "").lower() for preference in preferences)
    return "return=minimal" in plain
