"""Columns that selectors read and that a batch or a frame does not have, or has in a type of no property.

A property that no message has is NULL, which is correct; but a column that was renamed, or has a name in
another case, looks the same and silently matches nothing. Values of a timestamp are unlike every constant, so
that ``NOT (at > 5)`` matches every message; strings are unlike the numbers that a selector compares them
with. Each is reported once.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final, Literal, TypeAlias, get_args

import numpy as np
import pyarrow as pa

from selectroute.arrays import tables as t
from selectroute.arrays.segment import Segment
from selectroute.match.columns.columns import TAGS_OF_TYPES
from selectroute.selector.errors import SelectRouteError
from selectroute.selector.fields import DERIVED
from selectroute.selector.names import INVALID_NAMES
from selectroute.selector.sentences import counted, printable

Missing: TypeAlias = Literal["warn", "error", "ignore"]
"""Action for columns that are missing, or of an unlike type: log a warning, raise an error, or nothing."""

_LOGGER = logging.getLogger("selectroute")
_SHOWN: Final = 20
"""Names listed in a sentence."""

_FALSE: Final = "is false (in the IBM dialects the whole selector)"

_SENTENCES: Final = 1_000
_logged: dict[str, None] = {}
"""Sentences logged by this process, the newest last."""


class MissingColumnError(SelectRouteError):
    """Missing columns that selectors read; ``columns`` are their names."""

    def __init__(self, columns: Collection[str], present: Iterable[str], where: str) -> None:
        self.columns = tuple(columns)
        super().__init__(_sentence(self.columns, present, where))


def check_choice(choice: object, argument: str = "missing") -> None:
    """Raise ValueError for a value of an argument that is not one of `Missing`."""
    if not isinstance(choice, str) or choice not in get_args(Missing):
        raise ValueError(f"{argument} is {choice!r}: give 'warn', 'error' or 'ignore'")


def missing_columns(reads: Iterable[str], present: Collection[str]) -> list[str]:
    """Return the names that selectors read without a column, sorted.

    A field with several names needs a column for only one of them. O(names).
    """
    unread: dict[frozenset[str], str] = {}
    for name in sorted(reads):
        if name in present or name == INVALID_NAMES:
            continue
        others = [other for source in DERIVED.get(name, ()) for other in source.names]
        if not any(other in present for other in others):
            unread.setdefault(frozenset((name, *others)), name)
    return sorted(unread.values())


def report_missing(columns: Collection[str], present: Iterable[str], where: str, missing: Missing) -> None:
    """Log missing columns, each sentence once in this process, or raise an error.

    Args:
        columns: the result of `missing_columns`.
        present: the names of the existing columns.
        where: the owner of the columns, with its article: ``the frame``.
        missing: the action.

    Raises:
        MissingColumnError: columns are missing, and ``missing`` is ``error``.
    """
    if not columns or missing == "ignore":
        return
    if missing == "error":
        raise MissingColumnError(columns, present, where)
    log_once(_sentence(columns, present, where))


def unlike_sentence(error: str, readers: int | None) -> str:
    """Return the warning for a column whose type no property has: the error with column, type and advice, and
    the number of subscriptions that read the column, None if it is not known.
    """
    whose = "subscriptions that read it" if readers is None else f"{readers:,} subscriptions that read it"
    return (
        f"{error}. Until then, values are of an unlike type to the "
        f"{'one subscription that reads it' if readers == 1 else whose}: a comparison with them {_FALSE}, IS "
        "NOT NULL is true. No other subscription is affected"
    )


def unlike_constants(segments: Iterable[Segment], types: Mapping[str, pa.DataType]) -> Iterator[str]:
    """Yield a warning for each column whose values are of another type than the constants that selectors
    compare it with: a string with numbers, a number with strings, a float with doubles that no float equals.

    The constants are those of `types` that keys, IN lists, LIKE and the first range of a clause compare.
    O(attributes + constants of columns of floats), and O(groups + steps) once for a segment.
    """
    for segment in segments:
        arrays = segment.tables
        patterns = segment.like_patterns[1]
        for number, attribute in enumerate(segment.attributes):
            type_ = types.get(attribute.name, pa.null())
            tag = TAGS_OF_TYPES.get(type_.value_type if pa.types.is_dictionary(type_) else type_)
            if tag is None:
                continue
            numbers = arrays.number[arrays.number_first[number] : arrays.number_first[number + 1]]
            has_strings = arrays.string_slot_first[number] < arrays.string_slot_first[number + 1]
            compared = []
            if tag in (t.STRING, t.BOOLEAN) and (len(numbers) or segment.ranged[number]):
                compared.append("numbers")
            if tag != t.STRING and (has_strings or patterns[number]):
                compared.append("strings")
            column = f"column {attribute.name!r} is {type_}, and selectors compare it with "
            if compared:
                yield f"{column}{' and '.join(compared)}: such a comparison {_FALSE}"
            if tag != t.FLOAT:
                continue
            with np.errstate(over="ignore"):  # a double may be beyond all floats
                inexact = numbers[numbers.astype(np.float32) != numbers]
            if len(inexact):
                yield (
                    f"{column}{float(inexact[0])!r}, a double that no float equals: write "
                    f"{float(inexact[0])!r}F in the JMS dialects, or make the column a double"
                )


def log_once(sentence: str) -> None:
    """Log a warning, each sentence once in this process."""
    if sentence in _logged:
        return
    if len(_logged) >= _SENTENCES:
        del _logged[next(iter(_logged))]
    _logged[sentence] = None
    _LOGGER.warning("%s", sentence)


def _sentence(columns: Collection[str], present: Iterable[str], where: str) -> str:
    spelled: dict[str, str] = {}
    for name in present:
        spelled.setdefault(name.casefold(), name)
    shown = [
        f"{printable(name, 60)} (there is {printable(spelled[name.casefold()], 60)})"
        if name.casefold() in spelled
        else printable(name, 60)
        for name in list(columns)[:_SHOWN]
    ]
    more = f" and {len(columns) - _SHOWN:,} more" if len(columns) > _SHOWN else ""
    return (
        f"selectors read {counted(len(columns), 'column')} that {where} does not have: "
        f"{', '.join(shown)}{more}; "
        f"{'it is' if len(columns) == 1 else 'they are'} NULL for every message"
    )
