"""Parsers, measured on texts alone: ours in each dialect, and lark on a grammar of the same language."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path

import lark

import selectroute as sr
from bench.engine import Engine
from bench.workloads.oracle import Expected

GRAMMAR = Path(__file__).with_name("selector.lark")


class Parser(Engine):
    """A parser that is given texts. It is timed on those that are selectors: see `bench.engine.Engine`."""

    name: str

    def __init__(self, texts: Sequence[str], count: int) -> None:
        self._texts = texts
        selectors = [text for text in texts if self.accepts(text)]
        self._timed = selectors[:count]
        self.messages = len(self._timed)
        """How many selectors are parsed, here."""

    @abstractmethod
    def accepts(self, text: str) -> bool:
        """Whether the text is a selector."""

    @abstractmethod
    def run(self) -> int:
        """See `bench.engine.Engine`."""

    def judge(self) -> Expected:
        """See `bench.engine.Engine`; what is found are the texts that are selectors."""
        found = [number for number, text in enumerate(self._texts) if self.accepts(text)]
        return Expected(len(found), sum(found))


class SelectorParser(Parser):
    """`Selector(text)`: a checked tree with values and spans, and nothing kept of one text for the next."""

    def __init__(self, texts: Sequence[str], count: int, dialect: str) -> None:
        self.name = dialect
        super().__init__(texts, count)

    def accepts(self, text: str) -> bool:
        """See `Parser`."""
        try:
            sr.Selector(text, self.name)
        except sr.InvalidSelectorError:
            return False
        return True

    def run(self) -> int:
        """See `bench.engine.Engine`."""
        selector, dialect = sr.Selector, self.name
        for text in self._timed:
            selector(text, dialect)
        return len(self._timed)


class LarkParser(Parser):
    """lark's LALR(1) parser: a tree of words with their places."""

    name = "lark-lalr"

    def __init__(self, texts: Sequence[str], count: int) -> None:
        grammar = GRAMMAR.read_text(encoding="utf-8")
        # The basic lexer: a reserved word is one wherever it stands. The contextual one would see a name.
        self._parse = lark.Lark(grammar, parser="lalr", lexer="basic", propagate_positions=True).parse
        super().__init__(texts, count)

    def accepts(self, text: str) -> bool:
        """See `Parser`."""
        try:
            self._parse(text)
        except lark.exceptions.LarkError:
            return False
        return True

    def run(self) -> int:
        """See `bench.engine.Engine`."""
        parse = self._parse
        for text in self._timed:
            parse(text)
        return len(self._timed)


def makers(texts: Sequence[str]) -> dict[str, Callable[[int], Parser]]:
    """Return how to make each parser for a number of selectors."""
    return {
        "jms": lambda count: SelectorParser(texts, count, "jms"),
        "ibm-jms": lambda count: SelectorParser(texts, count, "ibm-jms"),
        "ibm-mq": lambda count: SelectorParser(texts, count, "ibm-mq"),
        "lark-lalr": lambda count: LarkParser(texts, count),
    }
