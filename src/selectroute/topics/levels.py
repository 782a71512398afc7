"""Properties that are derived from a message's topic string."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from selectroute.selector.values.values import Long, Value

TOPIC = "@topic"
LEVELS = "@topic.levels"

_LEVEL = re.compile(r"@topic\[(-?\d+)\]")


def level_name(position: int) -> str:
    """Return the property of one level: 0, 1, … from the front, -1, -2, … from the end."""
    return f"{TOPIC}[{position}]"


@dataclass(frozen=True, slots=True)
class Derivation:
    """Derivation of a property from the topic: a level's position, or ``None`` for their number."""

    position: int | None

    def of(self, levels: list[str]) -> Value | None:
        """Return the property's value for the levels of a topic string."""
        if self.position is None:
            return Long(len(levels))
        inside = -len(levels) <= self.position < len(levels)
        return levels[self.position] if inside else None


@lru_cache(maxsize=1_024)
def derivation(name: str) -> Derivation | None:
    """Return the derivation of a property; ``None`` if it is not derived (``@topic``, an identifier)."""
    if name == LEVELS:
        return Derivation(None)
    found = _LEVEL.fullmatch(name)
    return Derivation(int(found[1])) if found else None


def level_value(name: str, topic: str | None) -> Value | None:
    """Return the value of ``@topic`` or of a property derived from it, ``None`` (NULL) without a topic.
    O(len(topic)).

    >>> level_value("@topic[1]", "cars/eu")
    'eu'
    """
    derived = derivation(name)
    if derived is None or topic is None:
        return topic
    return derived.of(topic.split("/"))
