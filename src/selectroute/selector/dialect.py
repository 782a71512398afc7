"""Dialects as data: a `Dialect` record has a field for every difference between dialects.

Code never tests which dialect it has; it reads the field that it needs. A new dialect is a new record.
``selectroute selector dialects`` shows all of them side by side.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final, Literal

from selectroute.selector.arguments import check_argument
from selectroute.selector.errors import SelectRouteError
from selectroute.selector.fields import (
    CORRELATION_ID,
    DELIVERY_MODE_INT,
    DELIVERY_MODE_OF_MQ,
    MESSAGE_ID,
    PREFIX,
    SYNONYMS,
)
from selectroute.selector.values import VOID, Double, Float, Truth, Void

Seltype = Literal["NONE", "STANDARD", "EXTENDED"]

NONE: Final = "NONE"
"""No selector."""

STANDARD: Final = "STANDARD"
"""Selector in one of the dialects."""

EXTENDED: Final = "EXTENDED"
"""Selector left to an extended selection provider."""


class UnknownDialectError(SelectRouteError, ValueError):
    """Unknown name of a dialect."""


@dataclass(frozen=True, slots=True, eq=False)
class NumberSyntax:
    """Spelling of numeric literals."""

    bases: frozenset[int]
    """Bases of exact literals: 16 is ``0x``, 2 is ``0b``, 8 a leading zero (without 8 it has no meaning)."""

    separator: str
    """Character allowed between two digits, also repeated; empty if none is."""

    hexadecimal_floats: bool
    """True if ``0x1.8p3`` is an approximate literal."""

    long_suffix: bool
    """True if an exact literal may end in ``L``."""

    suffixes: Mapping[str, type[Float | Double]]
    """Suffixes of approximate literals, in capitals, and the types of the literals."""

    zero_before_approximate: bool
    """True if an approximate literal may begin with a zero and another digit: ``010.5``, ``07E3``."""


@dataclass(frozen=True, slots=True, eq=False)
class Dialect:
    """Dialect: a field for every difference, in the order in which the stages use them."""

    name: str
    seed: str
    """Document that specifies the dialect."""

    whitespace: str
    numbers: NumberSyntax
    byte_strings: bool
    """True if ``"0x2F1C"`` is a literal, and a column of bytes a property."""

    reserved: frozenset[str]
    """Words, in capitals, that are not identifiers in any mixture of upper and lower case."""

    dotted_names: bool
    """True if an identifier may consist of parts joined by dots. Only the first part must begin with a start
    character."""

    headers: frozenset[str]
    """Names beginning with `reserved_prefix` that a selector may read."""

    reserved_prefix: str
    """Prefix of headers; a name with one of the longer `property_prefixes` is a property."""

    property_prefixes: tuple[str, ...]

    name_rules: bool
    """True if the restrictions on property names of seed 003 apply, in selectors and to messages."""

    lacks: frozenset[str]
    """Symbols and reserved words of the common grammar that this dialect does not have."""

    signs_touch: bool
    """True if a sign is part of its number and directly before the digits."""

    bare_conditions: bool
    """True if an identifier, TRUE or FALSE alone is a condition."""

    unlike_literals: bool
    """True if a selector may compare two literals of different types by ``=`` and ``<>``; such a selector is
    always false as a whole."""

    fields: Mapping[str, str]
    """Identifiers that read a derived field (see ``fields``): identifier to field."""

    id_fields: Mapping[str, str]
    """Identifiers that, compared alone with an ``ID:`` string, select by MQMO_MATCH on 24 bytes: identifier
    to field."""

    int_identifiers: frozenset[str]
    """Identifiers with which an exact literal is compared as an int, not as a long."""

    promotes: bool
    """True if numbers of different types compare, after Java's binary numeric promotion."""

    negative_zero: bool
    """True if arithmetic tells negative zero from zero."""

    unlike_types: Literal[Truth.FALSE, Void.VOID]
    """Result of an operation on unlike types, and of a condition that is not a boolean."""

    arithmetic_on_null: Literal[Void.VOID] | None
    """Result of arithmetic on NULL; None is NULL."""

    between_on_null: Literal[Truth.FALSE] | None
    """Result of BETWEEN with a NULL operand, and the opposite of NOT BETWEEN's; None: as its equivalence."""

    extended: bool
    """True if a subscription may leave its selector to an extended selection provider."""

    def field_of(self, name: str) -> str:
        """Return the derived field that an identifier reads, or the identifier itself."""
        return self.fields.get(name, name)


KEYWORDS = frozenset({"NULL", "TRUE", "FALSE", "NOT", "AND", "OR", "BETWEEN", "LIKE", "IN", "IS", "ESCAPE"})
"""Reserved words of seeds 003 and 004."""

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
        long_suffix=True,
        suffixes=MappingProxyType({"F": Float, "D": Double}),
        zero_before_approximate=True,
    ),
    # "A string literal is enclosed in single quotes"; of others, numeric and boolean literals only.
    byte_strings=False,
    # "Identifiers cannot be the names NULL, TRUE, or FALSE. Identifiers cannot be NOT, AND, OR, BETWEEN,
    # LIKE, IN, IS, or ESCAPE." "Predefined selector literals and operator names … are case insensitive."
    reserved=KEYWORDS,
    # "all following characters must be Java identifier part characters": a dot is not one.
    dotted_names=False,
    # "Message header field references are restricted to …"
    headers=frozenset(
        {"JMSDeliveryMode", "JMSPriority", "JMSMessageID", "JMSTimestamp", "JMSCorrelationID", "JMSType"}
    ),
    # "Any name that does not begin with 'JMS' is an application-specific property name."
    reserved_prefix="JMS",
    # "Any name beginning with 'JMSX' is a JMS defined property name. … 'JMS_' is a provider-specific
    # property name."
    property_prefixes=("JMSX", "JMS_"),
    # Names are restricted as identifiers only.
    name_rules=False,
    # "A selector can contain: …" is the whole grammar.
    lacks=frozenset(),
    # "Arithmetic operators in precedence order: +, - (unary)": a sign may precede any expression.
    signs_touch=False,
    # "Conditional expressions are composed of … identifiers with boolean values, and boolean literals."
    bare_conditions=True,
    # "JMS providers may also optionally provide some semantic checking at the time the selector is
    # presented."
    unlike_literals=False,
    # "Identifiers are either header field references or property references", each by its one name; ids are
    # strings, and the types of literals do not depend on what they are compared with.
    fields=MappingProxyType({}),
    id_fields=MappingProxyType({}),
    int_identifiers=frozenset(),
    # "The type conversion required is defined by the rules of Java numeric promotion."
    promotes=True,
    # Java's arithmetic (JLS 15.17, 15.18).
    negative_zero=True,
    # "If the comparison of non-like type values is attempted, the value of the operation is false."
    unlike_types=Truth.FALSE,
    # "SQL treats a NULL value as unknown. Comparison or arithmetic with an unknown value always yields an
    # unknown value."
    arithmetic_on_null=None,
    # '"age BETWEEN 15 AND 19" is equivalent to "age >= 15 AND age <= 19"', NULL or not.
    between_on_null=None,
    # "A method providing a syntactically incorrect selector must result in a JMS InvalidSelectorException."
    extended=False,
)

IBM_JMS = replace(
    JMS,
    name="ibm-jms",
    seed="000",
    # "Identifiers cannot be NOT, AND, OR, BETWEEN, LIKE, IN, or IS."
    reserved=JMS.reserved - {"ESCAPE"},
    # "… use the MatchOption MQMO_MATCH_MSG_ID to get the message with the specified message identifier."
    id_fields=MappingProxyType(
        {"JMSMessageID": f"{PREFIX}{MESSAGE_ID}", "JMSCorrelationID": f"{PREFIX}{CORRELATION_ID}"}
    ),
    # "If there is an attempt to compare different types, the selector is always false": not invalid.
    unlike_literals=True,
    unlike_types=VOID,
    # "Arithmetic operations on a NULL value are not supported. If they are attempted, the complete selector
    # is always false."
    arithmetic_on_null=VOID,
    # "If any of the expressions of a BETWEEN operation are NULL, the value of the operation is false. If any
    # of the expressions of a NOT BETWEEN operation are NULL, the value of the operation is true."
    between_on_null=Truth.FALSE,
)

IBM_MQ = replace(
    IBM_JMS,
    name="ibm-mq",
    seed="002",
    # "Defined as a space, form-feed, newline, carriage return, horizontal tab, or vertical tab. The following
    # Unicode characters are recognized as white space: …"
    whitespace="\t\n\v\f\r\x1c\x1d\x1e\x1f \u1680\u180e"
    + "".join(map(chr, range(0x2000, 0x200B)))
    + "\u2028\u2029\u202f\u205f\u3000",
    numbers=NumberSyntax(
        # "Hex numbers begin with a zero, followed by an uppercase or lowercase x." "A leading zero followed
        # by one or more digits in the range 0-7 is always interpreted as … the start of an octal number."
        bases=frozenset({8, 10, 16}),
        separator="",
        hexadecimal_floats=False,
        # "An exact numeric literal can have a trailing uppercase or lowercase L."
        long_suffix=True,
        # "These characters are optional and do not affect how an approximate numeric literal is stored …
        # always stored and processed using double-precision."
        suffixes=MappingProxyType({"F": Double, "D": Double}),
        zero_before_approximate=False,
    ),
    # "A byte string is one or more pair of hexadecimal characters enclosed in double quotation marks and
    # prefixed by 0x."
    byte_strings=True,
    # Seed 003: "A property must not be called, in any mixture of lower or uppercase, …, "IS" and "ESCAPE"."
    reserved=KEYWORDS,
    # "The rules for identifier names are the same as those for message property names." Seed 003 has a
    # hierarchy of names with "." between its levels.
    dotted_names=True,
    # Seed 003: "A property must not begin with … "JMS" … The only exceptions are the following properties
    # providing synonyms for JMS properties."
    headers=frozenset(name for name in SYNONYMS if name.startswith("JMS")),
    # "Note that the JMS_IBM_* properties … are not available using the MQI."
    property_prefixes=(),
    # "The following restrictions apply to property names."
    name_rules=True,
    # "These synonyms allow an MQI application to access JMS properties in a similar fashion."
    # "IBM MQ maps the recognized JMS field and property names to … values. … selects on the
    # Pri property found in the jms folder": JMSDeliveryMode is the int of jms.Dlv.
    fields=MappingProxyType(
        {name: PREFIX + name for name in SYNONYMS} | {"JMSDeliveryMode": f"{PREFIX}{DELIVERY_MODE_OF_MQ}"}
    ),
    # The match of ids is one of "the IBM MQ classes for JMS" (seed 000).
    id_fields=MappingProxyType({}),
    # "Negative zero is treated the same as positive zero for mathematical operations."
    negative_zero=False,
    # "… if IBM MQ determines that an administratively defined subscription selector is using extended message
    # syntax, as indicated by … SELTYPE having the value EXTENDED."
    extended=True,
)

MQE = replace(
    IBM_JMS,
    name="mqe",
    seed="001",
    # "An exact numeric literal is a numeric value without a decimal point, such as 57, -957, +62. … An
    # approximate numeric literal is a numeric value in scientific notation, … or … with a decimal."
    numbers=NumberSyntax(
        bases=frozenset({10}),
        separator="",
        hexadecimal_floats=False,
        long_suffix=False,
        suffixes=MappingProxyType({}),
        zero_before_approximate=True,
    ),
    # "a selector testing JMSExpiration or JMSTimestamp": JMSExpiration is readable, too.
    headers=JMS.headers | {"JMSExpiration"},
    # "Logical operators: currently supports AND only. Comparison operators: only equals ('=') is currently
    # supported. … The IS NOT NULL comparison operator is not supported." "Arithmetic operators are not
    # currently supported." The document does not mention brackets.
    lacks=frozenset(
        {"OR", "NOT", "<>", "<", "<=", ">", ">=", "+", "-", "*", "/", "(", "BETWEEN", "LIKE", "IN"}
    ),
    # "… such as 57, -957, +62": the sign is part of the literal, as there is no arithmetic.
    signs_touch=True,
    # The only conditions are comparisons by '=' and IS NULL.
    bare_conditions=False,
    # "Only values of the same type can be compared. If there is an attempt to compare different types, the
    # selector is always false": not invalid. The document does not restrict the sides of a comparison.
    unlike_literals=True,
    # "a selector testing the JMSPriority or JMSDeliveryMode Header fields will interpret an exact numeric
    # literal as an int": the field is the int 1 or 2.
    fields=MappingProxyType({"JMSDeliveryMode": f"{PREFIX}{DELIVERY_MODE_INT}"}),
    # The match of ids is seed 000's.
    id_fields=MappingProxyType({}),
    int_identifiers=frozenset({"JMSPriority", "JMSDeliveryMode"}),
    # "Only values of the same type can be compared. If there is an attempt to compare different types, the
    # selector is always false."
    promotes=False,
)

DEFAULT_DIALECT = JMS.name

DIALECTS: Mapping[str, Dialect] = MappingProxyType({each.name: each for each in (JMS, IBM_JMS, IBM_MQ, MQE)})
"""Every dialect by its name."""


def dialect(name: str) -> Dialect:
    """Return the dialect called `name`; UnknownDialectError names the nearest one."""
    check_argument(name, str, "dialect", f"one of {', '.join(DIALECTS)}")
    known = DIALECTS.get(name)
    if known is None:
        near = difflib.get_close_matches(str(name), DIALECTS, n=1)
        advice = f"did you mean {near[0]!r}?" if near else f"the dialects are {', '.join(DIALECTS)}"
        raise UnknownDialectError(f"there is no dialect {name!r}: {advice}")
    return known
