"""Object stores: S3 and what speaks it, Google Cloud Storage, Azure Blob Storage and Data Lake, by obstore.

Credentials and settings come from where the vendors' own tools look: environment variables (``AWS_…``,
``GOOGLE_…``, ``AZURE_…``), the identity of a machine or pod, and for S3 with ``boto3`` the profiles of
``~/.aws``. They are never in a URL, and each worker finds its own.

Two conditions of a store carry everything: a write under the condition that the key does not exist
(``If-None-Match: *``), and one that it still has a version (``If-Match``). Both are part of the stores' APIs:
S3 since 2024, GCS by generations, Azure by ETags.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Final, TypeVar

from selectroute.extras import the_extra
from selectroute.selector.errors import SelectRouteError
from selectroute.storage.protocol import (
    ChangedError,
    DeniedError,
    Entry,
    NoBucketError,
    StorageError,
    UnreachableError,
)

_RETRY_SECONDS: Final = 10
"""Time for which the client itself tries again; after it the caller decides, who can say so."""

_ASK_SECONDS: Final = 2.0
_PAUSE_SECONDS: Final = 0.2

Result = TypeVar("Result")

_S3: Final = re.compile(r"s3a?:")
_GCS: Final = re.compile(r"gs:")
_ENDPOINTS: Final = {
    "s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"),
    "azure": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
}
"""Variables with the URL of a server other than the vendor's."""

_STATUS: Final = re.compile(r"status code: (\d{3})")
_CODE: Final = re.compile(r"<Code>(\w+)</Code>")
_OF_MACHINE: Final = "http://169.254."
"""Where a client that was given no credentials asks for those of its machine, at every provider."""
_NO_CREDENTIALS: Final = re.compile(r"(?i)credential|token request")

_CAUSES: Final = {
    "NoSuchBucket": (NoBucketError, "the bucket does not exist"),
    "ContainerNotFound": (NoBucketError, "the container does not exist"),
    "ExpiredToken": (DeniedError, "the credentials have expired"),
    "TokenRefreshRequired": (DeniedError, "the credentials have expired"),
    "RequestTimeTooSkewed": (
        StorageError,
        "the clock of this machine is wrong, and the storage rejects its requests",
    ),
}
"""What a store's code of an error means."""


@dataclass(frozen=True, slots=True)
class ObjectStorage:
    """Bucket or container; see `Storage`. Keys are those of the store, and folders their prefixes.

    ``root`` is its URL, such as ``s3://bucket``.
    """

    root: str

    local: ClassVar[bool] = False
    """False: a key is not a path."""

    def url(self, key: str) -> str:
        """Return the URL of a key."""
        return f"{self.root}/{key}" if key else self.root

    def read(self, key: str) -> bytes:
        """Return an object."""
        return self._asked(key, lambda: bytes(self._store.get(key).bytes()))

    def read_range(self, key: str, start: int, length: int) -> bytes:
        """Return a part of an object."""
        if length <= 0:
            return b""
        return self._asked(key, lambda: bytes(self._store.get_range(key, start=start, length=length)))

    def read_version(self, key: str) -> tuple[bytes, str]:
        """Return an object, and its ETag or generation."""

        def once() -> tuple[bytes, str]:
            answer = self._store.get(key)
            return bytes(answer.bytes()), _version(answer.meta)

        return self._asked(key, once)

    def put(self, key: str, data: bytes) -> None:
        """Write an object."""
        with self._writing(key):
            self._store.put(key, data)

    def put_new(self, key: str, data: bytes) -> None:
        """Write an object under the condition that there is none."""
        try:
            with self._writing(key):
                self._store.put(key, data, mode="create", use_multipart=False)
        except FileExistsError:
            # The answer to an earlier try may have been lost: the client sends the same request again.
            if self.read(key) != data:
                raise

    def replace(self, key: str, data: bytes, version: str) -> str:
        """Write an object under the condition that it still has this version."""
        try:
            with self._writing(key):
                return _version(self._store.put(key, data, mode=json.loads(version), use_multipart=False))
        except ChangedError:
            try:
                present, newer = self.read_version(key)
            except FileNotFoundError:
                present, newer = b"", ""
            if present != data:
                raise
            return newer

    def entries(self, folder: str, *, deep: bool = False) -> Iterator[Entry]:
        """Yield the objects whose keys begin with the folder's, by key."""
        prefix = f"{folder}/" if folder else None

        def once() -> list[Entry]:
            if not deep:
                return [*map(_entry, self._store.list_with_delimiter(prefix)["objects"])]
            return [_entry(meta) for chunk in self._store.list(prefix) for meta in chunk]

        return iter(self._asked(folder, once))

    def folders(self, folder: str) -> list[str]:
        """Return the names of the prefixes that end at the next slash."""
        prefix = f"{folder}/" if folder else None
        prefixes = self._asked(folder, lambda: self._store.list_with_delimiter(prefix)["common_prefixes"])
        return sorted(prefix.rstrip("/").rpartition("/")[2] for prefix in prefixes)

    def entry(self, key: str) -> Entry | None:
        """Return the entry of an object."""
        try:
            return self._asked(key, lambda: _entry(self._store.head(key)))
        except FileNotFoundError:
            return None

    def delete(self, key: str) -> None:
        """Delete an object."""
        try:
            with self._writing(key):
                self._store.delete(key)
        except FileNotFoundError:
            return

    def delete_folder(self, folder: str) -> None:
        """Delete all objects whose keys begin with the folder's, a thousand with each request."""
        keys = [entry.key for entry in self.entries(folder, deep=True)]
        for start in range(0, len(keys), 1_000):
            with self._writing(folder):
                self._store.delete(keys[start : start + 1_000])

    def make_folder(self, folder: str) -> None:
        """Do nothing: a folder is there when it has an object."""

    def upload(self, path: Path, key: str) -> None:
        """Write an object from a file, in parts if it is large."""
        with self._writing(key):
            self._store.put(key, path)

    def download(self, key: str, path: Path) -> None:
        """Write an object to a file, a few MiB at a time."""
        with self._reading(key), open(path, "xb") as file:
            for chunk in self._store.get(key).stream():
                file.write(chunk)

    @property
    def _store(self) -> Any:
        return _opened(self.root, os.getpid())

    def _asked(self, key: str, ask: Callable[[], Result]) -> Result:
        """Return the answer to a question. An answer that breaks off is asked for again, which the client
        does not do by itself.
        """
        until = time.monotonic() + _ASK_SECONDS
        while True:
            try:
                with self._reading(key):
                    return ask()
            except UnreachableError:
                if time.monotonic() >= until:
                    raise
                time.sleep(_PAUSE_SECONDS)

    def _reading(self, key: str) -> Any:
        return _as_ours("read", self.url(key))

    def _writing(self, key: str) -> Any:
        return _as_ours("written", self.url(key))


def _entry(meta: Any) -> Entry:
    return Entry(str(meta["path"]), int(meta["size"]), meta["last_modified"].timestamp())


def _version(meta: Any) -> str:
    return json.dumps({name: meta[name] for name in ("e_tag", "version") if meta.get(name)})


def _client(url: str) -> Any:
    """Return the package that speaks to stores. Raises StorageError if it is not installed."""
    try:
        import obstore.exceptions
        import obstore.store
    except ImportError as error:
        raise StorageError(f"{url} needs {the_extra('storage')}") from error
    return obstore


@lru_cache(maxsize=64)
def _opened(root: str, process: int) -> Any:
    """Return the client of a bucket for this process; its threads do not survive a fork."""
    from_url = _client(root).store.from_url
    options: dict[str, Any] = {
        "retry_config": {"max_retries": 5, "retry_timeout": timedelta(seconds=_RETRY_SECONDS)},
        "client_options": {"connect_timeout": timedelta(seconds=5), "timeout": timedelta(seconds=60)},
    }
    options["client_options"]["allow_http"] = _may_lack_tls(root)
    if _S3.match(root):
        if endpoint := _endpoint(root):
            options["endpoint"] = endpoint
        if (provider := _profile()) is not None:
            options["credential_provider"] = provider
    try:
        return from_url(root.replace("s3a://", "s3://"), **options)
    except Exception as error:
        cause = _line(error)
        if cause == "Account must be specified":
            cause = "no storage account is named: set AZURE_STORAGE_ACCOUNT_NAME"
        raise StorageError(f"{root} can't be opened: {cause}") from error


def delta_options(url: str) -> dict[str, str]:
    """Return what Delta's library, which reads the environment itself, does not find there.

    Raises:
        StorageError: there is a profile in ``~/.aws``, and its credentials can't be read.
    """
    options: dict[str, str] = {"allow_http": "true"} if _may_lack_tls(url) else {}
    if not _S3.match(url):
        return options
    options["conditional_put"] = "etag"
    if (provider := _profile()) is not None:
        try:
            credentials = provider()
        except Exception as error:
            raise StorageError(f"{url}: no credentials were found: {error}") from error
        names = {
            "access_key_id": "aws_access_key_id",
            "secret_access_key": "aws_secret_access_key",
            "token": "aws_session_token",
        }
        options |= {names[name]: str(credentials[name]) for name in names if credentials.get(name)}
    return options


def _endpoint(url: str) -> str:
    """Return the URL of a server other than Amazon's or Microsoft's; empty for theirs."""
    names = _ENDPOINTS["s3" if _S3.match(url) else "azure"]
    return next(filter(None, map(os.environ.get, names)), "")


def _may_lack_tls(url: str) -> bool:
    """Return whether requests may go to a server without TLS: one that the user has named so.

    The URL of another server than Google's is in a file of credentials; the client uses none but that.
    """
    return bool(_GCS.match(url)) or _endpoint(url).startswith("http://")


def _profile() -> Any | None:
    """Return the credentials of a profile of ``~/.aws``; None without one, or if the environment has some."""
    if "AWS_ACCESS_KEY_ID" in os.environ or "AWS_WEB_IDENTITY_TOKEN_FILE" in os.environ:
        return None
    files = (("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials"), ("AWS_CONFIG_FILE", "~/.aws/config"))
    if not any(os.path.exists(os.path.expanduser(os.environ.get(name, path))) for name, path in files):
        return None
    try:
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError as error:
        raise StorageError(f"the profiles of ~/.aws need {the_extra('storage')}") from error
    return Boto3CredentialProvider()


@contextmanager
def _as_ours(what: str, url: str) -> Iterator[None]:
    """Raise the client's errors as ours. ``what`` is what could not be done, such as ``read``."""
    they = _client(url).exceptions
    try:
        yield
    except (SelectRouteError, OSError) as error:
        if not isinstance(error, FileNotFoundError):
            raise
        if (known := known_error(str(error), f"{url} can't be {what}")) is not None:
            raise known from error
        raise FileNotFoundError(2, "no such file", url) from error
    except they.AlreadyExistsError as error:
        raise FileExistsError(17, "file exists", url) from error
    except they.PreconditionError as error:
        raise ChangedError(f"{url} was changed by another process") from error
    except they.NotSupportedError as error:
        raise StorageError(f"{url} can't be {what}: the storage lacks conditional writes") from error
    except they.BaseError as error:
        raise _named(error, what, url) from error


def _named(error: Exception, what: str, url: str) -> StorageError:
    from obstore import exceptions as they

    text = str(error)
    if (known := known_error(text, f"{url} can't be {what}")) is not None:
        return known
    missing = DeniedError(f"{url} can't be {what}: no credentials were found")
    if _OF_MACHINE in text:  # whatever was answered there
        return missing
    status = _STATUS.search(text)
    refused = status is not None and status[1] in ("401", "403")  # of a listing, and of many at once
    if refused or isinstance(error, they.PermissionDeniedError | they.UnauthenticatedError):
        return DeniedError(f"{url} can't be {what}: the credentials do not allow it")
    if _NO_CREDENTIALS.search(text):
        return missing
    if status is not None and status[1].startswith("4") and status[1] not in ("408", "429"):
        return StorageError(f"{url} can't be {what}: {_line(error)}")
    cause = f"HTTP status {status[1]}" if status is not None else _line(error)
    return UnreachableError(f"{url} can't be {what}: the storage does not answer ({cause})")


def known_error(answer: str, failed: str) -> StorageError | None:
    """Return the error whose code is in an answer of a store, with its cause after what ``failed``; None if
    the answer has no code whose meaning is known.
    """
    code = _CODE.search(answer)
    if code is None or code[1] not in _CAUSES:
        return None
    kind, cause = _CAUSES[code[1]]
    return kind(f"{failed}: {cause}")


def _line(error: Exception) -> str:
    """Return the first line of a client's error, without the request."""
    line = str(error).strip().partition("\n")[0].partition("<?xml")[0].strip().rstrip(":")
    return re.sub(r"^Generic \w+ error: ", "", line)[:300]
