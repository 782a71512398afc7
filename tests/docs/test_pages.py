"""Pages lead somewhere, name only what there is, and have what is generated as the code has it."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest
import typer

from docs.site import notebook, picture
from docs.site.pages import DOCS, ROOT, blocks, broken_links, documentation, relative_links
from selectroute.cli import app
from tests.support.components import missing

PAGES = [pytest.param(page, id=str(page.relative_to(ROOT))) for page in documentation()]
_BEGIN = re.compile(r"^<!-- (\w+) -->\n.*?<!-- /\1 -->", re.MULTILINE | re.DOTALL)
_ENDS = {"|", "||", "&", "&&", ";", ">", ">>", "2>", ")", "<"}


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


def shown(text):
    """The commands `selectroute …` that a page shows, as words: in code blocks, and in sentences."""
    for block in blocks(text):
        if block.language not in ("shell", "console", "docker"):
            continue
        for line in block.code.replace("\\\n", " ").splitlines():
            if found := re.search(r"(?:^|[;&|] *|\$ |submit\.py |until )(selectroute .*)", line):
                yield words(found[1])
    without = re.sub(r"^ *```.*?^ *```$", "", text, flags=re.DOTALL | re.MULTILINE)
    for code in re.findall(r"`(selectroute [^`]*)`", without):
        yield words(code)


def words(command):
    """The words of the first command of a line."""
    lexer = shlex.shlex(command.replace("…", "").replace("'", '"'), posix=True, punctuation_chars="|&;<>()")
    lexer.whitespace_split = True
    found = []
    try:
        for word in lexer:
            if word in _ENDS or word.startswith("#"):
                break
            found.append(word)
    except ValueError:  # a quote that is closed on a later line
        pass
    return found[1:]


@pytest.mark.parametrize("page", PAGES)
def test_commands_shown_exist_and_have_the_options_shown(page):
    whole = typer.main.get_command(app)
    for given in shown(page.read_text(encoding="utf-8")):
        command, rest = whole, list(given)
        known = {"--help"}
        while hasattr(command, "commands") and rest and not rest[0].startswith("-"):
            name = rest.pop(0)
            if name.startswith(("|", "[", "NOUN")):  # `purge | move`, and forms of all commands
                break
            assert name in command.commands, f"selectroute {' '.join(given)}"
            command = command.commands[name]
        known |= {name for one in command.params for name in (*one.opts, *one.secondary_opts)}
        options = {word.partition("=")[0] for word in rest if re.match("--?[a-z]", word)}
        assert options <= known, f"selectroute {' '.join(given)}: {options - known}"


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
