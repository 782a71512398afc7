"""Import and export: any number of subscriptions as one revision, in bounded memory.

The lines of an import are read and checked in blocks, and the checked subscriptions are written to a
temporary file. Only then a transaction begins, so that a slow client does not block other writers.
"""

from __future__ import annotations

import io
import json
import tempfile
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import IO, Any, Final, Literal, NamedTuple, TypeVar

from sqlalchemy import Connection, and_, delete, exists, select, tuple_
from sqlalchemy.exc import IntegrityError

from selectroute.index.compile.build import paused_collector
from selectroute.index.errors import MAX_REPORTED, InvalidSpecError, LineProblem
from selectroute.index.specification import SubscriptionStatus
from selectroute.registry.authorization import EVERYTHING, Permission
from selectroute.registry.bulk.checking import ACTIVE, CheckedLines, Line, Staged
from selectroute.registry.bulk.helpers import checked_blocks
from selectroute.registry.errors import IdTakenError, ImportLineError, NameTakenError, TooLargeError
from selectroute.registry.log.change_log import BLOCK, checked_row
from selectroute.registry.log.revision import PendingRevision
from selectroute.registry.log.rows import (
    ViewRow,
    added_values,
    batched,
    body_of,
    checked_body,
    from_body,
    subscription_of,
    subscriptions_with_state,
    view_row,
)
from selectroute.registry.log.tables import change, label, subscription
from selectroute.registry.log.transaction import LogRow, last_pauses
from selectroute.registry.model import Progress, Subscription
from selectroute.registry.specification import Budget
from selectroute.selector.limits import Limits
from selectroute.store.engine import indexes_later, insert_values
from selectroute.store.errors import ReadOnlyError

MAX_ROWS: Final = 1_000_000
"""Subscriptions in one import."""

_CHECKED_AT_ONCE: Final = 16_384


@dataclass(slots=True)
class ImportStage:
    """Checked lines in a temporary file."""

    file: IO[bytes]
    rows: int = 0

    def append(self, checked: CheckedLines) -> None:
        """Write lines to the file. Raises `ReadOnlyError`."""
        try:
            self.file.write(checked.text)
            self.file.flush()
        except OSError as error:
            raise _no_room(error) from error

    def blocks(self, size: int) -> Iterator[list[Staged]]:
        """Yield all lines in order, in blocks of `size`; once."""
        self.file.seek(0)
        lines = io.TextIOWrapper(self.file, "utf-8", newline="\n")
        while block := list(islice(lines, size)):
            yield [Staged.of(line) for line in block]


@contextmanager
def staged(
    lines: Iterable[str | bytes],
    limits: Limits,
    max_rows: int,
    budget: Budget,
    progress: Progress | None,
    by: Permission = EVERYTHING,
) -> Iterator[ImportStage]:
    """Read and check the lines of an import, and the caller's permission for each.

    Raises `ImportLineError`, `TooLargeError`, `ReadOnlyError`; `TooCostlyError` with the line that
    exceeds the budget.

    Reading continues after an invalid line, until there are `MAX_REPORTED` of them.
    """
    wrong: list[LineProblem] = []
    with _temporary_file() as file, closing(checked_blocks(_blocks(lines, wrong), limits, by)) as checked:
        stage = ImportStage(file)
        for result in checked:
            if isinstance(result, ImportLineError):
                wrong.extend(result.problems)
            else:
                stage.rows += len(result.numbers)
                over = budget.spend_all(result.literals, result.lengths)
                if over is not None:
                    wrong.append(LineProblem(int(result.numbers[over]), budget.error))
                if not wrong:
                    stage.append(result)
            if len(wrong) >= MAX_REPORTED:
                break
            if stage.rows > max_rows:
                raise TooLargeError(f"an import has at most {max_rows:,} subscriptions")
            if progress is not None:
                progress(stage.rows, 0)
        if wrong:
            raise ImportLineError.of(wrong)
        yield stage


def _blocks(lines: Iterable[str | bytes], wrong: list[LineProblem]) -> Iterator[list[Line]]:
    """Yield the lines with their numbers, in blocks.

    An `ImportLineError` of their source ends them and is added to `wrong`.
    """
    numbered = enumerate(lines, start=1)
    while True:
        block: list[Line] = []
        try:
            block.extend(islice(numbered, _CHECKED_AT_ONCE))
        except ImportLineError as error:
            wrong.extend(error.problems)
        if not block:
            return
        yield block


@contextmanager
def _temporary_file() -> Iterator[IO[bytes]]:
    try:
        file = tempfile.TemporaryFile("w+b")  # noqa: SIM115  closing may fail
    except OSError as error:
        raise _no_room(error) from error
    try:
        yield file
    finally:
        with suppress(OSError):  # a failed write was reported already
            file.close()


def _no_room(error: OSError) -> ReadOnlyError:
    return ReadOnlyError(f"no temporary file can be written: {error.strerror or error}")


_T = TypeVar("_T")

_MANY_ROWS: Final = 20_000
"""Rows of an import from which on it is worth to create indexes at its end."""

# ---- import


def import_stage(
    revision: PendingRevision, stage: ImportStage, mode: Literal["add", "replace"], progress: Progress | None
) -> int:
    """Log the staged subscriptions as one revision, apply them to the view, and return their count."""
    if mode not in ("add", "replace"):
        raise InvalidSpecError("/mode", "the mode of an import must be add or replace")
    done = 0
    with _fewer_indexes(revision, stage, mode), paused_collector():
        write = _write_adds(revision, stage) if mode == "add" else _write_replaces(revision, stage)
        with closing(write):
            for rows in write:
                done += rows
                if progress is not None:
                    progress(done, stage.rows)
    return done


def _write_adds(revision: PendingRevision, stage: ImportStage) -> Generator[int]:
    """Add the staged subscriptions block by block; yield the number of rows of each block.

    The rows of a block are made while SQLite, which needs no interpreter, inserts those of the block
    before.
    """
    with closing(_one_ahead(_Adds.of(revision, block) for block in stage.blocks(BLOCK))) as adds:
        for added in adds:
            added.write(revision)
            yield len(added.block)


def _write_replaces(revision: PendingRevision, stage: ImportStage) -> Generator[int]:
    """Add or replace the staged subscriptions block by block; yield the rows of each."""
    for block in stage.blocks(BLOCK):
        existing = _existing(revision.connection, [line.id for line in block])
        if existing:
            _replace_block(revision, block, existing)
        else:
            _Adds.of(revision, block).write(revision)
        yield len(block)


class _Adds(NamedTuple):
    """Staged lines, and the values of the rows that add them: of the log, the view and the labels."""

    block: list[Staged]
    logged: Sequence[Any]
    view: Sequence[Any]
    labels: Sequence[Any]

    @classmethod
    def of(cls, revision: PendingRevision, block: list[Staged]) -> _Adds:
        first = revision.seq
        logged = revision.chain_adds([(line.id, line.body) for line in block])
        added = [
            (line.id, line.name, line.topic_key, line.dialect, line.status or ACTIVE, line.body)
            for line in block
        ]
        return cls(block, logged, added_values(added, revision.number, first), _label_values(block))

    def write(self, revision: PendingRevision) -> None:
        revision.write_adds(self.logged)
        _insert(revision.connection, self.block, self.view, {"revision": revision.number})
        insert_values(revision.connection, label, self.labels)


def _one_ahead(items: Iterator[_T]) -> Generator[_T]:
    """Yield items, of which a thread makes the next one meanwhile."""
    with ThreadPoolExecutor(1, "selectroute-import") as thread:
        following = thread.submit(next, items, None)
        while (item := following.result()) is not None:
            following = thread.submit(next, items, None)
            yield item


def _fewer_indexes(
    revision: PendingRevision, stage: ImportStage, mode: Literal["add", "replace"]
) -> AbstractContextManager[None]:
    """Return the context in which a large import writes its rows; the indexes are complete at its end.

    An import that replaces reads by the indexes meanwhile, and one into a larger registry would wait for the
    indexes of all other rows.
    """
    if mode == "replace" or stage.rows < max(_MANY_ROWS, revision.logged):
        return nullcontext()
    return indexes_later(revision.connection, (change, subscription, label))


def _replace_block(revision: PendingRevision, block: list[Staged], existing: dict[str, Subscription]) -> None:
    """Log these lines and apply them to the view; the `existing` subscriptions are replaced."""
    connection = revision.connection
    changes: list[LogRow] = []
    last: list[int] = []  # index of each line's last change
    hidden = [
        LineProblem(line.number, _id_taken(old.id))
        for line in block
        if (old := existing.get(line.id)) is not None and not revision.by.sees(old.topic)
    ]
    if hidden:
        raise ImportLineError.of(hidden)
    paused = {id for id, old in existing.items() if old.status is SubscriptionStatus.PAUSED}
    since = _paused_at(connection, [line.id for line in block if line.id in paused and line.status == ACTIVE])
    for line in block:
        id, old = line.id, existing.get(line.id)
        if old is None:
            changes.append(LogRow("add", id, line.body))
        else:
            kept = replace(from_body(line.body, 0), created=old.created)
            changes.append(LogRow("replace", id, body_of(replace(kept, status=old.status))))
            # A changed status is a separate change: readers of the log find each pause and resume.
            if line.status not in (None, old.status):
                now = body_of(replace(kept, status=SubscriptionStatus(line.status)))
                if line.status == SubscriptionStatus.PAUSED:
                    changes.append(LogRow("pause", id, now))
                else:
                    changes.append(LogRow("resume", id, now, "latest", since[id]))
        last.append(len(changes) - 1)
    positions = revision.log_rows(changes)
    rows = [_view_row(line, changes[at], positions[at]) for line, at in zip(block, last, strict=True)]
    for old_ids in batched(existing):
        connection.execute(delete(subscription).where(subscription.c.id.in_(old_ids)))
        connection.execute(delete(label).where(label.c.id.in_(old_ids)))
    _insert(connection, block, tuple(chain.from_iterable(rows)), {})
    insert_values(connection, label, _label_values(block))


def _insert(
    connection: Connection, block: list[Staged], values: Sequence[Any], same: Mapping[str, int]
) -> None:
    """Insert the rows of these lines in the view, see `insert_values`.

    Raises `ImportLineError` for ids and names that are taken.
    """
    try:
        with connection.begin_nested():
            insert_values(connection, subscription, values, same)
    except IntegrityError as error:
        raise _taken(connection, block) from error


def _label_values(block: list[Staged]) -> list[str]:
    """Return the rows of the labels of these lines as one list."""
    values: list[str] = []
    for line in block:
        for name, value in line.labels.items():
            values += (name, value, line.id)
    return values


def _view_row(line: Staged, last: LogRow, position: tuple[int, int]) -> ViewRow:
    assert last.body is not None, "an import removes nothing"
    status = line.status or SubscriptionStatus.ACTIVE if last.op == "add" else json.loads(last.body)["status"]
    return view_row(line.id, line.name, line.topic_key, line.dialect, status, position, last.body)


def _existing(connection: Connection, ids: list[str]) -> dict[str, Subscription]:
    """Return the registered subscriptions among these ids."""
    statement = subscriptions_with_state()
    rows = (connection.execute(statement.where(subscription.c.id.in_(some))) for some in batched(ids))
    return {row.id: subscription_of(row) for row in chain.from_iterable(rows)}


def _paused_at(connection: Connection, ids: list[str]) -> dict[str, int]:
    """Return the revision of the last pause of each of these subscriptions."""
    paused: dict[str, int] = {}
    for some in batched(ids):
        paused |= {id: at for id, at in connection.execute(last_pauses(some))}
    return paused


def _taken(connection: Connection, block: list[Staged]) -> ImportLineError:
    """Return the first `MAX_REPORTED` rows whose id or name is taken in the view or in the rows before."""
    wrong: list[LineProblem] = []
    ids: set[str] = set()
    names: set[str] = set()
    for line in block:
        number, id, name = line.number, line.id, line.name
        if id in ids or connection.execute(select(exists().where(subscription.c.id == id))).scalar():
            wrong.append(LineProblem(number, _id_taken(id)))
        elif (
            name in names or connection.execute(select(exists().where(subscription.c.name == name))).scalar()
        ):
            wrong.append(LineProblem(number, NameTakenError(f"the name {name!r} is taken")))
        if len(wrong) == MAX_REPORTED:
            break
        ids.add(id)
        names.add(name)
    if not wrong:
        raise AssertionError("a row was refused, but no id or name is taken")
    return ImportLineError.of(wrong)


def _id_taken(id: str) -> IdTakenError:
    return IdTakenError(f"there is a subscription {id!r} already")


# ---- export


def exported(connection: Connection, revision: int | None) -> Iterator[str]:
    """Yield all subscriptions in the order of their ids, as lines of JSON."""
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
    """Return the checked bodies of the subscriptions with a status."""
    stream = connection.execution_options(yield_per=BLOCK)
    rows = subscriptions_with_state().where(subscription.c.status == status)
    return map(checked_body, stream.execute(rows))


def with_revision(body: str, revision: int) -> str:
    """Return a body of the log with its revision, in the format of `Subscription.to_json`."""
    return f'{body[:-1]},"revision":{revision}}}'
