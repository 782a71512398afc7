"""Digests of rows: alone, or chained so that each one vouches for all rows before it."""

from __future__ import annotations

import hashlib

START = bytes(32)
"""Digest that the first row of a chain is chained to."""


def canonical(*fields: str | int | None) -> bytes:
    """Encode fields unambiguously for a digest: each text with its length; NULL differs from the empty text.

    >>> canonical("add", None, 7)
    b'3:add-1:7'
    """
    parts = [
        "-" if field is None else f"{len(text := field if type(field) is str else str(field))}:{text}"
        for field in fields
    ]
    return "".join(parts).encode(errors="surrogatepass")


def row_digest(*fields: str | int | None) -> bytes:
    """Return the SHA-256 of a row without a chain, 32 bytes."""
    return hashlib.sha256(canonical(*fields)).digest()


def chained(previous: bytes, *fields: str | int | None) -> bytes:
    """Return the SHA-256 of a row that follows the row with the digest `previous`, 32 bytes."""
    return hashlib.sha256(previous + canonical(*fields)).digest()
