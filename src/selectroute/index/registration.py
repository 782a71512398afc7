"""``subscriptions.jsonl``: subscriptions as lines of JSON, read into an index.

One object a line: ``id``; ``selector`` (none, null or "" takes every message); ``topic``, a filter (none or
null takes every topic); ``dialect`` (default ``jms``); ``seltype``, EXTENDED for a selector that is left to a
provider, otherwise what the selector makes it (STANDARD or NONE); ``from`` and ``to``, the revisions
``[from, to)`` for which the row is valid (``to`` null or absent: until further notice). Other fields are left
alone; blank lines are none.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

from selectroute.index.collector import paused_collector
from selectroute.index.errors import RegistrationError
from selectroute.index.index import Index
from selectroute.index.subscription import EXTENDED, NONE, STANDARD
from selectroute.selector.errors import InvalidSelectorError, SelectRouteError

MAX_LINE = 4 << 20
"""Characters in a line: a selector of the largest configurable size, escaped, and its other fields."""

_STRINGS = ("id", "selector", "topic", "dialect", "seltype")


def build_index(
    lines: Iterable[str], revision: int | None = None, progress: Callable[[int], None] = lambda _: None
) -> Index:
    """Read subscriptions into a new index; with a revision, those that were valid then, otherwise those that
    still are.

    Raises `RegistrationError` naming the line: JSON that is none, a wrong field, an id twice. A selector that
    is none is an `InvalidSelectorError` with a note that names the line. ``progress`` is called with the
    lines read so far.
    """
    index = Index()
    with paused_collector():
        for number, line in enumerate(lines, start=1):
            if number % 10_000 == 0:
                progress(number)
            if line.strip():
                _add(index, number, line, revision)
    return index


def _add(index: Index, number: int, line: str, revision: int | None) -> None:
    try:
        row = _row(line)
        if _valid(row, revision):
            index.add(
                row["id"],
                row.get("selector"),
                row.get("topic"),
                dialect=row.get("dialect") or "jms",
                extended=row.get("seltype") == EXTENDED,
            )
    except InvalidSelectorError as error:
        error.add_note(f"in line {number:,}, subscription {row['id']!r}")
        raise
    except SelectRouteError as error:
        raise RegistrationError(f"line {number:,}: {error}") from error


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
    seltype = row.get("seltype")
    if seltype is not None and seltype != EXTENDED and seltype != (STANDARD if row.get("selector") else NONE):
        known = f"{NONE} without a selector, {STANDARD} with one, or {EXTENDED}"
        raise RegistrationError(f'"seltype" is {known}, not {json.dumps(seltype)[:40]}')
    for name in ("from", "to"):
        if not isinstance(row.get(name), int | None) or isinstance(row.get(name), bool):
            raise RegistrationError(f'"{name}" is a revision, an integer')
    return row


def _valid(row: dict[str, Any], revision: int | None) -> bool:
    start, end = row.get("from"), row.get("to")
    if revision is None:
        return end is None
    return (start is None or start <= revision) and (end is None or revision < end)
