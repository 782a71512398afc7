"""Azure Blob Storage for tests: Azurite, of npm, in a process of its own on loopback."""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from pathlib import Path

import pytest

from tests.support.components import missing
from tests.support.servers.object_stores import BUCKET, ObjectStore, installed, running

VERSION = "3.35.0"
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The key of Azurite's account, which its documentation gives."""

_PROGRAM = "node_modules/azurite/dist/src/blob/main.js"
_API = "2021-12-02"


def environment(endpoint: str) -> dict[str, str]:
    """The environment of a client of the server.

    A client that knows that the server is an emulator does without ``startFrom`` in listings, which Azurite
    ignores. Delta's library needs that: what it does not ask for makes a commit fail (seen with
    ``AZURE_STORAGE_ENDPOINT``, Azurite 3.35.0 and deltalake 1.6.6).
    """
    return {
        "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT,
        "AZURE_STORAGE_ACCOUNT_KEY": KEY,
        "AZURE_STORAGE_USE_EMULATOR": "true",
        "AZURITE_BLOB_STORAGE_URL": endpoint,
    }


@contextmanager
def azure_server() -> Iterator[ObjectStore]:
    """A server with the container `BUCKET`; its content is gone at the end."""
    pytest.importorskip("obstore", reason="obstore is not installed (the extra `storage`)")
    from selectroute.testing.broker import free_ports

    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        missing("Azurite needs node and npm")
    program = installed(
        f"azurite-{VERSION}",
        _PROGRAM,
        lambda folder: [npm, "install", "--prefix", str(folder), "--no-audit", f"azurite@{VERSION}"],
    )
    (port,) = free_ports(1)
    with tempfile.TemporaryDirectory(prefix="azurite-") as folder:
        options = ["--inMemoryPersistence", "--disableTelemetry", "--silent", "--blobHost", "127.0.0.1"]
        command = [node, str(program), *options, "--blobPort", str(port)]
        with running("Azurite", command, Path(folder) / "log", lambda: _made(port, BUCKET)):
            yield ObjectStore(f"az://{BUCKET}", f"http://127.0.0.1:{port}", environment)


def _made(port: int, container: str) -> bool:
    """Make a container; return whether the server answers."""
    path, date = f"/{ACCOUNT}/{container}", formatdate(usegmt=True)
    # Shared key: the verb, eleven headers that are empty here, those of Azure, and the resource.
    signed = f"PUT{12 * chr(10)}x-ms-date:{date}\nx-ms-version:{_API}\n/{ACCOUNT}{path}\nrestype:container"
    digest = hmac.new(base64.b64decode(KEY), signed.encode(), hashlib.sha256).digest()
    signature = base64.b64encode(digest).decode()
    headers = {"x-ms-date": date, "x-ms-version": _API, "Content-Length": "0"}
    headers["Authorization"] = f"SharedKey {ACCOUNT}:{signature}"
    try:
        client = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        client.request("PUT", f"{path}?restype=container", headers=headers)
        answer = client.getresponse()
        assert answer.status == 201, answer.read()
    except OSError:
        return False
    client.close()
    return True
