import random

import pyarrow as pa
import pytest

from selectroute.kafka.batches.crc32c import INSTRUCTION, by_instruction, by_tables, instruction_of
from tests.support import record_batches

# RFC 3720, appendix B.4, and the check value of the catalogues of checksums.
KNOWN = {
    bytes(32): 0x8A9136AA,
    b"\xff" * 32: 0x62A8AB43,
    bytes(range(32)): 0x46DD794E,
    bytes(range(31, -1, -1)): 0x113FDB5C,
    b"123456789": 0xE3069283,
    b"": 0,
}

WAYS = [by_tables] + ([by_instruction] if INSTRUCTION else [])


def checksum(way, data, start=0, stop=None):
    buffer = pa.py_buffer(data)
    return way(buffer.address + start, buffer.address + (len(data) if stop is None else stop))


@pytest.mark.parametrize("way", WAYS)
def test_known_checksums(way):
    assert {data: checksum(way, data) for data in KNOWN} == KNOWN


def test_the_instruction_and_the_tables_agree_at_every_alignment_and_length():
    chance = random.Random(3)
    data = chance.randbytes(200)
    for start in range(9):
        for stop in [*range(start, start + 40), 200]:
            expected = record_batches.crc32c(data[start:stop])
            assert [checksum(way, data, start, stop) for way in WAYS] == [expected] * len(WAYS)


def test_the_instruction_is_used_only_where_the_target_has_it():
    assert instruction_of("x86_64-unknown-linux-gnu", "+avx,+sse4.2")[0] == "llvm.x86.sse42.crc32.64.64"
    assert instruction_of("aarch64-unknown-linux-gnu", "+crc,+neon")[0] == "llvm.aarch64.crc32cx"
    assert instruction_of("arm64-apple-darwin23.1.0", "+crc")[0] == "llvm.aarch64.crc32cx"
    assert instruction_of("x86_64-unknown-linux-gnu", "") is None
    assert instruction_of("x86_64-unknown-linux-gnu", "-sse4.2") is None
    assert instruction_of("powerpc64le-unknown-linux-gnu", "+crc") is None
