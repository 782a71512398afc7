"""The headers of a batch of Kafka records, found by their names.

No Python object is made per message or header::

    lists    [weight: 5, kind: a]  [kind: b]  []  [kind: c, kind: d]
    codes     0          1          1              1        1            names, dictionary-encoded
    rows      0          0          1              3        3
    kind  →  place 1 in row 0, 2 in row 1, none in row 2, 4 in row 3 (the last one counts) → values.take
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from selectroute.selector.message import HEADER_TYPES, MAX_NAME_LENGTH
from selectroute.selector.names import breaches

Integers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_MANY_NAMES: Final = 2_000
"""With more distinct names in a batch, the rules on names are held to each message's own: a pair of every
name with every other would be too many."""


class Headers:
    """The headers of ``len(lists)`` records: a list array of structs of a string and a binary, or NULL."""

    def __init__(self, lists: Any) -> None:
        counts: Integers = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
        flat = lists.flatten()
        self.records = len(lists)
        self.counts = counts.astype(np.int64)
        self._keys, self._values = flat.flatten()
        self._rows: Integers = np.repeat(np.arange(self.records), self.counts)

    @cached_property
    def sizes(self) -> Integers:
        """The bytes of each record's headers and of their names."""
        sizes = _lengths(self._keys) + _lengths(self._values)
        return np.bincount(self._rows, sizes, self.records).astype(np.int64)

    @cached_property
    def _encoded(self) -> Any:
        return self._keys.dictionary_encode()

    @cached_property
    def names(self) -> dict[str, int]:
        """The distinct names in the batch, each with its code."""
        return {name: code for code, name in enumerate(self._encoded.dictionary.to_pylist()) if name}

    def find(self, wanted: Any) -> Iterator[tuple[int, Any]]:
        """Yield the position in ``wanted``, a string array of header names, and the values, a binary array of
        a value a record, of each of them that occurs. O(headers + wanted)."""
        if not len(self._keys):
            return
        known = pc.index_in(self._encoded.dictionary, value_set=wanted.cast(self._keys.type))
        of_code = pc.fill_null(known, -1).to_numpy(zero_copy_only=False)
        positions: npt.NDArray[np.int32] = of_code[self._codes]
        places = np.flatnonzero(positions >= 0)
        present = np.unique(of_code[of_code >= 0])
        if len(present) > 1:
            # Stable, so that of one record's headers of one name the last one stays last.
            order = np.argsort(_narrow(positions[places], len(wanted)), kind="stable")
            places = places[order]
        stops = np.searchsorted(positions[places], present, side="right")
        start = 0
        for position, stop in zip(present, stops, strict=True):
            yield int(position), self._last(places[start:stop])
            start = int(stop)

    def _last(self, places: Integers) -> Any:
        """The values at these places, in the order of their records: of several of one record the last."""
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
        self,
        is_property: Callable[[str], bool],
        more: Mapping[str, Mask],
        name_length: int = MAX_NAME_LENGTH,
    ) -> Mask:
        """Return which records have property names that break a rule of seed 003, bool[records].

        Args:
            is_property: says of a header's name whether it is a property's.
            more: the properties that come from elsewhere, and which records have them.
            name_length: a longer name is no property's.
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


@lru_cache(maxsize=256)
def _breaches(names: tuple[str, ...]) -> list[tuple[str, ...]]:
    """The breaches among some names: the batches of an application have the same."""
    return breaches(names)


def _lengths(array: Any) -> Any:
    return pc.fill_null(pc.binary_length(array), 0).to_numpy(zero_copy_only=False)


def _narrow(positions: Any, count: int) -> Any:
    """Small numbers in 16 bits, which NumPy sorts by counting."""
    return positions.astype(np.int16) if count < 1 << 15 else positions
