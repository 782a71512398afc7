"""A record of a transaction can be read when its mark is there, and that of each that began before it; it
counts if the mark says that its transaction was committed.
"""

from struct import pack

import numpy as np

from bench.kafka.commits import CommitTimes, committed

_PLAIN, _TRANSACTIONAL, _MARK = 0, 0x10, 0x30


def _batch(offset, count, kind, producer, stamp, body=b"records"):
    head = pack(">ibihiqqq", -1, 2, 0, kind | 0x08, count - 1, 0, stamp, producer) + pack(">hii", 0, 0, count)
    return pack(">qi", offset, len(head + body)) + head + body


def _mark(offset, producer, stamp, commit=True):
    """A mark as the broker writes it: version and kind are the key of its only record."""
    key = pack(">hh", 0, commit)
    value = pack(">hi", 0, 0)
    record = pack(">bbbb", 0, 0, 0, 2 * len(key)) + key + pack(">b", 2 * len(value)) + value + b"\0"
    return _batch(offset, 1, _MARK, producer, stamp, pack(">b", 2 * len(record)) + record)


def _open(offset, count, producer, stamp):
    """A batch of a transaction."""
    return _batch(offset, count, _TRANSACTIONAL, producer, stamp)


def _log(folder, *batches, start=0):
    (folder / f"{start:020}.log").write_bytes(b"".join(batches))


def _times(folder, offsets, start=0):
    return CommitTimes(folder, start).of(np.array(offsets)).tolist()


def test_a_record_waits_for_its_mark(tmp_path):
    first = (_open(0, 5, 1, 100), _open(5, 3, 1, 110), _mark(8, 1, 120))
    _log(tmp_path, *first, _open(9, 2, 1, 130), _mark(11, 1, 150))
    assert _times(tmp_path, [0, 4, 5, 7, 9, 10]) == [120, 120, 120, 120, 150, 150]


def test_a_record_waits_for_transactions_that_began_before_its_own(tmp_path):
    first = (_open(0, 1, 1, 100), _open(1, 1, 2, 101), _mark(2, 2, 102))
    _log(tmp_path, *first, _open(3, 1, 2, 103), _mark(4, 1, 104), _mark(5, 2, 105))
    assert _times(tmp_path, [0, 1, 3]) == [104, 104, 105]


def test_files_before_the_first_offset_are_left_alone(tmp_path):
    _log(tmp_path, b"about to be removed, and no batches for this test")
    _log(tmp_path, _open(7, 2, 1, 100), _mark(9, 1, 200), b"\0" * 20, start=7)
    assert _times(tmp_path, [8], start=8) == [200]


def test_records_of_committed_transactions_count(tmp_path):
    first = (_open(0, 4, 1, 100), _open(4, 2, 2, 100), _mark(6, 2, 101, commit=False))
    then = (_open(7, 3, 1, 100), _mark(10, 1, 102), _batch(11, 5, _PLAIN, -1, 100), _open(16, 9, 1, 100))
    _log(tmp_path, *first, *then)
    assert committed(tmp_path, 0) == 4 + 3 + 5 and committed(tmp_path, 7) == 3 + 5
