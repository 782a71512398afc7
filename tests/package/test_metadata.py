"""Version, citation and list of licences say the same as pyproject.toml and the code."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import PackageNotFoundError, distribution

import pytest
import yaml

import selectroute
from docs.site import licences
from docs.site.pages import DOCS, ROOT, documentation

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]


def test_version_is_written_in_the_package_alone():
    assert PROJECT["dynamic"] == ["version"] and "version" not in PROJECT
    assert PYPROJECT["tool"]["hatch"]["version"] == {"path": "src/selectroute/__init__.py"}
    assert re.fullmatch(r"\d+\.\d+\.\d+((a|b|rc)\d+|\.dev\d+)?", selectroute.__version__)


def test_pages_that_name_the_newest_release_name_this_one():
    shown = re.compile(r"(?:[Tt]his is release|newest release, at present) (\d[\w.]*\w)")
    found = [
        (path.relative_to(ROOT).as_posix(), version)
        for path in documentation()
        for version in shown.findall(path.read_text(encoding="utf-8"))
    ]
    assert {name for name, _ in found} == {"README.md", "docs/SECURITY.md", "docs/how-to/upgrade.md"}
    assert {version for _, version in found} == {selectroute.__version__}, found


def test_citation_has_the_keys_of_its_format_and_agrees_with_the_project():
    found = yaml.safe_load((DOCS / "CITATION.cff").read_text(encoding="utf-8"))
    # Those that version 1.2.0 of the Citation File Format requires, then those that it knows.
    assert {"authors", "cff-version", "message", "title"} <= set(found)
    assert set(found) <= {
        "abstract", "authors", "cff-version", "commit", "contact", "date-released", "doi", "identifiers",
        "keywords", "license", "license-url", "message", "preferred-citation", "references", "repository",
        "repository-artifact", "repository-code", "title", "type", "url", "version",
    }  # fmt: skip
    assert found["cff-version"] == "1.2.0" and found["type"] == "software"
    assert all(isinstance(one["name"], str) for one in found["authors"])
    assert found["version"] == selectroute.__version__
    assert (found["title"], found["license"]) == (PROJECT["name"], PROJECT["license"])
    assert found["abstract"].rstrip(".") == PROJECT["description"]


def test_each_version_of_python_that_is_listed_is_admitted():
    listed = re.findall(r"Python :: (3\.\d+)$", "\n".join(PROJECT["classifiers"]), re.MULTILINE)
    assert listed[0] == PROJECT["requires-python"].removeprefix(">=")
    assert listed == sorted(listed, key=lambda version: int(version.partition(".")[2]))


def plain(requirement):
    return re.match(r"[\w.-]+", requirement)[0]


def test_list_of_licences_has_every_package_with_its_reason():
    wanted = [("", plain(one)) for one in PROJECT["dependencies"]]
    for extra, requirements in PROJECT["optional-dependencies"].items():
        wanted += [(extra, plain(one)) for one in requirements if plain(one) != PROJECT["name"]]
    found = list(licences.requirements())
    assert [(one.extra, one.name) for one in found] == wanted
    assert all(one.reason for one in found)
    assert set(licences.written()) >= {name for _, name in wanted}


@pytest.mark.parametrize("name", sorted({one.name for one in licences.requirements()}))
def test_licence_on_the_page_is_that_of_the_installed_package(name):
    try:
        distribution(name)
    except PackageNotFoundError:
        pytest.skip(f"{name} is not installed")
    assert licences.written()[name] == licences.licence(name) != licences.UNSTATED
