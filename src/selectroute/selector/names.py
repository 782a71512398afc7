"""Names: the characters of an identifier, the names that a selector may read, and those that a property may
have (seed 003).
"""

from __future__ import annotations

import difflib
import unicodedata
from collections.abc import Iterable
from functools import lru_cache
from typing import Final, NamedTuple

from selectroute.selector.arguments import check_argument, check_iterable
from selectroute.selector.dialect import KEYWORDS, Dialect
from selectroute.selector.errors import SelectRouteError
from selectroute.selector.fields import SYNONYMS, may_be_set

MQRC_PROPERTY_NAME_ERROR: Final = 2442
MQRC_MIXED_CONTENT_NOT_ALLOWED: Final = 2498

INVALID_NAMES: Final = "@invalid-names"
"""Derived field that is TRUE for a message that breaks a rule on property names."""

FOREIGN_NAMES: Final = {
    "AMQDurable": "JMSDeliveryMode",
    "AMQExpiration": "JMSExpiration",
    "AMQGroupID": "JMSXGroupID",
    "AMQPriority": "JMSPriority",
    "AMQTimestamp": "JMSTimestamp",
    "AMQUserID": "JMSMessageID",
    "sys.CorrelationId": "JMSCorrelationID",
    "sys.Label": "JMSType",
    "sys.MessageId": "JMSMessageID",
    "sys.ReplyTo": "JMSReplyTo",
    "sys.To": "JMSDestination",
}
"""Headers in the filters of Artemis (``AMQ…``) and Azure Service Bus (``sys.…``), with their names in JMS."""

# Character.isJavaIdentifierStart: letters, letter numbers, currency symbols and connecting punctuation.
_START = frozenset({"Lu", "Ll", "Lt", "Lm", "Lo", "Nl", "Sc", "Pc"})
# Character.isJavaIdentifierPart: also digits, combining marks, and the characters ignorable in an
# identifier: format characters and these controls.
_PART = _START | {"Nd", "Mn", "Mc", "Cf"}
_IGNORABLE = ((0x00, 0x08), (0x0E, 0x1B), (0x7F, 0x9F))


def is_identifier_start(character: str) -> bool:
    """Return Character.isJavaIdentifierStart of one code point."""
    return unicodedata.category(character) in _START


def is_identifier_part(character: str) -> bool:
    """Return Character.isJavaIdentifierPart of one code point."""
    return unicodedata.category(character) in _PART or any(
        low <= ord(character) <= high for low, high in _IGNORABLE
    )


def identifier_length(text: str, dots: bool = False) -> int:
    """Return how many characters from the start of `text` form an identifier; 0 if it cannot start one.

    With `dots`, a dot anywhere counts as part of the identifier.
    """
    if not text or not is_identifier_start(text[0]):
        return 0
    for length, character in enumerate(text):
        if not is_identifier_part(character) and not (dots and character == "."):
            return length
    return len(text)


class NameProblem(NamedTuple):
    """Fault of a name in a selector: a kind of `InvalidSelectorError`, a hint, the likely name."""

    kind: str
    hint: str | None
    near: str | None = None


def unreadable(name: str, dialect: Dialect) -> NameProblem | None:
    """Return why selectors cannot read `name`, an identifier of the dialect; None if they can."""
    if (
        name.startswith(dialect.reserved_prefix)
        and name not in dialect.headers
        and not (dialect.property_prefixes and name.startswith(dialect.property_prefixes))
    ):
        near = nearest_header(name, dialect)
        return NameProblem("unknown-header", f"did you mean {near}?" if near else None, near)
    if dialect.name_rules:
        broken = broken_rule(name)
        if broken is not None:
            return NameProblem("invalid-name", broken.sentence)
    return None


@lru_cache(maxsize=256)
def nearest_header(name: str, dialect: Dialect) -> str | None:
    """Return the header of which `name` is probably a misspelling."""
    spelling = {header.casefold(): header for header in sorted(dialect.headers)}
    near = difflib.get_close_matches(name[:64].casefold(), spelling, n=1, cutoff=0.8)
    return spelling[near[0]] if near else None


class Rule(NamedTuple):
    """Restriction of seed 003 on names: its number there, a sentence, and the reason code."""

    number: int
    sentence: str
    reason: int = MQRC_PROPERTY_NAME_ERROR


class PropertyNameError(SelectRouteError):
    """Invalid name of a property, alone or together with the others; `reason` is 2442 or 2498."""

    def __init__(self, name: str, rule: Rule) -> None:
        super().__init__(name, rule)
        self.name = name
        self.rule = rule
        self.reason = rule.reason

    def __str__(self) -> str:
        return f"property name {self.name[:80]!r}: {self.rule.sentence} (reason {self.reason})"


def broken_rule(name: str) -> Rule | None:
    """Return the rule, 1 to 4 of seed 003, that the name of a property breaks; None if none. O(n)."""
    if name.startswith("JMS") and name not in SYNONYMS:
        return Rule(1, "names that begin with JMS are reserved, except the synonyms of JMS fields")
    if name.startswith("usr.JMS"):
        return Rule(1, "a name cannot begin with usr.JMS")
    if name.upper() in KEYWORDS and name.isascii():
        return Rule(2, "it is a reserved word of selectors")
    prefix = name[:6].lower()
    if prefix.startswith("mq") and prefix != "mq_usr" and name.count(".") > 1:
        return Rule(3, "a name that begins with mq can have only one dot, unless it begins with mq_usr")
    if not name or name[0] == "." or name[-1] == "." or ".." in name:
        return Rule(4, "each dot must be between two parts that are not empty")
    return None


@lru_cache(maxsize=10_000)
def spelling(name: str) -> Rule | None:
    """Return the rule against a message's property whose name no selector can spell; None if it is valid.

    "The rules for identifier names are the same as those for message property names" (seed 002).
    """
    if name and identifier_length(name, dots=True) == len(name):
        return None
    return Rule(0, "a name is a letter, _ or $, followed by letters, digits, _, $ and single dots")


def check_property_names(names: Iterable[str]) -> None:
    """Check the names of properties that an application is about to set, as MQSETMP does with validation.

    Raises PropertyNameError for the first one that breaks a rule of seed 003 by itself (2442), that names a
    field which cannot be set (2442), or that makes mixed content with another (2498). O(n log n).
    """
    check_iterable(names, "names", "the names of properties in a list")
    wanted = list(names)
    for name in wanted:
        check_argument(name, str, "a name", "a str")
    for name in wanted:
        rule = broken_rule(name) or spelling(name)
        if rule is None and name in SYNONYMS and not may_be_set(name):
            rule = Rule(1, "this field of a message cannot be set")
        if rule is not None:
            raise PropertyNameError(name, rule)
    for _, inner in mixed_content(wanted):
        raise PropertyNameError(inner, MIXED_CONTENT)


MIXED_CONTENT: Final = Rule(
    5, "a property of the message would be both a value and a group of others", MQRC_MIXED_CONTENT_NOT_ALLOWED
)


def breaches(names: Iterable[str]) -> list[tuple[str, ...]]:
    """Return the names that break a rule of seed 003: alone, or as a pair that makes mixed content.

    A message breaks a rule when it has all properties of one of these tuples. O(n log n). For columns of a
    frame and headers of a record, where a name that no selector can spell is not a property.
    """
    present = list(names)
    alone: list[tuple[str, ...]] = [(name,) for name in present if broken_rule(name) is not None]
    return alone + mixed_content(present)


def message_breaches(names: Iterable[str]) -> list[tuple[str, ...]]:
    """Return the `breaches`, and the names that no selector can spell (``a b``, ``1a``, ``a-b``): all names
    of a message are properties.
    """
    present = list(names)
    breaking = breaches(present)
    alone = {names[0] for names in breaking if len(names) == 1}
    return breaking + [(name,) for name in present if name not in alone and spelling(name) is not None]


def mixed_content(names: Iterable[str]) -> list[tuple[str, ...]]:
    """Return the pairs of names where one is a level of the other: ``a.b`` and ``a.b.c``. O(n log n)."""
    pairs: list[tuple[str, ...]] = []
    outer: list[str] = []  # the previous name and its groups, outermost first
    for name in sorted(set(names), key=lambda name: name.split(".")):
        while outer and not name.startswith(f"{outer[-1]}."):
            outer.pop()
        pairs += [(group, name) for group in outer]
        outer.append(name)
    return pairs
