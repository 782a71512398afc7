"""Roles of callers of a service, and tokens without their secrets."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


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


@dataclass(frozen=True, slots=True, kw_only=True)
class NewToken(Token):
    """New token with its secret, which is shown only once."""

    secret: str
