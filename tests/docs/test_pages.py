"""Pages lead somewhere, name only what there is, and have what is generated as the code has it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from itertools import takewhile
from pathlib import Path

import pytest

from docs.site import notebook, picture
from docs.site.pages import DOCS, ROOT, broken_links, documentation, relative_links, without_code
from tests.docs.shell import find_command, words
from tests.support.components import missing

PAGES = [pytest.param(page, id=str(page.relative_to(ROOT))) for page in documentation()]
_BEGIN = re.compile(r"^<!-- (\w+) -->\n.*?<!-- /\1 -->", re.MULTILINE | re.DOTALL)


def parts():
    """The generated parts of all pages."""
    for page in sorted(DOCS.rglob("*.md")):
        for name in _BEGIN.findall(page.read_text(encoding="utf-8")):
            yield page.relative_to(DOCS).as_posix(), name


@pytest.mark.parametrize("page", PAGES)
def test_links_and_anchors_lead_somewhere(page):
    assert list(broken_links(page)) == []


@pytest.mark.parametrize("page", PAGES)
def test_pages_link_to_pages_that_the_site_has(page):
    # A Markdown file that is not a page is not copied to the site: it is named, not linked to.
    linked = {path for _, path, _ in relative_links(page) if path.suffix == ".md"}
    assert linked <= set(documentation())


def test_a_link_that_leads_nowhere_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# A heading\n[a](#a-heading) [b](#b) [c](c.md) [d](page.md#a-heading) `[e](e.md)`\n")
    assert list(broken_links(page)) == ["#b", "c.md"]


@pytest.mark.parametrize(("page", "name"), list(parts()))
def test_generated_parts_are_up_to_date(page, name):
    pytest.importorskip("pyspark", reason="PySpark is not installed (the extra `spark`)")
    from docs.site import generated

    made = generated.PARTS[page, name]()
    assert generated.written(page, name) == made, "run: python -m docs.site --write"


def test_every_generated_part_is_in_its_page():
    pytest.importorskip("pyspark", reason="PySpark is not installed (the extra `spark`)")
    from docs.site import generated

    assert set(parts()) == set(generated.PARTS)


def test_the_picture_is_what_its_script_draws():
    assert picture.PATH.read_text(encoding="utf-8") == picture.draw(), "run: python -m docs.site --write"


def test_every_page_is_in_the_contents_of_the_site():
    config = tomllib.loads((DOCS / "zensical.toml").read_text(encoding="utf-8"))

    def listed(entries):
        for entry in entries:
            values = [entry] if isinstance(entry, str) else list(entry.values())
            for value in values:
                yield from listed(value) if isinstance(value, list) else [value]

    found = list(listed(config["project"]["nav"]))
    pages = [*documentation(), notebook.PAGE]
    assert sorted(found) == sorted(page.relative_to(ROOT).as_posix() for page in pages)


def test_every_page_of_docs_is_found_from_its_index():
    text = (DOCS / "index.md").read_text(encoding="utf-8")
    for page in DOCS.rglob("*.md"):
        assert page.name == "index.md" or f"({page.relative_to(DOCS).as_posix()})" in text


def test_the_readme_is_read_in_one_go():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150


@pytest.mark.parametrize("page", PAGES)
def test_commands_in_sentences_exist_and_have_the_options_shown(page):
    """Those of blocks are parsed in `test_commands`."""
    for code in re.findall(r"`selectroute ([^`]*)`", without_code(page.read_text(encoding="utf-8"))):
        command, rest = find_command(takewhile(lambda word: word != "NOUN", words(code.replace("…", ""))))
        names = {name for one in command.params for name in (*one.opts, *one.secondary_opts)}
        options = {word.partition("=")[0] for word in rest if re.match("--?[a-z]", word)}
        assert options <= names | {"--help"}, f"selectroute {code}: {options - names}"


def without_network():
    """What runs a command in a network of its own, where only it can be reached; nothing if this may not."""
    alone = ["unshare", "--user", "--map-root-user", "--net"]
    may = shutil.which("unshare") and subprocess.run([*alone, "true"], capture_output=True).returncode == 0
    return alone if may else []


@pytest.mark.nightly  # .ci/run builds the site, too: a warning ends it
def test_the_site_is_built_offline_without_a_warning(tmp_path):
    if find_spec("zensical") is None:
        missing("Zensical is not installed (the extra `docs`)")
    code = "import sys, pathlib, docs.site.build as one; print(one.build(pathlib.Path(sys.argv[1])))"
    command = [*without_network(), sys.executable, "-c", code, tmp_path / "site"]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr
    first = Path(built.stdout.splitlines()[-1])
    index = first.read_text(encoding="utf-8")
    assert "Your first fan-out" in index and 'href="tutorials/notebook.html"' in index
    notebook_page = (first.parent / "tutorials" / "notebook.html").read_text(encoding="utf-8")
    assert 'src="notebook-1.png"' in notebook_page and 'href="notebook.ipynb"' in notebook_page
    reference = first.parent / "reference"
    assert (reference / "openapi.json").exists() and (reference / "http-api.html").exists()
    assert "selectroute.Index.add" in (reference / "python.html").read_text(encoding="utf-8")
