"""Selectors prepared for lookups: the fields that they compare for equality, and the rest to evaluate."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from itertools import product
from typing import Final

from selectroute.clauses.access import Key, equalities
from selectroute.clauses.normal_form import clauses_of
from selectroute.clauses.predicate import Clause
from selectroute.clauses.predicate import Lookup as ValueReader
from selectroute.queues.errors import MQRC_SELECTION_STRING_ERROR, failed
from selectroute.queues.message.record import Field
from selectroute.selector.dialect import dialect as dialect_named
from selectroute.selector.errors import InvalidSelectorError
from selectroute.selector.fields import (
    CORRELATION_ID,
    MESSAGE_ID,
    NO_ID,
    PREFIX,
    id_from_any_text,
    id_from_text,
    id_to_text,
)
from selectroute.selector.selector import Selector

KeyField = Field | str
"""Field of the descriptor by its position, or an attribute that selectors read."""

MAX_ALTERNATIVES: Final = 64
"""Keys at most under which a clause is looked up (IN lists multiply); the rest is evaluated."""


@dataclass(frozen=True, slots=True)
class Alternative:
    """Way to satisfy a selector: `fields` have the values `keys`, and `rest` holds.

    `whole` is the complete clause, for messages found in another way.
    """

    fields: tuple[KeyField, ...]
    keys: tuple[Key, ...]
    rest: Clause | None
    whole: Clause


@dataclass(frozen=True, slots=True, eq=False)
class PreparedSelector:
    """Selector as alternatives: satisfied exactly if one of them is."""

    selector: Selector
    alternatives: tuple[Alternative, ...]
    clauses: tuple[Clause, ...]
    only_id: tuple[Field, bytes] | None
    """Field and value, if the selector is only the equality of one id."""

    name: str
    """Digest of dialect and text."""

    def selects(self, read: ValueReader) -> bool:
        """Return whether the message whose values `read` returns satisfies the selector."""
        return any(clause.holds(read) for clause in self.clauses)


_READY: Final[OrderedDict[tuple[str, str], PreparedSelector]] = OrderedDict()
_MOST_READY: Final = 10_000


def selection_of(selector: str | Selector, dialect: str) -> PreparedSelector | None:
    """Prepare a selector, text in the given dialect; return None for an empty text. Cached.

    Raises MQError 2519 for anything but a text or Selector, and with the selector's own reason, 2551 or 2459,
    for an invalid one.
    """
    if type(selector) is Selector:
        key = selector.text, selector.dialect
    elif isinstance(selector, str):
        key = selector, dialect
    else:
        raise failed(MQRC_SELECTION_STRING_ERROR, f"expected a selector, not a {type(selector).__name__}")
    ready = _READY.get(key)
    if ready is not None:
        return ready
    if not key[0]:
        return None
    if isinstance(selector, str):
        try:
            selector = Selector(*key)
        except InvalidSelectorError as error:
            raise failed(error.reason, str(error)) from error
    ready = _READY[key] = _prepared(selector)
    if len(_READY) > _MOST_READY:
        _READY.popitem(last=False)
    return ready


def _prepared(selector: Selector) -> PreparedSelector:
    clauses = clauses_of(selector.expression, dialect_named(selector.dialect))
    alternatives = [alternative for clause in clauses for alternative in _alternatives(clause)]
    only_id = None
    if len(alternatives) == 1 and alternatives[0].rest is None:
        (alternative,) = alternatives
        if len(alternative.fields) == 1 and alternative.fields[0] in (
            Field.MSG_ID,
            Field.CORREL_ID,
            Field.GROUP_ID,
        ):
            only_id = alternative.fields[0], alternative.keys[0]
    name = sha256(f"{selector.dialect} {selector.text}".encode("utf-8", "surrogatepass")).hexdigest()
    return PreparedSelector(selector, tuple(alternatives), clauses, only_id, name)  # type: ignore[arg-type]  # ids are bytes


def _alternatives(clause: Clause) -> Iterable[Alternative]:
    equated = equalities(clause)
    if not equated.satisfiable:
        return
    keys: dict[KeyField, frozenset[Key]] = {}
    decided: set[int] = set()
    many = 1
    for attribute, values in sorted(equated.keys.items(), key=lambda item: (len(item[1]), item[0])):
        if many * len(values) > MAX_ALTERNATIVES:
            break
        field, meant, exact = _as_field(attribute, values)
        if field in keys:  # two names of one id
            meant &= keys[field]
        keys[field] = meant
        many *= len(meant)
        if exact:
            decided |= {id(literal) for literal in equated.covered.get(attribute, ())}
    rest = tuple(literal for literal in clause.literals if id(literal) not in decided)
    left = Clause(rest, clause.valid_names) if rest or clause.valid_names else None
    # Sorted, fields of the descriptor first, so that equal sets of fields are equal tuples.
    fields = tuple(sorted(keys, key=lambda field: (isinstance(field, str), field)))
    for combination in product(*(sorted(keys[field], key=repr) for field in fields)):
        yield Alternative(fields, combination, left, clause)


@dataclass(frozen=True, slots=True)
class _Id:
    """Attribute that is an id: its field, the conversion of a key to the id, and whether that is exact."""

    field: Field
    meant: Callable[[Key], bytes | None]
    exact: bool


def _message_id(key: Key) -> bytes | None:
    octets = id_from_text(key) if isinstance(key, str) else None
    return octets if octets is not None and id_to_text(octets) == key else None


def _octets(key: Key) -> bytes | None:
    return key if isinstance(key, bytes) else None


def _any_text(key: Key) -> bytes | None:
    return id_from_any_text(key) if isinstance(key, str) else None


# Several texts have the same 24 bytes, so a match by text is re-evaluated.
_IDS: Final[Mapping[str, _Id]] = {
    "JMSMessageID": _Id(Field.MSG_ID, _message_id, True),
    f"{PREFIX}JMSMessageID": _Id(Field.MSG_ID, _message_id, True),
    f"{PREFIX}{MESSAGE_ID}": _Id(Field.MSG_ID, _octets, True),
    f"{PREFIX}Root.MQMD.MsgId": _Id(Field.MSG_ID, _octets, True),
    "JMSCorrelationID": _Id(Field.CORREL_ID, _any_text, False),
    f"{PREFIX}JMSCorrelationID": _Id(Field.CORREL_ID, _any_text, False),
    f"{PREFIX}jms.Cid": _Id(Field.CORREL_ID, _any_text, False),
    f"{PREFIX}{CORRELATION_ID}": _Id(Field.CORREL_ID, _octets, True),
    f"{PREFIX}Root.MQMD.CorrelId": _Id(Field.CORREL_ID, _octets, True),
    "JMSXGroupID": _Id(Field.GROUP_ID, _any_text, False),
    f"{PREFIX}JMSXGroupID": _Id(Field.GROUP_ID, _any_text, False),
    f"{PREFIX}jms.Gid": _Id(Field.GROUP_ID, _any_text, False),
    f"{PREFIX}Root.MQMD.GroupId": _Id(Field.GROUP_ID, _octets, True),
}


def _as_field(attribute: str, keys: frozenset[Key]) -> tuple[KeyField, frozenset[Key], bool]:
    """Return the id field of an attribute and the ids, if all keys are ids; else the attribute itself."""
    known = _IDS.get(attribute)
    if known is not None:
        ids = frozenset(known.meant(key) for key in keys)
        # All zeros means no id, so they are not looked up.
        if all(octets is not None and len(octets) == len(NO_ID) and octets != NO_ID for octets in ids):
            return known.field, frozenset(octets for octets in ids if octets is not None), known.exact
    return attribute, keys, True
