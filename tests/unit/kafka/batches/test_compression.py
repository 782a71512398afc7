import random
from types import SimpleNamespace

import pytest

from selectroute.kafka.batches import codecs as c

PLAIN = {
    "empty": b"",
    "short": b"abc" * 30,
    "some blocks": bytes(9_000_000) + b"end",
    "random": random.Random(5).randbytes(200_000),
}


@pytest.mark.parametrize("codec", range(1, 5))
@pytest.mark.parametrize("name", PLAIN)
def test_what_is_packed_is_unpacked(codec, name):
    plain = PLAIN[name]
    packed = c.pack(codec, memoryview(plain))
    assert bytes(c.unpack(codec, memoryview(packed), len(plain))) == plain
    if plain:
        with pytest.raises(c.UnpackError, match="the limit"):
            c.unpack(codec, memoryview(packed), len(plain) - 1)


@pytest.mark.parametrize("codec", range(1, 5))
def test_every_cut_is_an_error_or_less_content(codec):
    plain = b"abcdefgh" * 20
    packed = c.pack(codec, memoryview(plain))
    for cut in range(len(packed)):
        try:
            assert len(c.unpack(codec, memoryview(packed[:cut]), 1_000)) < len(plain)
        except c.UnpackError as error:
            assert c.NAMES[codec] in str(error) or "snappy" in str(error)


def test_the_header_of_lz4_frames_has_its_checksum():
    header = c._LZ4_HEADER
    assert header[:4] == bytes.fromhex("04224d18") and header[4] == 0b01_1_0_0_0_0_0
    assert 1 << 8 + 2 * (header[5] >> 4) == c._LZ4_BLOCK
    assert header[6] == xxh32(header[4:6]) >> 8 & 0xFF


def xxh32(data):
    """Return XXH32 of fewer than four bytes."""
    mask, primes = 0xFFFFFFFF, (2654435761, 2246822519, 3266489917, 374761393)
    state = primes[3] + len(data) & mask
    for byte in data:
        state = state + byte * primes[3] & mask
        state = (state << 11 | state >> 21) * primes[0] & mask
    state = (state ^ state >> 15) * primes[1] & mask
    state = (state ^ state >> 13) * primes[2] & mask
    return state ^ state >> 16


def test_a_codec_that_pyarrow_lacks(monkeypatch):
    codec = SimpleNamespace(is_available=lambda name: False)
    monkeypatch.setattr(c, "pa", SimpleNamespace(Codec=codec))
    with pytest.raises(c.UnpackError, match="without zstd"):
        c.unpack(c.ZSTD, memoryview(b"x"), 10)
