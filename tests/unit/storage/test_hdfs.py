"""Writes on HDFS whose answer is lost: what was written counts, once, and another's file is not replaced."""

import os
import uuid

import pytest

from selectroute.storage import ChangedError, Location, UnreachableError
from selectroute.storage import hdfs as module
from selectroute.storage.patient import PatientStorage

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("hadoop")]

RESET = RuntimeError("RPC failed: Connection reset by peer (os error 104)")
GONE = FileNotFoundError("the source of the rename does not exist")
"""Ends of a call whose answer was lost: the client gives up, or sends it again, too late."""


class LosingClient:
    """Client that renames, and then raises ``error`` so many ``times``; without ``sent`` it only raises."""

    def __init__(self, client, error, *, times=1, sent=True):
        self.client, self.error, self.times, self.sent = client, error, times, sent

    def rename(self, source, target, overwrite):
        if self.sent or not self.times:
            self.client.rename(source, target, overwrite=overwrite)
        if self.times:
            self.times -= 1
            raise self.error

    def __getattr__(self, name):
        return getattr(self.client, name)


@pytest.fixture
def file(hdfs, monkeypatch):
    monkeypatch.setitem(os.environ, "HADOOP_CONF_DIR", str(hdfs.conf))
    return Location.of(f"{hdfs.url}/{uuid.uuid4().hex}/lease.json")


@pytest.fixture
def losing(file, monkeypatch):
    client = module._opened(file.storage.root, os.getpid())

    def start(error, **how):
        losing = LosingClient(client, error, **how)
        monkeypatch.setattr(module, "_opened", lambda *_: losing)
        return losing

    return start


def names(file):
    return [entry.key.rpartition("/")[2] for entry in file.parent.entries()]


@pytest.mark.parametrize("sent", [True, False], ids=["answer-lost", "request-lost"])
@pytest.mark.parametrize("verb", ["put", "put_new"])
def test_a_job_waits_and_writes_once(file, losing, verb, sent):
    client = losing(RESET, times=2, sent=sent)
    patient = PatientStorage(file.storage, warn=lambda _: None, pause=lambda: False)
    getattr(patient, verb)(file.key, b"mine")
    assert client.times < 2
    assert file.read() == b"mine"
    with pytest.raises(FileExistsError):
        file.put_new(b"another's")
    assert file.read() == b"mine"


@pytest.mark.parametrize("verb", ["put", "put_new"])
def test_a_call_that_the_client_sent_twice_is_known_by_its_content(file, losing, verb):
    losing(GONE)
    getattr(file, verb)(b"mine")
    assert (file.read(), names(file)) == (b"mine", ["lease.json"])


def test_a_call_that_the_client_sent_twice_does_not_take_anothers_file(file, losing):
    file.put_new(b"another's")
    losing(GONE, sent=False, times=2)
    with pytest.raises(FileExistsError):
        file.put_new(b"mine")
    with pytest.raises(FileNotFoundError):
        file.put(b"mine")
    assert file.read() == b"another's"


@pytest.mark.parametrize("error", [RESET, GONE], ids=["reset", "gone"])
def test_a_replacement_counts_once(file, losing, error):
    file.put_new(b"1")
    _, first = file.storage.read_version(file.key)
    losing(error)
    patient = PatientStorage(file.storage, warn=lambda _: None, pause=lambda: False)
    second = patient.replace(file.key, b"2", first)
    assert file.storage.read_version(file.key) == (b"2", second)
    losing(error)
    with pytest.raises(ChangedError):
        patient.replace(file.key, b"stale", first)
    losing(error)
    assert patient.replace(file.key, b"3", second)
    assert file.storage.read_version(file.key)[0] == b"3"


def test_without_patience_the_caller_is_told(file, losing):
    losing(RESET)
    with pytest.raises(UnreachableError, match=r"HDFS does not answer .*Connection reset"):
        file.put_new(b"mine")
