"""Roles of callers of a service, and tokens without their secrets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from selectroute.registry.model import time_of, time_text


class Role(StrEnum):
    """Role of a caller; each role includes the rights of the previous one."""

    reader = "reader"
    writer = "writer"
    admin = "admin"

    def includes(self, needed: Role) -> bool:
        """Return whether this role includes the rights of another one.

        >>> Role.writer.includes(Role.reader), Role.writer.includes(Role.admin)
        (True, False)
        """
        return _RANK[self] >= _RANK[needed]


_RANK = {role: rank for rank, role in enumerate(Role)}


@dataclass(frozen=True, slots=True)
class Token:
    """Token without its secret.

    Without topics it permits every subscription. `queues` and `kafka` are patterns of the permitted
    destinations of subscriptions: with topics but without patterns none, without all three fields any.
    """

    id: str
    name: str
    role: Role
    topics: tuple[str, ...]
    created: datetime
    queues: tuple[str, ...] = ()
    kafka: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the token as plain data."""
        return {
            "id": self.id,
            "name": self.name,
            "role": self.role.value,
            "topics": list(self.topics),
            "queues": list(self.queues),
            "kafka": list(self.kafka),
            "created": time_text(self.created),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Token:
        """Invert `to_json`; other fields are ignored. Raises KeyError, TypeError, ValueError."""
        topics, queues, kafka = (tuple(map(str, data[name])) for name in ("topics", "queues", "kafka"))
        created = time_of(data["created"])
        return cls(str(data["id"]), str(data["name"]), Role(data["role"]), topics, created, queues, kafka)
