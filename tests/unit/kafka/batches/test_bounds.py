"""No byte outside of what is given is read: it ends where memory ends, and a read beyond ends the process."""

import ctypes
import mmap
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa

from selectroute.kafka.batches import RecordBatchError
from selectroute.kafka.batches.decode import HEADERS, decode
from selectroute.kafka.batches.encode import encode
from tests.support.record_batches import Record, batch_bytes, sealed

PAGE = mmap.PAGESIZE
PROT_NONE = 0
ROOM = 4 * PAGE


class Ending:
    """Memory whose last page can neither be read nor written."""

    def __init__(self):
        self._pages = mmap.mmap(-1, ROOM + PAGE)
        self.end = ctypes.addressof(ctypes.c_char.from_buffer(self._pages)) + ROOM
        libc = ctypes.CDLL(None, use_errno=True)
        protected = libc.mprotect(ctypes.c_void_p(self.end), ctypes.c_size_t(PAGE), PROT_NONE)
        assert protected == 0, ctypes.get_errno()

    def put(self, data):
        """Return a buffer with these bytes, which ends where the memory does."""
        self._pages[ROOM - len(data) : ROOM] = data
        return pa.foreign_buffer(self.end - len(data), len(data), self)


def decode_damaged(rounds):
    """Decode cut and changed batches, whose checksums are right."""
    chance, memory = random.Random(5), Ending()
    sizes = [(chance.randrange(20), chance.randrange(30)) for _ in range(6)]
    records = [
        Record(k, k, b"k" * key, b"v" * value, ((b"n" * k, b"c" * k), (b"x", None)))
        for k, (key, value) in enumerate(sizes)
    ]
    log = [
        batch_bytes(records[:3]),
        batch_bytes(records[3:4], attributes=16, producer=1),
        batch_bytes([Record(4, 0, b"\0\0\0\0")], attributes=48, producer=1),
        batch_bytes(records[5:]),
    ]
    read = 0
    for _ in range(rounds):
        batches = []
        for batch in log:
            changed = bytearray(batch)
            if chance.random() < 0.5:
                for _ in range(chance.randrange(3)):
                    changed[chance.randrange(57, len(changed))] = chance.choice([0, 1, 2, 0x7F, 0x80, 0xFF])
                if chance.random() < 0.3:  # the batch ends early, and says so
                    del changed[chance.randrange(61, len(changed) + 1) :]
                    changed[8:12] = (len(changed) - 12).to_bytes(4, "big")
                changed = sealed(bytes(changed))
            batches.append(changed)
        stored = b"".join(batches)
        if chance.random() < 0.3:
            stored = stored[: chance.randrange(len(stored) + 1)]
        try:
            for part in decode(memory.put(stored), "cars", 0, 0, None, [(1, 3)]):
                part.records.validate(full=True)
                read += 1
        except RecordBatchError:
            continue
    return read


def encode_at_the_end(rounds):
    """Encode columns whose bytes end where memory ends."""
    chance = random.Random(6)
    memories = [Ending() for _ in range(4)]

    def column(type_, values, memory):
        bounds = np.cumsum([0, *map(len, values)]).astype(np.int32)
        return pa.Array.from_buffers(
            type_, len(values), [None, pa.py_buffer(bounds), memory.put(b"".join(values))]
        )

    for _ in range(rounds):
        texts = [[b"x" * chance.randrange(40) for _ in range(3)] for _ in range(4)]
        key, value, name, content = map(
            column, [pa.binary()] * 2 + [pa.string(), pa.binary()], texts, memories
        )
        pairs = pa.StructArray.from_arrays([name, content], names=["key", "value"])
        lists = pa.ListArray.from_arrays(pa.array([0, 1, 1, 3], pa.int32()), pairs).cast(HEADERS)
        messages = pa.RecordBatch.from_arrays([key, value, lists], ["key", "value", "headers"])
        [batch] = encode(messages, np.array([2, 0, 1, 2, 2]), 0, {"own": (b"a", pa.array(["b"] * 5))})
        [part] = decode(memories[0].put(bytes(batch.data)), "cars", 0, 0)
        assert part.records.column("value").to_pylist() == [texts[1][row] for row in (2, 0, 1, 2, 2)]


def ended(code):
    """Run a statement on this module in a process of its own."""
    code = f"from tests.unit.kafka.batches import test_bounds as t; {code}"
    root = Path(__file__).parents[4]
    return subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=False)


def test_the_memory_really_ends():
    assert ended("t.ctypes.string_at(t.Ending().end, 1)").returncode < 0  # a signal


def test_damaged_batches_are_read_within_their_bytes():
    done = ended("print(t.decode_damaged(3_000))")
    assert done.returncode == 0, done
    assert int(done.stdout) > 500


def test_columns_are_read_within_their_bytes():
    done = ended("t.encode_at_the_end(300)")
    assert done.returncode == 0, done
