"""One owner of a folder, on every storage."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from queue import Queue

import pytest

from selectroute.storage import ChangedError, StorageError
from selectroute.storage.lease import Lease, LeaseLostError, OwnedError


def frozen(lease):
    """Let a lease stand still, as its process does after SIGSTOP."""
    lease._ending.set()
    lease._thread.join()
    lease._ending = threading.Event()


def test_a_lease_that_is_renewed_is_not_taken(file):
    first = Lease(file, seconds=1)
    with pytest.raises(OwnedError, match="held by process"):
        Lease(file, seconds=1)
    first.check()
    first.close()


def test_a_released_lease_is_taken_at_once(file):
    Lease(file, seconds=60).close()
    second = Lease(file, seconds=60)
    assert second.epoch == 2
    second.close()
    second.close()


def test_of_a_lease_that_stands_still_the_next_epoch_begins(file):
    first = Lease(file, seconds=0.5)
    frozen(first)
    second = Lease(file, seconds=0.5)
    assert (first.epoch, second.epoch) == (1, 2)
    time.sleep(0.3)  # longer than half of its time, so that the first must ask
    with pytest.raises(LeaseLostError, match="another process has taken over"):
        first.check()
    with pytest.raises(LeaseLostError):
        first.check()
    second.check()
    first.close()
    second.check()
    second.close()


def test_the_loser_is_told(file):
    told = Queue()
    first = Lease(file, seconds=2.5, lost=told.put)
    while True:  # until no renewal comes between
        version = file.storage.read_version(file.key)[1]
        with suppress(ChangedError):
            file.storage.replace(file.key, b'{"epoch": 7, "holder": "another"}', version)
            break
    assert isinstance(told.get(timeout=60), LeaseLostError)
    first.close()


def test_one_that_stood_still_while_a_file_was_replaced_again_and_again_does_not_replace_it(file):
    file.put_new(b"1")
    _, first = file.storage.read_version(file.key)
    second = file.storage.replace(file.key, b"2", first)
    version = second
    for content in (b"3", b"4", b"5"):
        version = file.storage.replace(file.key, content, version)
    for old in (first, second):
        with pytest.raises(ChangedError):
            file.storage.replace(file.key, b"stale", old)
    assert file.storage.read_version(file.key) == (b"5", version)
    assert file.storage.replace(file.key, b"6", version)


def test_of_many_that_start_at_once_one_gets_it(file):
    held, refused = [], []

    def take():
        try:
            held.append(Lease(file, seconds=1))
        except OwnedError as error:
            refused.append(error)

    with ThreadPoolExecutor(5) as pool:
        for _ in range(5):
            pool.submit(take)
    assert (len(held), len(refused)) == (1, 4)
    held[0].close()


def test_a_file_that_is_no_lease_is_named(file):
    file.put_new(b"{}")
    with pytest.raises(StorageError, match=r"lease\.json is not a lease"):
        Lease(file)


def test_storage_that_does_not_answer_does_not_end_a_lease(file, monkeypatch):
    lease = Lease(file, seconds=0.5)
    storage = type(file.storage)
    working = storage.replace
    monkeypatch.setattr(storage, "replace", lambda *_: (_ for _ in ()).throw(StorageError("busy")))
    time.sleep(0.5)
    with pytest.raises(StorageError, match="busy"):
        lease.check()
    monkeypatch.setattr(storage, "replace", working)
    lease.check()
    lease.close()
