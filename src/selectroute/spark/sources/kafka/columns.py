"""Columns of Kafka records: headers found by their names, and values of JSON bodies, of their bound types.

No Python object is created per message or header::

    lists    [weight: 5, kind: a]  [kind: b]  []  [kind: c, kind: d]
    codes     0          1          1              1        1            names, dictionary-encoded
    rows      0          0          1              3        3
    kind  →  index 1 in row 0, 2 in row 1, none in row 2, 4 in row 3 (the last one counts) → values.take

``kafka/texts.py`` is the reference for the meaning of a text. Here Arrow converts whole columns where its
result is known to be the same; any other column is converted value by value by the reference itself, which
costs a microsecond per message of its batch, and cannot differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from selectroute.kafka.texts import LIMITED, TextError, value_of, value_of_json
from selectroute.match.columns.from_messages import ARROW_TYPES, mixed_array
from selectroute.selector.message import DELIVERY_MODES, HEADER_TYPES, MAX_NAME_LENGTH
from selectroute.selector.names import breaches
from selectroute.selector.values import INTEGERS, Value

Integers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_MANY_NAMES: Final = 2_000
"""Maximum of distinct names in a batch whose pairs are checked for the batch; with more, the rules are
checked for each message, because the pairs would be too many."""


class Headers:
    """Headers of ``len(lists)`` records: a list array of structs of a string and a binary, or NULL."""

    def __init__(self, lists: Any) -> None:
        counts: Integers = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
        flat = lists.flatten()
        self.records = len(lists)
        self.counts = counts.astype(np.int64)
        self._keys, self._values = flat.flatten()
        self._rows: Integers = np.repeat(np.arange(self.records), self.counts)

    @cached_property
    def sizes(self) -> Integers:
        """Bytes of each record's headers and of their names."""
        sizes = lengths(self._keys) + lengths(self._values)
        return np.bincount(self._rows, sizes, self.records).astype(np.int64)

    @cached_property
    def _encoded(self) -> Any:
        return self._keys.dictionary_encode()

    @cached_property
    def names(self) -> dict[str, int]:
        """Distinct names in the batch, each with its code."""
        return {name: code for code, name in enumerate(self._encoded.dictionary.to_pylist()) if name}

    def find(self, wanted: Any) -> Iterator[tuple[int, Any]]:
        """Yield the position in ``wanted``, a string array of header names, and the values, a binary array
        with one value per record, of each name that occurs. O(headers + wanted)."""
        if not len(self._keys):
            return
        known = pc.index_in(self._encoded.dictionary, value_set=wanted.cast(self._keys.type))
        of_code = pc.fill_null(known, -1).to_numpy(zero_copy_only=False)
        positions: npt.NDArray[np.int32] = of_code[self._codes]
        places = np.flatnonzero(positions >= 0)
        present = np.unique(of_code[of_code >= 0])
        if len(present) > 1:
            # Stable, so that the last of a record's headers with the same name stays last.
            order = np.argsort(_narrow(positions[places], len(wanted)), kind="stable")
            places = places[order]
        stops = np.searchsorted(positions[places], present, side="right")
        start = 0
        for position, stop in zip(present, stops, strict=True):
            yield int(position), self._last(places[start:stop])
            start = int(stop)

    def _last(self, places: Integers) -> Any:
        """Return one value per record, NULL if it has none of these headers: of several the last one."""
        rows = self._rows[places]
        if len(places) == self.records and (len(rows) == 0 or np.all(rows[1:] > rows[:-1])):
            return self._values.take(pa.array(places))
        chosen = np.full(self.records, -1, np.int64)
        chosen[rows] = places
        return self._values.take(pa.array(chosen, mask=chosen < 0))

    @cached_property
    def _codes(self) -> Any:
        return self._encoded.indices.to_numpy(zero_copy_only=False)

    def has(self, name: str) -> Mask:
        """Return which records have a header of this name that is not NULL, bool[records]. O(headers)."""
        if name not in self.names:
            return np.zeros(self.records, np.bool_)
        places = np.flatnonzero(self._codes == self.names[name])
        return np.asarray(pc.is_valid(self._last(places)))

    def break_rules(
        self, is_property: Callable[[str], bool], more: Mapping[str, Mask], name_length: int = MAX_NAME_LENGTH
    ) -> Mask:
        """Return which records have property names that break a rule of seed 003, bool[records].

        Args:
            is_property: returns whether a header is a property.
            more: the properties from other sources, and which records have them.
            name_length: a header with a longer name is not a property.
        """
        own = [
            name
            for name in self.names
            if len(name) <= name_length and name not in HEADER_TYPES and is_property(name)
        ]
        names = (*own, *(name for name in more if name not in HEADER_TYPES))
        if len(names) > _MANY_NAMES:
            return self._break_one_by_one(own, more)
        broken = np.zeros(self.records, np.bool_)
        present = dict(more)
        for together in _breaches(names):
            for name in together:
                if name not in present:
                    present[name] = self.has(name)
            broken |= np.logical_and.reduce([present[name] for name in together])
        return broken

    def _break_one_by_one(self, own: Sequence[str], more: Mapping[str, Mask]) -> Mask:
        broken = np.zeros(self.records, np.bool_)
        of_code = {self.names[name]: name for name in own}
        valid = np.asarray(pc.is_valid(self._values))
        stops = np.cumsum(self.counts)
        for row, stop in enumerate(stops):
            places = range(int(stop - self.counts[row]), int(stop))
            last = {int(self._codes[place]): bool(valid[place]) for place in places}
            names = [of_code[code] for code, there in last.items() if there and code in of_code]
            names += [name for name, there in more.items() if there[row] and name not in HEADER_TYPES]
            broken[row] = bool(breaches(names))
        return broken


_breaches = lru_cache(maxsize=256)(breaches)
"""`breaches`, cached because batches of an application have the same names."""


def lengths(array: Any) -> Any:
    """Return the lengths of strings or byte strings in bytes; NULL has none."""
    return pc.fill_null(pc.binary_length(array), 0).to_numpy(zero_copy_only=False)


def _narrow(positions: Any, count: int) -> Any:
    """Return small numbers as 16 bits, which NumPy sorts by counting."""
    return positions.astype(np.int16) if count < 1 << 15 else positions


Column: TypeAlias = tuple[Any, dict[int, TextError]]
"""A column, and the errors of rows that are NULL because their text is not valid for its type."""

_IDS: Final = ("JMSMessageID", "JMSCorrelationID")
_FEW: Final = 64
"""Maximum of distinct texts for the conversion of a whole column of booleans."""


def column_of_texts(texts: Any, type_: str, name: str) -> Column:
    """Convert a binary array of header values to the column of the identifier ``name``. O(rows)."""
    column = None if type_ == "bytes" else _at_once(texts, type_, name)
    if column is not None:
        return column, {}
    return _one_by_one(texts.to_pylist(), lambda text: value_of(text, type_, name), type_, name)


def column_of_json(values: Sequence[Any], type_: str, name: str) -> Column:
    """Convert values of parsed bodies, None where there is none, to a column. O(rows)."""
    return _one_by_one(values, lambda plain: value_of_json(plain, type_, name), type_, name)


def _at_once(texts: Any, type_: str, name: str) -> Any | None:
    """Return the column; None if Arrow's conversion may differ from the reference."""
    try:
        strings = pc.cast(texts, pa.string())  # raises if not UTF-8
        if type_ == "string":
            return strings if name != "JMSDeliveryMode" or _all_in(strings, DELIVERY_MODES) else None
        if type_ == "boolean":
            return _booleans(strings)
        numbers = pc.cast(strings, ARROW_TYPES[type_])
    except pa.ArrowInvalid:
        return None
    if type_ in INTEGERS:
        # Arrow accepts 0x1F, too.
        return None if b"x" in _data(strings).lower() or not _within(numbers, name) else numbers
    # Arrow converts 1e999 to infinity, and accepts names like inf.
    return numbers if pc.all(pc.is_finite(numbers)).as_py() in (True, None) else None


def _booleans(strings: Any) -> Any | None:
    encoded = strings.dictionary_encode()
    if len(encoded.dictionary) > _FEW:
        return None
    meant = [{"true": True, "false": False}.get(text.lower()) for text in encoded.dictionary.to_pylist()]
    return None if None in meant else pa.array(meant, pa.bool_()).take(encoded.indices)


def _all_in(strings: Any, allowed: Sequence[str]) -> bool:
    return bool(pc.all(pc.is_in(strings.drop_null(), pa.array(allowed))).as_py() in (True, None))


def _within(numbers: Any, name: str) -> bool:
    if name not in LIMITED:
        return True
    extremes = pc.min_max(numbers).as_py()
    return extremes["min"] is None or 0 <= extremes["min"] <= extremes["max"] <= 9


def _data(strings: Any) -> bytes:
    buffer = strings.buffers()[2]
    return b"" if buffer is None else buffer.to_pybytes()


def _one_by_one(plain: Iterable[Any], value: Callable[[Any], Value | None], type_: str, name: str) -> Column:
    values: list[Value | None] = []
    errors: dict[int, TextError] = {}
    for row, item in enumerate(plain):
        try:
            values.append(None if item is None else value(item))
        except TextError as error:
            values.append(None)
            errors[row] = error
    if type_ == "bytes":
        if name in _IDS:
            return pa.array(values, pa.binary(24)), errors
        return mixed_array(values), errors  # for dialects without byte strings, too
    return pa.array([getattr(item, "value", item) for item in values], ARROW_TYPES[type_]), errors
