"""Selectors as data: the text of each, and its truth over columns of messages in NumPy, by no code of ours.

A workload whose selectors are more than one shape makes them of these parts. The text goes to the engines.
The truth is what brute force computes: where among some rows of a batch a condition is TRUE, or where it is
FALSE; a comparison with NULL, being UNKNOWN, is neither. NOT asks for the other of the two; AND is FALSE
where a part is.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Bools = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.int64]
Constant = str | int | float | bool

_OPERATORS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "=": operator.eq,
    "<>": operator.ne,
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
_NO_CODE: Final = -2
"""What no row has: a constant that is no value of the batch."""


class Columns:
    """A batch of messages as NumPy arrays; strings as the numbers of their distinct values."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.rows = batch.num_rows
        self._present: dict[str, Bools | None] = {}
        self._values: dict[str, npt.NDArray[Any]] = {}
        self._strings: dict[str, tuple[pa.Array, dict[str, int]]] = {}
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            self._present[name] = (
                column.is_valid().to_numpy(zero_copy_only=False) if column.null_count else None
            )
            if pa.types.is_string(column.type):
                coded = column.dictionary_encode()
                self._values[name] = coded.indices.fill_null(-1).to_numpy()
                words = coded.dictionary
                self._strings[name] = words, {word: code for code, word in enumerate(words.to_pylist())}
            else:
                # Without NULL; wide enough for every constant that a selector compares it with.
                plain = column.fill_null(False if pa.types.is_boolean(column.type) else 0)
                wide = pa.bool_() if pa.types.is_boolean(column.type) else _wide(column.type)
                self._values[name] = plain.cast(wide).to_numpy(zero_copy_only=False)

    def present(self, name: str, rows: Rows | None) -> Bools | None:
        """Which rows have a value: None for all of them."""
        if name not in self._values:
            return np.zeros(self.rows if rows is None else len(rows), np.bool_)
        mask = self._present[name]
        return mask if mask is None or rows is None else mask[rows]

    def values(self, name: str, rows: Rows | None) -> npt.NDArray[Any]:
        """The values of rows: numbers, booleans, or codes of strings; anything where there is none."""
        if name not in self._values:
            return np.zeros(self.rows if rows is None else len(rows), np.int32)
        values = self._values[name]
        return values if rows is None else values[rows]

    def code(self, name: str, value: Constant) -> Constant:
        """What stands for a constant among `values`."""
        if not isinstance(value, str):
            return value
        return self._strings[name][1].get(value, _NO_CODE) if name in self._strings else _NO_CODE

    def like(self, name: str, pattern: str) -> Bools:
        """For each code of a column whether its string is like a pattern. NumPy has none: this is Arrow's."""
        if name not in self._strings:
            return np.zeros(1, np.bool_)
        found = pc.match_like(self._strings[name][0], pattern).to_numpy(zero_copy_only=False)
        return np.append(found, False)  # for -1, the code of NULL


class Condition(Protocol):
    """A part of a selector."""

    def text(self) -> str:
        """As a selector has it."""

    def where(self, columns: Columns, rows: Rows | None, truth: bool = True) -> Bools:
        """Where it is true (or where it is false), of some rows or of all."""


@dataclass(frozen=True, slots=True)
class Compare:
    """``name op value``."""

    name: str
    op: str
    value: Constant

    def text(self) -> str:
        """See `Condition`."""
        return f"{self.name} {self.op} {_literal(self.value)}"

    def where(self, columns: Columns, rows: Rows | None, truth: bool = True) -> Bools:
        """See `Condition`."""
        found = _OPERATORS[self.op](columns.values(self.name, rows), columns.code(self.name, self.value))
        return _known(found, columns.present(self.name, rows), truth)


@dataclass(frozen=True, slots=True)
class Between:
    """``name BETWEEN low AND high``."""

    name: str
    low: int | float
    high: int | float

    def text(self) -> str:
        """See `Condition`."""
        return f"{self.name} BETWEEN {_literal(self.low)} AND {_literal(self.high)}"

    def where(self, columns: Columns, rows: Rows | None, truth: bool = True) -> Bools:
        """See `Condition`."""
        values = columns.values(self.name, rows)
        found = (values >= self.low) & (values <= self.high)
        return _known(found, columns.present(self.name, rows), truth)


@dataclass(frozen=True, slots=True)
class In:
    """``name IN ('…', '…')``."""

    name: str
    words: tuple[str, ...]

    def text(self) -> str:
        """See `Condition`."""
        return f"{self.name} IN ({', '.join(map(_literal, self.words))})"

    def where(self, columns: Columns, rows: Rows | None, truth: bool = True) -> Bools:
        """See `Condition`."""
        values = columns.values(self.name, rows)
        found = np.zeros(len(values), np.bool_)
        for word in self.words:
            found |= values == columns.code(self.name, word)
        return _known(found, columns.present(self.name, rows), truth)


@dataclass(frozen=True, slots=True)
class Like:
    """``name LIKE 'pattern'``, without ESCAPE."""

    name: str
    pattern: str

    def text(self) -> str:
        """See `Condition`."""
        return f"{self.name} LIKE {_literal(self.pattern)}"

    def where(self, columns: Columns, rows: Rows | None, truth: bool = True) -> Bools:
        """See `Condition`."""
        found = columns.like(self.name, self.pattern)[columns.values(self.name, rows)]
        return _known(found, columns.present(self.name, rows), truth)


@dataclass(frozen=True, slots=True)
class IsNull:
    """``name IS NULL``, or ``IS NOT NULL``."""

    name: str
    null: bool = True

    def text(self) -> str:
        """See `Condition`."""
        return f"{self.name} IS {'' if self.null else 'NOT '}NULL"

    def where(self, columns: Columns, rows: Rows | None, truth: bool = True) -> Bools:
        """See `Condition`."""
        present = columns.present(self.name, rows)
        if present is None:
            present = np.ones(len(columns.values(self.name, rows)), np.bool_)
        return present if self.null is not truth else ~present


@dataclass(frozen=True, slots=True)
class Sum:
    """``first + second * 2 op value``."""

    first: str
    second: str
    op: str
    value: int | float

    def text(self) -> str:
        """See `Condition`."""
        return f"{self.first} + {self.second} * 2 {self.op} {_literal(self.value)}"

    def where(self, columns: Columns, rows: Rows | None, truth: bool = True) -> Bools:
        """See `Condition`."""
        total = columns.values(self.first, rows) + columns.values(self.second, rows).astype(np.float64) * 2
        found = _known(_OPERATORS[self.op](total, self.value), columns.present(self.first, rows), truth)
        present = columns.present(self.second, rows)
        return found if present is None else found & present


@dataclass(frozen=True, slots=True)
class Not:
    """``NOT (part)``."""

    part: Condition

    def text(self) -> str:
        """See `Condition`."""
        return f"NOT ({self.part.text()})"

    def where(self, columns: Columns, rows: Rows | None, truth: bool = True) -> Bools:
        """See `Condition`."""
        return self.part.where(columns, rows, not truth)


@dataclass(frozen=True, slots=True)
class And:
    """``part AND part``, each no OR unless `Or` stands in parentheses of its own."""

    parts: tuple[Condition, ...]

    def text(self) -> str:
        """See `Condition`."""
        return " AND ".join(_nested(part) for part in self.parts)

    def where(self, columns: Columns, rows: Rows | None, truth: bool = True) -> Bools:
        """See `Condition`."""
        return _reduce(self.parts, columns, rows, truth, every=truth)


@dataclass(frozen=True, slots=True)
class Or:
    """``part OR part``."""

    parts: tuple[Condition, ...]

    def text(self) -> str:
        """See `Condition`."""
        return " OR ".join(part.text() for part in self.parts)

    def where(self, columns: Columns, rows: Rows | None, truth: bool = True) -> Bools:
        """See `Condition`."""
        return _reduce(self.parts, columns, rows, truth, every=not truth)


def matching(condition: Condition, columns: Columns) -> Rows:
    """Return the rows where a selector is true.

    The parts of an AND are taken one after another, each for the rows that are left: without it brute force
    would be several times slower.
    """
    parts: Sequence[Condition] = condition.parts if isinstance(condition, And) else (condition,)
    rows: Rows = np.flatnonzero(parts[0].where(columns, None))
    for part in parts[1:]:
        if not len(rows):
            break
        rows = rows[part.where(columns, rows)]
    return rows


def _known(found: Bools, present: Bools | None, truth: bool) -> Bools:
    if not truth:
        found = ~found
    return found if present is None else found & present


def _reduce(
    parts: Sequence[Condition], columns: Columns, rows: Rows | None, truth: bool, every: bool
) -> Bools:
    found = parts[0].where(columns, rows, truth)
    for part in parts[1:]:
        other = part.where(columns, rows, truth)
        found = found & other if every else found | other
    return found


def _wide(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_floating(kind):
        return pa.float64()
    return pa.int64() if pa.types.is_int64(kind) else pa.int32()


def _nested(part: Condition) -> str:
    return f"({part.text()})" if isinstance(part, Or) else part.text()


def _literal(value: Constant) -> str:
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    return f"'{value}'" if isinstance(value, str) else str(value)
