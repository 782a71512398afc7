"""The selector: a text that was checked once, ready to judge any number of messages."""

from __future__ import annotations

from typing import Any, Final

from selectroute.selector.ast import Expr, Identifier, postorder
from selectroute.selector.dialect import dialect as dialect_named
from selectroute.selector.errors import InvalidSelectorError
from selectroute.selector.evaluate import evaluate
from selectroute.selector.explain import Explanation, explain
from selectroute.selector.message import Message
from selectroute.selector.parser import parse
from selectroute.selector.printer import to_text
from selectroute.selector.source import Span
from selectroute.selector.truth import Truth

MAX_LENGTH: Final = 10_240
"""The longest selector accepted unless a caller says otherwise, in characters; IBM MQ's limit."""


class Selector:
    """A valid selector in one dialect. The empty string is "no selector" and matches every message.

    >>> selector = Selector("JMSType = 'car' AND weight > 2500")
    >>> selector.matches(Message(headers={"JMSType": "car"}, properties={"weight": 3000}))
    True
    >>> selector.evaluate(Message(headers={"JMSType": "car"}))
    UNKNOWN

    Raises InvalidSelectorError for any other text, too-long if it has more than `max_length` characters;
    TypeError for what is no text, UnknownDialectError for a dialect that does not exist.

    Two selectors are equal if text and dialect are.
    """

    __slots__ = ("_dialect", "dialect", "expression", "text")

    text: str
    dialect: str
    expression: Expr | None

    def __init__(self, text: str, dialect: str = "jms", *, max_length: int = MAX_LENGTH) -> None:
        if not isinstance(text, str):
            raise TypeError(f"a selector is a str, not a {type(text).__name__}")
        self._dialect = dialect_named(dialect)
        self.text = text
        self.dialect = dialect
        if len(text) > max_length:
            # Before anything looks at it: the limit protects against what the text may do.
            raise InvalidSelectorError(
                "too-long",
                text,
                Span(max_length, len(text)),
                hint=f"it has {len(text):,} characters, the limit is {max_length:,}",
                dialect=dialect,
            )
        self.expression = parse(text, self._dialect) if text else None

    @property
    def identifiers(self) -> tuple[str, ...]:
        """The names of the headers and properties that the selector reads, sorted. O(n)."""
        if self.expression is None:
            return ()
        names = {node.name for node in postorder(self.expression) if isinstance(node, Identifier)}
        return tuple(sorted(names))

    @property
    def canonical(self) -> str:
        """The selector written the one canonical way; equal for equal expressions. O(n)."""
        return "" if self.expression is None else to_text(self.expression)

    def evaluate(self, message: Message) -> Truth:
        """Return the truth of the selector for `message`, by the reference evaluator. O(n)."""
        if self.expression is None:
            return Truth.TRUE
        return evaluate(self.expression, message.value, self._dialect)

    def matches(self, message: Message) -> bool:
        """Return whether the selector is TRUE for `message`: not FALSE, and not UNKNOWN. O(n)."""
        return self.evaluate(message) is Truth.TRUE

    def explain(self, message: Message) -> Explanation:
        """Return the tree of what each part of the selector amounts to for `message`. O(n)."""
        return explain(self.text, self.expression, message.value, self._dialect)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Selector):
            return NotImplemented
        return self.text == other.text and self.dialect == other.dialect

    def __hash__(self) -> int:
        return hash((self.text, self.dialect))

    def __repr__(self) -> str:
        return (
            f"Selector({self.text!r})"
            if self.dialect == "jms"
            else f"Selector({self.text!r}, {self.dialect!r})"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        # By its text, which is short and read without recursion, however deep the expression.
        return _restored, (self.text, self.dialect)


def _restored(text: str, dialect: str) -> Selector:
    return Selector(text, dialect, max_length=len(text))
