"""Headers of a request: preconditions and preferences (RFC 9110, RFC 7240), and what a body must not have."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.types import Scope

from selectroute.service.http.problems import ProblemError

Headers = Mapping[bytes, bytes]
"""Values by names in lower case; of a repeated header the first."""


class Header:
    """Mark of a parameter of a call that is a header."""


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
    """Return the media type of the body, in lower case and without parameters; empty if it is not told."""
    # As bytes, of which only white space of ASCII is stripped.
    return headers.get(b"content-type", b"").partition(b";")[0].strip().lower().decode("latin-1")


def check_json(headers: Headers) -> None:
    """Raise a problem, 415, for a body that is not JSON by its headers, or compressed."""
    kind, _, subtype = media_type_of(headers).partition("/")
    if kind != "application" or (subtype != "json" and not subtype.endswith("+json")):
        raise ProblemError("unsupported-media-type", "the body must be application/json")
    check_not_encoded(headers)


def check_utf8(headers: Headers) -> None:
    """Raise a problem, 415, for a body in another character set than UTF-8, by its Content-Type."""
    for parameter in headers.get(b"content-type", b"").split(b";")[1:]:
        name, _, value = parameter.partition(b"=")
        is_charset = name.strip().lower() == b"charset"
        if is_charset and value.strip().strip(b'"').lower() not in (b"utf-8", b"utf8"):
            raise ProblemError(
                "unsupported-media-type", "the charset of a body must be utf-8", place="Content-Type"
            )


def check_not_encoded(headers: Headers) -> None:
    """Raise a problem, 415, for a compressed body: a small one could decompress to any size."""
    if headers.get(b"content-encoding", b"identity").strip().lower() != b"identity":
        raise ProblemError(
            "unsupported-media-type", "a body must not have a Content-Encoding", place="Content-Encoding"
        )
