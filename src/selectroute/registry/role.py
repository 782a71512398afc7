"""Roles of tokens and of callers of a service."""

from __future__ import annotations

from enum import StrEnum


class Role(StrEnum):
    """Rights of a caller; each role may do what the one before it may."""

    reader = "reader"
    writer = "writer"
    admin = "admin"

    def includes(self, needed: Role) -> bool:
        """Return whether this role may do what another one may.

        >>> Role.writer.includes(Role.reader), Role.writer.includes(Role.admin)
        (True, False)
        """
        order = list(Role)
        return order.index(self) >= order.index(needed)
