"""An object store behind a proxy that fails: nothing is lost, nothing is written by two."""

import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from selectroute.storage import DeniedError, Location, UnreachableError
from selectroute.storage.patient import patient
from tests.support.servers.faulty_proxy import faulty_proxy, requests_in
from tests.support.servers.s3 import BUCKET, clients_of

pytestmark = pytest.mark.slow


def waited_for(folder):
    until = time.monotonic() + 300
    return patient(folder, lambda _: None, lambda: time.monotonic() > until)


@pytest.mark.parametrize("seed", range(3))
def test_of_two_writers_of_many_files_each_wins_its_own(s3, tmp_path, seed):
    won = {"a": set(), "b": set()}
    with faulty_proxy(s3, tmp_path / "log", rate=0.3, seed=seed) as proxy, clients_of(proxy):
        folder = waited_for(Location.of(f"s3://{BUCKET}/{uuid.uuid4().hex}"))

        def write(name):
            for number in range(40):
                with suppress(FileExistsError):
                    (folder / str(number)).put_new(f"{name} {number}".encode())
                    won[name].add(number)

        with ThreadPoolExecutor(2) as pool:
            list(pool.map(write, won))
        found = {number: (folder / str(number)).read().decode() for number in range(40)}
    faults = {what for _, _, _, what, _, _ in requests_in(tmp_path / "log") if isinstance(what, str)}
    assert faults > {"lost", "slow down", "refused"}
    assert won["a"] | won["b"] == set(range(40)) and not won["a"] & won["b"]
    assert all(found[number] == f"{name} {number}" for name in won for number in won[name])


def test_credentials_that_expire_are_waited_for(s3, tmp_path):
    switch, warnings = tmp_path / "switch", []
    switch.write_text("deny")
    with faulty_proxy(s3, tmp_path / "log", switch=switch) as proxy, clients_of(proxy):
        plain = Location.of(f"s3://{BUCKET}/{uuid.uuid4().hex}/x")
        with pytest.raises(DeniedError, match="can't be written: the credentials have expired"):
            plain.put(b"1")

        def renewed():
            switch.write_text("ok")
            return False

        file = patient(plain, warnings.append, renewed)
        file.put(b"1")
        assert file.read() == b"1" and len(warnings) == 1 and "have expired" in warnings[0]


def test_a_store_that_is_down_is_named(s3, tmp_path):
    switch, log = tmp_path / "switch", tmp_path / "log"
    switch.write_text("down")
    said = pytest.raises(UnreachableError, match="does not answer")
    with faulty_proxy(s3, log, switch=switch) as proxy, clients_of(proxy), said:
        Location.of(f"s3://{BUCKET}/x").read()
