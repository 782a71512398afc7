"""What a place on a queue is: a number, less the earlier a message is got."""

from __future__ import annotations

from typing import Final

URGENCY: Final = 56
"""Where the urgency stands in a place, above 2^56 arrivals: a million messages a second for 2,000 years."""

ARRIVALS: Final = (1 << URGENCY) - 1
"""The arrival that is in a place."""


def place_of(arrival: int, priority: int | None) -> int:
    """Return the place of the message that arrived as number `arrival`, from 1; without priority, in that
    order.
    """
    return arrival if priority is None else (9 - priority) << URGENCY | arrival


def place_in(msg_token: bytes) -> int:
    """Return the place that a token has in it."""
    return int.from_bytes(msg_token[8:], "big")
