"""Arrays of compiled code that are passed by one address instead of one by one.

numba unboxes each array of a call, and counts references to it: 0.2 µs each, which for the sixty arrays of
the kernel is more than matching a message. A description of the arrays in memory has, in words of eight
bytes, the address and the shape of each; compiled code makes the arrays from it, in a few instructions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple, get_type_hints

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import types
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array
from numba.np.numpy_support import from_dtype

from selectroute.arrays import tables as t

_WORD = ir.IntType(64)
WORD = 8
"""Bytes of a word."""


class Kind(NamedTuple):
    """Type of an array: elements, dimensions, and whether it is only read. Arrays are contiguous."""

    dtype: np.dtype[Any]
    dimensions: int = 1
    readonly: bool = False


MATRIX: Final = "two dimensions"
READONLY: Final = "only read"
"""Annotations of an array, after its type of elements: ``Annotated[t.Int64, MATRIX]``."""


def kinds_of(group: type[tuple[Any, ...]]) -> dict[str, Kind]:
    """Return the types of a NamedTuple's arrays, from its annotations."""
    kinds = {}
    for name, hint in get_type_hints(group, include_extras=True).items():
        elements, *more = hint.__metadata__
        kinds[name] = Kind(np.dtype(elements), 2 if MATRIX in more else 1, READONLY in more)
    return kinds


class Described:
    """Description of the arrays of a NamedTuple.

    Args:
        group: the class of the NamedTuple.
        kinds: the type of each of its arrays.
    """

    def __init__(self, group: type[tuple[Any, ...]], kinds: Mapping[str, Kind]) -> None:
        self.places: dict[str, int] = {}
        """Number of the word with each array's address; its shape follows."""
        self.words = 0
        """Words of a description."""
        for name, kind in kinds.items():
            self.places[name] = self.words
            self.words += 1 + kind.dimensions
        self._kinds = kinds
        arrays = [
            types.Array(from_dtype(kind.dtype), kind.dimensions, "C", readonly=kind.readonly)
            for kind in kinds.values()
        ]
        self._type = types.NamedTuple(arrays, group)  # type: ignore[attr-defined]  # numba has no types

    def describe(self, arrays: Iterable[t.Array]) -> list[int]:
        """Return the words for these arrays, which the caller keeps. Raises TypeError for other types."""
        words: list[int] = []
        for array, (name, kind) in zip(arrays, self._kinds.items(), strict=True):
            if (array.dtype, array.ndim, array.flags.c_contiguous) != (kind.dtype, kind.dimensions, True):
                raise TypeError(f"{name} is {array.dtype}, {array.ndim} dimensions: expected {kind}")
            words += (array.ctypes.data, *array.shape)
        return words

    def reader(self) -> Callable[[int], Any]:
        """Return a function for compiled code: the NamedTuple of the arrays described at an address.

        No references are counted: the arrays are valid as long as the caller of the compiled code keeps them.
        """
        group = self._type

        @intrinsic  # type: ignore[untyped-decorator]
        def read(_context: Any, address: Any) -> Any:
            def lower(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
                words = builder.inttoptr(arguments[0], _WORD.as_pointer())
                made, place = [], 0
                for type_ in group.types:
                    first, *shape = (
                        builder.load(builder.gep(words, [_WORD(place + k)])) for k in range(1 + type_.ndim)
                    )
                    place += 1 + type_.ndim
                    array = context.make_array(type_)(context, builder)
                    size = context.get_abi_sizeof(context.get_data_type(type_.dtype))
                    strides = [_WORD(size)]
                    for length in shape[:0:-1]:
                        strides.insert(0, builder.mul(strides[0], length))
                    data = builder.inttoptr(first, context.get_data_type(type_.dtype).as_pointer())
                    populate_array(array, data, shape, strides, size, meminfo=None)
                    made.append(array._getvalue())
                return context.make_tuple(builder, group, made)

            return group(types.int64), lower

        read_arrays: Callable[[int], Any] = read
        return read_arrays
