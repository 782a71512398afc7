"""A schema registry on loopback that answers the requests of deserializers."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

GUID = "00000000-0000-4000-8000-{:012}"


class RegistryServer:
    """Registry whose schemas are set by tests.

    Attributes:
        schemas: schema objects of the REST API by their ids; the GUID of id 7 is ``GUID.format(7)``.
        versions: ids by subject and version, for references.
        status: a status to answer every request with; None for normal answers.
        body: the body of such an answer.
        requests: path and headers of each request.
    """

    def __init__(self):
        self.schemas, self.versions, self.requests = {}, {}, []
        self.status, self.body = None, b"{}"
        self._server = None
        self._port = 0

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.stop()

    @property
    def url(self):
        return f"http://127.0.0.1:{self._port}"

    def add(self, id, schema, type="AVRO", references=()):
        """Register a schema, an object or a text."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        self.schemas[id] = {"schema": text, "schemaType": type, "references": list(references)}
        return id

    def start(self):
        """Answer, at the same port as before."""
        own = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                own.requests.append((self.path, dict(self.headers)))
                status, body = own._answer(urlsplit(self.path).path)
                self.send_response(status)
                self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
                self.send_header("Content-Length", str(len(body)))
                self.send_header("Connection", "close")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), Handler)
        self._port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self):
        """Refuse connections."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def _answer(self, path):
        if self.status is not None:
            return self.status, self.body
        parts = [unquote(part) for part in path.strip("/").split("/")]
        id = None
        if parts[:2] == ["schemas", "ids"]:
            id = int(parts[2])
        elif parts[:2] == ["schemas", "guids"]:
            id = next((one for one in self.schemas if GUID.format(one) == parts[2]), None)
        elif parts[0] == "subjects":
            id = self.versions.get((parts[1], int(parts[3])))
        found = self.schemas.get(id)
        if found is None:
            return 404, json.dumps({"error_code": 40403, "message": f"Schema {id} not found"}).encode()
        extra = {"subject": parts[1], "version": int(parts[3])} if parts[0] == "subjects" else {}
        return 200, json.dumps({**found, **extra, "id": id}).encode()
