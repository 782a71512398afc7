"""Build of the site: pages, and the files that they link to, are copied beside each other and made HTML."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from docs.site import notebook
from docs.site.calls import document, viewer
from docs.site.names import directives
from docs.site.pages import DOCS, ROOT, documentation, relative_links

SITE: Final = ROOT / "build" / "site"
_STYLE: Final = Path(__file__).parent / "site.css"
_NAMES: Final = re.compile(r"<!-- names -->\n.*<!-- /names -->", re.DOTALL)
_VIEWER: Final = "<!-- viewer -->"
_VIEWED: Final = "[All calls on one page](http-api.html), [OpenAPI document](openapi.json)."

_OTHER_HOST: Final = re.compile(r"<(?:script|link|img|iframe)\b[^>]*(?:src|href)=[\"']?(https?://[^\"' >]+)")


class BuildError(Exception):
    """Failure to build the site."""


def build(to: Path = SITE) -> Path:
    """Build the site, offline; return its first page. A warning is an error.

    Args:
        to: the folder for the copy of the pages, and in it the site; it is removed first.

    Raises:
        BuildError: Zensical is not installed, or has warned.
    """
    shutil.rmtree(to, ignore_errors=True)
    copy(to / "pages")
    shutil.copy(DOCS / "zensical.toml", to)
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path}
    command = [sys.executable, "-m", "zensical", "build", "--clean", "--strict"]
    if subprocess.run(command, cwd=to, env=environment, check=False).returncode:
        raise BuildError("the site was not built: see above; pip install -c constraints.txt '.[docs]'")
    html = to / "html"
    for page in html.rglob("*.html"):
        if found := _OTHER_HOST.search(page.read_text(encoding="utf-8")):
            raise BuildError(f"{page.relative_to(html)} loads {found[1]} from another host")
    return html / "docs" / "index.html"


def copy(to: Path) -> None:
    """Copy the pages and all files that they link to, with what is made for the site alone."""
    for path in {*documentation(), *_linked()}:
        target = to / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".md":
            target.write_text(_page(path), encoding="utf-8")
        else:
            shutil.copy(path, target)
    shutil.copy(_STYLE, to)
    notebook.write_page(to / "docs" / "tutorials")
    reference = to / "docs" / "reference"
    (reference / "openapi.json").write_text(json.dumps(document(), indent=2), encoding="utf-8")
    (reference / "http-api.html").write_text(viewer(), encoding="utf-8")


def _linked() -> Iterator[Path]:
    """Yield the files, other than pages, that pages link to, with those of linked folders."""
    for page in documentation():
        for _, path, _ in relative_links(page):
            for file in _files(path) if path.is_dir() else [path]:
                if file.suffix != ".md":
                    yield file


def _files(folder: Path) -> list[Path]:
    return sorted(one for one in folder.iterdir() if one.is_file() and not one.name.startswith("."))


def _page(path: Path) -> str:
    """Return a page as the site has it."""
    text = path.read_text(encoding="utf-8")
    if path == DOCS / "reference" / "python.md":
        text = _NAMES.sub(lambda _: directives(), text)
    text = notebook.linked(text.replace(_VIEWER, _VIEWED))
    for target, linked, _ in set(relative_links(path)):
        if linked.is_dir():  # a folder has no page of its own: its files are linked to
            files = ", ".join(f"[{one.name}]({target.rstrip('/')}/{one.name})" for one in _files(linked))
            text = re.sub(rf"\[([^\[\]]*)\]\({re.escape(target)}\)", rf"\1 ({files})", text)
    return text
