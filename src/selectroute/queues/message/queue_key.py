"""Sort key of a message on its queue: the lowest is delivered first."""

from __future__ import annotations

from typing import Final

URGENCY: Final = 56
"""Bits below the urgency (9 minus the priority): enough for a million arrivals a second for 2,000 years."""

ARRIVALS: Final = (1 << URGENCY) - 1
"""Mask of the arrival number in a key."""

MAX_KEY: Final = (1 << 63) - 1
"""Largest key that a database can hold."""


def queue_key_of(arrival: int, priority: int | None) -> int:
    """Return the key of the message that arrived as number `arrival`, counted from 1."""
    return arrival if priority is None else (9 - priority) << URGENCY | arrival


def queue_key_in(msg_token: bytes) -> int:
    """Return the key that a message token contains."""
    return int.from_bytes(msg_token[8:], "big")
