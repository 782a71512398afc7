"""``subscriptions.jsonl``: subscriptions as lines of JSON, read into a table.

One object a line: ``id``; ``selector`` (none, null or "" takes every message); ``topic``, a filter (none or
null takes every topic); ``dialect`` (default ``jms``); ``seltype``, EXTENDED for a selector that is left to a
provider, otherwise what the selector makes it (STANDARD or NONE); ``from`` and ``to``, the revisions
``[from, to)`` for which the row is valid (``to`` null or absent: until further notice); ``destination``,
where deliveries go besides (``{"kind": "queue", "name": "ORDERS"}``). Other fields are left alone; blank
lines are none.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from selectroute.index import tables as t
from selectroute.index.build import COLUMNS, build_snapshot
from selectroute.index.destination import FILES, FILES_REFUSED, NOWHERE, destination_text, is_destination
from selectroute.index.errors import BuildError, RegistrationError
from selectroute.index.snapshot import Snapshot
from selectroute.index.subscription import EXTENDED, NONE, STANDARD
from selectroute.selector.errors import InvalidSelectorError
from selectroute.selector.source import SURROGATE

MAX_LINE = 4 << 20
"""Characters in a line: a selector of the largest configurable size, escaped, and its other fields."""

_BLOCK: Final = 1 << 16
"""Lines that are read at a time."""

_STRINGS = ("id", "selector", "topic", "dialect", "seltype")
_SCHEMA: Final = pa.schema(
    [(name, COLUMNS[name]) for name in _STRINGS]
    + [("destination", COLUMNS["destination"]), ("from", pa.int64()), ("to", pa.int64())]
)
_GIVEN: Final = _SCHEMA.set(
    _SCHEMA.get_field_index("destination"),
    pa.field("destination", pa.struct([("kind", pa.string()), ("name", pa.string())])),
)
"""The columns as the lines have them."""

_HALF_A_PAIR: Final = re.compile(r"\\u[dD][89a-fA-F]")


class Subscriptions(NamedTuple):
    """What was read: a table for `build_snapshot`, and the line of each row, from 1, int64[rows]."""

    table: pa.Table
    lines: t.Array


def read_subscriptions(
    lines: Iterable[str], revision: int | None = None, progress: Callable[[int], None] = lambda _: None
) -> Subscriptions:
    """Read subscriptions; with a revision, those that were valid then, otherwise those that still are.

    Raises `RegistrationError` naming the line: JSON that is none, a wrong field. ``progress`` is called with
    the lines read so far. O(lines); Arrow reads them, and a block with a line that it refuses is read again
    line by line, to say which.
    """
    tables: list[pa.Table] = [_SCHEMA.empty_table()]
    numbers: list[t.Array] = [np.zeros(0, np.int64)]
    first = 1
    rest = iter(lines)
    while block := list(islice(rest, _BLOCK)):
        kept = [number for number, line in enumerate(block, start=first) if not line.isspace()]
        given = block if len(kept) == len(block) else [block[number - first] for number in kept]
        first += len(block)
        if given:
            table = _read_block(given)
            if table is None:
                table = pa.Table.from_pylist(
                    [_numbered_row(number, line) for number, line in zip(kept, given, strict=True)], _SCHEMA
                )
            valid = _valid(table, revision)
            tables.append(table.filter(valid))
            numbers.append(np.array(kept)[valid.to_numpy(zero_copy_only=False)])
        progress(first - 1)
    return Subscriptions(pa.concat_tables(tables).drop_columns(["from", "to"]), np.concatenate(numbers))


def build_from_lines(
    lines: Iterable[str], revision: int | None = None, progress: Callable[[int], None] = lambda _: None
) -> Snapshot:
    """A snapshot of the subscriptions that `read_subscriptions` reads.

    Raises as that does; of a selector that is none, `InvalidSelectorError` with a note that names the line,
    and `RegistrationError` of any other subscription that cannot be.
    """
    found = read_subscriptions(lines, revision, progress)
    try:
        return build_snapshot(found.table, revision)
    except BuildError as error:
        line = f"line {int(found.lines[error.row]):,}"
        if isinstance(error.cause, InvalidSelectorError):
            error.cause.add_note(f"in {line}, subscription {found.table['id'][error.row].as_py()!r}")
            raise error.cause from None
        raise RegistrationError(f"{line}: {error.cause}") from error.cause


def _read_block(lines: list[str]) -> pa.Table | None:
    """The rows of some lines that all are subscriptions; None to read them one by one."""
    text = "".join(lines) if lines[-1].endswith("\n") else "".join(lines) + "\n"
    if _HALF_A_PAIR.search(text):  # Arrow would take a lone half of a surrogate pair for a character
        return None
    options = pa.json.ParseOptions(explicit_schema=_GIVEN, unexpected_field_behavior="ignore")
    data = text.encode()
    try:
        table = pa.json.read_json(
            pa.BufferReader(data), pa.json.ReadOptions(block_size=len(data) + 1), parse_options=options
        )
    except pa.ArrowInvalid:
        return None
    if table.num_rows != len(lines) or table["id"].null_count:
        return None  # a line of two objects, or one without an id
    seltype, selector = table["seltype"], table["selector"]
    none = pc.equal(pc.fill_null(selector, ""), "")
    own = pc.if_else(none, NONE, STANDARD)
    known = pc.fill_null(pc.or_(pc.equal(seltype, EXTENDED), pc.equal(seltype, own)), True)
    destinations = _destinations(table["destination"].combine_chunks())
    if destinations is None or not pc.all(known).as_py():
        return None
    place = table.schema.get_field_index("destination")
    return table.set_column(place, "destination", destinations).select(_SCHEMA.names)


def _destinations(given: pa.StructArray) -> pa.Array | None:
    """The texts of destinations; None if there is one that cannot be, which then is found line by line."""
    if given.null_count == len(given):
        return pa.nulls(len(given), pa.string())
    kind, name = given.flatten()
    nowhere = pc.equal(pc.fill_null(kind, NOWHERE), NOWHERE)
    if pc.any(pc.and_(nowhere, pc.is_valid(name))).as_py():
        return None
    texts = pc.binary_join_element_wise(kind, pc.fill_null(name, ""), ":")
    texts = pc.if_else(nowhere, pa.scalar(None, pa.string()), texts)
    known = all(is_destination(text) for text in pc.unique(texts).drop_null().to_pylist())
    return texts if known else None


def _numbered_row(number: int, line: str) -> dict[str, Any]:
    try:
        return _row(line)
    except RegistrationError as error:
        raise RegistrationError(f"line {number:,}: {error}") from error.__cause__


def _row(line: str) -> dict[str, Any]:
    if len(line) > MAX_LINE:
        raise RegistrationError(f"the line has {len(line):,} characters, at most {MAX_LINE:,}")
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise RegistrationError(f"this is no JSON: {error}") from error
    if not isinstance(row, dict) or not isinstance(row.get("id"), str):
        raise RegistrationError('a subscription is an object with at least an "id", a string')
    for name in _STRINGS:
        if not isinstance(row.get(name), str | None):
            raise RegistrationError(f'"{name}" is a string, not {json.dumps(row[name])[:40]}')
        if SURROGATE.search(row.get(name) or ""):
            raise RegistrationError(f'"{name}" has half of a surrogate pair, which is no character')
    seltype = row.get("seltype")
    if seltype is not None and seltype != EXTENDED and seltype != (STANDARD if row.get("selector") else NONE):
        known = f"{NONE} without a selector, {STANDARD} with one, or {EXTENDED}"
        raise RegistrationError(f'"seltype" is {known}, not {json.dumps(seltype)[:40]}')
    row["destination"] = _destination_of(row.get("destination"))
    for name in ("from", "to"):
        number = row.get(name)
        whole = isinstance(number, int) and not isinstance(number, bool)
        if number is not None and not (whole and number.bit_length() < 64):
            raise RegistrationError(f'"{name}" is a revision, an integer of 64 bits')
    return row


def _destination_of(given: Any) -> str | None:
    """The text of one destination. Raises `RegistrationError`."""
    if given is None:
        return None
    if isinstance(given, dict):
        kind, name = given.get("kind"), given.get("name")
        if kind == FILES and name is None:
            raise RegistrationError(FILES_REFUSED)
        if kind in (None, NOWHERE) and name is None:
            return None
        if isinstance(kind, str) and isinstance(name, str):
            text = destination_text(kind, name)
            if text is not None and is_destination(text):
                return text
    raise RegistrationError(
        '"destination" is {"kind": "none"}, or of the kind queue or kafka with the name of one, not '
        f"{json.dumps(given)[:60]}"
    )


def _valid(table: pa.Table, revision: int | None) -> pa.ChunkedArray:
    """Whether each row is valid at a revision, or still is."""
    start, end = table["from"], table["to"]
    if revision is None:
        return end.is_null()
    begun = pc.fill_null(pc.less_equal(start, revision), True)
    return pc.and_(begun, pc.fill_null(pc.greater(end, revision), True))
