"""Docstrings begin with a verb or a noun, and a caller is nobody's he."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[2] / "src"
OPENINGS = {"The", "What", "How", "One", "Whether"}
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
