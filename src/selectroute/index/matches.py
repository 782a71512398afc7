"""Matches of a message as data, as a snapshot, a service and its client return them. Loads no kernel."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Condition:
    """Condition of a selector: its text, its truth, and the values that it read. `void` makes the whole
    selector false.
    """

    text: str
    truth: Literal["true", "false", "unknown", "void"]
    saw: list[str]


@dataclass(frozen=True, slots=True)
class NearMiss:
    """Subscription that misses the message by one of these conditions."""

    id: str
    topic: str | None
    selector: str
    conditions: list[Condition]


@dataclass(frozen=True, slots=True)
class MatchedSubscriptions:
    """Subscriptions that get a message at a revision, `total` of them; `refused` were not evaluated.

    `near` and `near_complete` are present on request: the subscriptions that fail only one condition, and
    whether the list is complete.
    """

    revision: int | None
    total: int
    ids: list[str]
    refused: list[str]
    near: list[NearMiss] | None = None
    near_complete: bool | None = None

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        left_out = () if self.near is not None else ("near", "near_complete")
        return {name: value for name, value in asdict(self).items() if name not in left_out}
