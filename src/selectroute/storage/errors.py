"""Errors of storage. A missing file is a FileNotFoundError, one that exists already a FileExistsError."""

from __future__ import annotations

from selectroute.selector.errors import SelectRouteError


class StorageError(SelectRouteError, OSError):
    """Storage that can't be used, as one sentence that names the URL."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class UnknownSchemeError(StorageError):
    """URL with a scheme that is not known, or without what its scheme needs, such as a bucket."""


class NoBucketError(StorageError):
    """Bucket or container that does not exist."""


class ChangedError(StorageError):
    """File that was changed, or removed, since the version that was to be replaced."""


class DeniedError(StorageError):
    """Credentials that are missing, have expired, or do not allow the action."""


class UnreachableError(StorageError):
    """Storage that does not answer, or answers with an error of its own. Later it may answer."""
