"""Storage that is waited for: what can't be read or written now is tried again until it can."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

from selectroute.storage.errors import DeniedError, StorageError, UnreachableError
from selectroute.storage.location import Location
from selectroute.storage.protocol import Entry, Storage

Result = TypeVar("Result")

WAITED_FOR: Final = (DeniedError, UnreachableError)
"""Errors of storage that may pass."""

_RETRY_SECONDS: Final = 0.5


class OutageWarning:
    """Warning of an outage, given once for all calls that meet it; it ends when none has failed for a while.

    Args:
        warn: called with a sentence.
        quiet_seconds: time without a failure after which another one is another outage.
        clock: returns seconds.
    """

    def __init__(
        self,
        warn: Callable[[str], None],
        quiet_seconds: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._warn = warn
        self._quiet_seconds = quiet_seconds
        self._clock = clock
        self._guard = threading.Lock()
        self._failed: float | None = None

    def __call__(self, text: str) -> None:
        """Note a failure; warn with this sentence if it is the first of an outage."""
        with self._guard:
            now = self._clock()
            is_known = self._failed is not None and now - self._failed < self._quiet_seconds
            self._failed = now
        if not is_known:
            self._warn(text)


@dataclass(frozen=True, slots=True)
class PatientStorage:
    """Storage that does not answer, or whose credentials have expired, is asked again; see `Storage`.

    Attributes:
        storage: the storage.
        warn: called with a sentence after each try that failed; see `OutageWarning`.
        pause: waits some time; returns whether to give up, and then the error is raised.
        errors: the errors after which it is asked again.
    """

    storage: Storage
    warn: Callable[[str], None] = field(compare=False)
    pause: Callable[[], bool] = field(compare=False)
    errors: tuple[type[StorageError], ...] = field(default=WAITED_FOR, compare=False)

    @property
    def local(self) -> bool:
        """True if keys are paths of this machine."""
        return self.storage.local

    def url(self, key: str) -> str:
        """Return the URL of a key."""
        return self.storage.url(key)

    def read(self, key: str) -> bytes:
        """Return a file."""
        return self.wait_for(lambda: self.storage.read(key))

    def read_range(self, key: str, start: int, length: int) -> bytes:
        """Return a part of a file."""
        return self.wait_for(lambda: self.storage.read_range(key, start, length))

    def read_version(self, key: str) -> tuple[bytes, str]:
        """Return a file and its version."""
        return self.wait_for(lambda: self.storage.read_version(key))

    def put(self, key: str, data: bytes) -> None:
        """Write a file."""
        self.wait_for(lambda: self.storage.put(key, data))

    def put_new(self, key: str, data: bytes) -> None:
        """Write a file that does not exist."""
        self.wait_for(lambda: self.storage.put_new(key, data))

    def replace(self, key: str, data: bytes, version: str) -> str:
        """Replace a version of a file."""
        return self.wait_for(lambda: self.storage.replace(key, data, version))

    def entries(self, folder: str, *, deep: bool = False) -> Iterator[Entry]:
        """Yield the files in a folder; a listing that fails begins again."""
        return iter(self.wait_for(lambda: [*self.storage.entries(folder, deep=deep)]))

    def folders(self, folder: str) -> list[str]:
        """Return the names of the sub-folders."""
        return self.wait_for(lambda: self.storage.folders(folder))

    def entry(self, key: str) -> Entry | None:
        """Return the entry of a file."""
        return self.wait_for(lambda: self.storage.entry(key))

    def delete(self, key: str) -> None:
        """Delete a file."""
        self.wait_for(lambda: self.storage.delete(key))

    def delete_folder(self, folder: str) -> None:
        """Delete a folder."""
        self.wait_for(lambda: self.storage.delete_folder(folder))

    def make_folder(self, folder: str) -> None:
        """Make a folder."""
        self.wait_for(lambda: self.storage.make_folder(folder))

    def upload(self, path: Path, key: str) -> None:
        """Write a file of this machine."""
        self.wait_for(lambda: self.storage.upload(path, key))

    def download(self, key: str, path: Path) -> None:
        """Write a file to one of this machine."""

        def once() -> None:
            path.unlink(missing_ok=True)
            self.storage.download(key, path)

        self.wait_for(once)

    def wait_for(self, call: Callable[[], Result]) -> Result:
        """Return what a call returns, when the storage answers."""
        while True:
            try:
                return call()
            except self.errors as error:
                self.warn(f"{error}: the stream waits")
                if self.pause():
                    raise


def patient(location: Location, warn: Callable[[str], None], pause: Callable[[], bool]) -> Location:
    """Return the same location, which is waited for; a local one is returned unchanged."""
    if location.is_local:
        return location
    return Location(PatientStorage(location.storage, warn, pause), location.key)


def waiting(location: Location, call: Callable[[], Result]) -> Result:
    """Return what a call returns that uses the storage of a location by other means, such as another library:
    it is waited for as the location is. The call raises errors of storage, and may be made again.
    """
    storage = location.storage
    while not isinstance(storage, PatientStorage):
        inner = getattr(storage, "storage", None)
        if inner is None:
            return call()
        storage = inner
    return storage.wait_for(call)


def retried(location: Location, seconds: float) -> Location:
    """Return the same location, which for some seconds is asked again when it does not answer."""
    if location.is_local:
        return location
    until = time.monotonic() + seconds

    def pause() -> bool:
        time.sleep(_RETRY_SECONDS)
        return time.monotonic() > until

    return Location(
        PatientStorage(location.storage, lambda _: None, pause, (UnreachableError,)), location.key
    )
