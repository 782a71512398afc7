"""Warnings of `selector check`, printed on standard error when subscriptions are registered."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from selectroute.selector.strict_json import parse_json

if TYPE_CHECKING:
    from selectroute.clauses.analysis import SelectorWarning

CHECKED: Final = 10_000
"""Selectors of one command that are checked at most."""

_SECONDS: Final = 1.0
_SHOWN: Final = 5
_KEPT_BYTES: Final = 16 << 20


def warnings_of(row: Mapping[str, Any]) -> tuple[SelectorWarning, ...]:
    """Return the warnings of a subscription's selector; none if it is extended or too large for a check."""
    from selectroute.clauses.analysis import registered_warnings

    text, seltype = row.get("selector"), row.get("seltype")
    if not isinstance(text, str):
        return ()
    dialect = row.get("dialect") or "jms"
    return registered_warnings(text, dialect, seltype if isinstance(seltype, str) else None)


def warn_of_selector(row: Mapping[str, Any]) -> None:
    """Print the warnings of one subscription's selector on standard error."""
    warnings = warnings_of(row)
    for warning in warnings[:_SHOWN]:
        print(f"warning: {warning}", file=sys.stderr)
    if len(warnings) > _SHOWN:
        print(f"  and {len(warnings) - _SHOWN:,} more; see `selectroute selector check`", file=sys.stderr)


def warn_of_selectors(rows: Iterable[Mapping[str, Any]], total: int) -> None:
    """Print the count of selectors with probable mistakes and the first few, of those checked within a
    second. A selector that is merely not indexable is not counted.
    """
    from selectroute.clauses.analysis import NOT_INDEXABLE

    started, checked, suspects = time.perf_counter(), 0, []
    for row in rows:
        if time.perf_counter() - started > _SECONDS:
            break
        checked += 1
        warnings = [warning for warning in warnings_of(row) if warning.kind != NOT_INDEXABLE]
        if warnings:
            suspects.append(f"  {row['id']}: {warnings[0]}")
    if suspects:
        of = "" if checked == total else f" of the first {checked:,}"
        noun = "selector is" if len(suspects) == 1 else "selectors are"
        shown = suspects[:_SHOWN]
        if len(suspects) > len(shown):
            shown.append(f"  and {len(suspects) - len(shown):,} more; see `selectroute selector check`")
        print(
            "\n".join([f"warning: {len(suspects):,} {noun} probably mistaken{of}:", *shown]), file=sys.stderr
        )


class FirstLines:
    """First lines of an input, kept while another reader consumes all lines; bounded in number and bytes."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._lines = lines
        self._kept: list[str] = []
        self._bytes = 0

    def __iter__(self) -> Iterator[str]:
        for line in self._lines:
            if len(self._kept) < CHECKED and self._bytes + len(line) <= _KEPT_BYTES:
                self._kept.append(line)
                self._bytes += len(line)
            yield line

    def rows(self) -> Iterator[Mapping[str, Any]]:
        """Yield the subscriptions of the kept lines; those without an id are named by their lines."""
        for number, line in enumerate(self._kept, start=1):
            if line.strip():
                row = parse_json(line)
                yield {**row, "id": row.get("id") or f"line {number:,}"}
