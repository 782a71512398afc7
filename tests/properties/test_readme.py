"""The table of properties is true: its tests exist, with as many examples, and it has all of this folder."""

import importlib
import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[1]
TEXT = (FOLDER / "README.md").read_text(encoding="utf-8")
LINK = re.compile(r"\[`(test_\w+)`\]\(([^)]+)\)")
ROWS = [line.strip("| ").split(" | ") for line in TEXT.splitlines() if LINK.search(line)]


def module_of(target):
    path = (FOLDER / target).resolve().relative_to(ROOT)
    return importlib.import_module(".".join(path.with_suffix("").parts))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: LINK.search(" ".join(row))[1])
def test_a_row_names_tests_that_exist_and_how_many_examples_they_have(row):
    examples = row[-1].split(", ")
    for number, (name, target) in enumerate(LINK.findall(row[-2])):
        test = getattr(module_of(target), name)
        settings = getattr(test, "_hypothesis_internal_use_settings", None)
        if settings is not None and hasattr(test, "hypothesis"):
            said = int(re.match(r"[\d,]+", examples[number])[0].replace(",", ""))
            assert said == settings.max_examples, name


def test_every_property_of_this_folder_is_in_the_table():
    named = {name for name, _ in LINK.findall(TEXT)}
    for path in FOLDER.glob("test_*.py"):
        if path != Path(__file__):
            module = importlib.import_module(f"tests.properties.{path.stem}")
            tests = {name for name in vars(module) if name.startswith("test_")}
            assert tests <= named, path.name
