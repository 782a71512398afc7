"""Readers of subscriptions as lines of JSON into a table: lines of users, and lines that a registry wrote.

A line of a user is what `specification` reads, with an ``id``, and perhaps ``from`` and ``to``, the revisions
``[from, to)`` for which it is valid (``to`` null or absent: no end). A paused one is left out, blank lines
are skipped.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from selectroute.arrays import tables as t
from selectroute.index.destination import NOWHERE, is_destination
from selectroute.index.errors import (
    MAX_REPORTED,
    BuildError,
    InvalidLinesError,
    InvalidSpecError,
    LineProblem,
)
from selectroute.index.snapshot import Snapshot, build_snapshot
from selectroute.index.specification import (
    COLUMNS,
    MAX_NAME,
    SubscriptionSpec,
    SubscriptionStatus,
    check_fields,
    parse_line,
    parsed_subscription,
)
from selectroute.selector.dialect import EXTENDED, NONE, STANDARD
from selectroute.selector.errors import InvalidSelectorError
from selectroute.selector.limits import DEFAULT_LIMITS, Limits

_BLOCK: Final = 1 << 16
"""Lines read at a time."""

_STRINGS = ("id", "selector", "topic", "dialect", "seltype", "status")
_SCHEMA: Final = pa.schema(
    [(name, pa.string()) for name in (*_STRINGS, "destination")] + [("from", pa.int64()), ("to", pa.int64())]
)
_STORED: Final = _SCHEMA.set(
    _SCHEMA.get_field_index("destination"),
    pa.field("destination", pa.struct([("kind", pa.string()), ("name", pa.string())])),
)
"""Columns as in the lines."""

_EXPORT: Final = pa.schema(
    [
        *_STORED,
        ("name", pa.string()),
        ("labels", pa.struct([])),
        ("revision", pa.int64()),
        ("created", pa.string()),
        ("modified", pa.string()),
    ]
)
"""Columns of an export, which Arrow can check by itself if there are no labels."""

_LABELS: Final = re.compile(r'("labels"\s*:\s*)(\{[^{}\\]+\})')
"""Labels of a line without escapes, many of which are alike; braces in a text are for the slow way."""

_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")
"""Escape of half of a pair, which some builds of Arrow accept without the other half."""

_NAME: Final = rf"^[^\x00-\x1f\x7f]{{1,{MAX_NAME}}}$"
"""Regular expression of a valid name, as `specification` checks it."""


class Subscriptions(NamedTuple):
    """Result of reading: a table for `build_snapshot`, and the line of each row, from 1, int64[rows]."""

    table: pa.Table
    lines: t.Array


def stored_subscriptions(lines: Iterable[str], progress: Callable[[int], None] = lambda _: None) -> pa.Table:
    """Return the subscriptions in lines that a registry wrote, which are not checked again. O(lines).
    ``progress`` is called with the number of lines read so far.
    """
    tables = [_SCHEMA.empty_table()]
    count = 0
    for block in _blocks(lines):
        table = _with_destinations(_parsed("\n".join(block), _STORED, "ignore"))
        tables.append(table.select(_SCHEMA.names))
        count += len(block)
        progress(count)
    return pa.concat_tables(tables).select(COLUMNS)


def _blocks(lines: Iterable[str]) -> Iterator[list[str]]:
    rest = iter(lines)
    while block := list(islice(rest, _BLOCK)):
        yield block


def build_from_lines(
    lines: Iterable[str],
    revision: int | None = None,
    progress: Callable[[int], None] = lambda _: None,
    *,
    limits: Limits = DEFAULT_LIMITS,
) -> Snapshot:
    """Return a snapshot of the subscriptions that are valid at a revision, or without one, of those that are
    still valid, with selectors within `limits`.

    Raises `InvalidLinesError` naming the lines that are not valid JSON or have a wrong field. ``progress`` is
    called with the number of lines read so far. O(lines); Arrow reads plain lines, and a block of others is
    read line by line.
    """
    reading = Reading(revision)
    reading.read(lines, progress)
    checked = reading.subscriptions()
    problems, count = reading.problems, reading.wrong
    try:
        snapshot = build_snapshot(checked.table, revision, limits=limits)
    except BuildError as error:
        for row, cause in error.causes.items():
            named = checked.table["id"][row].as_py() if isinstance(cause, InvalidSelectorError) else None
            problems.append(LineProblem(int(checked.lines[row]), cause, named))
        count += error.count
    if problems:
        raise InvalidLinesError(sorted(problems, key=lambda problem: problem.line)[:MAX_REPORTED], count)
    return snapshot


class Reading:
    """State of reading: the tables read so far, and the first invalid lines."""

    def __init__(self, revision: int | None) -> None:
        self.problems: list[LineProblem] = []
        self.wrong = 0
        self._revision = revision
        self._tables: list[pa.Table] = [_SCHEMA.empty_table()]
        self._numbers: list[t.Array] = [np.zeros(0, np.int64)]

    def read(self, lines: Iterable[str], progress: Callable[[int], None]) -> None:
        """Read all lines; report after each block the number of lines read so far."""
        first = 1
        for block in _blocks(lines):
            kept = [number for number, line in enumerate(block, start=first) if not line.isspace()]
            texts = block if len(kept) == len(block) else [block[number - first] for number in kept]
            first += len(block)
            if texts:
                table = _read_block(texts)
                if table is None:
                    table, kept = self._one_by_one(kept, texts)
                valid = _valid(table, self._revision)
                self._tables.append(table.filter(valid))
                self._numbers.append(np.array(kept, np.int64)[valid.to_numpy(zero_copy_only=False)])
            progress(first - 1)

    def subscriptions(self) -> Subscriptions:
        """Return the subscriptions read."""
        table = pa.concat_tables(self._tables).drop_columns(["from", "to", "status"])
        return Subscriptions(table, np.concatenate(self._numbers))

    def _one_by_one(self, numbers: list[int], lines: list[str]) -> tuple[pa.Table, list[int]]:
        rows: list[tuple[Any, ...]] = []
        kept: list[int] = []
        for number, line in zip(numbers, lines, strict=True):
            try:
                rows.append(_row(line))
            except InvalidSpecError as error:
                self.wrong += 1
                if len(self.problems) < MAX_REPORTED:
                    self.problems.append(LineProblem(number, error))
            else:
                kept.append(number)
        columns = zip(*rows, strict=True) if rows else [()] * len(_SCHEMA)
        arrays = [pa.array(column, field.type) for column, field in zip(columns, _SCHEMA, strict=True)]
        return pa.table(arrays, _SCHEMA), kept


def _row(line: str) -> tuple[Any, ...]:
    """Return the values of a line in the order of `_SCHEMA`. Raises `InvalidSpecError`."""
    data = parse_line(line)
    validity = [data.pop(name, None) for name in ("from", "to")] if isinstance(data, dict) else []
    parsed = parsed_subscription(data)
    if parsed.id is None:
        raise InvalidSpecError("/id", "a line needs an id, a string")
    for name, number in zip(("from", "to"), validity, strict=True):
        if number is not None and not (type(number) is int and number.bit_length() < 64):
            raise InvalidSpecError(f"/{name}", "must be a revision, an integer of 64 bits")
    return (*map(data.get, _STRINGS), parsed.spec.destination.text, *validity)


def _read_block(lines: list[str]) -> pa.Table | None:
    """Return the rows of lines that are plain and valid; None if they must be read one by one."""
    text = "".join(lines)
    # No text in JSON has a line feed: where objects end and begin at each, a line is an object.
    is_a_line_each = text.count("}\n{") + text.count("}\r\n{") == len(lines) - 1
    if not is_a_line_each or _SURROGATE.search(text):
        return None
    try:
        for labels in {labels for _, labels in _LABELS.findall(text)}:
            check_fields(SubscriptionSpec.from_json({"labels": parse_line(labels)}))
        table = _parsed(_LABELS.sub(r"\1{}", text), _EXPORT, "error")
    except (InvalidSpecError, pa.ArrowInvalid, UnicodeEncodeError):
        return None
    if table.num_rows != len(lines) or table["id"].null_count:
        return None
    seltype = table["seltype"]
    derived = pc.if_else(pc.equal(pc.fill_null(table["selector"], ""), ""), NONE, STANDARD)
    kind, name = table["destination"].combine_chunks().flatten()
    holds = (
        pc.or_(pc.equal(seltype, EXTENDED), pc.equal(seltype, derived)),
        pc.or_(
            pc.is_null(table["status"]),
            pc.is_in(table["status"], pa.array([*SubscriptionStatus], pa.string())),
        ),
        pc.match_substring_regex(table["name"], _NAME),
        pc.invert(pc.match_substring(table["topic"], "\0")),
        pc.invert(pc.and_(pc.equal(pc.fill_null(kind, NOWHERE), NOWHERE), pc.is_valid(name))),
    )
    if not all(pc.all(pc.fill_null(each, True)).as_py() for each in holds):
        return None
    table = _with_destinations(table).select(_SCHEMA.names)
    known = all(map(is_destination, pc.unique(table["destination"]).drop_null().to_pylist()))
    return table if known else None


def _parsed(text: str, schema: pa.Schema, unknown: str) -> pa.Table:
    """Return lines read by Arrow. Raises ArrowInvalid."""
    data = text.encode()
    options = pa.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior=unknown)
    size = pa.json.ReadOptions(block_size=len(data) + 1)
    return pa.json.read_json(pa.BufferReader(data), size, parse_options=options)


def _with_destinations(table: pa.Table) -> pa.Table:
    """Return a table with destinations as texts."""
    kind, name = table["destination"].combine_chunks().flatten()
    texts = pc.binary_join_element_wise(kind, pc.fill_null(name, ""), ":")
    texts = pc.if_else(pc.equal(kind, NOWHERE), pa.scalar(None, pa.string()), texts)
    return table.set_column(table.schema.get_field_index("destination"), "destination", texts)


def _valid(table: pa.Table, revision: int | None) -> pa.ChunkedArray:
    """Return whether each row is valid at a revision, or still is, and not paused."""
    start, end = table["from"], table["to"]
    runs = pc.fill_null(pc.not_equal(table["status"], SubscriptionStatus.PAUSED.value), True)
    if revision is None:
        return pc.and_(end.is_null(), runs)
    begun = pc.fill_null(pc.less_equal(start, revision), True)
    return pc.and_(pc.and_(begun, runs), pc.fill_null(pc.greater(end, revision), True))
