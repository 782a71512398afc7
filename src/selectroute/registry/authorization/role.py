"""Roles of tokens and of callers of a service."""

from __future__ import annotations

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
