"""The head: never without a mark, never back, never wrong."""

from __future__ import annotations

import multiprocessing
import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from selectroute.store.errors import DamagedError
from selectroute.store.head import CommitMark, Head


def mark(number):
    return CommitMark("me", number, f"{number:064x}")


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "x.db")


def test_the_newest_mark_is_read(path):
    assert Head(path).read() is None
    head = Head(path)
    for number in range(1, 9):
        assert head.advance(mark(number))
        assert Head(path).read() == mark(number)
    assert [file.name for file in head.path.parent.iterdir()] == ["x.db.head"]


def test_a_mark_does_not_go_back(path):
    head, other = Head(path), Head(path)
    assert head.advance(mark(7))
    assert other.advance(mark(5)) and head.advance(mark(6))
    assert Head(path).read() == mark(7)


def advance_some(path, start):
    head = Head(path)
    for number in range(start, 200, 4):
        assert head.advance(mark(number + 1))


def test_many_that_write_at_once_leave_the_newest(path):
    fork = multiprocessing.get_context("fork")
    processes = [fork.Process(target=advance_some, args=(path, start)) for start in range(4)]
    for one in processes:
        one.start()
    for one in processes:
        one.join()
        assert one.exitcode == 0
    assert Head(path).read() == mark(200)
    head = Head(path)
    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(lambda number: head.advance(mark(number)), range(201, 401)))
    assert Head(path).read() == mark(400)


@pytest.mark.parametrize("length", [0, 1, 20, 80, 150])
def test_a_write_that_is_torn_leaves_the_mark_before_it(path, length):
    head = Head(path)
    head.advance(mark(8))
    head.advance(mark(9))
    before = head.path.read_bytes()
    Head(path).advance(mark(10))
    after = head.path.read_bytes()
    (start,) = {place // 4_096 for place in range(len(after)) if before[place] != after[place]}
    torn = bytearray(before)
    torn[start * 4_096 : start * 4_096 + length] = after[start * 4_096 : start * 4_096 + length]
    torn[start * 4_096 + length : start * 4_096 + 4_096] = bytes(4_096 - length)
    head.path.write_bytes(torn)
    assert Head(path).read() == mark(9)
    assert Head(path).advance(mark(11))
    assert Head(path).read() == mark(11)


def test_turned_bits_never_make_another_mark(path):
    head = Head(path)
    head.advance(mark(8))
    head.advance(mark(9))
    data = head.path.read_bytes()
    used = [place for place, byte in enumerate(data) if byte]
    for place in used:
        turned = bytearray(data)
        turned[place] ^= 1 << place % 8
        head.path.write_bytes(turned)
        assert Head(path).read() in (mark(8), mark(9))
    for content in (b"", b"x", bytes(8_192), b"\n" * 8_192, b"a b c d e f\n" * 700, os.urandom(8_192)):
        head.path.write_bytes(content)
        with pytest.raises(DamagedError, match=r"x\.db\.head is damaged"):
            Head(path).read()


def test_what_cannot_be_written_is_written_with_the_next(tmp_path, path):
    head = Head(str(tmp_path / "later" / "x.db"))
    assert not head.advance(mark(1))
    (tmp_path / "later").mkdir()
    assert head.advance(mark(2))
    assert head.read() == mark(2)
