"""Why a selector is true, false or unknown for a message: the tree with every truth, value and type seen."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from selectroute.selector.ast import CONDITIONS, And, Expr, Identifier, Literal, Not, Or
from selectroute.selector.dialect import Dialect
from selectroute.selector.evaluate import Lookup, Result, as_truth, judge, trace
from selectroute.selector.message import to_wire
from selectroute.selector.printer import literal_text
from selectroute.selector.truth import Truth
from selectroute.selector.values import MISMATCH, Double, Float, Number, type_name

TEXT_SHOWN = 80
"""How many characters of a part's text the rendering shows."""

_LOGIC = (Not, And, Or)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Explanation:
    """One part of a selector and what it amounted to for a message.

    A condition has a `truth`; an operand has None there, and the value seen as `result`. `unlike` says that
    unlike types decided it. ``str()`` renders the tree, one part a line, its truth in front.
    """

    source: str
    expression: Expr | None
    """The part itself; None for the empty selector."""

    truth: Truth | None
    result: Result
    unlike: bool
    children: tuple[Explanation, ...]

    @property
    def text(self) -> str:
        """The part as it stands in the selector."""
        if self.expression is None:
            return self.source
        return self.source[self.expression.span.start : self.expression.span.end]

    @property
    def type(self) -> str | None:
        """Java's name for the type of an operand's value, "NULL" without one; None for a condition."""
        return None if self.truth is not None else type_name(self.result)

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def __repr__(self) -> str:
        return f"<Explanation {self.truth!r} {self.text[:TEXT_SHOWN]!r}>"

    def to_dict(self) -> dict[str, Any]:
        """Return the tree as plain data: text, truth or type and value, unlike, and the parts within."""
        top: dict[str, Any] = {}
        waiting: list[tuple[Explanation, dict[str, Any]]] = [(self, top)]
        while waiting:
            part, data = waiting.pop()
            data["text"] = part.text
            if part.truth is not None:
                data["truth"] = part.truth.value
            if not isinstance(part.expression, CONDITIONS) and part.expression is not None:
                data["type"] = type_name(part.result)
                data["value"] = _wire(part.result)
            if part.unlike:
                data["unlike"] = True
            if part.children:
                data["children"] = [{} for _ in part.children]
                waiting += zip(part.children, data["children"], strict=True)
        return top

    def _lines(self) -> Iterator[str]:
        waiting = [(self, 0)]
        while waiting:
            part, depth = waiting.pop()
            if part.truth is None and isinstance(part.expression, Literal):
                continue  # it says in the line above what it is
            truth = "" if part.truth is None else part.truth.name
            line = f"{truth:<8}{'  ' * depth}{part._shown()}"
            if part.truth is None or isinstance(part.expression, Identifier):
                line += f" is {_value_text(part.result)}"
            yield line + ("  (unlike types)" if part.unlike else "")
            waiting += [(child, depth + 1) for child in reversed(part.children)]

    def _shown(self) -> str:
        if self.expression is None:
            return "no selector: every message matches"
        start, end = self.expression.span
        cut = self.source[start : min(end, start + TEXT_SHOWN)]
        shown = "".join(character if character.isprintable() else " " for character in cut)
        return f"{shown}…" if end - start > TEXT_SHOWN else shown


def explain(text: str, expr: Expr | None, lookup: Lookup, dialect: Dialect) -> Explanation:
    """Return what each part of `expr`, read from `text`, amounts to for the message behind `lookup`. O(n)."""
    if expr is None:
        return Explanation(text, None, Truth.TRUE, Truth.TRUE, False, ())
    # Unlike types decided a condition if it would come out otherwise were they judged otherwise.
    otherwise = replace(dialect, unlike_types=Truth.of(dialect.unlike_types is not Truth.TRUE))
    finished: list[Explanation] = []
    for node, operands, result in trace(expr, lookup, dialect):
        first = len(finished) - len(operands)
        children = tuple(finished[first:])
        del finished[first:]
        unlike = False
        if isinstance(node, _LOGIC):
            children = tuple(_as_condition(child, dialect, otherwise) for child in children)
        elif isinstance(node, CONDITIONS):
            unlike = judge(node, operands, lookup, otherwise) is not result
        truth = result if isinstance(result, Truth) else None
        finished.append(Explanation(text, node, truth, result, unlike, children))
    return _as_condition(finished.pop(), dialect, otherwise)


def _as_condition(part: Explanation, dialect: Dialect, otherwise: Dialect) -> Explanation:
    """A name or a boolean literal that stands as a condition has a truth of its own."""
    if part.truth is not None:
        return part
    truth = as_truth(part.result, dialect)
    return replace(part, truth=truth, unlike=as_truth(part.result, otherwise) is not truth)


def _wire(result: Result) -> Any:
    return None if result is MISMATCH or isinstance(result, Truth) else to_wire(result)


def _value_text(result: Result) -> str:
    if result is None:
        return "NULL"
    if result is MISMATCH:
        return "arithmetic on no number"
    if isinstance(result, str):
        shown = literal_text(result[:TEXT_SHOWN])
        return f"string {shown if shown.isprintable() else ascii(result[:TEXT_SHOWN])}"
    if isinstance(result, Float | Double):
        return f"{type_name(result)} {result.value!r}"
    return f"{type_name(result)} {result.value if isinstance(result, Number) else str(result).upper()}"
