"""Public names of Python, each with the first sentence of its docstring."""

from __future__ import annotations

import importlib
import inspect
import re
from typing import Final

from docs.site.tables import attribute_texts, table

PACKAGES: Final = ("selectroute", "selectroute.spark", "selectroute.kafka")
"""Packages whose names are public."""

_TEXTS: Final = {
    "selectroute": "Selectors, messages, indexes and snapshots, queues, and registries.",
    "selectroute.spark": "DataFrames and streams; needs the extra `spark`.",
    "selectroute.kafka": "Records as messages, and consumers of deliveries.",
}


def public(package: str) -> list[str]:
    """Return the public names of a package."""
    return sorted(importlib.import_module(package).__all__, key=str.lower)


def names() -> str:
    """Return the tables of names, a heading for each package."""
    return "\n\n".join(map(_package, PACKAGES))


def directives() -> str:
    """Return what mkdocstrings makes the whole reference of."""
    return "\n\n".join(f"## {one}.{name}\n\n::: {one}.{name}" for one in PACKAGES for name in public(one))


def _package(package: str) -> str:
    rows = ((f"`{name}`", _sentence(package, name)) for name in public(package))
    return f"## {package}\n\n{_TEXTS[package]}\n\n{table(('name', ''), rows)}"


def _sentence(package: str, name: str) -> str:
    found = getattr(importlib.import_module(package), name)
    if inspect.isclass(found) or inspect.isroutine(found):
        text = inspect.getdoc(found) or ""
    else:
        text = _of_constant(package, name)
    first = " ".join(re.split(r"\n\s*\n", text.strip())[0].split())
    first = re.split(r"(?<=[.:]) (?=[A-Z])", first)[0]
    return first.rstrip(":").replace("|", "\\|").replace("``", "`")


def _of_constant(package: str, name: str) -> str:
    """Return the text below a constant, in the module that the package has it from."""
    source = inspect.getsource(importlib.import_module(package))
    place = re.search(rf"from (\S+) import (?:\([^)]*\b{name}\b[^)]*\)|[^\n]*\b{name}\b)", source)
    if place is None:
        return ""
    module = importlib.import_module(place[1])
    texts = attribute_texts(module)
    if name in texts or place[1] == package:
        return texts.get(name, "")
    return _of_constant(place[1], name)
