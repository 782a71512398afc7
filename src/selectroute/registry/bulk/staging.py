"""Staging of an import: lines are read and checked before they become one revision.

Lines are read in blocks, selectors are parsed once per shape, and the subscriptions are written to a
temporary file. Only then a transaction begins, so that a slow client does not block other writers. Memory
does not grow with the number of lines.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from itertools import islice, repeat
from types import MappingProxyType
from typing import IO, Any, Final, NamedTuple

import pyarrow as pa

from selectroute.index.build.build import check_subscriptions, paused_collector
from selectroute.index.errors import MAX_REPORTED, BuildError, DuplicateSubscriptionError, LineProblem
from selectroute.index.jsonl import not_json
from selectroute.registry.authorization.permission import EVERYTHING, Permission
from selectroute.registry.errors import (
    IdTakenError,
    ImportLineError,
    InvalidSpecError,
    TooCostlyError,
    TooLargeError,
)
from selectroute.registry.log.revision import new_id
from selectroute.registry.log.rows import body_text, label_text, topic_key
from selectroute.registry.model import Status, SubscriptionSpec, time_text
from selectroute.registry.specification import Budget, Checks, check_fields, check_id, wrong_seltype
from selectroute.selector.errors import SelectRouteError
from selectroute.selector.limits import MAX_LINE, Limits
from selectroute.store.errors import ReadOnlyError

MAX_ROWS: Final = 1_000_000
"""Subscriptions in one import."""

_STATUSES: Final = [*Status]  # a list: the compared value may be unhashable

_CHECKED_AT_ONCE: Final = 16_384

_DECODER: Final = json.JSONDecoder()

ACTIVE: Final = Status.ACTIVE.value
"""Status of a line that gives none."""

_Numbered = tuple[int, str | bytes]
Progress = Callable[[int, int], None]


class Staged(NamedTuple):
    """Staged line: its number in the import, its status if given, and its subscription."""

    number: int
    status: str | None
    id: str
    name: str
    topic_key: str | None
    dialect: str
    labels: Mapping[str, str]
    body: str


@dataclass(slots=True)
class Stage:
    """Checked lines in a temporary file."""

    file: IO[str]
    rows: int

    def blocks(self, size: int) -> Iterator[list[Staged]]:
        """Yield all lines in order, in blocks of `size`."""
        while block := list(islice(self.file, size)):
            yield [_staged(line) for line in block]


class _Line(NamedTuple):
    number: int
    id: str
    spec: SubscriptionSpec
    status: Status | None
    """None if the line gives none."""


@contextmanager
def staged(
    lines: Iterable[str | bytes],
    limits: Limits,
    max_rows: int,
    budget: Budget,
    progress: Progress | None,
    by: Permission = EVERYTHING,
) -> Iterator[Stage]:
    """Read and check the lines of an import and the caller's permission for each. Raises `ImportLineError`,
    `TooLargeError`, `ReadOnlyError`; `TooCostlyError` with the line that exceeds the budget.

    Reading continues after an invalid line, until there are `MAX_REPORTED` of them.
    """
    with _temporary_file() as file:
        stage = Stage(file, 0)
        wrong: list[LineProblem] = []
        numbered = enumerate(lines, start=1)
        while block := _taken_in(numbered, wrong):
            with paused_collector():
                _stage_block(stage, block, limits, budget, by, wrong)
            if len(wrong) >= MAX_REPORTED:
                break
            if stage.rows > max_rows:
                raise TooLargeError(f"an import has at most {max_rows:,} subscriptions")
            if progress is not None:
                progress(stage.rows, 0)
        if wrong:
            raise ImportLineError.of(wrong)
        file.seek(0)
        yield stage


def _taken_in(numbered: Iterator[tuple[int, str | bytes]], wrong: list[LineProblem]) -> list[_Numbered]:
    """Return the next block of lines. An `ImportLineError` of their source ends the block and is added to
    `wrong`.
    """
    block: list[_Numbered] = []
    try:
        block.extend(islice(numbered, _CHECKED_AT_ONCE))
    except ImportLineError as error:
        wrong.extend(error.problems)
    return block


@contextmanager
def _temporary_file() -> Iterator[IO[str]]:
    try:
        file = tempfile.TemporaryFile("w+", encoding="utf-8", newline="\n")  # noqa: SIM115  closing may fail
    except OSError as error:
        raise _no_room(error) from error
    try:
        yield file
    finally:
        with suppress(OSError):  # a failed write was reported already
            file.close()


def _no_room(error: OSError) -> ReadOnlyError:
    return ReadOnlyError(f"no temporary file can be written: {error.strerror or error}")


def _stage_block(
    stage: Stage,
    block: list[_Numbered],
    limits: Limits,
    budget: Budget,
    by: Permission,
    wrong: list[LineProblem],
) -> None:
    """Check a block of lines, and append it to the file unless any line so far is invalid."""
    found: list[_Line] = []
    for number, line in block:
        try:
            if line.strip():
                found.append(_read(number, line, by))
        except SelectRouteError as error:
            wrong.append(LineProblem(number, error))
            if len(wrong) == MAX_REPORTED:
                break
    try:
        types = _seltypes(found, limits, budget)
    except ImportLineError as error:
        wrong.extend(error.problems)
    stage.rows += len(found)
    if wrong:
        return
    now = time_text(datetime.now(UTC))
    try:
        stage.file.writelines(map(_text, found, types, repeat(now)))
        stage.file.flush()
    except OSError as error:
        raise _no_room(error) from error


def _read(number: int, line: str | bytes, by: Permission) -> _Line:
    if len(line) > MAX_LINE:
        raise TooLargeError(f"the line has {len(line):,} characters, at most {MAX_LINE:,}")
    try:
        data = _parsed(line if isinstance(line, str) else line.decode())
    except (ValueError, RecursionError) as error:
        raise InvalidSpecError("", not_json(error)) from error
    spec = SubscriptionSpec.from_json(data)
    by.check_stored(spec)  # on the parsed line, which is what will be stored
    check_fields(spec)
    id, status = data.get("id"), data.get("status")
    if id is not None and not isinstance(id, str):
        raise InvalidSpecError("/id", "an id must be a string")
    if status is not None and status not in _STATUSES:
        raise InvalidSpecError("/status", "a status must be active or paused")
    given = None if status is None else Status(status)
    return _Line(number, new_id() if id is None else check_id(id), spec, given)


def _parsed(text: str) -> Any:
    """Return what a line of JSON says, as `json.loads` does, which takes twice as long for a short line: it
    is called for errors and rare forms only.
    """
    try:
        data, end = _DECODER.raw_decode(text)
    except ValueError:
        return json.loads(text)
    return data if text[end:] in ("", "\n") else json.loads(text)


def _seltypes(lines: list[_Line], limits: Limits, budget: Budget) -> list[Any]:
    """Check the selectors of these lines and return their types. Raises `ImportLineError` with all invalid
    ones.
    """
    names = ("selector", "topic", "dialect", "seltype")
    try:
        columns = {
            name: pa.array([getattr(line.spec, name) for line in lines], pa.string()) for name in names
        }
    except UnicodeEncodeError:  # a lone surrogate: the check of the line says where
        return _checked_alone(lines, limits, budget)
    try:
        found = check_subscriptions(
            pa.table({"id": pa.array([line.id for line in lines], pa.string()), **columns}), limits
        )
    except BuildError as error:
        raise ImportLineError.of(
            LineProblem(lines[row].number, _cause(lines[row], cause, limits))
            for row, cause in error.causes.items()
        ) from error
    types: list[Any] = found.seltypes.to_pylist()
    wrong: list[LineProblem] = []
    for line, seltype, literals in zip(lines, types, found.literals.tolist(), strict=True):
        if line.spec.seltype not in (None, seltype):
            wrong.append(LineProblem(line.number, InvalidSpecError("/seltype", wrong_seltype(seltype))))
            continue
        try:
            budget.spend(literals, len(line.spec.selector) + len(line.spec.topic or ""))
        except TooCostlyError as error:
            wrong.append(LineProblem(line.number, error))
            break  # all following lines exceed the budget too
    if wrong:
        raise ImportLineError.of(wrong)
    return types


def _cause(line: _Line, found: SelectRouteError, limits: Limits) -> SelectRouteError:
    """Return the error of a line as `Registry.register` would raise it."""
    if isinstance(found, DuplicateSubscriptionError):
        return IdTakenError(f"the id {line.id!r} is used twice")
    try:
        Checks(limits).checked(line.spec)
    except SelectRouteError as error:
        return error
    return found


def _checked_alone(lines: list[_Line], limits: Limits, budget: Budget) -> list[Any]:
    types: list[Any] = []
    wrong: list[LineProblem] = []
    for line in lines:
        checks = Checks(limits)
        try:
            types.append(checks.checked(line.spec).seltype)
            checks.charge(line.spec, budget)
        except SelectRouteError as error:
            wrong.append(LineProblem(line.number, error))
            if isinstance(error, TooCostlyError) or len(wrong) == MAX_REPORTED:
                break
    if wrong:
        raise ImportLineError.of(wrong)
    return types


def _text(line: _Line, seltype: str, now: str) -> str:
    """Return a line of the file. Ids, names and keys of topics have no control characters; an empty topic is
    not none.
    """
    number, id, spec, status = line
    name = id if spec.name is None else spec.name
    given = "" if status is None else status.value
    labels = dict(sorted(spec.labels.items())) if len(spec.labels) > 1 else spec.labels
    body = body_text(
        id,
        name,
        spec.topic,
        spec.selector,
        spec.dialect,
        seltype,
        spec.destination,
        given or ACTIVE,
        labels,
        now,
        now,
    )
    topic = "" if spec.topic is None else f"={topic_key(spec.topic)}"
    kept = label_text(labels) if labels else ""
    return f"{number}\t{given}\t{id}\t{name}\t{topic}\t{spec.dialect}\t{kept}\t{body}\n"


def _staged(line: str) -> Staged:
    """Invert `_text`."""
    number, status, id, name, topic, dialect, labels, body = line[:-1].split("\t", 7)
    key = topic[1:] if topic else None
    given = _labels(labels) if labels else {}
    return Staged(int(number), status or None, id, name, key, dialect, given, body)


@lru_cache(maxsize=1_024)  # many subscriptions have the same ones
def _labels(text: str) -> Mapping[str, str]:
    found: dict[str, str] = json.loads(text)
    return MappingProxyType(found)
