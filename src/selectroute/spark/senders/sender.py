"""Protocol of senders, which deliver what an earlier release staged of a committed batch, and retries."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar

from selectroute.durable.disk import DamagedFileError
from selectroute.selector.errors import SelectRouteError

_Result = TypeVar("_Result")


class StoppingError(SelectRouteError):
    """Request to stop the job. The interrupted work is finished at the next start."""


class Sender(Protocol):
    """Sender to one kind of destination."""

    def send(
        self, batch: int, revision: int, outgoing: Mapping[str, Any], staging: Path
    ) -> list[dict[str, Any]]:
        """Deliver the staged messages of a batch, resuming after a crash.

        Return the files, in the format of a commit, with a dead letter for each refused delivery; they are in
        the staged dead letters of the batch.

        Args:
            batch: the number of the batch.
            revision: the revision that the batch was routed with.
            outgoing: the commit's record for this kind, with the ``files``.
            staging: the staging folder of the batch.

        Raises:
            StoppingError: the job is to stop before everything is delivered.
        """


def patient(
    call: Callable[[], _Result],
    reason: Callable[[Exception], str | None],
    warn: Callable[[str], None],
    pause: Callable[[], bool],
) -> _Result:
    """Retry a call until it succeeds, and return its result.

    Args:
        call: the call.
        reason: returns for an error why the stream waits; None for an error to raise.
        warn: called with a sentence, once for as long as the reason stays the same.
        pause: waits some time; returns whether the job is to stop.

    Raises:
        StoppingError: the job is to stop.
    """
    warned = ""
    while True:
        try:
            return call()
        except Exception as error:
            why = reason(error)
            if why is None:
                raise
            if why != warned:
                warn(f"{why}: the stream waits")
                warned = why
            if pause():
                raise StoppingError(f"the job stopped while it waited: {why}") from error


def shown(names: Collection[str]) -> str:
    """Return a few names and the number of the others."""
    more = len(names) - 3
    return ", ".join(sorted(names)[:3]) + (f" and {more:,} more" if more > 0 else "")


def staged_file(staging: Path, file: Mapping[str, Any]) -> Path:
    """Return the path of a staged file after a check of its digest. Raises `DamagedFileError`."""
    path: Path = staging / file["path"]
    try:
        with path.open("rb") as data:
            found = hashlib.file_digest(data, "sha256").hexdigest()
    except OSError as error:
        raise DamagedFileError(f"{path} cannot be read: {error.strerror or error}") from error
    if found != file["sha256"]:
        raise DamagedFileError(f"{path} is damaged: it was committed with another SHA-256; restore a copy")
    return path
