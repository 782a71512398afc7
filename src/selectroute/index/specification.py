"""Subscriptions: the fields that an owner specifies in JSON, and the checked subscription with its clauses.

`SubscriptionSpec` is the JSON, from any source. `check_fields` checks everything in it except for selector,
topic filter and dialect; `prepare` checks these three and returns the clauses that the index files.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache
from types import NoneType
from typing import Any, Final, Literal, NamedTuple, cast

from selectroute.clauses.normal_form import clauses_of
from selectroute.clauses.predicate import Clause
from selectroute.index.compile.shapes import clauses_by_shape, seen_template
from selectroute.index.destination import (
    GROUPING_REFUSED,
    KAFKA,
    KAFKA_NAME,
    QUEUE,
    QUEUE_NAME,
    QUEUE_NAME_RULE,
    destination_text,
)
from selectroute.index.errors import InvalidIdError, InvalidSpecError
from selectroute.selector.arguments import check_argument
from selectroute.selector.dialect import EXTENDED, NONE, STANDARD, Dialect, Seltype
from selectroute.selector.dialect import dialect as dialect_named
from selectroute.selector.errors import LIMIT_KINDS, InvalidSelectorError, unknown_field
from selectroute.selector.extended import check_extended, provider_reads
from selectroute.selector.limits import DEFAULT_LIMITS, Limits
from selectroute.selector.selector import Selector
from selectroute.selector.strict_json import JsonError, parse_json
from selectroute.selector.syntax.source import SURROGATE
from selectroute.topics.filter import TopicFilter

ID: Final = "[A-Za-z0-9._-]{1,128}"
"""Regular expression of an id, for Python and Arrow."""

_ID = re.compile(ID)

COLUMNS: Final = ("id", "destination", "topic", "selector", "dialect", "seltype")
"""Columns of a table of subscriptions, all strings: of ``Snapshot.subscriptions``, too."""


class Keep:
    """Type of `KEEP`."""

    def __repr__(self) -> str:
        return "KEEP"


KEEP: Final = Keep()
"""Default of ``Index.replace``: keep the topic filter."""


@dataclass(frozen=True, slots=True)
class IndexedSubscription:
    """Registered subscription. ``selector`` is a text, empty for none; ``topic`` a filter, None for all."""

    id: str
    selector: str
    dialect: str
    topic: str | None
    clauses: tuple[Clause, ...] = field(repr=False)
    seltype: str
    """NONE, STANDARD or EXTENDED, as in IBM MQ's DISPLAY SUB."""


def literal_count(clauses: Iterable[Clause]) -> int:
    """Return the number of literals of clauses, which determines the time and memory of an index."""
    return sum(len(clause.literals) for clause in clauses)


def check(
    selector: str, topic: str | None, dialect_name: str, is_extended: bool, limits: Limits = DEFAULT_LIMITS
) -> tuple[str, int]:
    """Return the type of a subscription's selector, and the number of literals of its clauses. Raises the
    errors of `prepare`. O(size of the selector).
    """
    if selector and topic is None and not is_extended and limits.include(DEFAULT_LIMITS):
        seen = seen_template(selector, dialect_named(dialect_name).name)
        if seen is not None:
            return STANDARD, literal_count(seen[0].clauses)
    made = prepare("x", selector, topic, dialect_name, is_extended, limits)
    return made.seltype, literal_count(made.clauses)


def prepare(
    subscription: str,
    selector: Selector | str | None,
    topic: str | None,
    dialect_name: str,
    is_extended: bool,
    limits: Limits = DEFAULT_LIMITS,
) -> IndexedSubscription:
    """Return a checked subscription. Raises the errors of `Index.add`; `limits` apply to a selector given as
    text. O(size of the selector).
    """
    check_argument(subscription, str, "subscription", "its id, such as 'heavy'")
    check_argument(
        selector, (str, Selector, NoneType), "selector", "a text, a Selector, or None for all messages"
    )
    check_argument(topic, (str, NoneType), "topic", "a topic filter such as 'cars/+', or None for all topics")
    name = selector.dialect if isinstance(selector, Selector) else dialect_name
    if not _ID.fullmatch(subscription):
        raise InvalidIdError(subscription)
    rules = dialect_named(name)
    clauses: tuple[Clause, ...] | None = None
    text = selector.text if isinstance(selector, Selector) else selector or ""
    if is_extended:
        check_extended(text, rules, limits)
    elif isinstance(selector, Selector):
        clauses = clauses_of(selector.expression, rules)
    else:
        clauses = _clauses(text, rules, limits)
    seltype = EXTENDED if clauses is None else STANDARD if text else NONE
    if clauses is None:
        clauses = (Clause((), rules.name_rules),)
    if topic is not None:
        on_topic = TopicFilter.parse(topic).literals()
        clauses = tuple(replace(clause, literals=on_topic + clause.literals) for clause in clauses)
    return IndexedSubscription(subscription, text, name, topic, clauses, seltype)


def _clauses(text: str, rules: Dialect, limits: Limits) -> tuple[Clause, ...] | None:
    """Return the clauses of a selector; None for one that is left to the extended selection provider."""
    clauses = clauses_by_shape(text, rules.name) if limits.include(DEFAULT_LIMITS) else None
    if clauses is not None:
        return clauses
    try:
        return clauses_of(Selector(text, rules.name, limits=limits).expression, rules)
    except InvalidSelectorError as error:
        if not rules.extended or error.kind in LIMIT_KINDS or provider_reads(text) is None:
            raise
        return None


READ_ONLY: Final = frozenset(
    {"id", "status", "revision", "created", "modified", "effective_from", "warnings"}
)
"""Fields of a subscription that are not part of its specification; ignored in a client's input."""

FIELDS: Final = ("name", "topic", "selector", "dialect", "seltype", "destination", "labels")
"""Fields of a specification."""

_TEXTS: Final = frozenset(FIELDS) - {"destination", "labels"}


MAX_LABELS: Final = 64
MAX_LABEL_NAME: Final = 63
MAX_LABEL: Final = 255
MAX_NAME: Final = 255

_QUEUE_NAME: Final = re.compile(QUEUE_NAME)
_KAFKA_NAME: Final = re.compile(KAFKA_NAME)
_CONTROL: Final = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")


class SubscriptionStatus(StrEnum):
    """Status of a subscription: an active one gets messages."""

    ACTIVE = "active"
    PAUSED = "paused"


_STATUSES: Final = [*SubscriptionStatus]  # a list: the compared value may be unhashable


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
        if type(data) is not dict and not isinstance(data, Mapping):  # the first takes a tenth of the time
            raise InvalidSpecError("/destination", 'a destination must be an object such as {"kind": "none"}')
        for name in data:
            if name not in ("kind", "name"):
                sentence = unknown_field("a destination", name, ("kind", "name"))
                raise InvalidSpecError(_pointer("destination", str(name)), sentence)
        kind = data.get("kind")
        if not isinstance(kind, str | None):
            raise InvalidSpecError("/destination/kind", "the kind of a destination must be a string")
        name = data.get("name")
        if not isinstance(name, str | None):
            raise InvalidSpecError("/destination/name", "the name of a destination must be a string")
        return cls(cast(Any, "none" if kind is None else kind), name)


@dataclass(frozen=True, slots=True)
class SubscriptionSpec:
    """Specification of a subscription by a client; checked by `registry.specification.checked`."""

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
        """Return the fields that are not None as plain data."""
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
        members: dict[str, Any] = {}
        for name, value in data.items():
            if name in READ_ONLY or (value is None and name in FIELDS):
                continue
            if name in _TEXTS:
                if not isinstance(value, str):
                    raise InvalidSpecError(_pointer(name), f"{name} must be a string")
                members[name] = value
            elif name == "destination":
                members[name] = Destination.from_json(value)
            elif name == "labels":
                members[name] = labels_of(value)
            else:
                known = (*FIELDS, *sorted(READ_ONLY))
                raise InvalidSpecError(_pointer(str(name)), unknown_field("a subscription", name, known))
        return cls(**members)


def check_fields(spec: SubscriptionSpec) -> None:
    """Check everything but selector, topic filter, dialect and type. Raises `InvalidSpecError`."""
    if spec.seltype not in (None, NONE, STANDARD, EXTENDED):
        raise InvalidSpecError("/seltype", f"a seltype must be {NONE}, {STANDARD} or {EXTENDED}")
    own = STANDARD if spec.selector else NONE
    if spec.seltype in (NONE, STANDARD) and spec.seltype != own:
        raise InvalidSpecError("/seltype", wrong_seltype(own))
    if spec.seltype == EXTENDED and SURROGATE.search(spec.selector):
        raise InvalidSpecError("/selector", "a lone surrogate is not a character")  # not parsed here
    if spec.topic is not None and "\x00" in spec.topic:
        raise InvalidSpecError("/topic", "a topic filter must not have a NUL character")
    if spec.name is not None:
        if not 1 <= len(spec.name) <= MAX_NAME:
            raise InvalidSpecError("/name", f"a name must have 1 to {MAX_NAME} characters")
        if _CONTROL.search(spec.name):
            raise InvalidSpecError("/name", "a name must not have control characters")
    _check_destination(spec)
    if spec.labels:
        _check_labels(tuple(spec.labels.items()))


def _check_destination(spec: SubscriptionSpec) -> None:
    kind, name = spec.destination.kind, spec.destination.name
    if kind == "none":
        if name is not None:
            raise InvalidSpecError("/destination/name", "the destination none must not have a name")
    elif kind == QUEUE:
        if name is None or not _QUEUE_NAME.fullmatch(name):
            raise InvalidSpecError("/destination/name", QUEUE_NAME_RULE)
    elif kind == KAFKA:
        if name is None or not _KAFKA_NAME.fullmatch(name):
            if name is not None and _KAFKA_NAME.fullmatch(name.partition("?")[0]):
                raise InvalidSpecError("/destination/name", GROUPING_REFUSED)
            raise InvalidSpecError("/destination/name", "a topic's name is 1 to 249 of A-Z a-z 0-9 . _ -")
    else:
        raise InvalidSpecError("/destination/kind", "a destination must be none, queue or kafka")


@lru_cache(maxsize=1_024)  # many subscriptions have the same ones; errors are not kept
def _check_labels(labels: tuple[tuple[str, str], ...]) -> None:
    if len(labels) > MAX_LABELS:
        raise InvalidSpecError("/labels", f"{len(labels):,} labels, at most {MAX_LABELS}")
    for name, value in labels:
        pointer = _pointer("labels", name[:80])
        if not 1 <= len(name) <= MAX_LABEL_NAME or "=" in name:
            raise InvalidSpecError(pointer, f"the name of a label has 1 to {MAX_LABEL_NAME} characters, no =")
        if len(value) > MAX_LABEL:
            raise InvalidSpecError(pointer, f"a label has {MAX_LABEL} characters at most")
        if _CONTROL.search(name) or _CONTROL.search(value):
            raise InvalidSpecError(pointer, "a label must not have control characters")


def is_id(id: str) -> bool:
    """Return whether a text is a valid id of a subscription.

    >>> is_id("a.b"), is_id("a/b")
    (True, False)
    """
    return _ID.fullmatch(id) is not None


def check_id(id: str) -> str:
    """Return the id. Raises `InvalidSpecError` for an invalid one."""
    if not is_id(id):
        raise InvalidSpecError("/id", "an id must be 1 to 128 of A-Z a-z 0-9 . _ -")
    return id


def wrong_seltype(seltype: str) -> str:
    """Return the error text of a seltype that does not fit the selector."""
    return (
        f"the seltype is {seltype}: {NONE} without a selector, {STANDARD} with one, {EXTENDED} if asked for"
    )


class ParsedSubscription(NamedTuple):
    """Subscription of a line: its id and status, None where the line has none."""

    id: str | None
    spec: SubscriptionSpec
    status: SubscriptionStatus | None


def parse_line(line: str | bytes) -> Any:
    """Return the JSON of a line. Raises `InvalidSpecError`."""
    try:
        return parse_json(line)
    except JsonError as error:
        raise InvalidSpecError("", str(error)) from error


def parsed_subscription(data: Any) -> ParsedSubscription:
    """Return the subscription of a line's JSON, checked but for its id. Raises `InvalidSpecError`."""
    spec = SubscriptionSpec.from_json(data)
    check_fields(spec)
    id, status = data.get("id"), data.get("status")
    if not isinstance(id, str | None):
        raise InvalidSpecError("/id", "an id must be a string")
    if status is not None and status not in _STATUSES:
        raise InvalidSpecError("/status", "a status must be active or paused")
    return ParsedSubscription(id, spec, None if status is None else SubscriptionStatus(status))


def labels_of(value: object) -> dict[str, str]:
    """Return labels, of which only the types are checked. Raises `InvalidSpecError`."""
    if type(value) is not dict and not isinstance(value, Mapping):
        raise InvalidSpecError("/labels", "labels must be an object of strings")
    for name, text in value.items():
        if not isinstance(name, str) or not isinstance(text, str):
            raise InvalidSpecError(_pointer("labels", str(name)), "a label must be a string")
    return dict(value)


def _pointer(*names: str) -> str:
    """Return a JSON pointer, RFC 6901."""
    return "".join("/" + name.replace("~", "~0").replace("/", "~1") for name in names)
