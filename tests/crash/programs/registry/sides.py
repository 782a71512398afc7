"""A registry as its clients use it, in process and through a service; what they do and note until it is
killed, and how the registry is held against that.
"""

from __future__ import annotations

import itertools
import json
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from random import Random
from typing import Any

from selectroute.index.snapshot import Snapshot
from selectroute.registry.errors import NotFoundError, UnavailableError
from selectroute.registry.model import Idempotency, Operation, SubscriptionSpec
from selectroute.registry.publisher import RegistryPublisher
from selectroute.registry.registry import Registry
from tests.crash.programs.serving import SUBSCRIPTIONS, Connection, Service

IMPORTED = 300
PARTS = {"register": 1, "apply": 3, "import": IMPORTED}
"""Operations that make subscriptions, and how many."""

Lines = list[dict[str, Any]]
Acknowledged = tuple[int, list[str]]
"""Revision, and ids of the subscriptions that were changed."""


def spec(key: str, part: int = 0) -> dict[str, Any]:
    return {"selector": f"a = {part} AND k = '{key}'", "topic": f"t/{part % 5}", "labels": {"key": key}}


class InProcess:
    """A registry that is opened here. `OverHttp` has the same methods.

    Whoever changes something gives the revision at which it was seen. Raises UnavailableError for what is
    refused because nothing can be written.
    """

    name = "in process"
    pid = os.getpid()
    """The process that writes."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def keyed(self, kind: str, key: str) -> Acknowledged:
        """Register a subscription, or apply several changes at once, with an Idempotency-Key."""
        specs = [SubscriptionSpec.from_json(spec(key, part)) for part in range(PARTS[kind])]
        idempotency = Idempotency("crash", key, key)
        if kind == "register":
            added = self._registry.register(specs[0], idempotency=idempotency)
            return added.revision, [added.id]
        operations = [Operation("add", spec=each) for each in specs]
        applied = self._registry.apply(operations, idempotency=idempotency)
        return applied.revision, [each.id for each in applied.subscriptions]

    def import_(self, lines: list[str], mode: Any = "add") -> int | None:
        """Import these lines; return the revision, None if another import goes on."""
        imported = self._registry.import_(lines, mode=mode)
        assert imported.rows == len(lines)
        return imported.revision

    def change(self, op: str, id: str, key: str, expected: int) -> int:
        """Change a subscription; return its revision."""
        if op == "resume":
            return self._registry.resume(id, expected=expected).subscription.revision
        if op in ("pause", "remove"):
            return int(getattr(self._registry, op)(id, expected=expected).revision)
        new = SubscriptionSpec.from_json(spec(key, 1))
        return self._registry.replace(id, new, expected=expected).revision

    def seen(self, id: str) -> int:
        return self._registry.get(id).revision

    def ids(self, key: str) -> list[str]:
        return [each.id for each in self._registry.list(label=f"key={key}", limit=1_000).items]

    def revision(self) -> int:
        return self._registry.revision


class OverHttp:
    """A service, asked once each time. Raises AssertionError for an answer that should not be."""

    name = "service"

    def __init__(self, service: Service) -> None:
        self.pid = service.pid
        self._connection = Connection(service.url)

    def keyed(self, kind: str, key: str) -> Acknowledged:
        path, body = SUBSCRIPTIONS, spec(key)
        if kind == "apply":
            operations = [{"op": "add", **spec(key, part)} for part in range(PARTS[kind])]
            path, body = f"{SUBSCRIPTIONS}:batch", {"operations": operations}
        data = self._ask("POST", path, body, idempotency_key=key)
        return data["revision"], [each["id"] for each in data.get("subscriptions", [data])]

    def import_(self, lines: list[str], mode: str = "add") -> int | None:
        headers = {"content-type": "application/x-ndjson"}
        path = f"{SUBSCRIPTIONS}:import?mode={mode}"
        data = self._ask("POST", path, "\n".join(lines).encode(), **headers)
        assert data is None or data["rows"] == len(lines), data
        return data and data["revision"]

    def change(self, op: str, id: str, key: str, expected: int) -> int:
        method, step, body = {
            "replace": ("PUT", "", {**spec(key, 1), "id": id}),
            "patch": ("PATCH", "", {"selector": "b = 2"}),
            "pause": ("POST", ":pause", None),
            "resume": ("POST", ":resume", {"from": "last-processed"}),
            "remove": ("DELETE", "", None),
        }[op]
        # Nobody else changes it: 412 would be a lost update.
        self._ask(method, f"{SUBSCRIPTIONS}/{id}{step}", body, if_match=f'"{expected}"')
        return self._answer.revision

    def seen(self, id: str) -> int:
        return int(self._ask("GET", f"{SUBSCRIPTIONS}/{id}")["revision"])

    def ids(self, key: str) -> list[str]:
        items = self._ask("GET", f"{SUBSCRIPTIONS}?limit=1000&label=key%3D{key}")["items"]
        return [each["id"] for each in items]

    def revision(self) -> int:
        return int(self.state()["revision"])

    def state(self) -> Any:
        """What the service says of itself; `published` is in it as soon as anything is."""
        return self._connection.ask("GET", "/readyz").data

    def is_published(self) -> bool:
        state = self.state()
        return bool(state.get("published", -1) == state.get("revision"))

    def _ask(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        """The data of an answer; None if too many do the same."""
        answer = self._answer = self._connection.ask(method, path, body, **headers)
        if answer.status == 429 and "import" in path:
            return None
        if answer.status == 503:
            answer.problem(503, "read-only")
            assert int(answer.headers["retry-after"]) > 0
            raise UnavailableError(answer.data["detail"])
        created = method == "POST" and path == SUBSCRIPTIONS
        assert answer.status == (201 if created else 200), answer.data
        return answer.data


# ---- what clients do, and note


def use(side: InProcess | OverHttp, note: Callable[..., None], name: str) -> None:
    """Write until killed; note what is about to be done, and what was acknowledged."""
    chance, mine = Random(name), {}
    for number in itertools.count():
        key = f"{name}-{number}"
        kind = chance.choices([*PARTS, "change"], [6, 2, 0.3, 4])[0]
        if kind != "change":
            note(about=kind, key=key, count=PARTS[kind])
        if kind == "import":
            revision = side.import_([json.dumps(spec(key, part)) for part in range(IMPORTED)])
            if revision is not None:
                note(done=key, revision=revision, count=IMPORTED)
        elif kind != "change":
            revision, ids = side.keyed(kind, key)
            note(done=key, revision=revision, ids=ids)
            mine |= dict.fromkeys(ids, revision)
        elif mine:
            # A subscription that only this client changes, at the revision that it was told.
            id = chance.choice(list(mine))
            op = chance.choice(["replace", "patch", "pause", "resume", "remove"])
            revision = side.change(op, id, key, mine[id])
            if op == "remove":
                del mine[id]
                note(removed=id)
            elif revision != mine[id]:
                mine[id] = revision
                note(done=key, revision=revision, ids=[id])


def unanswered(lines: Lines) -> dict[str, str]:
    """Key → kind of the requests with a key that had no answer."""
    done = {line["done"] for line in lines if "done" in line}
    asked = {line["key"]: line["about"] for line in lines if line.get("about") in ("register", "apply")}
    return {key: kind for key, kind in asked.items() if key not in done}


def repeat(
    side: InProcess | OverHttp, asked: dict[str, str], arrived: set[str], note: Callable[..., None]
) -> Counter[str]:
    """Send again, with their keys, the requests that had no answer; each is there once."""
    counts: Counter[str] = Counter()
    for key, kind in asked.items():
        answer = side.keyed(kind, key)
        assert answer == side.keyed(kind, key), f"the key {key} has two answers"
        ids = side.ids(key)
        assert sorted(ids) == sorted(answer[1]), f"{key} is there {len(ids)} times"
        note(done=key, revision=answer[0], ids=ids)
        counts[f"repeated, had {'' if key in arrived else 'not '}arrived"] += 1
    return counts


# ---- what must hold


def live(snapshot: Snapshot) -> dict[str, str]:
    """Id → selector of what is not removed in a snapshot."""
    dead, rows = snapshot.dead, snapshot.subscriptions.select(["id", "selector"]).to_pylist()
    return {row["id"]: row["selector"] for at, row in enumerate(rows) if dead is None or not dead[at]}


def selectors_of(lines: Iterable[str]) -> dict[str, str]:
    """Id → selector of what is active in an export."""
    rows = map(json.loads, lines)
    return {row["id"]: row["selector"] for row in rows if row["status"] == "active"}


def check_published(registry: Registry) -> None:
    """The snapshot folder can be caught up to exactly what the registry has."""
    with RegistryPublisher(registry) as publisher:
        assert publisher.catch_up() == registry.revision
        wanted = selectors_of(registry.export())
        assert live(publisher.snapshot) == wanted, "the snapshot has other subscriptions than the registry"


def check_log(registry: Registry, lines: Lines) -> Counter[str]:
    by_revision, by_key, removed = defaultdict(list), defaultdict(list), set()
    for change in registry.follow_changes(0):
        by_revision[change.revision].append(change.id)
        if change.op == "add" and change.subscription is not None:
            by_key[change.subscription.labels["key"]].append(change.revision)
        if change.op == "remove":
            removed.add(change.id)
    acknowledged = 0
    for line in lines:
        if "removed" in line:
            assert line["removed"] in removed, f"the removal of {line['removed']} is lost"
        elif "ids" in line:
            ids, revision = sorted(line["ids"]), line["revision"]
            assert sorted(by_revision[revision]) == ids, f"revision {revision} is not what was told: {line}"
        elif "done" in line:
            assert len(by_revision[line["revision"]]) == line["count"], f"an import is lost: {line}"
        else:
            revisions = by_key[line["key"]]
            assert len(revisions) in (0, line["count"]), f"there is a part of {line}: {len(revisions)}"
            assert len(set(revisions)) <= 1, f"in several revisions: {line}"
            continue
        acknowledged += 1
    for id in removed:
        try:
            registry.get(id)
        except NotFoundError:
            continue
        raise AssertionError(f"{id} is removed and there")
    return Counter({"acknowledged changes": acknowledged})
