"""Requests to replay dead letters: written by whoever wants it, done by the job between two batches.

::

    _requests/<id>.json        what is asked for; its appearance is the request
    _requests/<id>.done.json   what was done, which takes its place

The job alone knows source, binding and destinations, so a command only asks. A request is for the dead
letters that there are when it is made.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from selectroute.durable import disk
from selectroute.selector.errors import SelectRouteError
from selectroute.selector.suggestion import unknown_field
from selectroute.spark.batch.commits import Commits
from selectroute.spark.job.job import job_record

_FOLDER = "_requests"
_NAME = re.compile(r"\d{8}T\d{12}-[0-9a-f]{8}\.json")


class RequestError(SelectRouteError):
    """Error: a file among the requests is not a request."""


@dataclass(frozen=True, slots=True)
class ReplayFilterSpec:
    """Filter of dead letters: of these batches, stages, reasons and subscriptions; of any where none is
    named.
    """

    batches: tuple[int, ...] = ()
    stages: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    subscriptions: tuple[str, ...] = ()

    def mask(self, letters: pa.Table) -> npt.NDArray[np.bool_]:
        """Return which of a batch's letters these are, by their stage, reason and subscription."""
        found = np.ones(len(letters), np.bool_)
        for column, names in (
            ("stage", self.stages),
            ("reason", self.reasons),
            ("subscription", self.subscriptions),
        ):
            if names:
                found &= pc.is_in(letters[column], pa.array(names, pa.string())).to_numpy()
        return found

    def to_json(self) -> dict[str, Any]:
        """Return it as `from_json` reads it."""
        return {name: list(values) for name, values in asdict(self).items()}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> ReplayFilterSpec:
        """Return what `to_json` gave. Raises `RequestError` for anything else: with a restriction that is not
        known, more would be replayed than was meant.
        """
        known = [one.name for one in fields(cls)]
        for name in content:
            if name not in known:
                raise RequestError(unknown_field("a request", name, known))
        batches = _listed(content, "batches", int)
        texts = [_listed(content, name, str) for name in ("stages", "reasons", "subscriptions")]
        return cls(batches, *texts)


@dataclass(frozen=True, slots=True)
class Request:
    """Request for a replay.

    Attributes:
        id: what tells it from others; later ones sort behind it.
        wanted: which dead letters.
        newest, lowest: the newest batch of the stream, and the lowest number, when it was made: later ones
            are not meant. -1 and 0 where there were none.
    """

    id: str
    wanted: ReplayFilterSpec
    newest: int
    lowest: int

    def means(self, batch: int) -> bool:
        """Return whether dead letters of this batch are meant."""
        return self.lowest <= batch <= self.newest and (
            not self.wanted.batches or batch in self.wanted.batches
        )


def make_request(output: Path, wanted: ReplayFilterSpec) -> Request:
    """Ask for dead letters to be replayed.

    Raises:
        JobError: the folder is no job's.
    """
    request = as_of_now(output, wanted)
    folder = output / _FOLDER
    disk.make_folder(folder)
    disk.write_json(
        folder / f"{request.id}.json",
        {
            "request": request.id,
            "wanted": wanted.to_json(),
            "newest": request.newest,
            "lowest": request.lowest,
            "made": datetime.now(UTC).isoformat(timespec="seconds"),
        },
    )
    return request


def as_of_now(output: Path, wanted: ReplayFilterSpec) -> Request:
    """Return the request that would be made now. Raises JobError."""
    job_record(output)
    commits = Commits(output)
    newest, lowest = max(commits.batches(), default=-1), min(commits.side_batches(), default=0)
    now = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%f")
    return Request(f"{now}-{uuid.uuid4().hex[:8]}", wanted, newest, lowest)


def waiting(output: Path) -> list[Path]:
    """Return the files of the requests that are not done, in the order in which they were made."""
    try:
        return sorted(path for path in (output / _FOLDER).iterdir() if _NAME.fullmatch(path.name))
    except FileNotFoundError:
        return []


def read_request(path: Path) -> Request:
    """Return a request.

    Raises:
        DamagedFileError, RequestError: the file is not what was written, or none.
    """
    content = disk.read_json(path) or {}
    numbers = [content.get(name) for name in ("newest", "lowest")]
    wanted = content.get("wanted")
    if content.get("request") != path.stem or not isinstance(wanted, dict):
        raise RequestError(f"{path} is not a request")
    if not all(isinstance(number, int) for number in numbers):
        raise RequestError(f"{path} is not a request: it does not say when it was made")
    return Request(path.stem, ReplayFilterSpec.from_json(wanted), *numbers)  # type: ignore[arg-type]


def finish_request(output: Path, request: Request, batches: Sequence[int]) -> None:
    """Note that a request is done, with the replays that were made for it. Doing it twice is harmless."""
    folder = output / _FOLDER
    done = {"request": request.id, "wanted": request.wanted.to_json(), "batches": list(batches)}
    disk.write_json(folder / f"{request.id}.done.json", done)
    (folder / f"{request.id}.json").unlink(missing_ok=True)


def replays_of(output: Path, id: str) -> list[int] | None:
    """Return the numbers of the replays that were made for a request, None if it is not done."""
    done = disk.read_json(output / _FOLDER / f"{id}.done.json")
    return None if done is None else list(done["batches"])


def _listed(content: Mapping[str, Any], name: str, kind: type) -> tuple[Any, ...]:
    values = content.get(name)
    if not isinstance(values, list) or not all(isinstance(value, kind) for value in values):
        raise RequestError(f"a request has no list of {name}")
    return tuple(values)
