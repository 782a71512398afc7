"""Selectors: texts parsed and checked once, ready to judge any number of messages."""

from __future__ import annotations

from typing import Any

from selectroute.selector.arguments import check_argument
from selectroute.selector.dialect import DEFAULT_DIALECT
from selectroute.selector.dialect import dialect as dialect_named
from selectroute.selector.errors import MQRC_SELECTOR_SYNTAX_ERROR
from selectroute.selector.evaluate import evaluate
from selectroute.selector.explain import Explanation, explain
from selectroute.selector.limits import DEFAULT_LIMITS, UNLIMITED, Limits
from selectroute.selector.message import ONE_MESSAGE, Message
from selectroute.selector.syntax.ast import Expr, Identifier, postorder
from selectroute.selector.syntax.parser import parse
from selectroute.selector.syntax.printer import to_text
from selectroute.selector.values import Truth


class Selector:
    """Valid selector in one dialect. The empty string is "no selector" and matches every message.

    >>> selector = Selector("JMSType = 'car' AND weight > 2500")
    >>> selector.matches(Message(headers={"JMSType": "car"}, properties={"weight": 3000}))
    True
    >>> selector.evaluate(Message(headers={"JMSType": "car"}))
    UNKNOWN

    Raises InvalidSelectorError for any other text and for one beyond the `limits`; TypeError if it is not a
    str, UnknownDialectError for an unknown dialect. The reason code of an error is 2551, or 2459 with
    `stored`: the text of a stored subscription that is resumed.

    Two selectors are equal if text and dialect are equal.
    """

    __slots__ = ("_dialect", "dialect", "expression", "text")

    text: str
    dialect: str
    expression: Expr | None

    def __init__(
        self,
        text: str,
        dialect: str = DEFAULT_DIALECT,
        *,
        limits: Limits = DEFAULT_LIMITS,
        stored: bool = False,
    ) -> None:
        check_argument(text, str, "text", "a selector as a str, such as 'weight > 2500'")
        check_argument(limits, Limits, "limits", "the Limits of a selector, or leave it out")
        self._dialect = dialect_named(dialect)
        self.text = text
        self.dialect = dialect
        reason = MQRC_SELECTOR_SYNTAX_ERROR if stored else None
        self.expression = parse(text, self._dialect, limits, reason=reason) if text else None

    @property
    def identifiers(self) -> tuple[str, ...]:
        """Names of the headers and properties that the selector reads, sorted. O(n)."""
        if self.expression is None:
            return ()
        names = {node.name for node in postorder(self.expression) if isinstance(node, Identifier)}
        return tuple(sorted(names))

    @property
    def canonical(self) -> str:
        """Canonical text of the selector; equal for equal expressions. O(n)."""
        return "" if self.expression is None else to_text(self.expression)

    def evaluate(self, message: Message) -> Truth:
        """Return the truth of the selector for `message`, by the reference evaluator. O(n)."""
        check_argument(message, Message, "message", ONE_MESSAGE)
        if self.expression is None:
            return Truth.TRUE
        return evaluate(self.expression, message.value, self._dialect)

    def matches(self, message: Message) -> bool:
        """Return whether the selector is TRUE for `message`: not FALSE, and not UNKNOWN. O(n)."""
        return self.evaluate(message) is Truth.TRUE

    def explain(self, message: Message) -> Explanation:
        """Return the tree of each part's result for `message`, with reasons. O(n)."""
        check_argument(message, Message, "message", ONE_MESSAGE)
        return explain(self.text, self.expression, message, self._dialect)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Selector):
            return NotImplemented
        return self.text == other.text and self.dialect == other.dialect

    def __hash__(self) -> int:
        return hash((self.text, self.dialect))

    def __repr__(self) -> str:
        other = "" if self.dialect == DEFAULT_DIALECT else f", {self.dialect!r}"
        return f"Selector({self.text!r}{other})"

    def __reduce__(self) -> tuple[Any, ...]:
        # As text, which is short and parsed without recursion, however deep the expression.
        return _restored, (self.text, self.dialect)


def _restored(text: str, dialect: str) -> Selector:
    return Selector(text, dialect, limits=UNLIMITED)
