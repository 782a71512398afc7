"""The write-ahead log: what a crash leaves is no damage, what hides commits is."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing

import pytest

from selectroute.store import wal
from selectroute.store.errors import DamagedError
from selectroute.store.wal import check_log

HEADER, FRAME = 32, 24 + 4_096


def connected(path):
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    return connection


@pytest.fixture
def log(tmp_path, monkeypatch):
    """The log of a database with nine commits behind its table's, as a crash leaves it."""
    monkeypatch.setattr(wal, "_LOOK_SECONDS", 0.0)
    path = tmp_path / "x.db"
    with closing(connected(path)) as connection:
        connection.execute("CREATE TABLE n (n INTEGER)")
        for number in range(9):
            connection.execute("INSERT INTO n VALUES (?)", (number,))
        data = (tmp_path / "x.db-wal").read_bytes()
    made = tmp_path / "log"
    made.write_bytes(data)
    return made


def turned(data, place):
    return data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :]


def test_a_whole_log_and_none_are_sound(log, tmp_path):
    check_log(str(log))
    check_log(str(tmp_path / "none"))
    log.write_bytes(b"")
    check_log(str(log))


def test_every_length_is_what_a_crash_may_leave(log):
    data = log.read_bytes()
    for size in range(0, len(data), 509):
        log.write_bytes(data[:size])
        check_log(str(log))


@pytest.mark.parametrize("place", [0, 5, 9, 12, 17, 21, 25, 31])
def test_a_damaged_header_is_named(log, place):
    log.write_bytes(turned(log.read_bytes(), place))
    with pytest.raises(DamagedError, match="log is damaged"):
        check_log(str(log))


@pytest.mark.parametrize("within", [0, 4, 8, 15, 16, 20, 24, 1_000, FRAME - 1])
def test_a_frame_that_hides_commits_is_named(log, within):
    data = log.read_bytes()
    frames = (len(data) - HEADER) // FRAME
    for frame in range(frames):
        log.write_bytes(turned(data, HEADER + frame * FRAME + within))
        if frame < frames - 2:
            with pytest.raises(DamagedError, match="changes that were committed are lost"):
                check_log(str(log))
        elif frame == frames - 1:
            check_log(str(log))  # it may be one that a crash cut off


def test_what_failed_commits_left_behind_is_no_damage(log, tmp_path):
    """Two that were written and not synced, each longer than what was written in its place."""
    data = log.read_bytes()
    frames = [data[at : at + FRAME] for at in range(HEADER, len(data), FRAME)]
    others = tmp_path / "y.db"
    with closing(connected(others)) as connection:
        connection.execute("CREATE TABLE n (n TEXT)")
        for _ in range(9):
            connection.execute("INSERT INTO n VALUES (?)", ("x" * 9_000,))
        other = (tmp_path / "y.db-wal").read_bytes()
    # Frames of another history under the salts of this one: none of them goes on from a frame here.
    salts = data[16:24]
    starts = (HEADER, HEADER + FRAME)
    stale = [other[at : at + 8] + salts + other[at + 16 : at + FRAME] for at in starts]
    log.write_bytes(data[:HEADER] + b"".join(frames[:4]) + stale[0] + frames[8])
    check_log(str(log))


def test_a_log_that_began_anew_has_frames_of_the_one_before(tmp_path, monkeypatch):
    path = tmp_path / "x.db"
    with closing(connected(path)) as connection:
        connection.execute("CREATE TABLE n (n INTEGER)")
        for number in range(9):
            connection.execute("INSERT INTO n VALUES (?)", (number,))
        connection.execute("PRAGMA wal_checkpoint(RESTART)")
        connection.execute("INSERT INTO n VALUES (10)")
        assert os.path.getsize(f"{path}-wal") > HEADER + 9 * FRAME
        check_log(f"{path}-wal")
