"""Reads and copies of memory that are one instruction, or one call of the C library; a pool of large arrays.

When an array is passed to a function, numba counts a reference, atomically, which costs more than a search in
the array. An address is a number and free; it is valid as long as the caller keeps the array. Bounds are not
checked.

Arrays of the pool are reused as soon as they are unreferenced. The system clears new memory page by page, and
under a hypervisor often fetches it from the host page by page: with 850 matches a message (workload Z at a
million) that took as long as finding and copying the matches, 0.2 µs a message, up to 4 µs on a slow host.
"""

from __future__ import annotations

import sys
import threading
from typing import Any, Final

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import cgutils, types
from numba.extending import intrinsic

from selectroute.arrays import tables as t

LEAST: Final = 1 << 20
"""Smallest array in the pool, in bytes: the C library itself reuses smaller ones."""

MOST: Final = 384 << 20
"""Largest array in the pool, in bytes."""

KEPT: Final = 2
"""Arrays in the pool of a process: the previous matches are still in use while the next batch is matched."""

_lock = threading.Lock()
_arrays = [np.empty(0, np.int32) for _ in range(KEPT)]
"""Arrays of the pool.

invariant: `take_array` returns a view of a pooled array, and every view of that view holds a reference to the
array itself, in NumPy and Arrow. So an array is free if only the list refers to it.
"""


def take_array(count: int) -> t.Array:
    """Return an unshared array for ordinals, int32[count], uninitialized.

    NumPy allocates it, in huge pages if the system has them: in small pages, which the system clears one by
    one, a million matches took seven times as long.
    """
    size = 4 * count
    if not LEAST <= size <= MOST:
        return np.empty(count, np.int32)
    with _lock:
        # Referred to by the list and the argument.
        free = [n for n in range(KEPT) if sys.getrefcount(_arrays[n]) <= 2]
        for number in free:
            # Not a much larger one: a small result would keep all of its memory.
            if size <= _arrays[number].nbytes <= 4 * size:
                return _arrays[number][:count]
        number = free[0] if free else 0
        _arrays[number] = np.empty(count, np.int32)
        return _arrays[number][:count]


_BYTE, _SHORT, _INT, _LONG = map(ir.IntType, (8, 16, 32, 64))


def _data(context: Any, builder: Any, type_: Any, array: Any) -> Any:
    return context.make_array(type_)(context, builder, array).data


@intrinsic  # type: ignore[untyped-decorator]
def address_of(_context: Any, array: Any) -> Any:
    """Return the address of the first element of a contiguous array."""

    def lower(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        return builder.ptrtoint(_data(context, builder, signature.args[0], arguments[0]), _LONG)

    return types.int64(array), lower


def _element(kind: ir.Type, type_: Any) -> Any:
    """Return the function that reads element ``index`` of the array of this type at an address."""

    @intrinsic  # type: ignore[untyped-decorator]
    def element_at(_context: Any, _address: Any, _index: Any) -> Any:
        def lower(_: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
            pointer = builder.inttoptr(arguments[0], kind.as_pointer())
            return builder.load(builder.gep(pointer, [arguments[1]]))

        return type_(types.int64, types.int64), lower

    return element_at


byte_at = _element(_BYTE, types.uint8)
short_at = _element(_SHORT, types.uint16)
int_at = _element(_INT, types.int32)
long_at = _element(_LONG, types.int64)
real_at = _element(ir.DoubleType(), types.float64)


@intrinsic  # type: ignore[untyped-decorator]
def eight_below(_context: Any, _address: Any, _index: Any, _value: Any) -> Any:
    """Return as bits which of eight longs, from element ``index`` on, are less than a value: one comparison
    of vectors.
    """

    def lower(_: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        vector = ir.VectorType(_LONG, 8)
        pointer = builder.gep(builder.inttoptr(arguments[0], _LONG.as_pointer()), [arguments[1]])
        longs = builder.load(builder.bitcast(pointer, vector.as_pointer()), align=8)
        first = builder.insert_element(ir.Constant(vector, ir.Undefined), arguments[2], _INT(0))
        all_ = builder.shuffle_vector(first, first, ir.Constant(ir.VectorType(_INT, 8), [0] * 8))
        below = builder.bitcast(builder.icmp_signed("<", longs, all_), _BYTE)
        return builder.zext(below, _LONG)

    return types.uint64(types.int64, types.int64, types.int64), lower


@intrinsic  # type: ignore[untyped-decorator]
def bits_of_real(_context: Any, _real: Any) -> Any:
    """Return the bits of a double, as a long."""

    def lower(_: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], _LONG)

    return types.int64(types.float64), lower


@intrinsic  # type: ignore[untyped-decorator]
def word_at(_context: Any, _address: Any, _byte: Any) -> Any:
    """Return the eight bytes from ``byte`` on as a little-endian uint64."""

    def lower(_: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(builder.add(arguments[0], arguments[1]), _LONG.as_pointer())
        return builder.load(pointer, align=1)

    return types.uint64(types.int64, types.int64), lower


@intrinsic  # type: ignore[untyped-decorator]
def prefetch(_context: Any, _address: Any, _index: Any) -> Any:
    """Begin to load the cache line with element ``index`` of the array of longs at an address."""

    def lower(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[0], _LONG.as_pointer())
        place = builder.bitcast(builder.gep(pointer, [arguments[1]]), _BYTE.as_pointer())
        kind = ir.FunctionType(ir.VoidType(), [_BYTE.as_pointer(), _INT, _INT, _INT])
        function = builder.module.declare_intrinsic("llvm.prefetch", [_BYTE.as_pointer()], kind)
        builder.call(function, [place, _INT(0), _INT(3), _INT(1)])  # to read, soon again, data
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), lower


@intrinsic  # type: ignore[untyped-decorator]
def trailing_zeros(_context: Any, _word: Any) -> Any:
    """Return the number of trailing zero bits of a word, as int64: 64 if it is zero."""

    def lower(_: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.uint64), lower


@intrinsic  # type: ignore[untyped-decorator]
def copy_sixteen(_context: Any, _to: Any, _at: Any, _address: Any, _index: Any) -> Any:
    """Copy 16 ints, from element ``index`` of the array at an address to element ``at`` of another one, as
    one vector: `copy` may be a call of memcpy also for a known length.
    """

    def lower(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        to, at, address, index = arguments
        vector = ir.VectorType(_INT, 16).as_pointer()
        source = builder.gep(builder.inttoptr(address, _INT.as_pointer()), [index])
        target = builder.gep(builder.inttoptr(to, _INT.as_pointer()), [at])
        ints = builder.load(builder.bitcast(source, vector), align=4)
        builder.store(ints, builder.bitcast(target, vector), align=4)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64, types.int64), lower


@intrinsic  # type: ignore[untyped-decorator]
def copy(_context: Any, target: Any, _at: Any, source: Any, _start: Any, _count: Any) -> Any:
    """Copy ``target[at : at + count] = source[start : start + count]``, arrays of one type, by one memcpy.

    A slice assignment first checks whether the arrays overlap, and a loop is not a memcpy; both are slower,
    for short and long runs.
    """
    signature = types.void(target, types.int64, source, types.int64, types.int64)

    def lower(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        to, at, of, start, count = arguments
        to_data = _data(context, builder, signature.args[0], to)
        of_data = _data(context, builder, signature.args[2], of)
        size = context.get_abi_sizeof(context.get_data_type(signature.args[0].dtype))
        cgutils.raw_memcpy(builder, builder.gep(to_data, [at]), builder.gep(of_data, [start]), count, size)
        return context.get_dummy_value()

    return signature, lower
