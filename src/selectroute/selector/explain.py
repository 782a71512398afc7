"""Explanation of a selector's truth for a message: a tree with every truth, value and type seen."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from selectroute.selector.dialect import Dialect
from selectroute.selector.evaluate import Result, as_truth, evaluate, trace
from selectroute.selector.message import Message, to_wire
from selectroute.selector.sentences import (
    SHOWN,
    Phrase,
    about,
    about_condition,
    about_names,
    printable,
    value_text,
)
from selectroute.selector.syntax.ast import CONDITIONS, And, Expr, Identifier, Literal, Not, Or
from selectroute.selector.values import MISMATCH, UNSUPPORTED, VOID, Truth, Void, type_name

DEEPEST_SHOWN: Final = 40
"""Deepest indentation; deeper parts are not indented further."""

_LOGIC = (Not, And, Or)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Explanation:
    """Part of a selector with its value for a message.

    A condition has a `truth`; an operand has None there, and the value seen as `result`. A part that makes
    the whole selector false has the truth VOID; the root always has the truth of `evaluate`. `sentence` gives
    the reason, where a user needs one; `unlike` is True if unlike types were met. ``str()`` renders the tree,
    one part a line: truth, text, sentence.
    """

    source: str
    expression: Expr | None
    """Part itself; None for the empty selector."""

    truth: Truth | Void | None
    result: Result
    unlike: bool
    sentence: str | None
    children: tuple[Explanation, ...]

    @property
    def text(self) -> str:
        """Text of the part in the selector."""
        if self.expression is None:
            return self.source
        return self.source[self.expression.span.start : self.expression.span.end]

    @property
    def type(self) -> str | None:
        """Name of the type of an operand's value, "NULL" without one; None for a condition."""
        return None if self.truth is not None else type_name(self.result)

    @property
    def sentences(self) -> tuple[str, ...]:
        """Every sentence in the tree once, in the order of the text; those of the deciding parts first."""
        decided: dict[str, None] = {}
        others: dict[str, None] = {}
        waiting = [(self, True)]
        while waiting:
            part, deciding = waiting.pop()
            if part.sentence is not None:
                (decided if deciding else others)[part.sentence] = None
            waiting += [(child, deciding and part._decided_by(child)) for child in reversed(part.children)]
        return tuple(decided | others)

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def __repr__(self) -> str:
        return f"<Explanation {self.truth!r} {printable(self.text)!r}>"

    def to_dict(self) -> dict[str, Any]:
        """Return the tree as plain data: text (shortened), offset and length, truth or type and value,
        unlike, sentence, and the parts inside (`children`).
        """
        top = self._own()
        waiting = [(self, top)]
        while waiting:
            part, data = waiting.pop()
            if part.children:
                data["children"] = [child._own() for child in part.children]
                waiting += zip(part.children, data["children"], strict=True)
        return top

    def to_json(self, most: int | None = None) -> str:
        """Return `to_dict` as JSON, however deep the tree: ``json.dumps`` recurses.

        A value is repeated wherever it was seen, so the size is up to selector times value. Raises
        OverflowError for more than `most` characters.
        """
        pieces: list[str] = []
        length = 0
        waiting: list[Explanation | str] = [self]
        while waiting:
            part = waiting.pop()
            if isinstance(part, str):
                pieces.append(part)
            elif not part.children:
                pieces.append(json.dumps(part._own()))
                length += len(pieces[-1])
                if most is not None and length > most:
                    raise OverflowError(f"the explanation has more than {most:,} characters")
            else:
                pieces.append(json.dumps(part._own())[:-1] + ', "children": [')
                waiting.append("]}")
                for number, child in reversed(list(enumerate(part.children))):
                    waiting += (child, ", ") if number else (child,)
        return "".join(pieces)

    def _decided_by(self, child: Explanation) -> bool:
        """Return whether the truth follows from the child's: FALSE decides an AND, VOID any node."""
        if self.result is VOID and any(other.result is VOID for other in self.children):
            return child.result is VOID
        return not isinstance(self.expression, And | Or) or child.truth is self.truth

    def _own(self) -> dict[str, Any]:
        data: dict[str, Any] = {"text": self.text}
        if self.expression is not None:  # whole texts would grow with the square of the depth
            start, end = self.expression.span
            data = {"text": _cut(self.source, self.expression), "offset": start, "length": end - start}
        if self.truth is not None:
            data["truth"] = self.truth.value
        if not isinstance(self.expression, CONDITIONS) and self.expression is not None:
            data["type"] = type_name(self.result)
            data["value"] = _wire(self.result)
        if self.unlike:
            data["unlike"] = True
        if self.sentence is not None:
            data["sentence"] = self.sentence
        return data

    def _lines(self) -> Iterator[str]:
        waiting = [(self, 0)]
        while waiting:
            part, depth = waiting.pop()
            if part.truth is None and isinstance(part.expression, Literal):
                continue  # the line above shows it
            truth = "" if part.truth is None else part.truth.name
            line = f"{truth:<8}{'  ' * min(depth, DEEPEST_SHOWN)}{part._shown()}"
            if part.truth is None or isinstance(part.expression, Identifier):
                line += f" is {value_text(part.result)}"
            yield line if part.sentence is None else f"{line}  — {part.sentence}"
            waiting += [(child, depth + 1) for child in reversed(part.children)]

    def _shown(self) -> str:
        if self.expression is None:
            return "no selector: every message matches"
        return _cut(self.source, self.expression)


def explain(text: str, expr: Expr | None, message: Message, dialect: Dialect) -> Explanation:
    """Return the result of each part of `expr`, parsed from `text`, for the message. O(n)."""
    if expr is None:
        return Explanation(text, None, Truth.TRUE, Truth.TRUE, False, None, ())
    finished: list[Explanation] = []
    for node, operands, result in trace(expr, message.value, dialect):
        first = len(finished) - len(operands)
        children = tuple(finished[first:])
        del finished[first:]
        if isinstance(node, _LOGIC):
            children = tuple(_as_condition(child, dialect) for child in children)
        said = about(node, _cut(text, node), list(map(_part, children)), result, message, dialect)
        truth = result if isinstance(result, Truth | Void) else None
        finished.append(Explanation(text, node, truth, result, said.unlike, said.sentence, children))
    return _as_selector(_as_condition(finished.pop(), dialect), message, dialect)


def _as_selector(root: Explanation, message: Message, dialect: Dialect) -> Explanation:
    """Return the root with the verdict of `evaluate`; invalid names of properties decide before the tree."""
    assert root.expression is not None
    verdict = evaluate(root.expression, message.value, dialect)
    sentences = [about_names(message, dialect) if dialect.name_rules else None, root.sentence]
    return replace(root, truth=verdict, sentence="; ".join(filter(None, sentences)) or None)


def _as_condition(part: Explanation, dialect: Dialect) -> Explanation:
    """Return the part as a condition: a name or a literal gets a truth."""
    if part.truth is not None:
        return part
    said = about_condition(_part(part), dialect)
    sentence = "; ".join(filter(None, (part.sentence, said.sentence))) or None
    return replace(part, truth=as_truth(part.result, dialect), unlike=said.unlike, sentence=sentence)


def _part(part: Explanation) -> Phrase:
    assert part.expression is not None
    return Phrase(part.expression, _cut(part.source, part.expression), part.result)


def _cut(source: str, node: Expr) -> str:
    """Return the beginning of a part's text, safe to print."""
    start, end = node.span
    return printable(source[start : min(end, start + SHOWN + 1)])


def _wire(result: Result) -> Any:
    if result is MISMATCH or result is UNSUPPORTED or isinstance(result, Truth | Void):
        return None
    return to_wire(result)
