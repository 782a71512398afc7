"""CRC-32C (Castagnoli), the checksum of a record batch, by the processor's instruction or by tables.

The polynomial is 0x1EDC6F41, reflected 0x82F63B78; register and result are inverted (RFC 3720, appendix B.4).
SSE 4.2 and AArch64 have an instruction for it. Which one there is, is asked of numba and not of the machine:
code may be compiled for less than this processor (``NUMBA_CPU_NAME=generic``), and LLVM ends the process when
it is to emit an instruction that its target lacks. numba's cache keeps the code of each target apart.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import types
from numba.core.registry import cpu_target
from numba.extending import intrinsic

from selectroute.match.compiled import compiled
from selectroute.match.memory import byte_at, word_at

_POLYNOMIAL: Final = 0x82F63B78
_INT, _LONG = ir.IntType(32), ir.IntType(64)

_SSE: Final = ("llvm.x86.sse42.crc32.64.64", _LONG)
_ARM: Final = ("llvm.aarch64.crc32cx", _INT)
"""LLVM's intrinsics that add eight bytes, and the type of their register."""


def instruction_of(triple: str, features: str) -> tuple[str, Any] | None:
    """Return the intrinsic for a target of LLVM; None if it has none."""
    machine, has = triple.split("-")[0], set(features.split(","))
    if machine == "x86_64" and "+sse4.2" in has:
        return _SSE
    if machine in ("aarch64", "arm64") and "+crc" in has:
        return _ARM
    return None


def _of_numba() -> tuple[str, Any] | None:
    triple, _, features = cpu_target.target_context.codegen().magic_tuple()
    return instruction_of(triple, features)


INSTRUCTION: Final = _of_numba()


@intrinsic  # type: ignore[untyped-decorator]
def _add_word(_context: Any, _state: Any, _word: Any) -> Any:
    """Return the register, in a uint64, after eight more bytes."""

    def lower(_: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        assert INSTRUCTION is not None
        name, register = INSTRUCTION
        state, word = arguments
        if register is _INT:
            state = builder.trunc(state, _INT)
        kind = ir.FunctionType(register, [register, _LONG])
        state = builder.call(builder.module.declare_intrinsic(name, fnty=kind), [state, word])
        return builder.zext(state, _LONG) if register is _INT else state

    return types.uint64(types.uint64, types.uint64), lower


def _tables() -> npt.NDArray[np.uint32]:
    """Return uint32[8, 256]: what each byte value adds to the register, with 0 to 7 bytes after it."""
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, table >> 1 ^ np.uint32(_POLYNOMIAL), table >> 1)
    found = [table]
    for _ in range(7):
        found.append(table[found[-1] & 0xFF] ^ found[-1] >> 8)
    return np.stack(found).astype(np.uint32)


_TABLES: Final = _tables()


@compiled
def by_instruction(at: int, stop: int) -> int:
    """Return the checksum of the bytes between two addresses, with `INSTRUCTION`. O(bytes), 1 ns for 8."""
    state = np.uint64(0xFFFFFFFF)
    while at + 8 <= stop:
        state = _add_word(state, word_at(at, 0))
        at += 8
    return _rest(np.uint32(state), at, stop)


@compiled
def by_tables(at: int, stop: int) -> int:
    """Return the checksum of the bytes between two addresses, on any processor. O(bytes)."""
    state = np.uint32(0xFFFFFFFF)
    while at + 8 <= stop:
        word = word_at(at, 0) ^ np.uint64(state)
        state = np.uint32(0)
        for k in range(8):
            state ^= _TABLES[7 - k, np.int64(word >> np.uint64(8 * k) & np.uint64(0xFF))]
        at += 8
    return _rest(state, at, stop)


@compiled
def _rest(state: np.uint32, at: int, stop: int) -> int:
    """Return the checksum after the last bytes, fewer than eight."""
    while at < stop:
        index = (state ^ np.uint32(byte_at(at, 0))) & np.uint32(0xFF)
        state = _TABLES[0, np.int64(index)] ^ state >> np.uint32(8)
        at += 1
    return np.int64(state ^ np.uint32(0xFFFFFFFF))  # type: ignore[return-value]


crc32c = by_tables if INSTRUCTION is None else by_instruction
"""The faster one of this machine."""
