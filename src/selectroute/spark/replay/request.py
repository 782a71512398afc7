"""Requests to replay dead letters: written by a command, carried out by the job between two batches.

::

    _requests/<id>.json        the request, from the moment when the file appears
    _requests/<id>.done.json   its result, which replaces it

Only the job has source, binding and destinations, so a command only writes a request. A request is for the
dead letters that exist when it is made.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from selectroute.selector.errors import SelectRouteError, unknown_field
from selectroute.spark.batch.commits import Commits
from selectroute.spark.job import job_record
from selectroute.storage import Location
from selectroute.storage.location import Where

_FOLDER = "_requests"
_NUMBERS = ("batches", "partitions", "offsets")
_NAME = re.compile(r"\d{8}T\d{12}-[0-9a-f]{8}\.json")


class RequestError(SelectRouteError):
    """Invalid file among the requests."""


@dataclass(frozen=True, slots=True)
class ReplayFilterSpec:
    """Filter of dead letters by batch, stage, reason, subscription, and by source, partition and offset,
    which name a single one; empty means any.
    """

    batches: tuple[int, ...] = ()
    stages: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    subscriptions: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    partitions: tuple[int, ...] = ()
    offsets: tuple[int, ...] = ()

    @property
    def columns(self) -> dict[str, tuple[Any, ...]]:
        """Values that are wanted of each column of the letters of a batch; empty means any."""
        return {
            "stage": self.stages,
            "reason": self.reasons,
            "subscription": self.subscriptions,
            "source": self.sources,
            "partition": self.partitions,
            "offset": self.offsets,
        }

    def mask(self, letters: pa.Table) -> npt.NDArray[np.bool_]:
        """Return a mask of those of a batch's letters that are wanted, whatever their batch."""
        mask = np.ones(len(letters), np.bool_)
        for column, values in self.columns.items():
            if values:
                kind = pa.int64() if column in ("partition", "offset") else pa.string()
                mask &= pc.is_in(letters[column].cast(kind), pa.array(values, kind)).to_numpy()
        return mask

    def to_json(self) -> dict[str, Any]:
        """Return the filter as JSON, the inverse of `from_json`."""
        return {name: list(values) for name, values in asdict(self).items()}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> ReplayFilterSpec:
        """Read the filter that `to_json` returned. Raises `RequestError` for anything else, because ignoring
        an unknown field would replay too much.
        """
        known = [field.name for field in fields(cls)]
        for name in content:
            if name not in known:
                raise RequestError(unknown_field("a request", name, known))
        return cls(**{name: _listed(content, name, int if name in _NUMBERS else str) for name in known})


ALL: Final = ReplayFilterSpec()
"""Filter of all dead letters."""


@dataclass(frozen=True, slots=True)
class Request:
    """Request for a replay.

    Attributes:
        id: unique id; ids sort by the time of the request.
        wanted: the filter of dead letters.
        newest, lowest: the newest batch of the stream, and the lowest number of a side batch, at the time of
            the request: later ones are excluded. -1 and 0 if there were none.
        letters: the number of letters that it found.
    """

    id: str
    wanted: ReplayFilterSpec
    newest: int
    lowest: int
    letters: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return the request as JSON, which `read_request` reads."""
        content = asdict(self) | {"wanted": self.wanted.to_json()}
        return {"request": content.pop("id")} | content

    def means(self, batch: int) -> bool:
        """Return whether the request includes dead letters of this batch."""
        return self.lowest <= batch <= self.newest and (
            not self.wanted.batches or batch in self.wanted.batches
        )


def write_request(output: Where, request: Request) -> None:
    """Write a request, for the job to carry out."""
    folder = Location.of(output) / _FOLDER
    folder.make_folder()
    made = datetime.now(UTC).isoformat(timespec="seconds")
    (folder / f"{request.id}.json").put_json(request.to_json() | {"made": made})


def as_of_now(output: Where, wanted: ReplayFilterSpec) -> Request:
    """Return a request as of now, not yet written, without the number of its letters. Raises JobError."""
    job_record(output)
    commits = Commits(output)
    newest, lowest = max(commits.batches(), default=-1), min(commits.side_batches(), default=0)
    now = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%f")
    return Request(f"{now}-{uuid.uuid4().hex[:8]}", wanted, newest, lowest)


def waiting(output: Where) -> list[Location]:
    """Return the files of open requests, oldest first."""
    requests = (path for path in (Location.of(output) / _FOLDER).files() if _NAME.fullmatch(path.name))
    return sorted(requests, key=lambda path: path.name)


def read_request(path: Location) -> Request:
    """Read a request.

    Raises:
        DamagedFileError, RequestError: the file is damaged, or not a request.
    """
    content = path.read_json() or {}
    numbers = [content.get(name) for name in ("newest", "lowest", "letters")]
    wanted = content.get("wanted")
    if content.get("request") != path.stem or not isinstance(wanted, dict):
        raise RequestError(f"{path} is not a request")
    if not all(isinstance(number, int) for number in numbers):
        raise RequestError(f"{path} is not a request: the newest and lowest batch, or letters, are missing")
    return Request(path.stem, ReplayFilterSpec.from_json(wanted), *numbers)  # type: ignore[arg-type]


def is_request_id(text: str) -> bool:
    """Return whether a text may be the id of a request."""
    return _NAME.fullmatch(f"{text}.json") is not None


def finish_request(output: Where, request: Request, batches: Sequence[int]) -> None:
    """Mark a request as done, with the numbers of its replays. Idempotent."""
    folder = Location.of(output) / _FOLDER
    (folder / f"{request.id}.done.json").put_json(request.to_json() | {"batches": list(batches)})
    (folder / f"{request.id}.json").delete()


def replays_of(output: Where, id: str) -> list[int] | None:
    """Return the numbers of a request's replays; None if the request is not done."""
    done = _done(output, id)
    return None if done is None else list(done["batches"])


def letters_asked_for(output: Where, id: str) -> int:
    """Return the number of letters that a request found when it was made.

    Raises:
        KeyError: there is no such request.
        DamagedFileError: its file is damaged.
    """
    # In this order: the request is removed after its result is written.
    content = (Location.of(output) / _FOLDER / f"{id}.json").read_json() or _done(output, id)
    if content is None:
        raise KeyError(id)
    return int(content["letters"])


def _done(output: Where, id: str) -> dict[str, Any] | None:
    return (Location.of(output) / _FOLDER / f"{id}.done.json").read_json()


def open_requests(output: Where) -> list[Request]:
    """Return the requests that wait, oldest first, without the damaged ones, which the job ignores."""
    requests = []
    for path in waiting(output):
        with suppress(SelectRouteError):
            requests.append(read_request(path))
    return requests


def _listed(content: Mapping[str, Any], name: str, kind: type) -> tuple[Any, ...]:
    values = content.get(name)
    if not isinstance(values, list | tuple) or not all(isinstance(value, kind) for value in values):
        raise RequestError(f"a request has no list of {name}")
    return tuple(values)
