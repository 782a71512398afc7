"""Cursors: where the next page begins, as text that means nothing to who carries it."""

from __future__ import annotations

import base64
from typing import Final

from selectroute.registry.errors import InvalidSpecError

_VERSION: Final = "1"


def cursor_of(*parts: str) -> str:
    """Return a cursor of letters, digits, ``-`` and ``_``; only the last part may have dots."""
    return base64.urlsafe_b64encode(".".join((_VERSION, *parts)).encode()).decode().rstrip("=")


def read_cursor(cursor: str, parts: int) -> list[str]:
    """Return the parts of a cursor. Raises `InvalidSpecError` for what is none."""
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        version, *found = base64.urlsafe_b64decode(padded.encode()).decode().split(".", parts)
    except (ValueError, UnicodeError):
        raise no_cursor() from None
    if version != _VERSION or len(found) != parts:
        raise no_cursor()
    return found


def no_cursor() -> InvalidSpecError:
    """Return the error of a cursor that was not given here."""
    return InvalidSpecError("/cursor", "not a cursor of this registry; begin again without one")
