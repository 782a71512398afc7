"""A server that speaks S3, for tests: moto, in a process of its own on loopback."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.servers.object_stores import BUCKET, ObjectStore, in_environment

__all__ = ["BUCKET", "clients_of", "environment", "make_bucket", "s3_server", "s3_store", "store_at"]

SECRET = "q8Zx-never-to-be-seen"
"""The secret key, which is found wherever it is written."""


def environment(endpoint: str) -> dict[str, str]:
    """The environment of a client of the server."""
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": "us-east-1",
    }


@contextmanager
def s3_server() -> Iterator[str]:
    """The URL of a server with the bucket `BUCKET`; its content is gone at the end."""
    pytest.importorskip("moto", reason="moto[server] is not installed")
    with socket.create_server(("127.0.0.1", 0)) as listening:  # which no other process can take meanwhile
        url, descriptor = f"http://127.0.0.1:{listening.getsockname()[1]}", listening.fileno()
        command = [sys.executable, str(Path(__file__).with_name("moto_server.py")), str(descriptor)]
        none = subprocess.DEVNULL
        server = subprocess.Popen(command, stdout=none, stderr=none, pass_fds=[descriptor])
    try:
        make_bucket(url)
        yield url
    finally:
        server.kill()
        server.wait()


def store_at(url: str) -> ObjectStore:
    """The server at a URL, as a store for tests of all."""
    return ObjectStore(f"s3://{BUCKET}", url, environment)


@contextmanager
def s3_store() -> Iterator[ObjectStore]:
    """A server as that of `s3_server`."""
    with s3_server() as url:
        yield store_at(url)


def make_bucket(url: str, bucket: str = BUCKET, seconds: float = 30) -> None:
    """Make a bucket, as soon as the server answers."""
    request = urllib.request.Request(f"{url}/{bucket}", method="PUT")
    request.add_header("Authorization", "AWS4-HMAC-SHA256 Credential=key/20260101/us-east-1/s3/aws4_request")
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    until = time.monotonic() + seconds
    while True:
        try:
            opener.open(request, timeout=seconds).close()
            return
        except (urllib.error.URLError, OSError):
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


@contextmanager
def clients_of(endpoint: str) -> Iterator[None]:
    """Make this process a client of the server."""
    with in_environment(environment(endpoint)):
        yield
