"""Texts that look like selectors: generated ones, and what is left of a good one after some damage.

Every function draws from the `random.Random` that it is given and from nothing else, so a text is known by
its number.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from random import Random

from selectroute.selector import dialect as dialect_named
from tests.support.corpus_rows import rows
from tests.support.strategies import NAMES, STRINGS, WORDS

Damage = Callable[[Random, str, Sequence[str]], str]
"""Takes the source of chance, a text, and the selectors that parts may be taken from."""

TOKEN = re.compile(r"'(?:[^']|'')*'|\"[^\"]*\"|[\w.]+|<>|<=|>=|\s+|.", re.DOTALL)
LONGEST = 60_000
"""No text is made much longer: the default limit is 10,240, and there must be time for many."""

NUMBERS = (
    "0", "-0.0", "1", "5", "-7", "2500", "0.5", "1.5F", "1e3", "5D", "0x1F", "0177", "0b101", "1_000",
    "7L", "1.", ".5", "9223372036854775807", "9223372036854775808", "-9223372036854775808",
    "18446744073709551616", "2147483648", "16777217", "9007199254740993", "1e308", "1e309", "4.9e-324",
    "1e-400", "3.5e38F", "0x1p-1074", "0x1.8p3", "0xFFFFFFFFFFFFFFFF", "0x1FFFFFFFFFFFFFFFF", "09",
    "08.5", "1__0", "0_1", "1e", "1e+", "0x", "1F2",
)  # fmt: skip
ODD = (
    "\0", "\t", "\n", "\r", "\v", "\f", "\x1c", "\x7f", "\u00a0", "\u00b5", "\u00d7", "é", "e\u0301",
    "ſ", "\u212a", "ı", "İ", "ß", "\uff11", "٣", "\u200b", "\u200d", "\u2028", "\u3000", "\ufeff", "\ufffe",
    "\ud800", "\udfff", "‘", "’", "“", "”", "€", "＝", "（", "😀", "𝒜", "\U000e0001", "\U0010ffff",
)  # fmt: skip
OPERATORS = ("=", "<>", "<", "<=", ">", ">=")


def seeds(dialect: str) -> list[str]:
    """The corpus's selectors, those that are valid in the dialect three times, so that they come up often."""
    valid = {row.selector: row.verdict[dialect] != "invalid" for row in rows() if len(row.selector) < 2_000}
    return [text for text in valid for _ in range(3 if valid[text] else 1)]


def damaged(chance: Random, text: str, others: Sequence[str]) -> str:
    """The text after one to four kinds of damage."""
    for damage in chance.choices(DAMAGES, k=chance.choice((1, 1, 1, 2, 2, 3, 4))):
        if len(text) < LONGEST:
            text = damage(chance, text, others)
    return text


def generated(chance: Random, dialect: str, depth: int = 3) -> str:
    """A selector that the dialect accepts, or very nearly so."""
    if "OR" in dialect_named(dialect).lacks:
        names = NAMES[dialect]
        parts = [
            f"{chance.choice(names)} {chance.choice(('IS NULL', f'= {_literal(chance)}'))}"
            for _ in range(chance.randint(1, 4))
        ]
        return " AND ".join(parts)
    return _condition(chance, dialect, depth)


def words(chance: Random) -> str:
    """Words of the language in any order."""
    joint = chance.choice(("", " "))
    return joint.join(chance.choices((*WORDS, *NUMBERS), k=chance.randint(0, 14)))


def noise(chance: Random) -> str:
    """Any characters."""
    return "".join(chr(chance.choice((chance.randrange(128), chance.randrange(0x110000)))) for _ in range(12))


def _literal(chance: Random) -> str:
    constant, number = chance.choice(("TRUE", "FALSE")), str(chance.randint(-9, 9))
    return chance.choice((chance.choice(NUMBERS), _string(chance), constant, number))


def _string(chance: Random) -> str:
    return "'" + chance.choice(STRINGS).replace("'", "''") + "'"


def _number(chance: Random, names: Sequence[str], depth: int) -> str:
    shape = chance.randrange(6) if depth else chance.randrange(2)
    if shape == 0:
        return chance.choice(NUMBERS)
    if shape == 1:
        return chance.choice(names)
    left, right = _number(chance, names, depth - 1), _number(chance, names, depth - 1)
    return chance.choice((f"-{left}", f"({left})", f"{left} {chance.choice('+-*/')} {right}", f"+ {right}"))


def _condition(chance: Random, dialect: str, depth: int) -> str:
    names, no = NAMES[dialect], chance.choice(("", "NOT "))
    name = chance.choice(names)
    if depth and chance.random() < 0.6:
        left, right = _condition(chance, dialect, depth - 1), _condition(chance, dialect, depth - 1)
        return chance.choice(
            (f"{left} AND {right}", f"{left} OR {right}", f"NOT {left}", f"({left})", f"({left}) = ({right})")
        )
    return chance.choice(
        (
            name,
            f"{name} {chance.choice(OPERATORS[:2])} {_literal(chance)}",
            f"{_number(chance, names, 2)} {chance.choice(OPERATORS)} {_number(chance, names, 2)}",
            f"{name} {no}BETWEEN {_number(chance, names, 1)} AND {_number(chance, names, 1)}",
            f"{name} {no}IN ({', '.join(_string(chance) for _ in range(chance.randint(1, 4)))})",
            f"{name} {no}LIKE {_string(chance)}",
            f"{name} LIKE {_string(chance)} ESCAPE {chance.choice(('!', '%', 'ab', '😀'))!r}",
            f"{name} IS {no}NULL",
        )
    )


# ---- kinds of damage


def _place(chance: Random, text: str, longest: int = 3) -> tuple[int, int]:
    start = chance.randint(0, len(text))
    return start, min(len(text), start + chance.randint(1, longest))


def _delete(chance: Random, text: str, others: Sequence[str]) -> str:
    start, end = _place(chance, text)
    return text[:start] + text[end:]


def _insert(chance: Random, text: str, others: Sequence[str]) -> str:
    at, _ = _place(chance, text)
    return text[:at] + chance.choice((chance.choice(WORDS), chance.choice(ODD))) + text[at:]


def _replace(chance: Random, text: str, others: Sequence[str]) -> str:
    start, end = _place(chance, text, 1)
    return text[:start] + chance.choice((chr(chance.randrange(32, 127)), chance.choice(ODD))) + text[end:]


def _duplicate(chance: Random, text: str, others: Sequence[str]) -> str:
    start, end = _place(chance, text, 12)
    at, _ = _place(chance, text)
    return text[:at] + text[start:end] + text[at:]


def _swap(chance: Random, text: str, others: Sequence[str]) -> str:
    at, _ = _place(chance, text)
    return text[: at - 1] + text[at : at + 1] + text[at - 1 : at] + text[at + 1 :] if at else text


def _case(chance: Random, text: str, others: Sequence[str]) -> str:
    start, end = _place(chance, text, 8)
    return text[:start] + text[start:end].swapcase() + text[end:]


def _tokens(chance: Random, text: str, others: Sequence[str]) -> str:
    """Delete, double, exchange or replace whole tokens, most often by one that another selector has there."""
    tokens = TOKEN.findall(text)
    if not tokens:
        return text
    at, other = chance.randrange(len(tokens)), chance.randrange(len(tokens))
    match chance.randrange(6):
        case 0:
            del tokens[at]
        case 1:
            tokens.insert(other, tokens[at])
        case 2:
            tokens[at], tokens[other] = tokens[other], tokens[at]
        case _:
            foreign = TOKEN.findall(chance.choice(others))
            same = [token for token in foreign if _sort(token) == _sort(tokens[at])]
            tokens[at] = chance.choice(same or foreign or [""])
    return "".join(tokens)


def _sort(token: str) -> str:
    first = token[:1]
    return "word" if first.isalpha() else "number" if first.isdigit() else first


def _span(chance: Random, text: str) -> tuple[str, str, str]:
    """The text cut in three where tokens begin; the middle is often all of it."""
    if chance.random() < 0.5:
        return "", text, ""
    cuts = [match.start() for match in TOKEN.finditer(text)] or [0]
    first, last = sorted((chance.choice(cuts), chance.choice((*cuts, len(text)))))
    return text[:first], text[first:last], text[last:]


def _depth(chance: Random, size: int = 1) -> int:
    """Mostly few, sometimes about the limit of nesting, seldom as many as fit."""
    drawn = chance.random()
    if drawn < 0.95:
        return chance.randint(1, 6)
    return chance.randint(250, 260) if drawn < 0.998 else min(20_000, LONGEST // max(size, 1))


def _nest(chance: Random, text: str, others: Sequence[str]) -> str:
    before, middle, after = _span(chance, text)
    deep = _depth(chance, 2)
    return before + "(" * deep + middle + ")" * chance.choice((deep, deep, deep, deep - 1, deep + 1)) + after


def _prefix(chance: Random, text: str, others: Sequence[str]) -> str:
    before, middle, after = _span(chance, text)
    word = chance.choice(("NOT ", "NOT ", "-", "+", "- ", "NOT(", "-("))
    return before + word * _depth(chance, len(word)) + middle + after


def _chain(chance: Random, text: str, others: Sequence[str]) -> str:
    """Repeat a part, with a connective between the copies or with none."""
    before, middle, after = _span(chance, text)
    joint = chance.choice((" AND ", " OR ", " AND ", " OR ", " = ", " + ", ", ", " ", ""))
    return before + joint.join([middle] * (1 + _depth(chance, len(middle) + 5))) + after


def _splice(chance: Random, text: str, others: Sequence[str]) -> str:
    _, before, _ = _span(chance, text)
    _, after, _ = _span(chance, chance.choice(others))
    return before + chance.choice(("", " ", " AND ", " OR ", " = ")) + after


def _connect(chance: Random, text: str, others: Sequence[str]) -> str:
    joint = chance.choice(("AND", "OR", "=", "<>", "AND NOT", "OR NOT"))
    return f"({text}) {joint} ({chance.choice(others)})"


def _renumber(chance: Random, text: str, others: Sequence[str]) -> str:
    """Another number, perhaps a very long one, where one stands."""
    places = [match.span() for match in re.finditer(r"[\d.]+", text)] or [(len(text), len(text))]
    start, end = chance.choice(places)
    long = chance.choice("0123456789.") + chance.choice("0579") * chance.randint(
        1, chance.choice((30, 30, 5_000))
    )
    return text[:start] + chance.choice((chance.choice(NUMBERS), chance.choice(NUMBERS), long)) + text[end:]


def _restring(chance: Random, text: str, others: Sequence[str]) -> str:
    """Another string where one stands: wildcards, escapes, quotes, any characters."""
    places = [match.span() for match in re.finditer(r"'(?:[^']|'')*'", text)] or [(len(text), len(text))]
    start, end = chance.choice(places)
    content = "".join(chance.choices((*"ab%_!\\.*[]()''", *ODD, "''"), k=chance.randint(0, 8)))
    return f"{text[:start]}'{content}'{text[end:]}"


DAMAGES: tuple[Damage, ...] = (
    _delete, _insert, _replace, _duplicate, _swap, _case, _tokens, _tokens, _tokens, _tokens, _nest, _prefix,
    _chain, _splice, _connect, _renumber, _renumber, _restring,
)  # fmt: skip
