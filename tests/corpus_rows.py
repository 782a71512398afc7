"""The corpus: selectors and messages with the verdict of each dialect, as data for every engine's runner.

`tests/corpus/*.toml` holds rows. A verdict is "true", "false", "unknown" or, for a text that is no selector,
"invalid"; such a row also names the error's kind and the part of the text that is underlined. Each row cites
the seed and the section that decide it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "corpus"
VERDICTS = ("true", "false", "unknown", "invalid")


@dataclass(frozen=True)
class Row:
    """One selector, one message, and what each dialect makes of them."""

    file: str
    number: int
    selector: str
    message: Mapping[str, Any]
    """The message in the wire form."""

    verdict: Mapping[str, str]
    """Dialect to verdict."""

    seed: str
    section: str
    reason: str
    kind: str | None = None
    underlined: str | None = None

    def __str__(self) -> str:
        return f"{self.file} row {self.number}, {self.section}: {self.reason}"


@cache
def rows() -> list[Row]:
    """Return every row of the corpus, in the order of the files."""
    return [
        Row(file=path.name, number=number, **{"message": {}} | row)
        for path in sorted(FOLDER.glob("*.toml"))
        for number, row in enumerate(tomllib.loads(path.read_text(encoding="utf-8"))["row"], 1)
    ]
