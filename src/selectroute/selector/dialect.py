"""The dialects as data: one record holds every difference between them, one value is one dialect.

No code asks which dialect it has; it reads the field that says what it needs to know. A new dialect is a
new value.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from selectroute.selector.errors import SelectRouteError
from selectroute.selector.truth import Truth
from selectroute.selector.values import Double, Float


class UnknownDialectError(SelectRouteError, ValueError):
    """No dialect has the name that was given."""


@dataclass(frozen=True, slots=True, eq=False)
class NumberSyntax:
    """How numeric literals are written."""

    bases: frozenset[int]
    """The bases of exact literals: 16 is ``0x``, 2 is ``0b``, 8 a leading zero."""

    separator: str
    """What may stand between two digits, repeated; empty for nothing."""

    hexadecimal_floats: bool
    """Whether ``0x1.8p3`` is an approximate literal."""

    suffixes: Mapping[str, type[Float | Double]]
    """The suffixes of approximate literals in capitals and the types that they make."""


@dataclass(frozen=True, slots=True, eq=False)
class Dialect:
    """Every difference between dialects. Fields appear in the order in which a text meets them."""

    name: str
    seed: str
    """The document that specifies it."""

    whitespace: str
    numbers: NumberSyntax
    reserved: frozenset[str]
    """The words, in capitals, that are no identifiers in any case."""

    headers: frozenset[str]
    """The message headers that a selector may name."""

    reserved_prefix: str
    """A name that begins so is a header, unless it begins with one of `property_prefixes`."""

    property_prefixes: tuple[str, ...]

    unlike_types: Truth
    """What a comparison of unlike types, and a value where a boolean should stand, amounts to."""


JMS = Dialect(
    name="jms",
    seed="004",
    # "Whitespace is the same as that defined for Java: space, horizontal tab, form feed and line terminator."
    whitespace=" \t\f\r\n",
    # "Exact numeric literals use the Java integer literal syntax. Approximate literals use the Java
    # floating-point literal syntax." (JLS 3.10.1 and 3.10.2)
    numbers=NumberSyntax(
        bases=frozenset({2, 8, 10, 16}),
        separator="_",
        hexadecimal_floats=True,
        suffixes=MappingProxyType({"F": Float, "D": Double}),
    ),
    # "Identifiers cannot be the names NULL, TRUE, or FALSE. Identifiers cannot be NOT, AND, OR, BETWEEN,
    # LIKE, IN, IS, or ESCAPE." "Predefined selector literals and operator names … are case insensitive."
    reserved=frozenset(
        {"NULL", "TRUE", "FALSE", "NOT", "AND", "OR", "BETWEEN", "LIKE", "IN", "IS", "ESCAPE"},
    ),
    # "Message header field references are restricted to …"
    headers=frozenset(
        {"JMSDeliveryMode", "JMSPriority", "JMSMessageID", "JMSTimestamp", "JMSCorrelationID", "JMSType"},
    ),
    # "Any name that does not begin with 'JMS' is an application-specific property name."
    reserved_prefix="JMS",
    # "Any name beginning with 'JMSX' is a JMS defined property name. … 'JMS_' is a provider-specific
    # property name."
    property_prefixes=("JMSX", "JMS_"),
    # "If the comparison of non-like type values is attempted, the value of the operation is false."
    unlike_types=Truth.FALSE,
)

DIALECTS: Mapping[str, Dialect] = MappingProxyType({JMS.name: JMS})
"""Every dialect by its name."""


def dialect(name: str) -> Dialect:
    """Return the dialect called `name`; UnknownDialectError names the nearest one."""
    known = DIALECTS.get(name)
    if known is None:
        near = difflib.get_close_matches(str(name), DIALECTS, n=1)
        advice = f"did you mean {near[0]!r}?" if near else f"the dialects are {', '.join(DIALECTS)}"
        raise UnknownDialectError(f"there is no dialect {name!r}: {advice}")
    return known
