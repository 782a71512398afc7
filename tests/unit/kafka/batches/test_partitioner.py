import pyarrow as pa
import pytest

from selectroute.kafka.batches.encode import key_hashes

# Of the tests of Kafka's own client.
KNOWN = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize("type_", [pa.binary(), pa.large_binary()])
def test_a_key_has_the_hash_that_kafkas_own_producers_give_it(type_):
    assert key_hashes(pa.array(KNOWN, type_)).to_pylist() == [
        number & 0x7FFFFFFF for number in KNOWN.values()
    ]


def test_no_key_has_no_hash_and_a_slice_has_its_own():
    keys = pa.array([b"x", None, b"abc", None, b""], pa.binary())
    whole = key_hashes(keys).to_pylist()
    assert whole[1] is None and whole[3] is None and None not in whole[::2]
    assert key_hashes(keys.slice(2, 2)).to_pylist() == [KNOWN[b"abc"], None]
    assert key_hashes(keys.slice(0, 0)).to_pylist() == []
    assert key_hashes(pa.nulls(2, pa.binary())).to_pylist() == [None, None]
