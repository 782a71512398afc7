"""Short names for ids of 24 bytes."""

from __future__ import annotations


def id_of(name: str) -> bytes:
    """Return the 24 bytes of a short text, padded with zeros."""
    return name.encode().ljust(24, b"\0")


def hex_of(octets: bytes) -> str:
    """Return an id as selectors have it."""
    return f"ID:{octets.hex().upper()}"
