"""The meaning of a selector: every rule of the standard once, in the order in which it is written there.

This is the reference. It is slow and plain on purpose; every faster engine must agree with it on every
message. Quotations are from seed 004.

"A selector that evaluates to true matches; a selector that evaluates to false or unknown does not match."
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from selectroute.selector.ast import (
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
    Not,
    Or,
    Unary,
    children,
    postorder,
)
from selectroute.selector.dialect import Dialect
from selectroute.selector.like import compile_like, like
from selectroute.selector.truth import Truth, all_of, any_of, not_
from selectroute.selector.values import Operand, Value, arithmetic, compare, negate, plus

Lookup = Callable[[str], Value | None]
"""Gives the value of a header or property; None, NULL, for one that the message does not have."""

Result = Operand | Truth
"""What a node amounts to: a value for an operand, a truth for a condition."""


def evaluate(expr: Expr, lookup: Lookup, dialect: Dialect) -> Truth:
    """Return the truth of `expr` for the message behind `lookup`. Never raises, and never recurses."""
    whole: Result = None
    for _, _, result in trace(expr, lookup, dialect):
        whole = result
    return as_truth(whole, dialect)


def trace(expr: Expr, lookup: Lookup, dialect: Dialect) -> Iterator[tuple[Expr, Sequence[Result], Result]]:
    """Yield each node after its operands, with their results and its own; the whole selector comes last.

    Nothing is skipped when the outcome is already known: no operation has an effect but its result.
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
    """Return what `node` amounts to, given what its operands do."""
    unlike = dialect.unlike_types
    match node:
        case Literal(value):
            return value

        # "If a property that does not exist in a message is referenced, its value is NULL."
        case Identifier(name):
            return lookup(name)

        # "Arithmetic operations must use Java numeric promotion."
        case Unary(sign):
            operand = as_operand(operands[0])
            return negate(operand) if sign == "-" else plus(operand)
        case Arithmetic(op):
            left, right = map(as_operand, operands)
            return arithmetic(op, left, right)

        # "Only like type values can be compared. … If the comparison of non-like type values is attempted,
        # the value of the operation is false. If either of the type values evaluates to NULL, the value …
        # is unknown."
        case Comparison(op):
            left, right = map(as_operand, operands)
            return compare(op, left, right, unlike)

        # "age BETWEEN 15 AND 19" is equivalent to "age >= 15 AND age <= 19",
        # "age NOT BETWEEN 15 AND 19" to "age < 15 OR age > 19".
        case Between(_, _, _, negated):
            age, low, high = map(as_operand, operands)
            if negated:
                return any_of((compare("<", age, low, unlike), compare(">", age, high, unlike)))
            return all_of((compare(">=", age, low, unlike), compare("<=", age, high, unlike)))

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

        # "Logical operators in precedence order: NOT, AND, OR", by the three-valued logic of SQL92.
        case Not():
            return not_(as_truth(operands[0], dialect))
        case And():
            return all_of(as_truth(operand, dialect) for operand in operands)
        case Or():
            return any_of(as_truth(operand, dialect) for operand in operands)


def as_truth(result: Result, dialect: Dialect) -> Truth:
    """Return the truth of a result that stands as a condition.

    "Conditional expressions are composed of … identifiers with boolean values, and boolean literals": NULL is
    UNKNOWN, and a value that is no boolean is of an unlike type.
    """
    if isinstance(result, Truth):
        return result
    if isinstance(result, bool):
        return Truth.of(result)
    return Truth.UNKNOWN if result is None else dialect.unlike_types


def as_operand(result: Result) -> Operand:
    """Return the value of a result that stands as an operand: a condition's is boolean, UNKNOWN is NULL."""
    if isinstance(result, Truth):
        return None if result is Truth.UNKNOWN else result is Truth.TRUE
    return result
