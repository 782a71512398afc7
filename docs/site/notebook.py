"""Notebook of the tutorials: run, with its outputs stored in it, and turned into a page of the site.

Zensical does not read notebooks, so the build makes a page of Markdown of the stored one; it does not run it.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any, Final

from docs.site.pages import DOCS, ROOT
from selectroute import warm

PATH: Final = DOCS / "tutorials" / "notebook.ipynb"
PAGE: Final = PATH.with_suffix(".md")
"""Page that the site has in the place of the notebook; it is not in the repository."""

_SECONDS: Final = 600
_PICTURE: Final = re.compile(r"!\[png\]\((?P<name>[^)]+)\)")


def run() -> Any:
    """Return the notebook as it is after a run in an empty folder.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell failed.
    """
    import nbformat
    from nbclient import NotebookClient

    warm()  # or cells would show the warning that the kernel is compiled, with a path of this machine
    notebook = nbformat.read(PATH, as_version=4)
    metadata = dict(notebook.metadata)
    with tempfile.TemporaryDirectory() as folder:
        client = NotebookClient(
            notebook,
            timeout=_SECONDS,
            record_timing=False,
            resources={"metadata": {"path": folder}},
        )
        client.execute()
    notebook.metadata.clear()
    notebook.metadata.update(metadata)  # without the version of this machine's Python
    return notebook


def write() -> list[Path]:
    """Run the notebook and store its outputs in it; return its path if it changed."""
    import nbformat

    before = PATH.read_text(encoding="utf-8")
    after = nbformat.writes(run()) + "\n"
    if after == before:
        return []
    PATH.write_text(after, encoding="utf-8")
    return [PATH]


def printed(notebook: Any) -> list[tuple[str, str]]:
    """Return what the cells of a notebook have printed, as the name of the stream and the text. Pictures are
    left out: other releases of Matplotlib and of fonts draw other bytes.
    """
    found = []
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            if output.output_type == "stream":
                found.append((output.name, output.text))
            elif "image/png" not in output.data:
                found.append(("result", output.data["text/plain"]))
    return found


def pictures(notebook: Any) -> int:
    """Return the number of pictures that the cells of a notebook have made."""
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    return sum("image/png" in output.get("data", {}) for output in outputs)


def write_page(to: Path) -> None:
    """Write the stored notebook as a page of Markdown, with its pictures beside it.

    Args:
        to: the folder of the page and of the pictures.
    """
    import nbformat
    from nbconvert import MarkdownExporter

    notebook = nbformat.read(PATH, as_version=4)
    text, resources = MarkdownExporter().from_notebook_node(notebook)
    alternatives = iter([cell.metadata["alt"] for cell in notebook.cells if "alt" in cell.metadata])
    names = {name: f"{PATH.stem}-{number}.png" for number, name in enumerate(resources["outputs"], start=1)}
    for name, content in resources["outputs"].items():
        (to / names[name]).write_bytes(content)
    text = _PICTURE.sub(lambda found: f"![{next(alternatives)}]({names[found['name']]})", text)
    link = f"[Download the notebook]({PATH.name}).\n"
    (to / PAGE.name).write_text(f"{text.rstrip()}\n- {link}", encoding="utf-8")


def linked(text: str) -> str:
    """Return a page with its links to the notebook leading to the page of the notebook."""
    return re.sub(rf"(\]\([^()\s]*){re.escape(PATH.name)}(?=[)#])", rf"\g<1>{PAGE.name}", text)


def where() -> str:
    """Return the place of the page of the notebook in the contents of the site."""
    return PAGE.relative_to(ROOT).as_posix()
