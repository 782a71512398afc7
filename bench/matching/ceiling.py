"""Ceiling: `ceiling.c`, written for the one shape of Z and U, compiled when the benchmark runs.

It stands beside the kernel so that its figures can be read as a share of what the machine can do. `c` is
given the same Arrow columns as the kernel and looks its strings up, `c-codes` is given codes instead of
strings. Both write their ids into one buffer that they keep: nobody can do less than copy them.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bench.engine import Engine, SkippedError
from bench.workloads.oracle import Expected
from bench.workloads.plain import COLORS, TYPES, Triples

SOURCE: Final = Path(__file__).with_name("ceiling.c")
FLAGS: Final = ("-O3", "-march=native", "-shared", "-fPIC")

Array = npt.NDArray[Any]


@cache
def library(folder: Path) -> ctypes.CDLL:
    """Compile into a folder and load. Raises `SkippedError` without a compiler."""
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise SkippedError("no C compiler: put cc on PATH or set CC")
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / "ceiling.so"
    command = [compiler, *FLAGS, "-o", str(target), str(SOURCE)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise SkippedError(f"{compiler} does not start: {error}") from error
    if done.returncode:
        raise SkippedError(f"{compiler} failed: {(done.stderr.strip() or 'no message').splitlines()[-1]}")
    loaded = ctypes.CDLL(str(target))
    loaded.locate.restype = ctypes.c_int64
    return loaded


class _Table:
    """A hash table from 64-bit keys to their positions."""

    def __init__(self, made: ctypes.CDLL, keys: npt.NDArray[np.uint64]) -> None:
        self.bits = max(4, int(len(keys) * 2).bit_length())
        self.keys = np.zeros(1 << self.bits, np.uint64)
        self.values = np.full(1 << self.bits, -1, np.int32)
        made.fill(
            _size(len(keys)), _at(np.ascontiguousarray(keys)), self.bits, _at(self.keys), _at(self.values)
        )

    @property
    def arguments(self) -> tuple[Any, ...]:
        """As the C functions take it."""
        return self.bits, _at(self.keys), _at(self.values)


class Ceiling:
    """One set of rules, and a buffer for the ids of a batch."""

    def __init__(self, made: ctypes.CDLL, rules: Triples) -> None:
        self._made = made
        self.rules = len(rules)
        order = np.lexsort((rules.weight, rules.color, rules.type))
        pairs = rules.type[order] << 32 | rules.color[order]
        keys, starts = np.unique(pairs, return_index=True)
        self._pairs = _Table(made, keys.astype(np.uint64))
        types = max(TYPES, int(rules.type.max()) + 1)  # G has more of them the more rules there are
        self._types, self._colors = _Table(made, _words("t", types)), _Table(made, _words("c", COLORS))
        self._starts = np.append(starts, len(order)).astype(np.int32)
        self._bounds = rules.weight[order].astype(np.int32)
        self._ids = order.astype(np.int32)
        self._out = np.empty(1_024, np.int32)

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays that matching reads."""
        tables = (self._pairs, self._types, self._colors)
        arrays = [one for table in tables for one in (table.keys, table.values)]
        return sum(array.nbytes for array in (*arrays, self._starts, self._bounds, self._ids))

    def match(self, types: Array, colors: Array, weights: Array) -> Array:
        """Return the ids that messages match, as they lie in the buffer until the next call."""
        count = len(weights)
        origin, offsets = np.empty(count, np.int32), np.empty(count + 1, np.int64)
        total = self._made.locate(
            _size(count),
            *map(_at, (types, colors, weights)),
            *self._pairs.arguments,
            *map(_at, (self._starts, self._bounds, origin, offsets)),
        )
        if total > len(self._out):
            self._out = np.empty(total + total // 8, np.int32)
        self._made.copy(_size(count), *map(_at, (self._ids, origin, offsets, self._out)))
        return self._out[:total]

    def codes(self, batch: pa.RecordBatch) -> tuple[Array, Array, Array]:
        """Return a batch's types and colors as codes, and its weights."""
        types = self._encode(batch.column("JMSType"), self._types)
        return types, self._encode(batch.column("color"), self._colors), batch.column("weight").to_numpy()

    def _encode(self, column: pa.Array, table: _Table) -> Array:
        count, first = len(column), column.offset
        _, offsets, data = column.buffers()
        places = np.frombuffer(offsets, np.int32)[first : first + count + 1]
        codes = np.empty(count, np.int32)
        text = np.frombuffer(data, np.uint8)
        self._made.encode(
            _size(count), _at(places), _at(text), _size(len(text)), *table.arguments, _at(codes)
        )
        return codes


class CeilingEngine(Engine):
    """See `bench.engine.Engine`."""

    def __init__(self, name: str, ceiling: Ceiling, batches: Sequence[pa.RecordBatch], checked: int) -> None:
        self.name = name
        self.messages = sum(batch.num_rows for batch in batches)
        self.bytes_a_rule = ceiling.nbytes / ceiling.rules if name == "c" else 0.0
        self._ceiling = ceiling
        self._checked = batches[0].slice(0, checked)
        self._batches = batches
        self._codes = [ceiling.codes(batch) for batch in batches] if name == "c-codes" else None

    def judge(self) -> Expected:
        """See `bench.engine.Engine`."""
        found = self._ceiling.match(*self._ceiling.codes(self._checked))
        return Expected(len(found), int(found.sum(dtype=np.int64)))

    def run(self) -> int:
        """See `bench.engine.Engine`."""
        ceiling = self._ceiling
        if self._codes is not None:
            return sum(len(ceiling.match(*codes)) for codes in self._codes)
        return sum(len(ceiling.match(*ceiling.codes(batch))) for batch in self._batches)


def _words(prefix: str, count: int) -> npt.NDArray[np.uint64]:
    """The strings of a workload as the C program reads them: eight bytes, filled up with zeros."""
    return np.frombuffer(b"".join(f"{prefix}{n}".encode().ljust(8, b"\0") for n in range(count)), np.uint64)


def _at(array: Any) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def _size(count: int) -> ctypes.c_int64:
    return ctypes.c_int64(count)
