"""Arrays of the kernel in structs that are passed by address, instead of array by array.

numba unboxes each array of a call from Python, and counts references to it: 0.2 µs each, which for the
seventy arrays of the kernel is more than matching a message; and a call between compiled functions copies
seven words of each. The description of a struct in memory has, in words of eight bytes, the address and the
shape of each array. Compiled code makes the arrays of the NamedTuple from it, of which those that it does
not use cost nothing::

    tables = segment_at(segment).tables        # once, at the start of a function
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Annotated, Any, Final, NamedTuple, NoReturn, get_args, get_origin, get_type_hints

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import types
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array
from numba.np.numpy_support import from_dtype

from selectroute.arrays import tables as t
from selectroute.arrays.segment import Segment
from selectroute.match.short_strings import ShortStrings, short_strings

READONLY: Final = "only read"
"""Annotation of an array, or of a struct in a struct: its arrays are only read."""

WORD: Final = 8
"""Bytes of a word."""

_WORD = ir.IntType(8 * WORD)


class SegmentArrays(NamedTuple):
    """Arrays of a segment that the kernel reads."""

    tables: Annotated[t.Tables, READONLY]
    short: ShortStrings
    leaf_groups: Annotated[t.Int64, t.MATRIX]  # see `Segment.leaf_groups`
    terms: t.Int32  # see `Segment.scan_terms`
    shared_terms: t.Int64  # [1], how many numbers `terms` has
    single: Annotated[t.Int32, READONLY]  # this and the next two: see `Segment.single_terms`
    always: Annotated[t.UInt8, READONLY]
    never: Annotated[t.UInt8, READONLY]


class Verdicts(NamedTuple):
    """Verdicts of a segment's patterns on a batch's strings, in cells of two bits: 0 unknown, 2 no, 3 yes.
    The cell of a pattern and a string is ``first + pattern * strings + string``, by their numbers.
    """

    strings: Annotated[t.Int32, t.MATRIX]  # [attributes, rows], the number of a row's string among the
    # distinct ones of its column
    patterns: Annotated[t.Int64, t.MATRIX]  # [attributes, 3]: first, strings, number of patterns with cells
    pattern: t.Int32  # [steps], the number of a LIKE's pattern, see `Segment.like_patterns`
    cells: t.UInt8  # four cells each


class Columns(NamedTuple):
    """Columns of a batch for one segment, one row of each array for each attribute of the segment."""

    tags: Annotated[t.Int8, t.MATRIX]  # [attributes, rows]
    codes: Annotated[t.Int32, t.MATRIX]  # [attributes, rows], of attributes with ``codes``
    bits: Annotated[t.Int64, t.MATRIX]  # [attributes, rows], of attributes with ``values``; of a string its
    # offset in `text`
    reals: Annotated[t.Float64, t.MATRIX]  # the same bits
    sizes: Annotated[t.Int32, t.MATRIX]  # [attributes, rows], of strings with ``values``
    text: t.UInt8  # the bytes of all strings with ``values``
    invalid_names: t.Bool  # [rows], messages whose property names break a rule
    prefixed: Annotated[t.Int32, t.MATRIX]  # [n, rows], the longest prefix of a value for each attribute with
    # prefixes, or -1
    verdicts: Verdicts


def new_columns(
    segment: Segment, rows: int, text: t.Array, invalid_names: t.Array, verdicts: Verdicts
) -> Columns:
    """Return columns for so many rows in which all values are NULL, of tag and code 0.

    Pages that no column fills are never touched, and cost no memory.
    """
    count = len(segment.attributes)
    bits = np.zeros((count, rows), np.int64)
    return Columns(
        tags=np.zeros((count, rows), np.int8),
        codes=np.zeros((count, rows), np.int32),
        bits=bits,
        reals=bits.view(np.float64),
        sizes=np.zeros((count, rows), np.int32),
        text=text,
        invalid_names=invalid_names,
        prefixed=np.full((len(segment.prefixing), rows), -1, np.int32),
        verdicts=verdicts,
    )


class Stack(NamedTuple):
    """Memory for the programs of residuals: their operands, [depth], and results."""

    tags: t.Int8
    bits: t.Int64
    reals: t.Float64  # the same bits
    sizes: t.Int32  # of strings
    memo: t.Int64  # [programs], the row of the last run and its result, see `judge`


def stack_of(segment: Segment) -> Stack:
    """Return a stack for a segment's programs."""
    depth = max(segment.depth, 2)
    bits = np.zeros(depth, np.int64)
    memo = np.zeros(len(segment.tables.step_first), np.int64)
    return Stack(np.zeros(depth, np.int8), bits, bits.view(np.float64), np.zeros(depth, np.int32), memo)


class ArrayStruct:
    """Layout of a NamedTuple of arrays, and of NamedTuples of arrays, in memory."""

    def __init__(self, group: type[tuple[Any, ...]]) -> None:
        self.arrays: dict[str, tuple[np.dtype[Any], int]] = {}
        """Type and dimensions of each array, by its dotted name."""
        self.places: dict[str, int] = {}
        """Number of the word with each array's address; its shape follows. Of an inner struct its first."""
        self.words = 0
        """Words of a description."""
        self._type = self._add(group, "", False)

    def _add(self, group: type[tuple[Any, ...]], prefix: str, readonly: bool) -> Any:
        """Place the arrays of a group; return its type for numba."""
        members = []
        for name, hint in get_type_hints(group, include_extras=True).items():
            kind, *notes = get_args(hint) if get_origin(hint) is Annotated else (hint,)
            only_read = readonly or READONLY in notes
            self.places[prefix + name] = self.words
            if kind != t.Array:
                members.append(self._add(kind, f"{prefix}{name}.", only_read))
                continue
            dtype, dimensions = np.dtype(notes[0]), 1 + any(isinstance(note, int) for note in notes)
            self.arrays[prefix + name] = dtype, dimensions
            self.words += 1 + dimensions
            members.append(types.Array(from_dtype(dtype), dimensions, "C", readonly=only_read))
        return types.NamedTuple(members, group)  # type: ignore[attr-defined]  # numba has no types

    def reader(self) -> Callable[[int], Any]:
        """Return a function for compiled code: the NamedTuple of the arrays described at an address.

        No references are counted: the arrays are valid as long as the caller of the compiled code keeps them.
        """
        group = self._type

        @intrinsic  # type: ignore[untyped-decorator]
        def read(_context: Any, address: Any) -> Any:
            def lower(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
                words, place = builder.inttoptr(arguments[0], _WORD.as_pointer()), 0

                def word() -> Any:
                    nonlocal place
                    place += 1
                    return builder.load(builder.gep(words, [_WORD(place - 1)]))

                def value(type_: Any) -> Any:
                    if not isinstance(type_, types.Array):
                        return context.make_tuple(builder, type_, [value(member) for member in type_.types])
                    first, *shape = (word() for _ in range(1 + type_.ndim))
                    array = context.make_array(type_)(context, builder)
                    size = context.get_abi_sizeof(context.get_data_type(type_.dtype))
                    strides = [_WORD(size)]
                    for length in shape[:0:-1]:
                        strides.insert(0, builder.mul(strides[0], length))
                    data = builder.inttoptr(first, context.get_data_type(type_.dtype).as_pointer())
                    populate_array(array, data, shape, strides, size, meminfo=None)
                    return array._getvalue()

                return value(group)

            return group(types.int64), lower

        read_arrays: Callable[[int], Any] = read
        return read_arrays


class Description:
    """Description of the arrays of a struct, at ``address`` as long as this object lives."""

    def __init__(self, struct: ArrayStruct, arrays: tuple[Any, ...]) -> None:
        self._struct = struct
        self._kept = dict(zip(struct.arrays, _flat(arrays), strict=True))  # the words have their addresses
        words: list[int] = []
        for name, array in self._kept.items():
            words += self._described(name, array)
        self._words = np.array(words, np.int64)
        self.address = int(self._words.ctypes.data)

    def place(self, name: str, array: t.Array) -> None:
        """Describe an array in place of an earlier one. Raises TypeError if it is of another type."""
        words, first = self._described(name, array), self._struct.places[name]
        self._kept[name] = array
        self._words[first : first + len(words)] = words

    def _described(self, name: str, array: t.Array) -> tuple[int, ...]:
        dtype, dimensions = self._struct.arrays[name]
        if array.dtype != dtype or array.ndim != dimensions or not array.flags.c_contiguous:
            raise TypeError(f"{name} is {array.dtype}[{array.ndim}]: expected {dtype}[{dimensions}]")
        return array.ctypes.data, *array.shape

    def __reduce__(self) -> NoReturn:
        raise TypeError("addresses of this process can't be pickled")


def _flat(arrays: tuple[Any, ...]) -> Iterator[t.Array]:
    for member in arrays:
        if isinstance(member, tuple):
            yield from _flat(member)
        else:
            yield member


_SEGMENT = ArrayStruct(SegmentArrays)
COLUMNS: Final = ArrayStruct(Columns)
segment_at, columns_at = _SEGMENT.reader(), COLUMNS.reader()

_DESCRIBED: Final = "_described"
"""Attribute of a segment: its description."""


def address_of_segment(segment: Segment) -> int:
    """Return the address of a segment's `SegmentArrays`. They are described once, and kept by the segment."""
    made: Description | None = segment.__dict__.get(_DESCRIBED)
    if made is None:
        terms, shared = segment.scan_terms
        arrays = SegmentArrays(
            segment.tables, short_strings(segment), segment.leaf_groups, terms,
            np.array([shared]), *segment.single_terms,
        )  # fmt: skip
        # Of several threads the first one's stays: the others' addresses would be of freed memory.
        made = segment.__dict__.setdefault(_DESCRIBED, Description(_SEGMENT, arrays))
    return made.address
