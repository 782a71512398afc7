"""Subscriptions as data: a client's specification, and the registered subscription."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final, Literal, TypeVar, cast

from selectroute.index.destination import destination_text
from selectroute.registry.errors import InvalidSpecError
from selectroute.selector.message import Message
from selectroute.selector.selector_type import EXTENDED, Seltype
from selectroute.selector.suggestion import unknown_field

READ_ONLY: Final = frozenset(
    {"id", "status", "revision", "created", "modified", "effective_from", "warnings"}
)
"""Fields of a subscription that are not part of its specification; ignored in a client's input."""

FIELDS: Final = ("name", "topic", "selector", "dialect", "seltype", "destination", "labels")
"""Fields of a specification."""

_TEXTS: Final = frozenset(FIELDS) - {"destination", "labels"}


class Status(StrEnum):
    """Status of a subscription: an active one gets messages."""

    ACTIVE = "active"
    PAUSED = "paused"


@dataclass(frozen=True, slots=True)
class Destination:
    """Destination of deliveries in addition to ``deliveries/``: none, a queue, or a Kafka topic, whose name
    may say how its records are grouped, ``cars?grouping=message``.
    """

    kind: Literal["none", "queue", "kafka"] = "none"
    name: str | None = None

    @property
    def text(self) -> str | None:
        """Destination in the format of snapshots, see ``index.destination``."""
        return destination_text(self.kind, self.name)

    def to_json(self) -> dict[str, Any]:
        """Return the destination as plain data."""
        return {"kind": self.kind} if self.name is None else {"kind": self.kind, "name": self.name}

    @classmethod
    def from_json(cls, data: object) -> Destination:
        """Return the destination of plain data; only types are checked. Raises `InvalidSpecError`."""
        if not isinstance(data, Mapping):
            raise InvalidSpecError("/destination", 'a destination must be an object such as {"kind": "none"}')
        for name in data:
            if name not in ("kind", "name"):
                sentence = unknown_field("a destination", name, ("kind", "name"))
                raise InvalidSpecError(_pointer("destination", str(name)), sentence)
        kind = data.get("kind", "none")
        if not isinstance(kind, str):
            raise InvalidSpecError("/destination/kind", "the kind of a destination must be a string")
        name = data.get("name")
        if not isinstance(name, str | None):
            raise InvalidSpecError("/destination/name", "the name of a destination must be a string")
        return cls(cast(Any, kind), name)


@dataclass(frozen=True, slots=True)
class SubscriptionSpec:
    """Specification of a subscription, given by a client; checked by `registry.specification.checked`."""

    selector: str = ""
    """Text of the selector; an empty text matches every message."""

    topic: str | None = None
    """Topic filter; None matches every topic."""

    dialect: str = "jms"
    seltype: Seltype | None = None
    """EXTENDED for the selector of an extended selection provider; other types follow from the text."""

    name: str | None = None
    """Unique name; None for the id."""

    destination: Destination = Destination()
    labels: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the given fields as plain data."""
        data: dict[str, Any] = {name: getattr(self, name) for name in FIELDS}
        data["destination"] = self.destination.to_json()
        data["labels"] = dict(self.labels)
        return {name: value for name, value in data.items() if value is not None}

    @classmethod
    def from_json(cls, data: object) -> SubscriptionSpec:
        """Return the specification of plain data: of a client's, or of a whole subscription, whose
        `READ_ONLY` fields are ignored. A null field counts as absent. Raises `InvalidSpecError` for an
        unknown field or a wrong type.
        """
        if type(data) is not dict and not isinstance(data, Mapping):
            raise InvalidSpecError("", "a subscription must be an object")
        given: dict[str, Any] = {}
        for name, value in data.items():
            if name in _TEXTS:
                if value is not None:
                    if not isinstance(value, str):
                        raise InvalidSpecError(_pointer(name), f"{name} must be a string")
                    given[name] = value
            elif name in READ_ONLY:
                continue
            elif name == "destination":
                if value is not None:
                    given[name] = Destination.from_json(value)
            elif name == "labels":
                if value is not None:
                    given[name] = _labels(value)
            else:
                known = (*FIELDS, *sorted(READ_ONLY))
                raise InvalidSpecError(_pointer(str(name)), unknown_field("a subscription", name, known))
        return cls(**given)


@dataclass(frozen=True, slots=True)
class Subscription:
    """Registered subscription. ``revision`` is that of its last change: its ETag."""

    id: str
    name: str
    topic: str | None
    selector: str
    dialect: str
    seltype: Seltype
    destination: Destination
    status: Status
    labels: Mapping[str, str]
    revision: int
    created: datetime
    modified: datetime

    @property
    def spec(self) -> SubscriptionSpec:
        """Specification of the subscription; seltype is set only if EXTENDED."""
        return SubscriptionSpec(
            selector=self.selector,
            topic=self.topic,
            dialect=self.dialect,
            seltype=EXTENDED if self.seltype == EXTENDED else None,
            name=self.name,
            destination=self.destination,
            labels=self.labels,
        )

    def to_json(self) -> dict[str, Any]:
        """Return the subscription as plain data; times are RFC 3339 in UTC."""
        return {
            "id": self.id,
            "name": self.name,
            "topic": self.topic,
            "selector": self.selector,
            "dialect": self.dialect,
            "seltype": self.seltype,
            "destination": self.destination.to_json(),
            "status": self.status.value,
            "labels": dict(self.labels),
            "revision": self.revision,
            "created": time_text(self.created),
            "modified": time_text(self.modified),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Subscription:
        """Invert `to_json`; other fields are ignored. Raises `InvalidSpecError`."""
        try:
            return cls(
                id=_of(str, data["id"]),
                name=_of(str, data["name"]),
                topic=None if data["topic"] is None else _of(str, data["topic"]),
                selector=_of(str, data["selector"]),
                dialect=_of(str, data["dialect"]),
                seltype=cast(Any, _of(str, data["seltype"])),
                destination=Destination.from_json(data["destination"]),
                status=Status(data["status"]),
                labels=_labels(data["labels"]),
                revision=_of(int, data["revision"]),
                created=time_of(_of(str, data["created"])),
                modified=time_of(_of(str, data["modified"])),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidSpecError("", f"not a subscription: {error}") from error


def registered(
    spec: SubscriptionSpec,
    id: str,
    seltype: Seltype,
    status: Status,
    revision: int,
    created: datetime,
    modified: datetime,
) -> Subscription:
    """Return the subscription of a specification."""
    return Subscription(
        id=id,
        name=id if spec.name is None else spec.name,
        topic=spec.topic,
        selector=spec.selector,
        dialect=spec.dialect,
        seltype=seltype,
        destination=spec.destination,
        status=status,
        labels=dict(sorted(spec.labels.items())),
        revision=revision,
        created=created,
        modified=modified,
    )


Order = Literal["id", "name", "newest"]
"""Orders of a list: by id, by name, or the newest change first."""


@dataclass(frozen=True, slots=True)
class Page:
    """Page of subscriptions in their order, with the cursor of the next page; None on the last."""

    items: list[Subscription]
    next_cursor: str | None


MAX_SAMPLED: Final = 8_192
"""Characters of a message in the sample of recent messages, as JSON."""


def sampled_form(message: Message) -> dict[str, Any]:
    """Return a message in the wire form, without its body."""
    return {name: part for name, part in message.to_json().items() if name != "body"}


def sampled_text(message: Mapping[str, Any]) -> str:
    """Return a message of the sample as it is stored."""
    return json.dumps(message, separators=(",", ":"))


@lru_cache(maxsize=256)  # all subscriptions of an import have the same time
def time_text(time: datetime) -> str:
    """Return a time as RFC 3339 in UTC, with microseconds."""
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def time_of(text: str) -> datetime:
    """Invert `time_text`. Raises ValueError."""
    return datetime.fromisoformat(text).astimezone(UTC)


def _labels(value: object) -> dict[str, str]:
    if type(value) is not dict and not isinstance(value, Mapping):  # the first takes a tenth of the time
        raise InvalidSpecError("/labels", "labels must be an object of strings")
    for name, text in value.items():
        if not isinstance(name, str) or not isinstance(text, str):
            raise InvalidSpecError(_pointer("labels", str(name)), "a label must be a string")
    return dict(value)


_T = TypeVar("_T")


def _of(type_: type[_T], value: object) -> _T:
    if type(value) is not type_:
        raise TypeError(f"{value!r} is not a {type_.__name__}")
    return value


def _pointer(*names: str) -> str:
    """Return a JSON pointer, RFC 6901."""
    return "".join("/" + name.replace("~", "~0").replace("/", "~1") for name in names)
