"""Reader of ``subscriptions.jsonl``: subscriptions as lines of JSON, read into a table.

One object a line: ``id``; ``selector`` (absent, null or "" matches every message); ``topic``, a filter
(absent or null matches every topic); ``dialect`` (default ``jms``); ``seltype``, EXTENDED for a selector that
is left to a provider, otherwise STANDARD, or NONE without a selector; ``from`` and ``to``, the revisions
``[from, to)`` for which the row is valid (``to`` null or absent: no end); ``destination``, where deliveries
also go (``{"kind": "queue", "name": "ORDERS"}``); ``status``, ``active`` or ``paused``: a paused subscription
is left out. Other fields that a registry exports (``name``, ``labels``, ``revision``, times) are ignored. Any
other field is rejected, and blank lines are skipped.
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

from selectroute.arrays import tables as t
from selectroute.index.build.build import COLUMNS
from selectroute.index.destination import NOWHERE, destination_text, is_destination
from selectroute.index.errors import (
    MAX_REPORTED,
    BuildError,
    InvalidLinesError,
    LineProblem,
    RegistrationError,
)
from selectroute.index.snapshot import Snapshot, build_snapshot
from selectroute.selector.errors import InvalidSelectorError
from selectroute.selector.limits import DEFAULT_LIMITS, MAX_LINE, Limits
from selectroute.selector.selector_type import EXTENDED, NONE, STANDARD
from selectroute.selector.suggestion import unknown_field
from selectroute.selector.syntax.source import SURROGATE

_BLOCK: Final = 1 << 16
"""Lines read at a time."""

ACTIVE: Final = "active"
PAUSED: Final = "paused"

_STRINGS = ("id", "selector", "topic", "dialect", "seltype", "status")
_SCHEMA: Final = pa.schema(
    [(name, COLUMNS.get(name, pa.string())) for name in _STRINGS]
    + [("destination", COLUMNS["destination"]), ("from", pa.int64()), ("to", pa.int64())]
)
_GIVEN: Final = _SCHEMA.set(
    _SCHEMA.get_field_index("destination"),
    pa.field("destination", pa.struct([("kind", pa.string()), ("name", pa.string())])),
)
"""Columns as in the lines."""

_EXPORTED: Final = ("name", "labels", "revision", "created", "modified", "effective_from")
"""Fields of a registry's subscriptions that a snapshot does not have."""

_EXPORT: Final = pa.schema(
    [
        *_GIVEN,
        ("name", pa.string()),
        ("labels", pa.struct([])),
        ("revision", pa.int64()),
        ("created", pa.string()),
        ("modified", pa.string()),
    ]
)
"""Columns of an export without labels, which Arrow can check by itself."""

FIELDS: Final = (*_SCHEMA.names, *_EXPORTED)
"""Fields that a line may have."""

_DESTINATION: Final = ("kind", "name")

_HALF_A_PAIR: Final = re.compile(r"\\u[dD][89a-fA-F]")


class Subscriptions(NamedTuple):
    """Result of reading: a table for `build_snapshot`, and the line of each row, from 1, int64[rows]."""

    table: pa.Table
    lines: t.Array


def read_subscriptions(
    lines: Iterable[str],
    revision: int | None = None,
    progress: Callable[[int], None] = lambda _: None,
    *,
    ignore_unknown: bool = False,
) -> Subscriptions:
    """Return the subscriptions that are valid at a revision, or without one, those that are still valid.

    Raises `InvalidLinesError` naming the lines that are not valid JSON or have a wrong field;
    ``ignore_unknown``, for lines not written by users, ignores unknown fields. ``progress`` is called with
    the number of lines read so far. O(lines); Arrow reads them, and a block with an invalid line is read
    again line by line, to find it.
    """
    reading = _Reading(revision, ignore_unknown)
    reading.read(lines, progress)
    if reading.problems:
        raise InvalidLinesError(reading.problems, reading.wrong)
    return reading.subscriptions()


def build_from_lines(
    lines: Iterable[str],
    revision: int | None = None,
    progress: Callable[[int], None] = lambda _: None,
    *,
    limits: Limits = DEFAULT_LIMITS,
) -> Snapshot:
    """Return a snapshot of the subscriptions of `read_subscriptions`, with selectors within `limits`.

    Raises `InvalidLinesError` naming the invalid lines.
    """
    reading = _Reading(revision, ignore_unknown=False)
    reading.read(lines, progress)
    found = reading.subscriptions()
    problems, count = reading.problems, reading.wrong
    try:
        snapshot = build_snapshot(found.table, revision, limits=limits)
    except BuildError as error:
        for row, cause in error.causes.items():
            named = found.table["id"][row].as_py() if isinstance(cause, InvalidSelectorError) else None
            problems.append(LineProblem(int(found.lines[row]), cause, named))
        count += error.count
    if problems:
        raise InvalidLinesError(sorted(problems, key=lambda one: one.line)[:MAX_REPORTED], count)
    return snapshot


class _Reading:
    """State of reading: the tables read so far, and the first invalid lines."""

    def __init__(self, revision: int | None, ignore_unknown: bool) -> None:
        self.problems: list[LineProblem] = []
        self.wrong = 0
        self._revision = revision
        self._ignore_unknown = ignore_unknown
        self._tables: list[pa.Table] = [_SCHEMA.empty_table()]
        self._numbers: list[t.Array] = [np.zeros(0, np.int64)]

    def read(self, lines: Iterable[str], progress: Callable[[int], None]) -> None:
        """Read all lines; report after each block the number of lines read so far."""
        first = 1
        rest = iter(lines)
        while block := list(islice(rest, _BLOCK)):
            kept = [number for number, line in enumerate(block, start=first) if not line.isspace()]
            given = block if len(kept) == len(block) else [block[number - first] for number in kept]
            first += len(block)
            if given:
                table = _read_block(given, self._ignore_unknown)
                if table is None:
                    table, kept = self._one_by_one(kept, given)
                valid = _valid(table, self._revision)
                self._tables.append(table.filter(valid))
                self._numbers.append(np.array(kept, np.int64)[valid.to_numpy(zero_copy_only=False)])
            progress(first - 1)

    def subscriptions(self) -> Subscriptions:
        """Return the subscriptions read."""
        table = pa.concat_tables(self._tables).drop_columns(["from", "to", "status"])
        return Subscriptions(table, np.concatenate(self._numbers))

    def _one_by_one(self, numbers: list[int], lines: list[str]) -> tuple[pa.Table, list[int]]:
        rows: list[dict[str, Any]] = []
        kept: list[int] = []
        for number, line in zip(numbers, lines, strict=True):
            try:
                rows.append(_row(line, self._ignore_unknown))
            except RegistrationError as error:
                self.wrong += 1
                if len(self.problems) < MAX_REPORTED:
                    self.problems.append(LineProblem(number, error))
            else:
                kept.append(number)
        return pa.Table.from_pylist(rows, _SCHEMA), kept


def _read_block(lines: list[str], ignore_unknown: bool) -> pa.Table | None:
    """Return the rows of lines that are all valid; None if they must be read one by one."""
    text = "".join(lines) if lines[-1].endswith("\n") else "".join(lines) + "\n"
    if _HALF_A_PAIR.search(text):  # Arrow would accept half of a surrogate pair
        return None
    data = text.encode()
    table = None if ignore_unknown else _parsed(data, _EXPORT, "error")
    if table is None and (ignore_unknown or all(map(_has_known_fields, lines))):
        table = _parsed(data, _GIVEN, "ignore")
    if table is None or table.num_rows != len(lines) or table["id"].null_count:
        return None  # an invalid line, one of two objects, or one without an id
    seltype, selector = table["seltype"], table["selector"]
    none = pc.equal(pc.fill_null(selector, ""), "")
    own = pc.if_else(none, NONE, STANDARD)
    known = pc.fill_null(pc.or_(pc.equal(seltype, EXTENDED), pc.equal(seltype, own)), True)
    destinations = _destinations(table["destination"].combine_chunks())
    if destinations is None or not pc.all(known).as_py():
        return None
    if not pc.all(pc.is_in(table["status"], pa.array([ACTIVE, PAUSED, None], pa.string()))).as_py():
        return None
    place = table.schema.get_field_index("destination")
    return table.set_column(place, "destination", destinations).select(_SCHEMA.names)


def _parsed(data: bytes, schema: pa.Schema, unknown: str) -> pa.Table | None:
    """Return lines read by Arrow; None if one is invalid."""
    options = pa.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior=unknown)
    size = pa.json.ReadOptions(block_size=len(data) + 1)
    try:
        return pa.json.read_json(pa.BufferReader(data), size, parse_options=options)
    except pa.ArrowInvalid:
        return None


def _has_known_fields(line: str) -> bool:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(row, dict) and _unknown_field(row) is None


def _unknown_field(row: dict[str, Any]) -> str | None:
    """Return the error text for the first unknown field of a subscription or its destination."""
    for name in row:
        if name not in FIELDS:
            return unknown_field("a subscription", name, FIELDS)
    destination = row.get("destination")
    for name in destination if isinstance(destination, dict) else ():
        if name not in _DESTINATION:
            return unknown_field("a destination", name, _DESTINATION)
    return None


def _destinations(given: pa.StructArray) -> pa.Array | None:
    """Return the texts of destinations; None if one is invalid, which is then found line by line."""
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


def not_json(error: ValueError | RecursionError) -> str:
    """Return the error text for a line that is not valid JSON."""
    if isinstance(error, json.JSONDecodeError):
        return f"not valid JSON: {error.msg} at column {error.colno}"
    return f"not valid JSON: {error}"


def _row(line: str, ignore_unknown: bool) -> dict[str, Any]:
    if len(line) > MAX_LINE:
        raise RegistrationError(f"the line has {len(line):,} characters, at most {MAX_LINE:,}")
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise RegistrationError(not_json(error)) from error
    unknown = _unknown_field(row) if isinstance(row, dict) and not ignore_unknown else None
    if unknown is not None:
        raise RegistrationError(unknown)
    if not isinstance(row, dict) or not isinstance(row.get("id"), str):
        raise RegistrationError('a subscription must be an object with at least an "id", a string')
    for name in _STRINGS:
        if not isinstance(row.get(name), str | None):
            raise RegistrationError(f'"{name}" must be a string, not {json.dumps(row[name])[:40]}')
        if SURROGATE.search(row.get(name) or ""):
            raise RegistrationError(f'"{name}" has half of a surrogate pair, which is not a character')
    seltype = row.get("seltype")
    if seltype is not None and seltype != EXTENDED and seltype != (STANDARD if row.get("selector") else NONE):
        known = f"{NONE} without a selector, {STANDARD} with one, or {EXTENDED}"
        raise RegistrationError(f'"seltype" must be {known}, not {json.dumps(seltype)[:40]}')
    if row.get("status") not in (None, ACTIVE, PAUSED):
        raise RegistrationError(
            f'"status" must be {ACTIVE} or {PAUSED}, not {json.dumps(row["status"])[:40]}'
        )
    row["destination"] = _destination_of(row.get("destination"))
    for name in ("from", "to"):
        number = row.get(name)
        whole = isinstance(number, int) and not isinstance(number, bool)
        if number is not None and not (whole and number.bit_length() < 64):
            raise RegistrationError(f'"{name}" must be a revision, an integer of 64 bits')
    return row


def _destination_of(given: Any) -> str | None:
    """Return the text of one destination. Raises `RegistrationError`."""
    if given is None:
        return None
    if isinstance(given, dict):
        kind, name = given.get("kind"), given.get("name")
        if kind in (None, NOWHERE) and name is None:
            return None
        if isinstance(kind, str) and isinstance(name, str):
            text = destination_text(kind, name)
            if text is not None and is_destination(text):
                return text
    raise RegistrationError(
        '"destination" must be {"kind": "none"}, or have the kind queue or kafka and a valid name, not '
        f"{json.dumps(given)[:60]}"
    )


def _valid(table: pa.Table, revision: int | None) -> pa.ChunkedArray:
    """Return whether each row is valid at a revision, or still is, and not paused."""
    start, end = table["from"], table["to"]
    runs = pc.fill_null(pc.not_equal(table["status"], PAUSED), True)
    if revision is None:
        return pc.and_(end.is_null(), runs)
    begun = pc.fill_null(pc.less_equal(start, revision), True)
    return pc.and_(pc.and_(begun, runs), pc.fill_null(pc.greater(end, revision), True))
