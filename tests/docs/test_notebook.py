"""The notebook of the tutorials is stored as it runs, and shows nothing of the machine that ran it."""

from __future__ import annotations

import json
import re
from importlib.util import find_spec

import pytest

from docs.site import notebook
from tests.support.components import missing

STORED = json.loads(notebook.PATH.read_text(encoding="utf-8"))
CODE = [cell for cell in STORED["cells"] if cell["cell_type"] == "code"]
OUTPUTS = [output for cell in CODE for output in cell["outputs"]]


def test_every_cell_was_run_once_and_in_order():
    assert [cell["execution_count"] for cell in CODE] == list(range(1, len(CODE) + 1))


def test_the_outputs_have_no_warning_and_no_path_of_a_machine():
    assert {output["name"] for output in OUTPUTS if output["output_type"] == "stream"} == {"stdout"}
    texts = ["".join(output.get("text", output.get("data", {}).get("text/plain", ""))) for output in OUTPUTS]
    assert not [text for text in texts if re.search(r"(?<![\w<])/\w+/\w", text)]
    assert set(STORED["metadata"]) == {"kernelspec", "language_info"}
    assert STORED["metadata"]["language_info"] == {"name": "python"}


def test_each_picture_is_small_and_says_what_it_shows():
    with_picture = [
        cell for cell in CODE if any("image/png" in one.get("data", {}) for one in cell["outputs"])
    ]
    assert with_picture and all(len(cell["metadata"]["alt"]) > 80 for cell in with_picture)
    assert notebook.PATH.stat().st_size < 100_000


@pytest.mark.slow
@pytest.mark.application
def test_the_notebook_prints_what_is_stored():
    if find_spec("nbclient") is None:
        missing("nbclient is not installed (the extra `docs`)")
    import nbformat

    # What is read as a notebook has its texts whole; in the file they are lists of lines.
    stored, ran = nbformat.read(notebook.PATH, as_version=4), notebook.run()
    assert notebook.printed(ran) == notebook.printed(stored), "run: python -m docs.site --run-notebook"
    assert notebook.pictures(ran) == notebook.pictures(stored) > 0
