"""Handing on what a committed batch has staged for destinations outside the output folder."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar

from selectroute.durable.disk import DamagedFileError
from selectroute.selector.errors import SelectRouteError

_Result = TypeVar("_Result")


class StoppingError(SelectRouteError):
    """Error: the job was told to stop. What it was doing is finished at the next start."""


class Sender(Protocol):
    """Hands on what goes to one kind of destination."""

    def send(
        self, batch: int, revision: int, outgoing: Mapping[str, Any], staging: Path
    ) -> list[dict[str, Any]]:
        """Hand on what a batch has staged, going on from where a crash may have left it.

        Returns the files, as a commit has them, with a dead letter for each delivery that could not be handed
        on any more; they are then where ``staging`` has the batch's dead letters.

        Args:
            batch: its number.
            revision: the revision against which it was routed.
            outgoing: what its commit says of this kind, with the ``files``.
            staging: its staging folder.

        Raises:
            StoppingError: the job was told to stop before all was done.
        """


def patient(
    call: Callable[[], _Result],
    reason: Callable[[Exception], str | None],
    warn: Callable[[str], None],
    pause: Callable[[], bool],
) -> _Result:
    """Call until it succeeds, and return what it returns.

    Args:
        call: what is to be done.
        reason: says of an error why the stream waits, None if it is none to wait for, which is then raised.
        warn: called with a sentence, once for as long as the reason stays.
        pause: waits some time; returns whether the job is to stop.

    Raises:
        StoppingError: it is.
    """
    said = ""
    while True:
        try:
            return call()
        except Exception as error:
            why = reason(error)
            if why is None:
                raise
            if why != said:
                warn(f"{why}: the stream waits")
                said = why
            if pause():
                raise StoppingError(f"the job stopped while it waited: {why}") from error


def staged_file(staging: Path, file: Mapping[str, Any]) -> Path:
    """Return the path of a staged file, if it is what was committed. Raises `DamagedFileError`."""
    path: Path = staging / file["path"]
    try:
        with path.open("rb") as data:
            found = hashlib.file_digest(data, "sha256").hexdigest()
    except OSError as error:
        raise DamagedFileError(f"{path} cannot be read: {error.strerror or error}") from error
    if found != file["sha256"]:
        raise DamagedFileError(f"{path} is damaged: it is not what was committed; put it back from a copy")
    return path
