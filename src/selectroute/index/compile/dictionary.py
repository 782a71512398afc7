"""Constants of a snapshot: a code for each key of each attribute, and hash tables built without a Python
loop.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import accumulate

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from selectroute.arrays.hashing import hash_strings
from selectroute.arrays.tables import (
    BYTES,
    CODE_FALSE,
    CODE_NULL,
    CODE_TRUE,
    EMPTY_SLOT,
    FIRST_CODE,
    STRING,
    Array,
)
from selectroute.clauses.access import FALSE, NULL, TRUE, Key

_FIXED: dict[Key, int] = {NULL: CODE_NULL, FALSE: CODE_FALSE, TRUE: CODE_TRUE}

_SMALL = 4096


class Dictionary:
    """Codes of one attribute's keys, assigned in the order of the requests.

    Strings added as a column remain a column, in ``columns``; their codes follow those of ``codes``. No
    single key may be added after a column.
    """

    def __init__(self) -> None:
        self.codes: dict[Key, int] = dict(_FIXED)
        self.columns: list[pa.Array] = []

    def code(self, key: Key) -> int:
        """Return the code of a key, a new one for a new key. O(1)."""
        assert not self.columns, "single keys come before columns"
        return self.codes.setdefault(key, len(self.codes))

    def add_column(self, strings: pa.Array) -> Array:
        """Return the codes of distinct strings, int32, once for each attribute. O(length)."""
        assert not self.columns, "an attribute has one column of keys"
        known = [key for key in self.codes if isinstance(key, str)]
        place = pc.index_in(strings, value_set=pa.array(known, strings.type))
        new = place.is_null().to_numpy(zero_copy_only=False)
        codes = np.empty(len(strings), np.int32)
        codes[new] = np.arange(len(self.codes), len(self.codes) + int(new.sum()))
        own = np.array([self.codes[key] for key in known], np.int32)
        if len(own):
            codes[~new] = own[place.drop_null().to_numpy()]
        self.columns.append(strings.filter(pa.array(new)))
        return codes


@dataclass(slots=True)
class AttributeCodes:
    """Attributes of a segment, numbered in the order of the requests, with the codes of their keys. Shared by
    the writer of entries and the programs.
    """

    numbers: dict[str, int] = field(default_factory=dict)
    dictionaries: list[Dictionary] = field(default_factory=list)
    coded: set[int] = field(default_factory=set)
    """Attributes with keys that have codes."""
    plain: set[int] = field(default_factory=set)
    """Attributes that a dialect without byte strings reads."""
    byte_strings: bool = False
    """True if the dialect of the subscription that is being added has byte strings."""

    def number(self, name: str) -> int:
        """Return the number of an attribute, a new one for a new attribute."""
        number = self.numbers.setdefault(name, len(self.numbers))
        if number == len(self.dictionaries):
            self.dictionaries.append(Dictionary())
        if not self.byte_strings:
            self.plain.add(number)
        return number

    def code(self, attribute: int, key: Key) -> int:
        """Return the code of a key, a new one for a new key."""
        self.coded.add(attribute)
        return self.dictionaries[attribute].code(key)

    def column(self, attribute: int, keys: pa.Array) -> Array:
        """Return the codes of distinct strings, int32; add single keys of the attribute before."""
        self.coded.add(attribute)
        return self.dictionaries[attribute].add_column(keys)


def dictionary_tables(dictionaries: list[Dictionary]) -> dict[str, Array]:
    """Return the arrays ``string_…``, ``number…`` and ``large_float…`` of `Tables` for all attributes."""
    texts: list[bytes | memoryview] = []
    lengths: list[Array] = [np.zeros(1, np.int64)]  # so that their sums begin at 0
    codes: list[Array] = []
    tags: list[Array] = []
    counts: list[int] = []
    numbers: list[dict[float, int]] = []
    large: list[dict[float, int]] = []
    for dictionary in dictionaries:
        strings: list[bytes] = []
        string_codes: list[int] = []
        string_tags: list[int] = []
        plain: dict[float, int] = {}
        floats: dict[float, int] = {}
        for key, code in dictionary.codes.items():
            if isinstance(key, str | bytes):
                # Columns are UTF-8, so the bytes of a lone surrogate match no value.
                strings.append(key.encode("utf-8", "surrogatepass") if isinstance(key, str) else key)
                string_codes.append(code)
                string_tags.append(STRING if isinstance(key, str) else BYTES)
            elif isinstance(key, float):
                plain[key] = code
            elif len(key) == 2:
                floats[key[1]] = code
            elif code >= FIRST_CODE:
                raise AssertionError(f"key {key!r} has no place")
        texts += strings
        lengths.append(np.fromiter(map(len, strings), np.int64, len(strings)))
        codes.append(np.array(string_codes, np.int32))
        tags.append(np.array(string_tags, np.uint8))
        for column in dictionary.columns:
            large_column = column.cast(pa.large_binary())
            _, offset_buffer, data_buffer = large_column.buffers()
            first = np.frombuffer(offset_buffer, np.int64)[: len(column) + 1]
            texts.append(memoryview(data_buffer)[int(first[0]) : int(first[-1])] if data_buffer else b"")
            lengths.append(np.diff(first))
            codes.append(
                np.arange(len(dictionary.codes), len(dictionary.codes) + len(column), dtype=np.int32)
            )
            tags.append(np.full(len(column), STRING, np.uint8))
        counts.append(len(strings) + sum(map(len, dictionary.columns)))
        numbers.append(plain)
        large.append(floats)
    data = np.frombuffer(b"".join(texts), np.uint8)
    offsets = np.cumsum(np.concatenate(lengths))
    string_tag = _concatenated(tags, np.uint8)
    hashes = hash_strings(data, offsets, string_tag)
    slots, slot_first = [], [0]
    start = 0
    for count in counts:
        slots.append(string_slots(hashes[start : start + count], start))
        slot_first.append(slot_first[-1] + len(slots[-1]))
        start += count
    return {
        "string_slot_first": np.array(slot_first, np.int64),
        "string_slot": _concatenated(slots, np.uint64),
        "string_code": _concatenated(codes, np.int32),
        "string_tag": string_tag,
        "string_first": offsets,
        "string_bytes": data,
        **_sorted_numbers("number", numbers),
        **_sorted_numbers("large_float", large),
    }


def _sorted_numbers(name: str, tables: list[dict[float, int]]) -> dict[str, Array]:
    keys = [np.array(sorted(table), np.float64) for table in tables]
    codes = [np.array([table[key] for key in sorted(table)], np.int32) for table in tables]
    return {
        f"{name}_first": np.array([0, *accumulate(map(len, keys))], np.int64),
        name: _concatenated(keys, np.float64),
        f"{name}_code": _concatenated(codes, np.int32),
    }


def _concatenated(arrays: list[Array], dtype: type) -> Array:
    return np.concatenate(arrays).astype(dtype) if arrays else np.zeros(0, dtype)


def string_slots(hashes: Array, start: int) -> Array:
    """Return the hash table of the strings ``start``, ``start`` + 1, … with these hashes, see `Tables`.

    The half of the hash in a slot excludes nearly every other string without a comparison of bytes.
    """
    spare = 4 if len(hashes) <= _SMALL else 2  # small tables: fewer collisions for little memory
    size = 1 << (spare * len(hashes) - 1).bit_length() if len(hashes) else 0
    table = open_addressing(hashes, 0, size, size)
    strings = np.arange(start, start + len(hashes), dtype=np.uint64)
    slots = np.append(hashes >> np.uint64(32) << np.uint64(32) | strings, np.uint64(EMPTY_SLOT))
    return slots[table]


def open_addressing(hashes: Array, first: Array | int, sizes: Array | int, total: int) -> Array:
    """Return hash tables of ``total`` slots together, linear probing: slot → position in `hashes` or -1.

    Hash i is in the table that begins at ``first`` and has ``sizes`` slots, a power of two, at most half of
    them used; arrays of the length of `hashes`, or one number for all. Expected O(len(hashes)).

    Invariant: from the slot ``hash & (size - 1)`` of a table on, no empty slot comes before the entry's slot.
    """
    table = np.full(total, -1, np.int64)
    waiting = np.arange(len(hashes))
    mask = np.broadcast_to(np.asarray(sizes, np.int64) - 1, hashes.shape)
    slot = (hashes.astype(np.uint64) & mask.astype(np.uint64)).astype(np.int64)
    base = np.broadcast_to(np.asarray(first, np.int64), hashes.shape)
    while len(waiting):
        place = base[waiting] + slot[waiting]
        free = table[place] < 0
        table[place[free]] = waiting[free]  # the last of several for one slot
        waiting = waiting[table[place] != waiting]
        slot[waiting] = slot[waiting] + 1 & mask[waiting]
    return table
