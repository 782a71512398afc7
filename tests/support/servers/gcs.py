"""Google Cloud Storage for tests: fake-gcs-server, of Go, in a process of its own on loopback.

fake-gcs-server has the JSON API of the store. obstore and Delta's library speak the XML API, of which the
server has the reading part only: it neither writes by it, nor knows its conditions (seen with 1.56.1: a PUT
is answered with ``invalid uploadType``). So a translator stands before it, in this process: each request of
the XML API becomes one of the JSON API, as Google documents both, and its answer goes back. Conditions are
judged by the server, by generations. What the translator does itself: it keeps the parts of a multipart
upload until the upload is complete.

=============================================  =====================================================
XML API                                        JSON API
=============================================  =====================================================
``GET|HEAD|DELETE /bucket/key``                the same verb on ``/storage/v1/b/bucket/o/key``
``PUT /bucket/key``                            ``POST /upload/storage/v1/b/bucket/o?name=key``
header ``x-goog-if-generation-match``          parameter ``ifGenerationMatch``
header ``x-goog-copy-source``                  ``…/copyTo/…``
``GET /bucket?list-type=2&prefix=…``           ``GET /storage/v1/b/bucket/o?prefix=…``
=============================================  =====================================================
"""

from __future__ import annotations

import http.client
import json
import shutil
import tempfile
import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlencode, urlsplit
from xml.sax.saxutils import escape

import pytest

from tests.support.components import missing
from tests.support.servers.object_stores import BUCKET, ObjectStore, installed, running

VERSION = "1.56.1"
PRIVATE_KEY = "q8Zx-a-key-never-to-be-seen"
"""What stands for the private key in the file of credentials, found wherever it is written."""

_MODULE = "github.com/fsouza/fake-gcs-server"
_PAGE = 100
"""Objects in a page of a listing, less than the store's thousand, so that tests turn pages."""

NONE: Mapping[str, str] = {}
_CODES = {400: "InvalidArgument", 404: "NoSuchKey", 412: "PreconditionFailed"}


def environment(folder: Path, endpoint: str) -> dict[str, str]:
    """The environment of a client of the server; ``folder`` takes a file of credentials for it."""
    file = folder / f"{urlsplit(endpoint).port}.json"
    content = {"gcs_base_url": endpoint, "disable_oauth": True, "client_email": ""}
    file.write_text(json.dumps(content | {"private_key": PRIVATE_KEY, "private_key_id": ""}))
    return {"GOOGLE_SERVICE_ACCOUNT": str(file)}


@contextmanager
def gcs_server() -> Iterator[ObjectStore]:
    """A server with the bucket `BUCKET`; its content is gone at the end."""
    pytest.importorskip("obstore", reason="obstore is not installed (the extra `storage`)")
    from selectroute.testing.broker import free_ports

    go = shutil.which("go")
    if go is None:
        missing("fake-gcs-server needs go")
    program = installed(
        f"fake-gcs-server-{VERSION}",
        "fake-gcs-server",
        lambda folder: ["env", f"GOBIN={folder}", go, "install", f"{_MODULE}@v{VERSION}"],
    )
    (port,) = free_ports(1)
    with tempfile.TemporaryDirectory(prefix="gcs-") as scratch:
        folder = Path(scratch)
        options = ["-backend", "memory", "-scheme", "http", "-host", "127.0.0.1", "-log-level", "error"]
        command = [str(program), *options, "-port", str(port)]
        with running("fake-gcs-server", command, folder / "log", lambda: _made(port, BUCKET)):
            translator = Translator(port)
            threading.Thread(target=translator.serve_forever, daemon=True).start()
            try:
                endpoint = f"http://127.0.0.1:{translator.server_port}"
                yield ObjectStore(f"gs://{BUCKET}", endpoint, partial(environment, folder))
            finally:
                translator.shutdown()
                translator.server_close()


def _made(port: int, bucket: str) -> bool:
    """Make a bucket; return whether the server answers."""
    try:
        client = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        body = json.dumps({"name": bucket})
        client.request("POST", "/storage/v1/b?project=p", body, {"Content-Type": "application/json"})
        answer = client.getresponse()
        assert answer.status == 200, answer.read()
    except OSError:
        return False
    client.close()
    return True


class Translator(ThreadingHTTPServer):
    """A server of the XML API; see the module. ``port`` is that of fake-gcs-server."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", 0), Translated)
        self.port = port
        self.uploads: dict[str, dict[int, bytes]] = {}


class Translated(BaseHTTPRequestHandler):
    """One request of the XML API."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Translator

    def handle_one_request(self) -> None:
        with suppress(ConnectionError):
            super().handle_one_request()

    def do_HEAD(self) -> None:
        self._split()
        self._read()

    def do_GET(self) -> None:
        self._split()
        if self.key:
            self._read()
        else:
            self._list()

    def do_PUT(self) -> None:
        self._split()
        if "partNumber" in self.query:
            parts = self.server.uploads[self.query["uploadId"]]
            parts[int(self.query["partNumber"])] = self.body
            self._answer(200, {"ETag": f'"{self.query["partNumber"]}"'})
        elif source := self.headers.get("x-goog-copy-source"):
            other, _, name = unquote(source).lstrip("/").partition("/")
            to = f"{self._object().removeprefix('/storage/v1')}?{urlencode(self._conditions())}"
            self._write("POST", f"/storage/v1/b/{other}/o/{quote(name, safe='')}/copyTo{to}")
        else:
            self._upload(self.body)

    def do_POST(self) -> None:
        self._split()
        if "uploads" in self.query:
            id = uuid.uuid4().hex
            self.server.uploads[id] = {}
            self._xml("InitiateMultipartUploadResult", f"<UploadId>{id}</UploadId>")
        elif "uploadId" in self.query:
            parts = self.server.uploads.pop(self.query["uploadId"])
            self._upload(b"".join(parts[number] for number in sorted(parts)), whole=True)
        else:
            self._error(400, "NotImplemented")

    def do_DELETE(self) -> None:
        self._split()
        if "uploadId" in self.query:
            self.server.uploads.pop(self.query["uploadId"], None)
            self._answer(204)
            return
        status, _, data = self._ask("DELETE", self._object())
        if status >= 300:
            self._failed(status, data)
        else:
            self._answer(204)

    # ---- what the server is asked

    def _split(self) -> None:
        self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        url = urlsplit(self.path)
        self.bucket, _, key = url.path.lstrip("/").partition("/")
        self.key = unquote(key)
        query = parse_qs(url.query, keep_blank_values=True)
        self.query = {name: values[-1] for name, values in query.items()}

    def _object(self) -> str:
        return f"/storage/v1/b/{self.bucket}/o/{quote(self.key, safe='')}"

    def _conditions(self) -> dict[str, str]:
        wanted = self.headers.get("x-goog-if-generation-match")
        return {} if wanted is None else {"ifGenerationMatch": wanted}

    def _read(self) -> None:
        headers = {"Range": self.headers["Range"]} if "Range" in self.headers else {}
        status, found, data = self._ask(self.command, f"{self._object()}?alt=media", headers=headers)
        if status >= 300:
            self._failed(status, data)
            return
        names = ("ETag", "Last-Modified", "X-Goog-Generation", "Content-Range", "Content-Type")
        kept = {name: found[name] for name in names if name in found}
        self._answer(status, kept, data, length=found["Content-Length"])

    def _upload(self, data: bytes, *, whole: bool = False) -> None:
        query = {"uploadType": "media", "name": self.key, **self._conditions()}
        self._write("POST", f"/upload/storage/v1/b/{self.bucket}/o?{urlencode(query)}", data, whole=whole)

    def _write(self, verb: str, path: str, data: bytes = b"", *, whole: bool = False) -> None:
        status, _, answer = self._ask(verb, path, data, {"Content-Type": "application/octet-stream"})
        if status >= 300:
            self._failed(status, answer)
            return
        made = json.loads(answer)
        headers = {"ETag": f'"{made["etag"]}"', "x-goog-generation": str(made["generation"])}
        if whole:
            self._xml("CompleteMultipartUploadResult", f"<ETag>{escape(headers['ETag'])}</ETag>", headers)
        else:
            self._answer(200, headers)

    def _list(self) -> None:
        given = {"prefix": "prefix", "delimiter": "delimiter", "continuation-token": "pageToken"}
        query = {given[name]: value for name, value in self.query.items() if name in given}
        after = self.query.get("start-after", "")
        if after:
            query["startOffset"] = after
        path = f"/storage/v1/b/{self.bucket}/o?{urlencode({**query, 'maxResults': _PAGE})}"
        status, _, data = self._ask("GET", path)
        if status >= 300:
            self._failed(status, data)
            return
        found = json.loads(data)
        text = "".join(map(_contents, (one for one in found.get("items", ()) if one["name"] != after)))
        # The server repeats the folders on each page, and the store does not.
        for prefix in () if "pageToken" in query else found.get("prefixes", ()):
            text += f"<CommonPrefixes><Prefix>{escape(prefix)}</Prefix></CommonPrefixes>"
        if token := found.get("nextPageToken"):
            text += f"<NextContinuationToken>{escape(token)}</NextContinuationToken>"
        self._xml("ListBucketResult", text)

    def _ask(
        self, verb: str, path: str, body: bytes = b"", headers: Mapping[str, str] = NONE
    ) -> tuple[int, Any, bytes]:
        client = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=60)
        client.request(verb, path, body or None, dict(headers))
        answer = client.getresponse()
        data = answer.read()
        client.close()
        return answer.status, answer.headers, data

    # ---- what is answered

    def _failed(self, status: int, data: bytes) -> None:
        code = _CODES.get(status, "InternalError")
        if status == 404 and self._ask("GET", f"/storage/v1/b/{self.bucket}")[0] == 404:
            code = "NoSuchBucket"
        self._error(status, code, data.decode(errors="replace"))

    def _error(self, status: int, code: str, message: str = "") -> None:
        self._xml("Error", f"<Code>{code}</Code><Message>{escape(message)}</Message>", status=status)

    def _xml(self, name: str, content: str, headers: Mapping[str, str] = NONE, status: int = 200) -> None:
        text = f'<?xml version="1.0" encoding="UTF-8"?><{name}>{content}</{name}>'
        self._answer(status, {"Content-Type": "application/xml", **headers}, text.encode())

    def _answer(
        self, status: int, headers: Mapping[str, str] = NONE, data: bytes = b"", length: str | None = None
    ) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if status != 204:
            self.send_header("Content-Length", length or str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Write nothing."""


def _contents(item: Mapping[str, Any]) -> str:
    fields = {
        "Key": item["name"],
        "LastModified": item["updated"],
        "ETag": f'"{item["etag"]}"',
        "Size": item["size"],
        "Generation": item["generation"],
    }
    text = "".join(f"<{name}>{escape(str(value))}</{name}>" for name, value in fields.items())
    return f"<Contents>{text}</Contents>"
