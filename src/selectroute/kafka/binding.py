"""Where the properties of a Kafka record come from, and their types: data, from TOML, JSON or an option.

By itself a record header is the property, or the JMS header, of exactly its name: a string, or what the name
of a JMS header fixes. A binding gives another type or another source::

    weight:int                    the header `weight`, as an int
    kind=type                     the header `type`
    price:double=$.order.price    a field of the body, which is JSON
    customer=@key                 the record's key
    JMSTimestamp=@timestamp       when the record was written, in milliseconds
    @topic=mqtt-topic             the topic string is in a header

Types come from here and never from what a value looks like. A header that the binding gives to another name
is not a property of its own name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias

from selectroute.selector.errors import SelectRouteError
from selectroute.selector.message import HEADER_TYPES
from selectroute.selector.suggestion import did_you_mean, unknown_field
from selectroute.selector.values.values import TYPE_NAMES
from selectroute.topics.levels import TOPIC

TYPES: Final = ("boolean", "byte", "short", "int", "long", "float", "double", "string", "bytes")

ID: Final = "@id"
"""The message id that deliveries carry, where it is not JMSMessageID."""

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
    """A binding that says something impossible. The text names the identifier and what is wrong."""


@dataclass(frozen=True, slots=True)
class Source:
    """Place in a record: a header by name, a field of the body by path, or what ``kind`` says."""

    kind: Kind
    name: str = ""
    path: Path = ()

    @classmethod
    def of(cls, text: str) -> Source:
        """Read a source as a binding has it; a header whose name looks otherwise is ``header:NAME``."""
        if text in _OF_RECORD:
            return cls(_OF_RECORD[text])
        if text == "$" or text.startswith(("$.", "$[")):
            return cls("body", text, _path(text))
        name = text.removeprefix("header:")
        if name == text and text.startswith(("@", "$")):
            known = ", ".join(_OF_RECORD)
            raise KafkaBindingError(f"{text!r} is no source: it is a header's name, $.a.b, or one of {known}")
        if not name:
            raise KafkaBindingError("a source is not empty")
        return cls("header", name)

    def __str__(self) -> str:
        return {"header": f"header {self.name!r}", "body": f"body {self.name}"}.get(self.kind, self.kind)


@dataclass(frozen=True, slots=True)
class Bound:
    """Source of an identifier: its type, one of `TYPES`, and its source."""

    type: str
    source: Source


@dataclass(frozen=True, slots=True)
class KafkaBinding:
    """Properties of records, by their identifiers; what is not bound is the header of its name.

    Attributes:
        bound: what is bound.
        separator: the character of Kafka's topic names that divides the levels of a topic string, which
            Kafka does not allow ``/`` in: with ``.`` the records of ``cars.eu`` have the topic ``cars/eu``.
            None: a topic's name is one level.

    >>> binding = KafkaBinding.of(["weight:int", "price:double=$.order.price"], separator=".")
    >>> binding.field("weight")
    Bound(type='int', source=Source(kind='header', name='weight', path=()))
    >>> binding.field("JMSPriority").type
    'int'
    """

    bound: Mapping[str, Bound] = field(default_factory=dict)
    separator: str | None = None
    _given_away: frozenset[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.separator is not None and self.separator not in _TOPIC_CHARACTERS:
            raise KafkaBindingError(
                f"the separator of topic levels is one of . _ - (Kafka's names have no others), not "
                f"{self.separator!r}"
            )
        object.__setattr__(self, "bound", MappingProxyType(dict(self.bound)))
        headers = (one.source.name for one in self.bound.values() if one.source.kind == "header")
        object.__setattr__(self, "_given_away", frozenset(headers))

    @classmethod
    def of(cls, texts: Iterable[str], separator: str | None = None) -> KafkaBinding:
        """Read ``IDENTIFIER[:TYPE][=SOURCE]``, as the command line has it.

        Raises:
            KafkaBindingError: one of them can't be read, or an identifier stands twice.
        """
        bound: dict[str, Bound] = {}
        for text in texts:
            found = _TEXT.fullmatch(text)
            if found is None:
                raise KafkaBindingError(f"{text!r} is no binding: IDENTIFIER[:TYPE][=SOURCE]")
            name = found["name"]
            if name in bound:
                raise KafkaBindingError(f"{name!r} is bound twice")
            bound[name] = _bound(name, found["type"], found["source"])
        return cls(bound, separator)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> KafkaBinding:
        """Read ``{"fields": {identifier: {"type": …, "from": …}}, "separator": …}``, all of it optional, as
        it stands in a JSON or TOML file.

        Raises:
            KafkaBindingError: it is anything else.
        """
        fields, separator = data.get("fields", {}), data.get("separator")
        for name in data:
            if name not in _FIELDS:
                raise KafkaBindingError(unknown_field("a Kafka binding", name, _FIELDS))
        if not isinstance(fields, Mapping):
            raise KafkaBindingError('the "fields" of a Kafka binding are an object')
        if separator is not None and not isinstance(separator, str):
            raise KafkaBindingError(f"the separator is a string, not {separator!r}")
        bound: dict[str, Bound] = {}
        for name, given in fields.items():
            parts = dict(given) if isinstance(given, Mapping) else None
            for part in parts or ():
                if part not in _PARTS:
                    raise KafkaBindingError(unknown_field(f"the binding of {name!r}", part, _PARTS))
            if parts is None or not all(map(_is_text, parts.values())):
                raise KafkaBindingError(f'the binding of {name!r} is {{"type": …, "from": …}}, both strings')
            bound[name] = _bound(name, parts.get("type"), parts.get("from"))
        return cls(bound, separator)

    def to_dict(self) -> dict[str, Any]:
        """Return it for ``json.dumps``. The inverse of `from_dict`."""
        fields = {
            name: {"type": one.type, "from": _source_text(one.source)} for name, one in self.bound.items()
        }
        return {"fields": fields, "separator": self.separator}

    def field(self, identifier: str) -> Bound:
        """Return type and source of an identifier, bound or not."""
        found = self.bound.get(identifier)
        if found is not None:
            return found
        if identifier == TOPIC:
            return Bound("string", Source("topic"))
        return Bound(_fixed_type(identifier) or "string", Source("header", identifier))

    def is_property(self, header: str) -> bool:
        """Return whether a record's header is the property of its own name. O(1).

        It is not if the binding takes that property from elsewhere, or gives the header to another.
        """
        own = self.bound.get(header)
        if own is not None:
            return own.source.kind == "header" and own.source.name == header
        return header not in self._given_away

    def topic(self, name: str) -> str:
        """Return the topic string of a Kafka topic."""
        return name if self.separator is None else name.replace(self.separator, "/")


BY_NAME: Final = KafkaBinding()


def _bound(name: str, type_: str | None, source_text: str | None) -> Bound:
    source = Source("header", name) if source_text is None else _source(name, source_text)
    if not name or (name.startswith("@") and (name not in (TOPIC, ID) or source_text is None)):
        raise KafkaBindingError(f"{name!r} can't be bound: an identifier can, {TOPIC}=… and {ID}=…")
    fixed = "string" if name.startswith("@") else _fixed_type(name)
    own = _OWN_TYPES.get(source.kind)
    chosen = type_ if type_ is not None else fixed or own or "string"
    if chosen not in TYPES:
        advice = did_you_mean(chosen, TYPES, "it is one of")
        raise KafkaBindingError(f"the type of {name!r} cannot be {chosen!r}: {advice}")
    if fixed is not None and chosen != fixed and not (name in _IDS and chosen == "bytes"):
        raise KafkaBindingError(f"{name!r} is always of type {fixed}, not {chosen}")
    if own is not None and chosen != own:
        raise KafkaBindingError(f"{name!r}: the {source} of a record is of type {own}, not {chosen}")
    return Bound(chosen, source)


def _source(name: str, text: str) -> Source:
    try:
        return Source.of(text)
    except KafkaBindingError as error:
        raise KafkaBindingError(f"the binding of {name!r}: {error}") from None


def _source_text(source: Source) -> str:
    if source.kind == "header":
        return f"header:{source.name}"
    return source.name if source.kind == "body" else f"@{source.kind}"


def _fixed_type(name: str) -> str | None:
    kind = HEADER_TYPES.get(name)
    return None if kind is None else TYPE_NAMES[kind]


def _path(text: str) -> Path:
    """Read ``$.a.b[0]['c d']``."""
    steps: list[str | int] = []
    at = 1
    while at < len(text):
        step = _STEP.match(text, at)
        if step is None:
            raise KafkaBindingError(f"{text!r} is no path: $.a.b, with [0] for an item, ['a b'] for any name")
        steps.append(int(step[2]) if step[2] is not None else step[1] if step[1] is not None else step[3])
        at = step.end()
    return tuple(steps)


def _is_text(thing: object) -> bool:
    return isinstance(thing, str)
