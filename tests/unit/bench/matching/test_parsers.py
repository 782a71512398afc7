"""The texts that parsers are measured on, and that lark's grammar is one of the same language."""

import pytest

from bench.definition import TEXTS, sizes
from bench.matching.parsers import LarkParser, makers
from bench.workloads.texts import INVALID_EVERY, texts
from selectroute.selector import InvalidSelectorError, Selector
from tests.support.corpus_rows import rows

OF_CONTENT = {
    "unknown-header", "bad-escape", "bad-pattern", "integer-out-of-range", "number-too-large",
    "number-too-small", "malformed-octal", "too-long", "too-deep", "too-many-items",
}  # fmt: skip
"""Kinds of errors that depend on what a word says; the grammar leaves them out."""


def test_first_texts_are_as_defined():
    assert texts(7)[4:] == [
        "((region OR weight LIKE '%_') AND unit_price) AND 'car' = region",
        "urgent <= 1942.25 AND 'DE-10115' = qty",
        "$p",
    ]
    assert texts(100)[:50] == texts(50)


@pytest.mark.parametrize("name", makers([]))
def test_every_parser_accepts_the_same_texts(name):
    [size] = [size for size in sizes() if size.workload == TEXTS and size.rules == 1_000]
    parser = makers(texts(size.rules))[name](100)
    assert parser.judge() == size.check
    assert parser.messages == parser.run() == 100


def test_one_text_of_eight_is_no_selector():
    for number, text in enumerate(texts(800), 1):
        if number % INVALID_EVERY:
            Selector(text)
        else:
            with pytest.raises(InvalidSelectorError):
                Selector(text)


def test_the_grammar_accepts_what_the_dialect_accepts():
    lark = LarkParser([], 0)
    found = {}
    for row in rows():
        text, kind = row.selector, row.kind.get("jms")
        if text and text.isascii() and text.isprintable() and len(text) < 1_000 and kind not in OF_CONTENT:
            found[text] = lark.accepts(text) is (row.verdict["jms"] != "invalid")
    assert len(found) > 1_000
    assert [text for text, agrees in found.items() if not agrees] == []
