"""Names in src: those that say nothing are not used, and a public class has a name of its own."""

import ast
from collections import defaultdict
from pathlib import Path

import selectroute

ROOT = Path(selectroute.__file__).parent
SAYS_NOTHING = {"one", "found", "given", "told"}
TREES = {path.relative_to(ROOT): ast.parse(path.read_text(encoding="utf-8")) for path in ROOT.rglob("*.py")}


def bound(tree):
    """Names that a module binds, with their lines, but for fields of answers: users know these."""
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    fields = {id(part.target) for node in classes for part in node.body if isinstance(part, ast.AnnAssign)}
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                if id(node) not in fields:
                    yield name, node.lineno
            case ast.arg(arg=name) | ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield name, node.lineno


def test_names_say_what_they_hold():
    names = [
        f"{path}:{line} {name}"
        for path, tree in TREES.items()
        for name, line in bound(tree)
        if name.lstrip("_") in SAYS_NOTHING
    ]
    assert names == []


def test_a_public_class_has_a_name_of_its_own():
    classes = defaultdict(list)
    for path, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                classes[node.name].append(str(path))
    assert {name: paths for name, paths in classes.items() if len(paths) > 1} == {}


def test_no_folder_has_a_name_that_tools_leave_out():
    assert not [path for path in TREES if {"build", "dist"} & set(path.parts)]
