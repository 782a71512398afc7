"""Errors of Azure's and Google's stores: without a server, and on an emulator."""

from __future__ import annotations

import pytest

pytest.importorskip("obstore", reason="obstore is not installed (the extra `storage`)")

from selectroute.storage import DeniedError, Location, StorageError
from tests.support.servers.azure import ACCOUNT, KEY
from tests.support.servers.object_stores import in_environment

CREDENTIALS = {"AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT, "AZURE_STORAGE_ACCOUNT_KEY": KEY}

VERBS = {
    "read": lambda file: file.read(),
    "list": lambda file: [*file.parent.entries()],
    "list deep": lambda file: [*file.parent.entries(deep=True)],
    "folders": lambda file: file.parent.folders(),
    "entry": lambda file: file.entry(),
    "put": lambda file: file.put(b"1"),
    "put new": lambda file: file.put_new(b"1"),
    "delete": lambda file: file.delete(),
}


def test_an_account_that_is_not_named_is_one_sentence(monkeypatch):
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    said = pytest.raises(StorageError, match=r"az://b can't be opened: .*: set AZURE_STORAGE_ACCOUNT_NAME$")
    with in_environment({}), said:
        Location.of("az://b/x").read()


def test_a_file_of_credentials_that_is_missing_is_one_sentence(tmp_path):
    said = pytest.raises(StorageError, match=r"gs://b can't be opened: .*none\.json: No such file")
    with in_environment({"GOOGLE_SERVICE_ACCOUNT": str(tmp_path / "none.json")}), said:
        Location.of("gs://b/x").read()


def test_an_identity_that_does_not_answer_is_missing_credentials(monkeypatch):
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_KEY", raising=False)
    known = {"AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT, "IDENTITY_ENDPOINT": "http://127.0.0.1:9/token"}
    said = pytest.raises(DeniedError, match=r"az://b/x can't be written: no credentials were found")
    with in_environment(known | {"IDENTITY_HEADER": "x"}), said:
        Location.of("az://b/x").put(b"1")


@pytest.mark.nightly
def test_a_server_without_tls_is_used_if_the_environment_names_it(azure, tmp_path):
    with in_environment({**CREDENTIALS, "AZURE_STORAGE_ENDPOINT": f"{azure.endpoint}/{ACCOUNT}"}):
        file = Location.of(f"{azure.root}/{tmp_path.name}/x")
        file.put_new(b"1")
        assert file.read() == b"1"


@pytest.mark.nightly
@pytest.mark.parametrize("verb", VERBS)
def test_whatever_a_wrong_key_asks_is_denied(azure, verb):
    file = Location.of(f"{azure.root}/denied/x")
    said = pytest.raises(DeniedError, match=r": the credentials do not allow it$")
    with azure.client(AZURE_STORAGE_ACCOUNT_KEY="b3RoZXI="), said:
        VERBS[verb](file)
