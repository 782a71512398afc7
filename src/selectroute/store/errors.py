"""Errors of a store: the database's own words, sorted by what can be done about them."""

from __future__ import annotations

from selectroute.selector.errors import SelectRouteError


class StoreError(SelectRouteError):
    """Base of what a store raises; by itself, a database that refuses for a reason not listed below."""


class UnavailableError(StoreError):
    """Database cannot be reached, or not in time; the same call may do later. Nothing was stored."""


class BusyError(UnavailableError):
    """Another writer held the database for longer than the timeout. Nothing was stored."""


class ReadOnlyError(UnavailableError):
    """Database takes no writes: the disk is full, fails, or may not be written. Nothing was stored."""


class DamagedError(StoreError):
    """Store does not hold what was written; the message names the place."""


class InvalidUrlError(StoreError):
    """A URL that names no database that can be used here."""


class NoDatabaseError(InvalidUrlError):
    """There is no database under this URL, or none that has these tables."""


class ReplacedError(UnavailableError):
    """Database's file is not the one that was opened: nothing that is written to it would be kept."""
