"""Licences of the packages that pyproject.toml asks for, as the installed ones state them."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from types import MappingProxyType
from typing import Final, NamedTuple

from docs.site.pages import DOCS, ROOT
from docs.site.tables import cell, table

PAGE: Final = DOCS / "reference" / "licences.md"

UNSTATED: Final = "not stated"

_NAMES: Final = MappingProxyType(
    {
        "Apache 2.0": "Apache-2.0",
        "Apache License": "Apache-2.0",
        "Apache Software License": "Apache-2.0",
        "BSD 2-Clause License": "BSD-2-Clause",
        "BSD 3-Clause License": "BSD-3-Clause",
        "BSD License": "BSD",
        "CC0": "CC0-1.0",
        "GNU General Public License v2 (GPLv2)": "GPL-2.0-only",
        "ISC License": "ISC",
        "MIT License": "MIT",
        "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
        "Python Software Foundation License": "PSF-2.0",
    }
)
"""SPDX identifiers of names that packages use. ``BSD`` alone does not say which of its licences is meant."""

_REQUIREMENT: Final = re.compile(r'^ *"(?P<name>[\w.-]+)[^"]*", *(?:# (?P<reason>.*))?$')
_EXTRA: Final = re.compile(r"^(?P<name>[\w-]+) = \[$")


class Requirement(NamedTuple):
    """Package that pyproject.toml asks for: its extra (empty for a plain dependency) and the reason given."""

    extra: str
    name: str
    reason: str


def licences() -> str:
    """Return the packages of each extra with licence and reason. A package that is not installed here keeps
    the licence that the page has.
    """
    kept = written()
    rows = (
        (
            f"`{one.extra}`" if one.extra else "",
            one.name,
            licence(one.name) or kept.get(one.name, UNSTATED),
            cell(one.reason),
        )
        for one in requirements()
    )
    return table(("extra", "package", "licence", "why it is needed"), rows)


def requirements() -> Iterator[Requirement]:
    """Yield the packages in the order of pyproject.toml, with the comment behind or above each."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    project = tomllib.loads(text)["project"]
    extra, above = None, ""
    for line in text.partition("\ndependencies = [")[2].partition("\n[project.scripts]")[0].splitlines():
        extra = found["name"] if (found := _EXTRA.match(line)) else extra
        if (found := _REQUIREMENT.match(line)) and found["name"] != project["name"]:
            yield Requirement(extra or "", found["name"], found["reason"] or above)
        above = line.strip(" #") if line.startswith("    #") else ""


def licence(name: str) -> str | None:
    """Return the licence that an installed package states, as SPDX writes it where that is known; None if the
    package is not installed.

    Sources, the first that there is: ``License-Expression``, the first line of ``License`` if it is short,
    classifiers, the bill of materials, the first line of the licence's file.
    """
    try:
        found = distribution(name)
    except PackageNotFoundError:
        return None
    return next(filter(None, _stated(found)), UNSTATED)


def written() -> dict[str, str]:
    """Return the licences that the page has, by package."""
    rows = (line.strip("| ").split(" | ") for line in PAGE.read_text(encoding="utf-8").splitlines())
    return {row[-3]: row[-2] for row in rows if len(row) >= 3}


def _stated(found: Distribution) -> Iterator[str]:
    metadata = found.metadata
    yield from metadata.get_all("License-Expression", [])
    # Some are a name, some are a whole text, with or without its name as the first line.
    names = [one.partition("\n")[0] for one in metadata.get_all("License", [])]
    yield from (_NAMES.get(one, one) for one in names if len(one) <= 20)
    classifiers = metadata.get_all("Classifier", [])
    kinds = [one.rpartition(" :: ")[2] for one in classifiers if one.startswith("License")]
    yield " OR ".join(sorted({_NAMES.get(one, one) for one in kinds}))
    for path in found.files or ():
        if re.search(r"\.dist-info/sboms/.*\.json$", str(path)):
            component = json.loads(path.read_text(encoding="utf-8"))["metadata"]["component"]
            yield from (one.get("expression", "") for one in component.get("licenses", []))
    for path in found.files or ():
        if re.search(r"\.dist-info/.*LICEN[SC]E", str(path)):
            yield _NAMES.get(path.read_text(encoding="utf-8").lstrip().partition("\n")[0], "")
