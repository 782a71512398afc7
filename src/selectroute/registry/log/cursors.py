"""Cursors: start of the next page, as text that is opaque to clients."""

from __future__ import annotations

import base64
from typing import Final

from selectroute.index.errors import InvalidSpecError

_VERSION: Final = "1"


def cursor_of(*parts: str) -> str:
    """Return a cursor of letters, digits, ``-`` and ``_``; only the last part may have dots."""
    return base64.urlsafe_b64encode(".".join((_VERSION, *parts)).encode()).decode().rstrip("=")


def read_cursor(cursor: str, parts: int) -> list[str]:
    """Return the parts of a cursor. Raises `InvalidSpecError` for text that is not a cursor."""
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        version, *found = base64.urlsafe_b64decode(padded.encode()).decode().split(".", parts)
    except (ValueError, UnicodeError):
        raise no_cursor() from None
    if version != _VERSION or len(found) != parts:
        raise no_cursor()
    return found


def no_cursor() -> InvalidSpecError:
    """Return the error of a cursor that this registry did not issue."""
    return InvalidSpecError("/cursor", "not a cursor of this registry; begin again without one")
