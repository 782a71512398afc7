"""Registered subscriptions: the checked input, and the clauses for the index."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from types import NoneType
from typing import Final

from selectroute.clauses.normal_form import clauses_of
from selectroute.clauses.predicate import Clause
from selectroute.index.compile.shapes import clauses_by_shape, seen_template
from selectroute.index.errors import InvalidIdError
from selectroute.selector.arguments import check_argument
from selectroute.selector.dialect import EXTENDED, NONE, STANDARD, Dialect
from selectroute.selector.dialect import dialect as dialect_named
from selectroute.selector.errors import LIMIT_KINDS, InvalidSelectorError
from selectroute.selector.extended import check_extended, provider_reads
from selectroute.selector.limits import DEFAULT_LIMITS, Limits
from selectroute.selector.selector import Selector
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
