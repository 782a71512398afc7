"""Errors of object stores, and what happens when an answer is lost."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from selectroute.storage import ChangedError, DeniedError, Location, StorageError, UnreachableError
from selectroute.storage.objects import delta_options
from selectroute.storage.patient import OutageWarning, patient
from tests.support.servers.s3 import BUCKET, clients_of

pytestmark = pytest.mark.slow


@pytest.fixture
def client(s3):
    with clients_of(s3):
        yield


@pytest.mark.usefixtures("client")
def test_a_bucket_that_is_not_there_is_named():
    with pytest.raises(StorageError, match="s3://nothing-here/x can't be read: the bucket does not exist"):
        Location.of("s3://nothing-here/x").read()
    with pytest.raises(StorageError, match="the bucket does not exist"):
        Location.of("s3://nothing-here/x").check_writable()


@pytest.fixture
def asked():
    """A server that has nothing, and the headers of authorization of the requests that it got."""
    found = []

    class Empty(BaseHTTPRequestHandler):
        def do_GET(self):
            found.append(self.headers["Authorization"])
            self.send_response(404)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Empty)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", found
    server.shutdown()
    server.server_close()


def test_credentials_come_from_a_profile_where_the_environment_has_none(asked, tmp_path, monkeypatch):
    url, found = asked
    profiles = tmp_path / "credentials"
    profiles.write_text(
        "[default]\naws_access_key_id = other\naws_secret_access_key = s\n"
        "[broker]\naws_access_key_id = profiled\naws_secret_access_key = geheim\n"
    )
    with clients_of(url):
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.delenv(name)
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(profiles))
        monkeypatch.setenv("AWS_PROFILE", "broker")
        with pytest.raises(FileNotFoundError):
            Location.of(f"s3://{BUCKET}/x").read()
        options = delta_options(f"s3://{BUCKET}/table")
        monkeypatch.undo()
    assert found and all("Credential=profiled/" in one for one in found)
    assert (options["aws_access_key_id"], options["aws_secret_access_key"]) == ("profiled", "geheim")


def test_a_store_that_does_not_answer_is_named():
    said = pytest.raises(UnreachableError, match=f"s3://{BUCKET}/x can't be written: .*does not answer")
    with clients_of("http://127.0.0.1:9"), said:
        Location.of(f"s3://{BUCKET}/x").put(b"1")


@pytest.mark.usefixtures("client")
def test_a_write_whose_answer_was_lost_is_known_by_its_content(monkeypatch):
    file = Location.of(f"s3://{BUCKET}/lost")
    file.put_new(b"mine")
    file.put_new(b"mine")  # as the client does when no answer came
    with pytest.raises(FileExistsError):
        file.put_new(b"another's")


@pytest.mark.usefixtures("client")
def test_a_replacement_whose_answer_was_lost_is_known_by_its_content():
    file = Location.of(f"s3://{BUCKET}/replaced")
    file.put_new(b"1")
    storage, version = file.storage, file.storage.read_version(file.key)[1]
    newer = storage.replace(file.key, b"2", version)
    assert storage.replace(file.key, b"2", version) == newer  # as the client does when no answer came
    with pytest.raises(ChangedError):
        storage.replace(file.key, b"3", version)


class FailingStorage:
    local = False

    def __init__(self, errors):
        self.errors = errors

    def read(self, key):
        if self.errors:
            raise self.errors.pop(0)
        return b"data"


def test_storage_that_does_not_answer_is_waited_for_with_one_warning():
    warnings = []
    storage = FailingStorage([UnreachableError("s3://b/x: busy"), DeniedError("s3://b/x: expired")])
    file = patient(Location(storage, "x"), OutageWarning(warnings.append), lambda: False)
    assert file.read() == b"data"
    assert warnings == ["s3://b/x: busy: the stream waits"]


def test_an_outage_is_warned_of_once_however_long_it_is_and_another_one_again():
    warnings, now = [], [0.0]
    outage = OutageWarning(warnings.append, 60.0, lambda: now[0])
    for now[0] in range(0, 600, 30):
        outage(f"s3://b/{now[0]} does not answer")
    assert warnings == ["s3://b/0 does not answer"]
    now[0] += 60
    outage("again")
    assert warnings[1:] == ["again"]


def test_waiting_ends_when_the_job_stops():
    file = patient(Location(FailingStorage([UnreachableError("busy")]), "x"), lambda _: None, lambda: True)
    with pytest.raises(UnreachableError):
        file.read()
