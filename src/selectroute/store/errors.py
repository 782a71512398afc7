"""Errors of a store: the database's messages, classified by what the caller can do about them."""

from __future__ import annotations

from selectroute.selector.errors import SelectRouteError


class StoreError(SelectRouteError):
    """Base of the errors of a store; raised itself for a database error of no class below."""


class UnavailableError(StoreError):
    """Database that is unreachable, or not reached in time; a retry may succeed. Nothing was stored."""


class BusyError(UnavailableError):
    """Database held by another writer for longer than the timeout. Nothing was stored."""


class ReadOnlyError(UnavailableError):
    """Database that cannot be written: the disk is full, failing or read-only. Nothing was stored."""


class OvertakenError(StoreError):
    """Change based on a state that another process has changed since. Nothing was stored."""


class DamagedError(StoreError):
    """Database that does not hold the data that was written; the message says where."""


class InvalidUrlError(StoreError):
    """URL that does not name a supported database."""


class NoDatabaseError(InvalidUrlError):
    """Missing database: none at this URL, or one without these tables."""


class ReplacedError(UnavailableError):
    """Database file that was removed or replaced after it was opened: writes would be lost."""
