"""The size of the package stays within `budget.toml`."""

import ast
import tokenize
import tomllib
from pathlib import Path

import grimp
import pytest

import selectroute

pytestmark = pytest.mark.xdist_group("budget")  # measured once

ROOT = Path(selectroute.__file__).parent
BUDGET = tomllib.loads(Path(__file__).with_name("budget.toml").read_text(encoding="utf-8"))

SLACK = 0.01
"""Share by which a measure may be below its budget: from there on, the budget is lowered."""

NO_CODE = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER,
}  # fmt: skip


def code_lines(path):
    """Return the number of lines of a module that are neither docstring, comment, blank nor import."""
    with tokenize.open(path) as file:
        text = file.read()
    left_out = set()
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Import() | ast.ImportFrom() | ast.Expr(value=ast.Constant(value=str())):
                left_out.update(range(node.lineno, node.end_lineno + 1))
    lines = set()
    for token in tokenize.generate_tokens(iter(text.splitlines(keepends=True)).__next__):
        if token.type not in NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - left_out)


@pytest.fixture(scope="module")
def measured():
    modules = list(ROOT.rglob("*.py"))
    imports = grimp.build_graph("selectroute")
    closures = {
        entry: len(imports.find_upstream_modules(entry)) + 1 for entry in BUDGET["modules_that_it_imports"]
    }
    return {"code_lines": sum(map(code_lines, modules)), "modules": len(modules), **closures}


@pytest.mark.parametrize("measure", ["code_lines", "modules", *BUDGET["modules_that_it_imports"]])
def test_the_package_is_no_larger_than_its_budget(measured, measure):
    budget = BUDGET["modules_that_it_imports"].get(measure) or BUDGET[measure]
    size = measured[measure]
    assert size <= budget, f"{measure} grew: make it smaller, or raise budget.toml and say why in the commit"
    assert size >= budget * (1 - SLACK), f"{measure} fell to {size}: write that into budget.toml"


MODULE = '''"""Prose
of two lines."""

import os
from os import (
    path,
)

# why
x = [
    1,
]  # this
def f():
    """Verb."""
    text = """two
    lines"""
    return text
'''


def test_code_lines_leave_out_prose_and_imports(tmp_path):
    (tmp_path / "module.py").write_text(MODULE, encoding="utf-8")
    assert code_lines(tmp_path / "module.py") == 7
