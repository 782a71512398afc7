"""Selectors made ready for looking up messages: what they equate, and what is left to judge."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from itertools import product
from typing import Final

from selectroute.clauses.access import Key, equalities
from selectroute.clauses.normal_form import clauses_of
from selectroute.clauses.predicate import Clause, Lookup
from selectroute.queues.errors import MQRC_SELECTION_STRING_ERROR, failed
from selectroute.queues.message import NO_ID
from selectroute.queues.positions import CORREL_ID, GROUP_ID, MSG_ID
from selectroute.selector.dialect import dialect as dialect_named
from selectroute.selector.errors import InvalidSelectorError
from selectroute.selector.fields import (
    CORRELATION_ID,
    MESSAGE_ID,
    PREFIX,
    id_from_any_text,
    id_from_text,
    id_to_text,
)
from selectroute.selector.selector import Selector

Field = int | str
"""A field of the descriptor by its position there, or an attribute that selectors read."""

MAX_ALTERNATIVES: Final = 64
"""A clause is looked up under at most so many keys (IN lists multiply); the rest of it is judged."""


@dataclass(frozen=True, slots=True)
class Alternative:
    """One way to satisfy a selector: `fields` have the values `keys`, and `rest` holds.

    `whole` is the clause that says both: for messages that were found in another way.
    """

    fields: tuple[Field, ...]
    keys: tuple[Key, ...]
    rest: Clause | None
    whole: Clause


@dataclass(frozen=True, slots=True, eq=False)
class Selection:
    """A selector in this form: a message satisfies it exactly if it satisfies one of the alternatives."""

    selector: Selector
    alternatives: tuple[Alternative, ...]
    clauses: tuple[Clause, ...]
    only_id: tuple[int, bytes] | None
    """The field and value, if the selector says no more than that one id has this value."""

    name: str
    """No other selector has it."""

    def selects(self, lookup: Lookup) -> bool:
        """Return whether the message behind `lookup` satisfies the selector."""
        return any(clause.holds(lookup) for clause in self.clauses)


_READY: Final[OrderedDict[tuple[str, str], Selection]] = OrderedDict()
_MOST_READY: Final = 10_000


def selection_of(selector: str | Selector, dialect: str) -> Selection | None:
    """Return a selector made ready, a text in the given dialect; None for the empty one, which is none.

    Raises MQError 2519 for what is neither, and with the selector's own reason, 2551 or 2459, for one that is
    invalid. The latest ones made are kept.
    """
    if type(selector) is Selector:
        key = selector.text, selector.dialect
    elif isinstance(selector, str):
        key = selector, dialect
    else:
        raise failed(MQRC_SELECTION_STRING_ERROR, f"a selector is a text, not a {type(selector).__name__}")
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
    ready = _READY[key] = _made_ready(selector)
    if len(_READY) > _MOST_READY:
        _READY.popitem(last=False)
    return ready


def _made_ready(selector: Selector) -> Selection:
    clauses = clauses_of(selector.expression, dialect_named(selector.dialect))
    alternatives = [alternative for clause in clauses for alternative in _alternatives(clause)]
    only_id = None
    if len(alternatives) == 1 and alternatives[0].rest is None:
        (alternative,) = alternatives
        if len(alternative.fields) == 1 and alternative.fields[0] in (MSG_ID, CORREL_ID, GROUP_ID):
            only_id = alternative.fields[0], alternative.keys[0]
    name = sha256(f"{selector.dialect} {selector.text}".encode("utf-8", "surrogatepass")).hexdigest()
    return Selection(selector, tuple(alternatives), clauses, only_id, name)  # type: ignore[arg-type]  # ids are bytes


def _alternatives(clause: Clause) -> Iterable[Alternative]:
    found = equalities(clause)
    if not found.satisfiable:
        return
    keys: dict[Field, frozenset[Key]] = {}
    decided: set[int] = set()
    many = 1
    for attribute, values in sorted(found.keys.items(), key=lambda item: (len(item[1]), item[0])):
        if many * len(values) > MAX_ALTERNATIVES:
            break
        field, meant, exact = _as_field(attribute, values)
        if field in keys:  # two names of one id
            meant &= keys[field]
        keys[field] = meant
        many *= len(meant)
        if exact:
            decided |= {id(literal) for literal in found.covered.get(attribute, ())}
    rest = tuple(literal for literal in clause.literals if id(literal) not in decided)
    left = Clause(rest, clause.valid_names) if rest or clause.valid_names else None
    # Those of the descriptor first, so that equal sets of fields are equal tuples.
    fields = tuple(sorted(keys, key=lambda field: (isinstance(field, str), field)))
    for one in product(*(sorted(keys[field], key=repr) for field in fields)):
        yield Alternative(fields, one, left, clause)


@dataclass(frozen=True, slots=True)
class _Id:
    """An attribute that is an id: the field, the value of it that a key means, and whether that is all."""

    field: int
    meant: Callable[[Key], bytes | None]
    exact: bool


def _message_id(key: Key) -> bytes | None:
    octets = id_from_text(key) if isinstance(key, str) else None
    return octets if octets is not None and id_to_text(octets) == key else None


def _octets(key: Key) -> bytes | None:
    return key if isinstance(key, bytes) else None


def _any_text(key: Key) -> bytes | None:
    return id_from_any_text(key) if isinstance(key, str) else None


# A text that has the 24 bytes of an id is not all that the id may be, so it is judged again.
_IDS: Final[Mapping[str, _Id]] = {
    "JMSMessageID": _Id(MSG_ID, _message_id, True),
    f"{PREFIX}JMSMessageID": _Id(MSG_ID, _message_id, True),
    f"{PREFIX}{MESSAGE_ID}": _Id(MSG_ID, _octets, True),
    f"{PREFIX}Root.MQMD.MsgId": _Id(MSG_ID, _octets, True),
    "JMSCorrelationID": _Id(CORREL_ID, _any_text, False),
    f"{PREFIX}JMSCorrelationID": _Id(CORREL_ID, _any_text, False),
    f"{PREFIX}jms.Cid": _Id(CORREL_ID, _any_text, False),
    f"{PREFIX}{CORRELATION_ID}": _Id(CORREL_ID, _octets, True),
    f"{PREFIX}Root.MQMD.CorrelId": _Id(CORREL_ID, _octets, True),
    "JMSXGroupID": _Id(GROUP_ID, _any_text, False),
    f"{PREFIX}JMSXGroupID": _Id(GROUP_ID, _any_text, False),
    f"{PREFIX}jms.Gid": _Id(GROUP_ID, _any_text, False),
    f"{PREFIX}Root.MQMD.GroupId": _Id(GROUP_ID, _octets, True),
}


def _as_field(attribute: str, keys: frozenset[Key]) -> tuple[Field, frozenset[Key], bool]:
    """The field that an attribute is, and the values of it: an id's, where all keys are ids, or its own."""
    known = _IDS.get(attribute)
    if known is not None:
        ids = frozenset(known.meant(key) for key in keys)
        # Only ids that are no zeros are looked up by: zeros stand for none.
        if all(one is not None and len(one) == len(NO_ID) and one != NO_ID for one in ids):
            return known.field, frozenset(one for one in ids if one is not None), known.exact
    return attribute, keys, True
