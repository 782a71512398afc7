"""Storage that is waited for: what can't be read or written now is tried again until it can."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from selectroute.storage.location import Location
from selectroute.storage.protocol import DeniedError, Result, StorageError, UnreachableError, WrappedStorage

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
class PatientStorage(WrappedStorage):
    """Storage that does not answer, or whose credentials have expired, is asked again; see `Storage`.

    Attributes:
        warn: called with a sentence after each try that failed; see `OutageWarning`.
        pause: waits some time; returns whether to give up, and then the error is raised.
        errors: the errors after which it is asked again.
    """

    warn: Callable[[str], None] = field(compare=False)
    pause: Callable[[], bool] = field(compare=False)
    errors: tuple[type[StorageError], ...] = field(default=WAITED_FOR, compare=False)

    def ask(self, call: Callable[[], Result]) -> Result:
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
    while isinstance(storage, WrappedStorage):
        if isinstance(storage, PatientStorage):
            return storage.ask(call)
        storage = storage.storage
    return call()


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
