"""Lines of an import, read and checked, on their way into one revision.

They are read in blocks, with selectors parsed once a shape, and what they amount to is put into a temporary
file. Only then a transaction begins, so that nobody waits for a client that sends slowly; memory does not
grow with the number of lines.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import IO, Any, Final

import pyarrow as pa

from selectroute.index.build import check_subscriptions
from selectroute.index.errors import BuildError, DuplicateSubscriptionError
from selectroute.index.registration import MAX_LINE
from selectroute.registry.errors import (
    IdTakenError,
    ImportLineError,
    InvalidSpecError,
    TooCostlyError,
    TooLargeError,
)
from selectroute.registry.model import Status, Subscription, SubscriptionSpec
from selectroute.registry.permission import EVERYTHING, Permission
from selectroute.registry.revision import new_id
from selectroute.registry.rows import body_of
from selectroute.registry.specification import Budget, Checks, check_fields, check_id, wrong_seltype
from selectroute.selector.errors import SelectRouteError
from selectroute.selector.limits import Limits
from selectroute.store.errors import ReadOnlyError

MAX_ROWS: Final = 1_000_000
"""Subscriptions in one import."""

_STATUSES: Final = [None, *Status]  # a list: what is compared may be anything

_CHECKED_AT_ONCE: Final = 16_384

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Staged:
    """A line of the stage: its number in the import, the status that it gives, the subscription."""

    number: int
    status: str | None
    body: str
    data: dict[str, Any]


@dataclass(slots=True)
class Stage:
    """Checked lines in a temporary file."""

    file: IO[str]
    rows: int

    def blocks(self, size: int) -> Iterator[list[Staged]]:
        """All lines in their order, so many at a time."""
        while block := list(islice(self.file, size)):
            yield [_staged(line) for line in block]


@dataclass(frozen=True, slots=True)
class _Line:
    number: int
    id: str
    spec: SubscriptionSpec
    status: Status | None
    """None where the line gives none."""


@contextmanager
def staged(
    lines: Iterable[str | bytes],
    limits: Limits,
    max_rows: int,
    budget: Budget,
    progress: Progress | None,
    by: Permission = EVERYTHING,
) -> Iterator[Stage]:
    """Read and check the lines of an import, and whether the caller may do what each says. Raises
    `ImportLineError`, `TooLargeError`, `ReadOnlyError`; `TooCostlyError` with the line where the budget ends.
    """
    with _temporary_file() as file:
        stage = Stage(file, 0)
        numbered = enumerate(lines, start=1)
        while block := list(islice(numbered, _CHECKED_AT_ONCE)):
            _stage_block(stage, block, limits, budget, by)
            if stage.rows > max_rows:
                raise TooLargeError(f"an import has at most {max_rows:,} subscriptions")
            if progress is not None:
                progress(stage.rows, 0)
        file.seek(0)
        yield stage


@contextmanager
def _temporary_file() -> Iterator[IO[str]]:
    try:
        file = tempfile.TemporaryFile("w+", encoding="utf-8", newline="\n")  # noqa: SIM115  closing may fail
    except OSError as error:
        raise _no_room(error) from error
    try:
        yield file
    finally:
        with suppress(OSError):  # of what it could not write: that was said
            file.close()


def _no_room(error: OSError) -> ReadOnlyError:
    return ReadOnlyError(f"no temporary file can be written: {error.strerror or error}")


def _stage_block(
    stage: Stage, block: list[tuple[int, str | bytes]], limits: Limits, budget: Budget, by: Permission
) -> None:
    """Check some lines, and append them to the file."""
    found: list[_Line] = []
    wrong: ImportLineError | None = None
    for number, line in block:
        try:
            if line.strip():
                found.append(_read(number, line, by))
        except SelectRouteError as error:
            wrong = ImportLineError(number, error)
            break
    types = _seltypes(found, limits, budget)  # of a line before it, which then is the first
    if wrong is not None:
        raise wrong from wrong.cause
    now = datetime.now(UTC)
    texts = []
    for one, seltype in zip(found, types, strict=True):
        spec = one.spec
        made = Subscription(
            id=one.id,
            name=one.id if spec.name is None else spec.name,
            topic=spec.topic,
            selector=spec.selector,
            dialect=spec.dialect,
            seltype=seltype,
            destination=spec.destination,
            status=one.status or Status.ACTIVE,
            labels=dict(sorted(spec.labels.items())),
            revision=0,
            created=now,
            modified=now,
        )
        texts.append(f"{one.number}\t{one.status or ''}\t{body_of(made)}\n")
    try:
        stage.file.writelines(texts)
        stage.file.flush()
    except OSError as error:
        raise _no_room(error) from error
    stage.rows += len(found)


def _read(number: int, line: str | bytes, by: Permission) -> _Line:
    if len(line) > MAX_LINE:
        raise TooLargeError(f"the line has {len(line):,} characters, at most {MAX_LINE:,}")
    try:
        data = json.loads(line if isinstance(line, str) else line.decode())
    except (ValueError, RecursionError) as error:
        raise InvalidSpecError("", f"not valid JSON: {error}") from error
    spec = SubscriptionSpec.from_json(data)
    by.check_stored(spec)  # on what becomes of the line: there is no second reading of it
    check_fields(spec)
    id, status = data.get("id"), data.get("status")
    if not isinstance(id, str | None):
        raise InvalidSpecError("/id", "an id is a string")
    if status not in _STATUSES:
        raise InvalidSpecError("/status", "a status is active or paused")
    given = None if status is None else Status(status)
    return _Line(number, new_id() if id is None else check_id(id), spec, given)


def _seltypes(lines: list[_Line], limits: Limits, budget: Budget) -> list[Any]:
    """The types of the selectors of these lines, which are checked here."""
    names = ("selector", "topic", "dialect", "seltype")
    try:
        columns = {
            name: pa.array([getattr(line.spec, name) for line in lines], pa.string()) for name in names
        }
    except UnicodeEncodeError:  # half of a surrogate pair: the line's own check says where
        return _checked_alone(lines, limits, budget)
    try:
        found = check_subscriptions(
            pa.table({"id": pa.array([line.id for line in lines], pa.string()), **columns}), limits
        )
    except BuildError as error:
        line = lines[error.row]
        if isinstance(error.cause, DuplicateSubscriptionError):
            raise ImportLineError(line.number, IdTakenError(f"the id {line.id!r} stands twice")) from error
        _checked_alone([line], limits, budget)  # says it as for a single one
        raise ImportLineError(line.number, error.cause) from error
    types: list[Any] = found.seltypes.to_pylist()
    for line, seltype, literals in zip(lines, types, found.literals.tolist(), strict=True):
        if line.spec.seltype not in (None, seltype):
            raise ImportLineError(line.number, InvalidSpecError("/seltype", wrong_seltype(seltype)))
        try:
            budget.spend(literals, len(line.spec.selector) + len(line.spec.topic or ""))
        except TooCostlyError as error:
            raise ImportLineError(line.number, error) from error
    return types


def _checked_alone(lines: list[_Line], limits: Limits, budget: Budget) -> list[Any]:
    types: list[Any] = []
    for line in lines:
        checks = Checks(limits)
        try:
            types.append(checks.checked(line.spec).seltype)
            checks.charge(line.spec, budget)
        except SelectRouteError as error:
            raise ImportLineError(line.number, error) from error
    return types


def _staged(line: str) -> Staged:
    number, status, body = line.rstrip("\n").split("\t", 2)
    return Staged(int(number), status or None, body, json.loads(body))
