"""Pages of the documentation as data: their code blocks, links, and the anchors of their headings."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
DOCS: Final = ROOT / "docs"

_FENCE: Final = re.compile(
    r"(?P<mark><!-- [^>]*-->\n)?^(?P<indent> *)```(?P<language>\w*)\n(?P<code>.*?)^ *```$",
    re.DOTALL | re.MULTILINE,
)
_INLINE: Final = re.compile(r"`[^`\n]*`")
_LINK: Final = re.compile(r"!?\[(?:[^\[\]]|\[[^\[\]]*\])*\]\(([^)\s]+)\)")
_HEADING: Final = re.compile(r"^#{1,6} +(.*?)(?: +#*)?$", re.MULTILINE)


class Block(NamedTuple):
    """Code block: its language, its text, and the comment before it, such as ``spark: orders``."""

    language: str
    code: str
    mark: str


def documentation() -> list[Path]:
    """Return all pages: those of ``docs/``, and those beside the code that they link to."""
    beside = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "bench/README.md", "streaming/README.md")
    pages = [ROOT / name for name in (*beside, "streaming/console/README.md")]
    return [*pages, *sorted(DOCS.rglob("*.md"))]


def blocks(text: str) -> list[Block]:
    """Return the code blocks of a page, in their order.

    >>> blocks("<!-- not run: needs a cluster -->\\n```shell\\nls\\n```\\n")
    [Block(language='shell', code='ls\\n', mark='not run: needs a cluster')]
    """
    return [
        Block(found["language"], found["code"], (found["mark"] or "").strip("<!-> \n"))
        for found in _FENCE.finditer(text)
    ]


def links(text: str) -> list[str]:
    """Return the targets of a page's links and pictures; code is not searched.

    >>> links("See [the way](pictures/way.svg), not `[a](b)`.")
    ['pictures/way.svg']
    """
    return _LINK.findall(_INLINE.sub("``", without_code(text)))


def anchors(text: str) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them.

    >>> sorted(anchors("# A queue, by ids\\n## `get` & put\\n## A queue, by ids\\n"))
    ['a-queue-by-ids', 'a-queue-by-ids-1', 'get--put']
    """
    found: set[str] = set()
    for heading in _HEADING.findall(without_code(text)):
        anchor = slug(heading)
        number = 0
        while (name := f"{anchor}-{number}" if number else anchor) in found:
            number += 1
        found.add(name)
    return found


def slug(heading: str, separator: str = "-") -> str:
    """Return the anchor of a heading; links and code count with their text."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    kept = re.sub(r"[^\w\- ]", "", text.replace("`", "").lower())
    return kept.strip().replace(" ", separator)


def relative_links(page: Path) -> Iterator[tuple[str, Path, str]]:
    """Yield the links of a page to other files, or within it: the target as it is written, its path, and its
    anchor, which may be empty.
    """
    for target in links(page.read_text(encoding="utf-8")):
        if not target.startswith(("http://", "https://", "mailto:")):
            name, _, anchor = target.partition("#")
            yield target, Path(os.path.normpath(page.parent / name)) if name else page, anchor


def broken_links(page: Path) -> Iterator[str]:
    """Yield the relative links of a page that lead to no file or to no heading."""
    for target, path, anchor in relative_links(page):
        if not path.exists() or (anchor and path.suffix == ".md" and anchor not in _anchors_of(path)):
            yield target


def without_code(text: str) -> str:
    """Return a page without its code blocks."""
    return _FENCE.sub("", text)


@cache
def _anchors_of(path: Path) -> set[str]:
    return anchors(path.read_text(encoding="utf-8"))
