"""The two sides from which a registry is used while its disk fails: in process, and through a service."""

from __future__ import annotations

import json
import os
from typing import Any, Protocol

from selectroute.index.specification import SubscriptionSpec
from selectroute.registry.errors import UnavailableError
from selectroute.registry.registry import Registry
from tests.crash.programs.command import SUBSCRIPTIONS, Answer, Connection, Service

IMPORTED = 60
ROWS = {"register": 1, "replace": 1, "import": IMPORTED}
"""The operations, and how many subscriptions they make or change."""

TARGET = "target"
"""The subscription that is replaced."""


def spec(key: str, part: int = 0) -> dict[str, Any]:
    return {"selector": f"a = {part} AND k = '{key}'", "topic": f"t/{part % 5}", "labels": {"key": key}}


def lines(key: str) -> list[str]:
    """An import, of the same subscriptions each time: what it writes does not grow with the database."""
    return [json.dumps({"id": f"i{part}", **spec(key, part)}) for part in range(IMPORTED)]


class Side(Protocol):
    """From where a registry is used."""

    name: str
    pid: int
    """The process that writes."""

    def attempt(self, operation: str, key: str) -> bool:
        """Make this change, which the label key=<key> tells from others: whether it is done, or refused."""

    def found(self, key: str) -> int:
        """How many subscriptions there are of a key."""

    def revision(self) -> int:
        """The newest revision."""


class InProcess:
    """A registry that is opened here."""

    name = "in process"
    pid = os.getpid()

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def attempt(self, operation: str, key: str) -> bool:
        """See `Side`."""
        given = SubscriptionSpec.from_json(spec(key))
        try:
            if operation == "register":
                self._registry.register(given)
            elif operation == "replace":
                self._registry.replace(TARGET, given)
            else:
                assert self._registry.import_(lines(key), mode="replace").rows == IMPORTED
        except UnavailableError:
            return False
        return True

    def found(self, key: str) -> int:
        """See `Side`."""
        return len(self._registry.list(label=f"key={key}", limit=1_000).items)

    def revision(self) -> int:
        """See `Side`."""
        return self._registry.revision


class OverHttp:
    """A service, asked once each time."""

    name = "service"

    def __init__(self, service: Service) -> None:
        self.pid = service.pid
        self._connection = Connection(service.url)

    def attempt(self, operation: str, key: str) -> bool:
        """See `Side`. Raises AssertionError for an answer that is neither done nor 503."""
        ask, path = self._connection.ask, f"{SUBSCRIPTIONS}/{TARGET}"
        if operation == "register":
            answer = ask("POST", SUBSCRIPTIONS, spec(key))
        elif operation == "replace":
            now = ask("GET", path)
            assert now.status == 200, now.data
            answer = ask("PUT", path, spec(key), if_match=now.headers["etag"])
        else:
            body = "\n".join(lines(key)).encode()
            headers = {"content-type": "application/x-ndjson"}
            answer = ask("POST", f"{SUBSCRIPTIONS}:import?mode=replace", body, **headers)
        if answer.status in (200, 201):
            return True
        answer.problem(503, "read-only")
        assert int(answer.headers["retry-after"]) > 0
        return False

    def found(self, key: str) -> int:
        """See `Side`."""
        return len(self._get(f"{SUBSCRIPTIONS}?limit=1000&label=key%3D{key}").data["items"])

    def revision(self) -> int:
        """See `Side`."""
        return int(self.state()["revision"])

    def state(self) -> Any:
        """What the service says of itself; `published` is in it as soon as anything is."""
        return self._connection.ask("GET", "/readyz").data

    def is_published(self) -> bool:
        """Whether the newest revision is published."""
        state = self.state()
        return bool(state.get("published", -1) == state.get("revision"))

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _get(self, path: str) -> Answer:
        answer = self._connection.ask("GET", path)
        assert answer.status == 200, answer.data
        return answer
