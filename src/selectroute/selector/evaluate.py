"""Meaning of a selector: every rule of the standard once, in the order of the standard.

This is the reference. It is slow and plain on purpose; every faster engine must agree with it on every
message. Quotations are from seed 004 unless another is named.

"A selector that evaluates to true matches; a selector that evaluates to false or unknown does not match."
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import cast

from selectroute.selector.dialect import Dialect
from selectroute.selector.fields import NO_ID
from selectroute.selector.like import compile_like, like
from selectroute.selector.names import INVALID_NAMES
from selectroute.selector.syntax.ast import (
    And,
    Arithmetic,
    Between,
    Comparison,
    Expr,
    Identifier,
    In,
    IsNull,
    Like,
    Literal,
    MatchId,
    Not,
    Or,
    Unary,
    children,
    postorder,
)
from selectroute.selector.values import (
    MISMATCH,
    VOID,
    Operand,
    Truth,
    Unsupported,
    Value,
    Void,
    all_of,
    any_of,
    arithmetic,
    compare,
    negate,
    not_,
    plus,
    positive_zero,
)

Lookup = Callable[[str], Value | Unsupported | None]
"""Function from the name of a header, property or derived field to its value: None (NULL) if the message
does not have it, UNSUPPORTED for a value of a type that no property has, as a column of a table may hold."""

Result = Operand | Truth | Void
"""Result of a node: a value for an operand, a truth for a condition, VOID if it makes the selector false."""


def evaluate(expr: Expr, lookup: Lookup, dialect: Dialect) -> Truth:
    """Return the truth of `expr` for the message that `lookup` reads. Never raises, and never recurses."""
    # "… an application subsequently puts a message with an invalid property name, this message is never
    # selected" (seed 002).
    if dialect.name_rules and lookup(INVALID_NAMES) is True:
        return Truth.FALSE
    truth = condition(expr, lookup, dialect)
    # "… the complete selector is always false" (seeds 000 and 002).
    return Truth.FALSE if isinstance(truth, Void) else truth


def condition(expr: Expr, lookup: Lookup, dialect: Dialect) -> Truth | Void:
    """Return the truth of `expr` as a condition, a selector or a part of one."""
    last: Result = None
    for _, _, result in trace(expr, lookup, dialect):
        last = result
    return as_truth(last, dialect)


def trace(expr: Expr, lookup: Lookup, dialect: Dialect) -> Iterator[tuple[Expr, Sequence[Result], Result]]:
    """Yield each node after its operands, with the results of the operands and of the node; the root is last.

    No node is skipped when the outcome is already known: operations have no side effects, and any of them may
    make the whole selector false.
    """
    results: list[Result] = []
    for node in postorder(expr):
        first = len(results) - len(children(node))
        operands = results[first:]
        del results[first:]
        result = judge(node, operands, lookup, dialect)
        results.append(result)
        yield node, operands, result


def judge(node: Expr, operands: Sequence[Result], lookup: Lookup, dialect: Dialect) -> Result:
    """Return the result of `node`, given the results of its operands."""
    if VOID in operands:
        return VOID
    unlike, promotes = dialect.unlike_types, dialect.promotes
    match node:
        case Literal(value):
            return value

        # "If a property that does not exist in a message is referenced, its value is NULL."
        case Identifier(name):
            return lookup(dialect.field_of(name))

        # "Arithmetic operations must use Java numeric promotion."
        case Unary() | Arithmetic():
            return _arithmetic(node, [as_operand(operand) for operand in operands], dialect)

        # "Only like type values can be compared. … If the comparison of non-like type values is attempted,
        # the value of the operation is false. If either of the type values evaluates to NULL, the value …
        # is unknown."
        case Comparison(op):
            left, right = map(as_operand, operands)
            return compare(op, left, right, unlike, promotes=promotes)

        case Between(_, _, _, negated):
            age, low, high = map(as_operand, operands)
            # "If any of the expressions of a BETWEEN operation are NULL, the value of the operation is false.
            # If any of the expressions of a NOT BETWEEN operation are NULL, the value of the operation is
            # true" (seeds 000 and 002).
            if dialect.between_on_null is not None and None in (age, low, high):
                return not_(dialect.between_on_null) if negated else dialect.between_on_null
            # "age BETWEEN 15 AND 19" is equivalent to "age >= 15 AND age <= 19",
            # "age NOT BETWEEN 15 AND 19" to "age < 15 OR age > 19".
            first, last = ("<", ">") if negated else (">=", "<=")
            comparisons = (compare(first, age, low, unlike), compare(last, age, high, unlike))
            return _connected(any_of if negated else all_of, comparisons)

        # "identifier has a String or NULL value." "If identifier of an IN or NOT IN operation is NULL, the
        # value of the operation is unknown." Any other value is unlike the strings, for IN and NOT IN.
        case In(_, values, negated):
            match operands[0]:
                case None:
                    return Truth.UNKNOWN
                case str(country):
                    return Truth.of((country in values) is not negated)
            return unlike

        # The same for LIKE, "where identifier has a String value".
        case Like(_, pattern, escape, negated):
            match operands[0]:
                case None:
                    return Truth.UNKNOWN
                case str(phone):
                    return Truth.of(like(phone, compile_like(pattern, escape)) is not negated)
            return unlike

        # "tests for a null header field value or a missing property value", or for "the existence" of one.
        case IsNull(_, negated):
            return Truth.of((operands[0] is None) is not negated)

        # "… use the MatchOption MQMO_MATCH_MSG_ID to get the message with the specified message identifier."
        # "If a message selector contains a value of all zeros …, then it matches any message" (seed 000).
        case MatchId(identifier, octets):
            return Truth.of(octets == NO_ID or lookup(dialect.id_fields[identifier.name]) == octets)

        # "Logical operators in precedence order: NOT, AND, OR", by the three-valued logic of SQL92.
        case Not():
            truth = as_truth(operands[0], dialect)
            return VOID if isinstance(truth, Void) else not_(truth)
        case And():
            return _connected(all_of, [as_truth(operand, dialect) for operand in operands])
        case Or():
            return _connected(any_of, [as_truth(operand, dialect) for operand in operands])


def _arithmetic(node: Unary | Arithmetic, operands: list[Operand], dialect: Dialect) -> Result:
    if dialect.arithmetic_on_null is not None and None in operands:
        # "Arithmetic operations on a NULL value are not supported. If they are attempted, the complete
        # selector is always false" (seeds 000 and 002).
        return dialect.arithmetic_on_null
    if not dialect.negative_zero:
        # "Negative zero is treated the same as positive zero for mathematical operations" (seed 002).
        operands = [positive_zero(operand) for operand in operands]
    if isinstance(node, Arithmetic):
        result = arithmetic(node.op, *operands)
    else:
        result = (negate if node.op == "-" else plus)(*operands)
    return VOID if result is MISMATCH and dialect.unlike_types is VOID else result


def _connected(
    connective: Callable[[Sequence[Truth]], Truth], truths: Sequence[Truth | Void]
) -> Truth | Void:
    """Return AND or OR of the truths, unless one of them makes the whole selector false."""
    return VOID if VOID in truths else connective(cast("Sequence[Truth]", truths))


def as_truth(result: Result, dialect: Dialect) -> Truth | Void:
    """Return the truth of a result that is used as a condition.

    "Conditional expressions are composed of … identifiers with boolean values, and boolean literals": NULL is
    UNKNOWN, and a value that is not a boolean is of an unlike type.
    """
    if isinstance(result, Truth | Void):
        return result
    if isinstance(result, bool):
        return Truth.of(result)
    return Truth.UNKNOWN if result is None else dialect.unlike_types


def as_operand(result: Result) -> Operand:
    """Return the value of a result that is used as an operand: a condition's is boolean, UNKNOWN is NULL."""
    if isinstance(result, Truth):
        return None if result is Truth.UNKNOWN else result is Truth.TRUE
    assert not isinstance(result, Void)  # `judge` tests for VOID first
    return result
