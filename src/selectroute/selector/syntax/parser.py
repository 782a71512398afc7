"""Operator-precedence parser with two explicit stacks, of operands and of operators.

The parser alternates between two states. `_operand` reads prefixes (signs, NOT, opening parentheses) and an
operand; `_operator` reads suffixes (closing parentheses, IN, LIKE, IS) and a binary operator. An operator
first *reduces* every operator on the stack that binds tighter, making one node of each. Nothing recurses, so
any depth of nesting parses, in time linear in the text. A chain of ANDs or ORs stays on the stack until it
ends and becomes one node. Which words are keywords is the dialect's; misspelt ones get a fix.
"""

from __future__ import annotations

from difflib import get_close_matches
from itertools import pairwise
from typing import Final, NoReturn, cast

from selectroute.selector.dialect import Dialect
from selectroute.selector.errors import KINDS, Fix, InvalidSelectorError, SelectorFault
from selectroute.selector.like import compile_like
from selectroute.selector.limits import UNLIMITED, Limits, check_length, check_size
from selectroute.selector.syntax import check
from selectroute.selector.syntax.ast import (
    And,
    Arithmetic,
    ArithmeticOp,
    Between,
    Comparison,
    ComparisonOp,
    Expr,
    Identifier,
    In,
    IsNull,
    Like,
    Literal,
    LiteralValue,
    Not,
    Or,
    Sign,
    Unary,
)
from selectroute.selector.syntax.numbers import LONG_MIN_MAGNITUDE
from selectroute.selector.syntax.printer import literal_text
from selectroute.selector.syntax.source import Span
from selectroute.selector.syntax.tokens import BYTES, END, NAME, NUMBER, STRING, Token, tokenize
from selectroute.selector.values import Long, negate

OPERAND: Final = ("a name", "a literal", "a sign", "'('")
"""Tokens that may begin an operand, as an error names them."""

AFTER_NAME: Final = ("BETWEEN", "IN", "LIKE")
"""Words that may follow a name, also after NOT."""

AFTER_CONDITION: Final = frozenset({"AND", "OR", ")", END})

LONGEST_MENDED: Final = 100_000
"""Characters of the longest text for which fixes are tried: each try parses the text again."""

INFIX: Final = ("AND", "OR", "BETWEEN", "IN", "LIKE", "IS", "NOT")
"""Words that may follow an operand: corrections of a misspelt one."""


_FUNCTION: Final = "selectors have no functions: compare a property that has the value already"


def call(name: str, tokens: list[Token], at: int) -> tuple[str | None, tuple[Fix, ...]]:
    """Return the hint and the fixes for a name before the token at an index, as in ``upper(a)``; None if they
    do not call a function.
    """
    kind = tokens[at][0]
    if name.upper() == "XPATH" and kind in (STRING, "("):
        return "there is no XPATH: bind a field of the body to a property, and compare the property", ()
    if kind != "(":
        return None, ()
    if name.upper() != "EXISTS":
        return _FUNCTION, ()
    if [token[0] for token in tokens[at + 1 : at + 3]] != [NAME, ")"]:
        return "write NAME IS NOT NULL", ()
    span, property_name = Span(tokens[at - 1][2], tokens[at + 2][3]), cast(str, tokens[at + 1][1])
    return "write NAME IS NOT NULL", (Fix(span, f"{property_name} IS NOT NULL"),)


def check_words(tokens: list[Token], dialect: Dialect) -> None:
    """Raise a SelectorFault for a symbol or word that the dialect lacks, except for the sign of a number."""
    before = None
    for (kind, _, start, end), (after, _, next_start, _) in pairwise(tokens):
        signs = dialect.signs_touch and before in (None, "AND", "=") and after is NUMBER and end == next_start
        if kind in dialect.lacks and not (signs and kind in ("+", "-")):
            raise SelectorFault("not-in-dialect", Span(start, end), _instead(before))
        before = kind


def _instead(before: str | None) -> tuple[str, ...]:
    """Return the tokens allowed after this one in a dialect that only has ``=`` and IS NULL."""
    if before is NAME:
        return ("'='", "IS")
    if before == "IS" or before == "=":
        return ("NULL",) if before == "IS" else ("a name", "a literal")
    return ("a name", "a literal") if before in (None, "AND") else ("AND", "the end")


def had(names: tuple[str, ...], dialect: Dialect) -> tuple[str, ...]:
    """Return the names that the dialect has."""
    return tuple(name for name in names if name.strip("'") not in dialect.lacks)


def fitting_hint(hint: str | None, dialect: Dialect) -> str | None:
    """Return the hint; if it names a word that the dialect lacks, the hint of ``not-in-dialect`` instead."""
    if hint is not None and any(word.strip(",.;") in dialect.lacks for word in hint.split()):
        return KINDS["not-in-dialect"].hint
    return hint


def null_test(operator: tuple[int, str, int], null: Token) -> tuple[Fix, ...]:
    """Return the fix of ``= NULL`` to IS NULL and of ``<> NULL`` to IS NOT NULL."""
    _, kind, start = operator
    meant = {"=": "IS NULL", "<>": "IS NOT NULL"}.get(kind)
    return (Fix(Span(start, null[3]), meant),) if meant else ()


def check_list(token: Token) -> None:
    """Raise a SelectorFault for a string after IN, with the fix to a list of one string."""
    kind, text, start, end = token
    if kind is STRING:
        fix = Fix(Span(start, end), f"({literal_text(cast(str, text))})")
        raise SelectorFault("unexpected-token", fix.span, ("'('",), fixes=(fix,))


def misspelt(token: Token, words: tuple[str, ...]) -> tuple[Fix, ...]:
    """Return the fixes of a name that is probably a misspelt one of these words."""
    kind, name, start, end = token
    near = get_close_matches(cast(str, name).upper()[:16], words, n=2) if kind is NAME else ()
    return tuple(Fix(Span(start, end), word) for word in near)


def readable(kind: str) -> str:
    """Return a kind of token as an error names it."""
    return f"'{kind}'" if kind in ("(", ")", ",") else kind


# Binding powers. An open parenthesis, like the bottom of the stack, stops every reduction.
OPEN, OR, AND, NOT, COMPARE, ADD, MULTIPLY, SIGN = range(8)

BINARY: Final = {
    "OR": OR,
    "AND": AND,
    **dict.fromkeys(("=", "<>", "<", "<=", ">", ">="), COMPARE),
    **dict.fromkeys(("+", "-"), ADD),
    **dict.fromkeys(("*", "/"), MULTIPLY),
}
COMPARING: Final = frozenset({"NOT", "IS", *AFTER_NAME} | {op for op in BINARY if BINARY[op] == COMPARE})

Operator = tuple[int, str, int]
"""Binding power, kind, and offset in the text."""


def parse(text: str, dialect: Dialect, limits: Limits = UNLIMITED, *, reason: int | None = None) -> Expr:
    """Return the expression that `text` spells in `dialect`. O(n) in time and memory, whatever the nesting.

    Raises InvalidSelectorError for an invalid text, a blank one included, and for one beyond the limits;
    `reason` is the reason code of the error unless the kind has its own.
    """
    try:
        return _parse(text, dialect, limits)
    except SelectorFault as fault:
        raise InvalidSelectorError(
            fault.kind,
            text,
            fault.span,
            fault.expected,
            hint=fitting_hint(fault.hint or KINDS[fault.kind].hint, dialect),
            fix=_mending(fault.fixes, text, dialect, limits),
            dialect=dialect.name,
            reason=reason,
        ) from None


def _parse(text: str, dialect: Dialect, limits: Limits) -> Expr:
    check_length(text, limits)
    tokens = tokenize(text, dialect)
    check_size(tokens, limits)
    if dialect.lacks:
        check_words(tokens, dialect)
    return _Parser(tokens, dialect).selector()


def _mending(fixes: tuple[Fix, ...], text: str, dialect: Dialect, limits: Limits) -> Fix | None:
    """Return the first fix that makes the text valid."""
    for fix in fixes if len(text) <= LONGEST_MENDED else ():
        try:
            _parse(fix.applied(text), dialect, limits)
        except SelectorFault:
            continue
        return fix
    return None


class _Parser:
    __slots__ = ("at", "dialect", "operands", "operators", "tokens")

    def __init__(self, tokens: list[Token], dialect: Dialect) -> None:
        self.tokens = tokens
        self.dialect = dialect
        self.at = 0  # the next token
        self.operands: list[Expr] = []
        self.operators: list[Operator] = [(OPEN, END, 0)]

    def selector(self) -> Expr:
        if self.tokens[0][0] is END:
            raise SelectorFault("blank", Span(0, self.tokens[0][3]))
        self._operand()
        while self._operator():
            self._operand()
        (expression,) = self.operands
        return check.whole(expression, self.dialect)

    # --- Before and at an operand

    def _operand(self) -> None:
        """Read up to and including the next operand."""
        operators = self.operators
        while True:
            kind, value, start, end = token = self.tokens[self.at]
            self.at += 1
            if kind is NAME:
                self.operands.append(Identifier(cast(str, value), Span(start, end)))
                return
            if kind is STRING or kind is BYTES:
                self.operands.append(Literal(cast("str | bytes", value), Span(start, end)))
                return
            if kind is NUMBER:
                self.operands.append(self._number(token))
                return
            if kind == "(":
                operators.append((OPEN, kind, start))
            elif kind == "NOT":
                if operators[-1][0] > NOT:
                    raise SelectorFault("misplaced-not", Span(start, end), OPERAND)
                operators.append((NOT, kind, start))
            elif kind == "-" or kind == "+":
                operators.append((SIGN, kind, start))
            elif kind == "TRUE" or kind == "FALSE":
                self.operands.append(Literal(kind == "TRUE", Span(start, end)))
                return
            else:
                self._no_operand(token)

    def _number(self, token: Token) -> Literal:
        """Return the literal with the sign directly before it; only so is -9223372036854775808 in range."""
        _, value, start, end = token
        sign = ""
        if self.operators[-1][0] == SIGN:
            _, sign, start = self.operators.pop()
        if value is None:
            if sign != "-":
                raise SelectorFault("integer-out-of-range", Span(token[2], end))
            return Literal(Long(-LONG_MIN_MAGNITUDE), Span(start, end))
        signed = negate(value) if sign == "-" else value
        return Literal(cast(LiteralValue, signed), Span(start, end))

    def _no_operand(self, token: Token) -> NoReturn:
        kind, _, start, end = token
        expected = had(OPERAND, self.dialect)
        if self.operators[-1][0] <= NOT:
            expected += had(("NOT",), self.dialect)
        if kind == "NULL":
            fixes = null_test(self.operators[-1], token)
            raise SelectorFault("null-literal", Span(start, end), expected, fixes=fixes)
        reserved = kind in ("BETWEEN", "LIKE", "IN", "IS", "ESCAPE")
        wrong = "unexpected-end" if kind is END else "reserved-word" if reserved else "unexpected-token"
        raise SelectorFault(wrong, Span(start, end), expected)

    # --- After an operand

    def _operator(self) -> bool:
        """Read up to and including the next binary operator; False if the selector ends instead."""
        operators = self.operators
        while True:
            kind, _, start, _ = token = self.tokens[self.at]
            self.at += 1
            binding = BINARY.get(kind)
            if binding is not None:
                if binding > COMPARE:
                    self._reduce(binding - 1, token)  # left-associative: also reduce what binds as tightly
                elif binding == COMPARE:
                    self._compare(token)
                elif binding == AND:
                    self._reduce(COMPARE, token)
                    if operators[-1][1] in _BETWEEN_AND:
                        _, between, at = operators[-1]
                        operators[-1] = (COMPARE, _BETWEEN_AND[between], at)
                        return True
                    self._reduce(AND, token)
                else:
                    self._reduce(OR, token)
                operators.append((binding, kind, start))
                return True
            if kind == ")":
                self._close(token)
            elif kind is END:
                self._reduce(OPEN, token)
                if operators[-1][1] == "(":
                    start, end = operators[-1][2], token[3]
                    fixes = (Fix(Span(end, end), ")"), Fix(Span(start, start + 1), ""))
                    raise SelectorFault("unclosed-parenthesis", Span(start, start + 1), fixes=fixes)
                return False
            elif kind == "IS":
                self._is_null(token)
            elif kind == "NOT" or kind in AFTER_NAME:
                negated = kind == "NOT"
                if negated:
                    token = self._expect(AFTER_NAME, token, "IS NOT")
                if token[0] == "BETWEEN":
                    self._compare(token)
                    operators.append((COMPARE, "NOT BETWEEN" if negated else "BETWEEN", start))
                    return True
                self._in_or_like(token, negated)
            else:
                self._no_operator(token)

    def _close(self, token: Token) -> None:
        """Take a closing parenthesis; the span of the operand now includes its parentheses."""
        self._reduce(OPEN, token)
        _, kind, start = self.operators.pop()
        if kind is END:
            span = Span(token[2], token[3])
            raise SelectorFault("unopened-parenthesis", span, fixes=(Fix(span, ""), Fix(Span(0, 0), "(")))
        # Safe to mutate: only the parser has a reference to the new node.
        object.__setattr__(self.operands[-1], "span", Span(start, token[3]))

    def _compare(self, token: Token) -> None:
        """Finish the left operand of a comparison, which must not be a comparison itself."""
        self._reduce(COMPARE, token)
        binding, kind, _ = self.operators[-1]
        if kind in _BETWEEN_AND:
            raise SelectorFault("unexpected-token", Span(token[2], token[3]), ("AND",))
        if binding == COMPARE:
            raise SelectorFault(
                "chained-comparison", Span(token[2], token[3]), self._after_operand(("AND", "OR"))
            )

    def _name_before(self, token: Token) -> Identifier:
        self._compare(token)
        operand = self.operands.pop()
        if not isinstance(operand, Identifier):
            raise SelectorFault("not-a-name", operand.span, ("a name",))
        return operand

    def _is_null(self, token: Token) -> None:
        name = self._name_before(token)
        last = self._expect(("NULL", "NOT"), token, "=")
        negated = last[0] == "NOT"
        if negated:
            last = self._expect(("NULL",))
        self._condition(IsNull(name, negated, Span(name.span.start, last[3])))

    def _in_or_like(self, token: Token, negated: bool) -> None:
        name = self._name_before(token)
        if token[0] == "IN":
            values, end = self._list()
            self._condition(In(name, values, negated, Span(name.span.start, end)))
            return
        pattern = self._string()
        escape = None
        kind, word, _, _ = self.tokens[self.at]
        # ESCAPE counts as reserved here in every dialect: no name could follow.
        if kind == "ESCAPE" or (kind is NAME and cast(str, word).upper() == "ESCAPE"):
            self.at += 1
            escape = self._string()
            if len(cast(str, escape[1])) != 1:
                raise SelectorFault("bad-escape", Span(escape[2], escape[3]), ("one character",))
        text, character = cast(str, pattern[1]), cast("str | None", escape and escape[1])
        try:
            compile_like(text, character)
        except ValueError:
            raise SelectorFault("bad-pattern", Span(pattern[2], pattern[3])) from None
        self._condition(Like(name, text, character, negated, Span(name.span.start, (escape or pattern)[3])))

    def _list(self) -> tuple[tuple[str, ...], int]:
        """Read the list of IN; return its strings and its end offset."""
        check_list(self.tokens[self.at])
        opening = self._expect(("(",))
        if self.tokens[self.at][0] == ")":
            raise SelectorFault("empty-list", Span(opening[2], self.tokens[self.at][3]), ("a string",))
        values = []
        while True:
            values.append(cast(str, self._string()[1]))
            kind, _, start, end = self.tokens[self.at]
            if kind is STRING:
                before = self.tokens[self.at - 1][3]
                fix = Fix(Span(before, before), "," if start > before else ", ")
                raise SelectorFault("unexpected-token", Span(start, end), ("','", "')'"), fixes=(fix,))
            token = self._expect((",", ")"))
            if token[0] == ")":
                return tuple(values), token[3]

    def _string(self) -> Token:
        token = self.tokens[self.at]
        self.at += 1
        if token[0] is not STRING:
            kind = "unexpected-end" if token[0] is END else "not-a-string"
            raise SelectorFault(kind, Span(token[2], token[3]), ("a string",))
        return token

    def _expect(self, kinds: tuple[str, ...], wrong: Token | None = None, right: str = "") -> Token:
        """Take the next token, of one of these kinds; else raise: misspelt, or `wrong` should be `right`."""
        token = self.tokens[self.at]
        self.at += 1
        if token[0] not in kinds:
            kind = "unexpected-end" if token[0] is END else "unexpected-token"
            fixes = misspelt(token, kinds)
            if wrong:
                fixes += (Fix(Span(wrong[2], wrong[3]), right),)
            raise SelectorFault(kind, Span(token[2], token[3]), tuple(map(readable, kinds)), fixes=fixes)
        return token

    def _condition(self, node: Expr) -> None:
        """Take a finished condition, which cannot be compared unless it is in parentheses."""
        self.operands.append(node)
        kind, _, start, end = self.tokens[self.at]
        if kind in COMPARING:
            raise SelectorFault("chained-comparison", Span(start, end), self._after_operand(("AND", "OR")))
        if kind not in AFTER_CONDITION:
            raise SelectorFault("unexpected-token", Span(start, end), self._after_operand(("AND", "OR")))

    def _no_operator(self, token: Token) -> NoReturn:
        if self.operators[-1][1] in _BETWEEN_AND:
            expected: tuple[str, ...] = ("AND", "an operator")
        else:
            expected = self._after_operand(("an operator", "AND", "OR"))
        kind, name, _, _ = self.tokens[self.at - 2]
        hint, fixes = call(cast(str, name), self.tokens, self.at - 1) if kind is NAME else (None, ())
        fixes += misspelt(token, INFIX)
        raise SelectorFault("unexpected-token", Span(token[2], token[3]), expected, hint=hint, fixes=fixes)

    def _after_operand(self, expected: tuple[str, ...]) -> tuple[str, ...]:
        opened = any(kind == "(" for _, kind, _ in self.operators)
        return (*had(expected, self.dialect), "')'" if opened else "the end")

    # --- Making nodes

    def _reduce(self, floor: int, token: Token) -> None:
        """Make a node of each operator on the stack that binds tighter than `floor`; `token` comes next."""
        operators, operands = self.operators, self.operands
        while operators[-1][0] > floor:
            binding, kind, start = operators.pop()
            right = operands.pop()
            node: Expr
            if binding == COMPARE:
                if kind in _BETWEEN_AND:
                    ends = "unexpected-end" if token[0] is END else "unexpected-token"
                    raise SelectorFault(ends, Span(token[2], token[3]), ("AND",))
                node = self._comparison(kind, right)
            elif binding in (AND, OR):
                node = self._chain(binding, right)
            elif binding == NOT:
                check.condition(right, self.dialect)
                node = Not(right, Span(start, right.span[1]))
            elif binding == SIGN:
                check.number(right)
                node = Unary(cast(Sign, kind), right, Span(start, right.span[1]))
            else:
                left = operands.pop()
                check.number(left)
                check.number(right)
                node = Arithmetic(cast(ArithmeticOp, kind), left, right, Span(left.span[0], right.span[1]))
            operands.append(node)

    def _comparison(self, kind: str, right: Expr) -> Expr:
        left = self.operands.pop()
        if kind in _BETWEEN_AND.values():
            operand, low, high = self.operands.pop(), left, right
            for part in (operand, low, high):
                check.number(part)
            span = Span(operand.span[0], high.span[1])
            return Between(operand, low, high, kind.startswith("NOT"), span)
        node = Comparison(cast(ComparisonOp, kind), left, right, Span(left.span[0], right.span[1]))
        return check.comparison(node, self.dialect)

    def _chain(self, binding: int, last: Expr) -> And | Or:
        """Return one node for a run of ANDs or ORs, whose last operator was just popped from the stack."""
        operators, operands = self.operators, self.operands
        chain = [last, operands.pop()]
        while operators[-1][0] == binding:
            operators.pop()
            chain.append(operands.pop())
        chain.reverse()
        for operand in chain:
            check.condition(operand, self.dialect)
        span = Span(chain[0].span[0], last.span[1])
        return And(tuple(chain), span) if binding == AND else Or(tuple(chain), span)


# BETWEEN waits on the stack for its AND, and then for its third operand.
_BETWEEN_AND: Final = {"BETWEEN": "BETWEEN AND", "NOT BETWEEN": "NOT BETWEEN AND"}
