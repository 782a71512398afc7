"""Sources and types of the properties of a Kafka record, read from TOML, JSON or an option.

By default a record header is the property, or the JMS header, of exactly its name: a string, or of the fixed
type of the JMS header. A binding gives another type or another source::

    weight:int                    the header `weight`, as an int
    kind=type                     the header `type`
    price:double=$.order.price    a field of the body, which is JSON
    customer=@key                 the record's key
    JMSTimestamp=@timestamp       when the record was written, in milliseconds
    @topic=mqtt-topic             the topic string is in a header

Types are never guessed from values. A header that is bound to another identifier is not a property of its own
name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias

from selectroute.selector.errors import SelectRouteError, did_you_mean, unknown_field
from selectroute.selector.message import HEADER_TYPES
from selectroute.selector.values import TYPE_NAMES
from selectroute.topics.filter import TOPIC

TYPES: Final = ("boolean", "byte", "short", "int", "long", "float", "double", "string", "bytes")

ID: Final = "@id"
"""Identifier of the message id that deliveries carry, if it is not JMSMessageID."""

Path: TypeAlias = tuple[str | int, ...]
Kind: TypeAlias = Literal["header", "body", "key", "timestamp", "topic", "partition", "offset"]

_KINDS: Final[tuple[Kind, ...]] = ("key", "timestamp", "topic", "partition", "offset")
_OF_RECORD: Final = {f"@{kind}": kind for kind in _KINDS}
_OWN_TYPES: Final[Mapping[Kind, str]] = {
    "timestamp": "long",
    "topic": "string",
    "partition": "int",
    "offset": "long",
}
_FIELDS: Final = ("fields", "separator")
_PARTS: Final = ("type", "from")
_IDS: Final = ("JMSMessageID", "JMSCorrelationID")
_TEXT: Final = re.compile(r"(?P<name>[^:=]+)(:(?P<type>[^=]*))?(=(?P<source>.*))?", re.DOTALL)
_STEP: Final = re.compile(r"\.([^.\[\]]+)|\[(\d{1,9})\]|\['([^']*)'\]")
_TOPIC_CHARACTERS: Final = frozenset("._-")


class KafkaBindingError(SelectRouteError):
    """Invalid binding. The text names the identifier and the fault."""


@dataclass(frozen=True, slots=True)
class PropertySource:
    """Part of a record: a header by name, a field of the body by path, or the part that ``kind`` names."""

    kind: Kind
    name: str = ""
    path: Path = ()

    @classmethod
    def of(cls, text: str) -> PropertySource:
        """Parse the source of a binding. ``header:NAME`` is a header, also if its name starts with @ or $."""
        if text in _OF_RECORD:
            return cls(_OF_RECORD[text])
        if text == "$" or text.startswith(("$.", "$[")):
            return cls("body", text, _path(text))
        name = text.removeprefix("header:")
        if name == text and text.startswith(("@", "$")):
            known = ", ".join(_OF_RECORD)
            raise KafkaBindingError(
                f"{text!r} is not a valid source: write a header, $.a.b, or one of {known}"
            )
        if not name:
            raise KafkaBindingError("the source is empty")
        return cls("header", name)

    def __str__(self) -> str:
        return {"header": f"header {self.name!r}", "body": f"body {self.name}"}.get(self.kind, self.kind)


@dataclass(frozen=True, slots=True)
class BoundProperty:
    """Type of an identifier, one of `TYPES`, and its source."""

    type: str
    source: PropertySource


@dataclass(frozen=True, slots=True)
class KafkaBinding:
    """Properties of records, by their identifiers. An unbound identifier is the header of its name.

    Attributes:
        bound: type and source of each bound identifier.
        separator: the character that separates topic levels in Kafka's topic names, which may not contain
            ``/``: with ``.`` the records of ``cars.eu`` have the topic ``cars/eu``. None: a topic's name is
            one level.

    >>> binding = KafkaBinding.of(["weight:int", "price:double=$.order.price"], separator=".")
    >>> binding.field("weight")
    BoundProperty(type='int', source=PropertySource(kind='header', name='weight', path=()))
    >>> binding.field("JMSPriority").type
    'int'
    """

    bound: Mapping[str, BoundProperty] = field(default_factory=dict)
    separator: str | None = None
    _given_away: frozenset[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.separator is not None and self.separator not in _TOPIC_CHARACTERS:
            raise KafkaBindingError(f"the topic separator must be one of . _ -, not {self.separator!r}")
        object.__setattr__(self, "bound", MappingProxyType(dict(self.bound)))
        headers = (bound.source.name for bound in self.bound.values() if bound.source.kind == "header")
        object.__setattr__(self, "_given_away", frozenset(headers))

    @classmethod
    def of(cls, texts: Iterable[str], separator: str | None = None) -> KafkaBinding:
        """Parse ``IDENTIFIER[:TYPE][=SOURCE]``, the syntax of the command line.

        Raises:
            KafkaBindingError: a text is not valid, or an identifier is bound twice.
        """
        bound: dict[str, BoundProperty] = {}
        for text in texts:
            match = _TEXT.fullmatch(text)
            if match is None:
                raise KafkaBindingError(f"{text!r} is not a valid binding: write IDENTIFIER[:TYPE][=SOURCE]")
            name = match["name"]
            if name in bound:
                raise KafkaBindingError(f"{name!r} is bound twice")
            bound[name] = _bound(name, match["type"], match["source"])
        return cls(bound, separator)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> KafkaBinding:
        """Read a binding from a parsed JSON or TOML file; every part of it is optional.

        The form is ``{"fields": {identifier: {"type": …, "from": …}}, "separator": …}``.

        Raises:
            KafkaBindingError: the data is anything else.
        """
        fields, separator = data.get("fields", {}), data.get("separator")
        for name in data:
            if name not in _FIELDS:
                raise KafkaBindingError(unknown_field("a Kafka binding", name, _FIELDS))
        if not isinstance(fields, Mapping):
            raise KafkaBindingError('the "fields" of a Kafka binding must be an object')
        if separator is not None and not isinstance(separator, str):
            raise KafkaBindingError(f"the separator must be a string, not {separator!r}")
        bound: dict[str, BoundProperty] = {}
        for name, entry in fields.items():
            parts = dict(entry) if isinstance(entry, Mapping) else None
            for part in parts or ():
                if part not in _PARTS:
                    raise KafkaBindingError(unknown_field(f"the binding of {name!r}", part, _PARTS))
            if parts is None or not all(isinstance(part, str) for part in parts.values()):
                raise KafkaBindingError(f'{name!r} must be bound to {{"type": …, "from": …}}, both strings')
            bound[name] = _bound(name, parts.get("type"), parts.get("from"))
        return cls(bound, separator)

    @classmethod
    def recorded(cls, data: Mapping[str, Any] | None) -> KafkaBinding:
        """Read what a job recorded of its binding: `to_dict`, and ``schemas`` if bodies have schemas.

        Raises:
            KafkaBindingError: records cannot be converted by it alone; the text is a clause that says why.
        """
        if not data:
            raise KafkaBindingError("the job has not recorded how it binds its fields")
        known = {name: value for name, value in data.items() if name != "schemas"}
        try:
            binding = cls.from_dict(known)
        except KafkaBindingError as error:  # of a later release
            raise KafkaBindingError("the job binds its fields in a way unknown here") from error
        if data.get("schemas") and any(bound.source.kind == "body" for bound in binding.bound.values()):
            raise KafkaBindingError("its body has a schema, which only the job reads")
        return binding

    def to_dict(self) -> dict[str, Any]:
        """Return the binding for ``json.dumps``. The inverse of `from_dict`."""
        fields = {
            name: {"type": bound.type, "from": _source_text(bound.source)}
            for name, bound in self.bound.items()
        }
        return {"fields": fields, "separator": self.separator}

    def field(self, identifier: str) -> BoundProperty:
        """Return type and source of an identifier, bound or not."""
        bound = self.bound.get(identifier)
        if bound is not None:
            return bound
        if identifier == TOPIC:
            return BoundProperty("string", PropertySource("topic"))
        return BoundProperty(fixed_type(identifier) or "string", PropertySource("header", identifier))

    def is_property(self, header: str) -> bool:
        """Return whether a record's header is the property of its own name. O(1).

        False if the property has another source, or the header is bound to another identifier.
        """
        own = self.bound.get(header)
        if own is not None:
            return own.source.kind == "header" and own.source.name == header
        return header not in self._given_away

    def topic(self, name: str) -> str:
        """Return the topic string of a Kafka topic."""
        return name if self.separator is None else name.replace(self.separator, "/")


BY_NAME: Final = KafkaBinding()


def _bound(name: str, type_: str | None, source_text: str | None) -> BoundProperty:
    source = PropertySource("header", name) if source_text is None else _source(name, source_text)
    if not name or (name.startswith("@") and (name not in (TOPIC, ID) or source_text is None)):
        raise KafkaBindingError(f"{name!r} can't be bound: write an identifier, {TOPIC}=… or {ID}=…")
    fixed = "string" if name.startswith("@") else fixed_type(name)
    own = _OWN_TYPES.get(source.kind)
    chosen = type_ if type_ is not None else fixed or own or "string"
    if chosen not in TYPES:
        advice = did_you_mean(chosen, TYPES, "it is one of")
        raise KafkaBindingError(f"the type of {name!r} cannot be {chosen!r}: {advice}")
    if fixed is not None and chosen != fixed and not (name in _IDS and chosen == "bytes"):
        raise KafkaBindingError(f"{name!r} is always of type {fixed}, not {chosen}")
    if own is not None and chosen != own:
        raise KafkaBindingError(f"{name!r}: the {source} of a record is of type {own}, not {chosen}")
    return BoundProperty(chosen, source)


def _source(name: str, text: str) -> PropertySource:
    try:
        return PropertySource.of(text)
    except KafkaBindingError as error:
        raise KafkaBindingError(f"the binding of {name!r}: {error}") from None


def _source_text(source: PropertySource) -> str:
    if source.kind == "header":
        return f"header:{source.name}"
    return source.name if source.kind == "body" else f"@{source.kind}"


def fixed_type(name: str) -> str | None:
    """Return the type that a JMS header field always has; None for a property."""
    kind = HEADER_TYPES.get(name)
    return None if kind is None else TYPE_NAMES[kind]


def _path(text: str) -> Path:
    """Parse ``$.a.b[0]['c d']``."""
    steps: list[str | int] = []
    at = 1
    while at < len(text):
        step = _STEP.match(text, at)
        if step is None:
            raise KafkaBindingError(f"{text!r} is not a valid path: write $.a.b, $.a[0] or $['a b']")
        steps.append(int(step[2]) if step[2] is not None else step[1] if step[1] is not None else step[3])
        at = step.end()
    return tuple(steps)
