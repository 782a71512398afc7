"""Reads and copies of memory that are one instruction, or one call of the C library.

When an array is passed to a function, numba counts a reference, atomically, which costs more than a search in
the array. An address is a number and free; it is valid as long as the caller keeps the array. Bounds are not
checked.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import cgutils, types
from numba.extending import intrinsic

_BYTE, _INT, _LONG = ir.IntType(8), ir.IntType(32), ir.IntType(64)


def _data(context: Any, builder: Any, type_: Any, array: Any) -> Any:
    return context.make_array(type_)(context, builder, array).data


@intrinsic  # type: ignore[untyped-decorator]
def address_of(_context: Any, array: Any) -> Any:
    """Return the address of the first element of a contiguous array."""

    def lower(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        return builder.ptrtoint(_data(context, builder, signature.args[0], arguments[0]), _LONG)

    return types.int64(array), lower


@intrinsic  # type: ignore[untyped-decorator]
def long_at(_context: Any, _address: Any, _index: Any) -> Any:
    """Return element ``index`` of the int64 array at an address."""

    def lower(_: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[0], _LONG.as_pointer())
        return builder.load(builder.gep(pointer, [arguments[1]]))

    return types.int64(types.int64, types.int64), lower


@intrinsic  # type: ignore[untyped-decorator]
def int_at(_context: Any, _address: Any, _index: Any) -> Any:
    """Return element ``index`` of the int32 array at an address."""

    def lower(_: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[0], _INT.as_pointer())
        return builder.load(builder.gep(pointer, [arguments[1]]))

    return types.int32(types.int64, types.int64), lower


@intrinsic  # type: ignore[untyped-decorator]
def real_at(_context: Any, _address: Any, _index: Any) -> Any:
    """Return element ``index`` of the float64 array at an address."""

    def lower(_: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[0], ir.DoubleType().as_pointer())
        return builder.load(builder.gep(pointer, [arguments[1]]))

    return types.float64(types.int64, types.int64), lower


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
def byte_at(_context: Any, _address: Any, _byte: Any) -> Any:
    """Return one byte."""

    def lower(_: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        return builder.load(builder.inttoptr(builder.add(arguments[0], arguments[1]), _BYTE.as_pointer()))

    return types.uint8(types.int64, types.int64), lower


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
    """Return the number of trailing zero bits of a non-zero word, as int64."""

    def lower(_: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.uint64), lower


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
