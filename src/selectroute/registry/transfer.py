"""Import and export: lines of JSON, any number of them, in memory that does not grow with it.

An import is read and checked first, in blocks, with selectors parsed once a shape; what it amounts to is put
into a temporary file. Only then the transaction begins, so that nobody waits for a client that sends slowly.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import islice
from typing import IO, Any, Final, Literal

import pyarrow as pa
from sqlalchemy import Connection, and_, delete, exists, insert, select, tuple_
from sqlalchemy.exc import IntegrityError

from selectroute.index.build import build_snapshot
from selectroute.index.errors import BuildError, DuplicateSubscriptionError
from selectroute.index.registration import MAX_LINE
from selectroute.registry.changes import Op
from selectroute.registry.errors import (
    IdTakenError,
    ImportLineError,
    InvalidSpecError,
    NameTakenError,
    TooLargeError,
)
from selectroute.registry.log import BLOCK, checked_row
from selectroute.registry.model import Status, Subscription, SubscriptionSpec, time_of
from selectroute.registry.revision import Revision, new_id
from selectroute.registry.rows import body_of, checked_body, subscriptions_with_state, topic_key, view_row
from selectroute.registry.specification import check_fields, check_id, checked, wrong_seltype
from selectroute.registry.tables import change, label, subscription
from selectroute.selector.errors import SelectRouteError
from selectroute.selector.limits import DEFAULT_LIMITS, Limits

MAX_ROWS: Final = 1_000_000
"""Subscriptions in one import."""

_STATUSES: Final = [None, *Status]  # a list: what is compared may be anything

_CHECKED_AT_ONCE: Final = 16_384

Progress = Callable[[int, int], None]


@dataclass(slots=True)
class Stage:
    """Checked lines in a temporary file, each with its number in the import."""

    file: IO[str]
    rows: int


@dataclass(frozen=True, slots=True)
class _Line:
    number: int
    id: str
    spec: SubscriptionSpec
    status: Status


# ---- import: reading


@contextmanager
def staged(
    lines: Iterable[str | bytes], limits: Limits, max_rows: int, progress: Progress | None
) -> Iterator[Stage]:
    """Read and check the lines of an import. Raises `ImportLineError`, `TooLargeError`."""
    with tempfile.TemporaryFile("w+", encoding="utf-8", newline="\n") as file:
        stage = Stage(file, 0)
        numbered = enumerate(lines, start=1)
        while block := list(islice(numbered, _CHECKED_AT_ONCE)):
            _stage_block(stage, block, limits)
            if stage.rows > max_rows:
                raise TooLargeError(f"an import has at most {max_rows:,} subscriptions")
            if progress is not None:
                progress(stage.rows, 0)
        file.seek(0)
        yield stage


def _stage_block(stage: Stage, block: list[tuple[int, str | bytes]], limits: Limits) -> None:
    """Check some lines, and append them to the file."""
    found: list[_Line] = []
    wrong: ImportLineError | None = None
    for number, line in block:
        try:
            if line.strip():
                found.append(_read(number, line))
        except SelectRouteError as error:
            wrong = ImportLineError(number, error)
            break
    types = _seltypes(found, limits)  # of a line before it, which then is the first
    if wrong is not None:
        raise wrong from wrong.cause
    now = datetime.now(UTC)
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
            status=one.status,
            labels=dict(sorted(spec.labels.items())),
            revision=0,
            created=now,
            modified=now,
        )
        stage.file.write(f"{one.number}\t{body_of(made)}\n")
    stage.rows += len(found)


def _read(number: int, line: str | bytes) -> _Line:
    if len(line) > MAX_LINE:
        raise TooLargeError(f"the line has {len(line):,} characters, at most {MAX_LINE:,}")
    try:
        data = json.loads(line if isinstance(line, str) else line.decode())
    except (ValueError, RecursionError) as error:
        raise InvalidSpecError("", f"this is no JSON: {error}") from error
    spec = SubscriptionSpec.from_json(data)
    check_fields(spec)
    id, status = data.get("id"), data.get("status")
    if not isinstance(id, str | None):
        raise InvalidSpecError("/id", "an id is a string")
    if status not in _STATUSES:
        raise InvalidSpecError("/status", "a status is active or paused")
    return _Line(number, new_id() if id is None else check_id(id), spec, Status(status or "active"))


def _seltypes(lines: list[_Line], limits: Limits) -> list[Any]:
    """The types of the selectors of these lines, which are checked here."""
    if limits != DEFAULT_LIMITS:  # the bulk way knows those only
        return [_checked_alone(line, limits) for line in lines]
    names = ("selector", "topic", "dialect", "seltype")
    columns = {name: pa.array([getattr(line.spec, name) for line in lines], pa.string()) for name in names}
    try:
        made = build_snapshot(pa.table({"id": pa.array([line.id for line in lines], pa.string()), **columns}))
    except BuildError as error:
        line = lines[error.row]
        if isinstance(error.cause, DuplicateSubscriptionError):
            raise ImportLineError(line.number, IdTakenError(f"the id {line.id!r} stands twice")) from error
        _checked_alone(line, limits)  # says it as for a single one
        raise ImportLineError(line.number, error.cause) from error
    types: list[Any] = made.subscriptions["seltype"].to_pylist()
    for line, seltype in zip(lines, types, strict=True):
        if line.spec.seltype not in (None, seltype):
            raise ImportLineError(line.number, InvalidSpecError("/seltype", wrong_seltype(seltype)))
    return types


def _checked_alone(line: _Line, limits: Limits) -> Any:
    try:
        return checked(line.spec, limits).seltype
    except SelectRouteError as error:
        raise ImportLineError(line.number, error) from error


# ---- import: writing


def import_stage(
    revision: Revision, stage: Stage, mode: Literal["add", "replace"], progress: Progress | None
) -> int:
    """Make a revision of what was staged; returns how many subscriptions that are."""
    if mode not in ("add", "replace"):
        raise InvalidSpecError("/mode", "an import adds or replaces")
    done = 0
    while block := list(islice(stage.file, BLOCK)):
        rows = [line.rstrip("\n").split("\t", 1) for line in block]
        _import_block(revision, [(int(number), body) for number, body in rows], mode)
        done += len(block)
        if progress is not None:
            progress(done, stage.rows)
    return done


def _import_block(revision: Revision, block: list[tuple[int, str]], mode: str) -> None:
    connection = revision.connection
    given = [json.loads(body) for _, body in block]
    created = _created(connection, [one["id"] for one in given]) if mode == "replace" else {}
    bodies = [
        body if one["id"] not in created else _replacing(one, created[one["id"]])
        for one, (_, body) in zip(given, block, strict=True)
    ]
    ops: list[Op] = ["replace" if one["id"] in created else "add" for one in given]
    ids = [one["id"] for one in given]
    places = revision.log_rows(list(zip(ops, ids, bodies, strict=True)))
    rows = [
        view_row(one["id"], one["name"], topic_key(one["topic"]), one["dialect"], one["status"], place, body)
        for one, place, body in zip(given, places, bodies, strict=True)
    ]
    labels = [
        {"name": name, "value": value, "id": one["id"]}
        for one in given
        for name, value in one["labels"].items()
    ]
    for start in range(0, len(created), 500):
        old = list(created)[start : start + 500]
        connection.execute(delete(subscription).where(subscription.c.id.in_(old)))
        connection.execute(delete(label).where(label.c.id.in_(old)))
    try:
        with connection.begin_nested():
            connection.execute(insert(subscription), rows)
    except IntegrityError as error:
        raise _taken(connection, block, rows) from error
    if labels:
        connection.execute(insert(label), labels)


def _created(connection: Connection, ids: list[str]) -> dict[str, str]:
    """When those of these subscriptions that there are were created."""
    found: dict[str, str] = {}
    for start in range(0, len(ids), 500):
        some = subscriptions_with_state().where(subscription.c.id.in_(ids[start : start + 500]))
        for row in connection.execute(some):
            found[row.id] = json.loads(checked_body(row))["created"]
    return found


def _replacing(data: dict[str, Any], created: str) -> str:
    one = Subscription.from_json({**data, "revision": 0})
    return body_of(replace(one, created=time_of(created)))


def _taken(
    connection: Connection, block: list[tuple[int, str]], rows: list[dict[str, Any]]
) -> ImportLineError:
    """The first of these rows that cannot be inserted beside those before it, and why."""
    ids: set[str] = set()
    names: set[str] = set()
    for (number, _), row in zip(block, rows, strict=True):
        id, name = row["id"], row["name"]
        if id in ids or connection.execute(select(exists().where(subscription.c.id == id))).scalar():
            return ImportLineError(number, IdTakenError(f"there is a subscription {id!r} already"))
        if name in names or connection.execute(select(exists().where(subscription.c.name == name))).scalar():
            return ImportLineError(number, NameTakenError(f"the name {name!r} is another subscription's"))
        ids.add(id)
        names.add(name)
    raise AssertionError("a row was refused, and none is taken")


# ---- export


def exported(connection: Connection, revision: int | None) -> Iterator[str]:
    """All subscriptions in the order of their ids, as lines of JSON."""
    stream = connection.execution_options(yield_per=BLOCK)
    if revision is None:
        for row in stream.execute(subscriptions_with_state().order_by(subscription.c.id)):
            yield with_revision(checked_body(row), row.revision)
        return
    later = change.alias()
    newest = ~exists().where(
        and_(
            later.c.id == change.c.id,
            later.c.revision <= revision,
            tuple_(later.c.revision, later.c.seq) > tuple_(change.c.revision, change.c.seq),
        )
    )
    rows = select(change).where(change.c.revision <= revision, change.c.op != "remove", newest)
    for row in stream.execute(rows.order_by(change.c.id)):
        yield with_revision(checked_row(connection, row).body, row.revision)


def bodies(connection: Connection, status: str) -> Iterator[str]:
    """The subscriptions of a status as they stand in the log, in its order, each checked."""
    stream = connection.execution_options(yield_per=BLOCK)
    rows = subscriptions_with_state().where(subscription.c.status == status)
    return map(checked_body, stream.execute(rows))


def with_revision(body: str, revision: int) -> str:
    """A line of the log with its revision, as `Subscription.to_json` has it."""
    return f'{body[:-1]},"revision":{revision}}}'
