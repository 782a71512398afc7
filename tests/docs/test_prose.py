"""Docstrings begin with a verb or a noun, a caller is nobody's he, and texts are English word by word too."""

from __future__ import annotations

import ast
import re

import pytest

from docs.site.pages import ROOT, documentation, without_code

SOURCES = ROOT / "src"
OPENINGS = {"The", "What", "How", "One", "Whether"}
GERMAN = re.compile(
    r"(?<!here )\b(?:is|are|was|were) no (?!longer\b|more\b|other\b|such\b)|\bnobody\b", re.IGNORECASE
)
"""German in English words: "this is no JSON" for "not valid JSON". "There is no …" is English."""

PRONOUNS = re.compile(r"\b(?:he|his|him|himself|she|her)\b")


def docstrings():
    for path in sorted(SOURCES.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                text = ast.get_docstring(node)
                if text:
                    yield f"{path.relative_to(SOURCES)}:{getattr(node, 'lineno', 1)}", text


@pytest.mark.parametrize("wrong", [
    lambda text: text.split()[0] in OPENINGS,
    lambda text: PRONOUNS.search(text) is not None,
], ids=["opening", "pronoun"])  # fmt: skip
def test_no_docstring_is_a_riddle(wrong):
    found = [f"{place}: {text.splitlines()[0]}" for place, text in docstrings() if wrong(text)]
    assert not found, "\n".join(found)


def texts():
    """Yield the place and the text of every string in the sources: errors, help and docstrings."""
    for path in sorted(SOURCES.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield f"{path.relative_to(SOURCES)}:{node.lineno}", node.value


def test_no_text_is_german_in_english_words():
    found = [
        f"{place}: …{text[match.start() :][:60]}" for place, text in texts() if (match := GERMAN.search(text))
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("text", ["this is no JSON", "it is no folder", "Nobody waits"])
def test_what_is_german_is_found(text):
    assert GERMAN.search(text)


@pytest.mark.parametrize(
    "text", ["there is no snapshot", "the token is no longer valid", "is not valid JSON"]
)
def test_what_is_english_is_not(text):
    assert not GERMAN.search(text)


OF_THE_PAST = {"CHANGELOG.md", "bench/README.md"}
"""Pages that keep what was written with a release or a record."""


@pytest.mark.parametrize(
    "name", sorted({path.relative_to(ROOT).as_posix() for path in documentation()} - OF_THE_PAST)
)
def test_no_page_is_german_in_english_words(name):
    text = without_code((ROOT / name).read_text(encoding="utf-8"))
    found = [text[match.start() :][:60] for wrong in (GERMAN, PRONOUNS) for match in wrong.finditer(text)]
    assert not found, "\n".join(found)
