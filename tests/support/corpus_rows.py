"""The corpus: selectors and messages with the verdict of each dialect, as data for every engine's runner.

`tests/corpus/*.toml` holds rows. A verdict is "true", "false", "unknown" or, for a text that is no selector,
"invalid"; such a row also names the error's kind and the part of the text that is underlined, once for every
dialect in which it is invalid or dialect by dialect. A dialect that is left out there promises no more than
that the text is invalid. Each row cites the seed and the section that decide it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "corpus"
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
    """Why, in the dialects that `reasons` does not name."""

    reasons: Mapping[str, str] = field(default_factory=dict)
    """Dialect to reason, where it differs."""

    kind: Mapping[str, str] = field(default_factory=dict)
    """Dialect to the kind of the error; only dialects in which the text is invalid."""

    underlined: Mapping[str, str] = field(default_factory=dict)
    """Dialect to the text that the error underlines; only dialects in which the text is invalid."""

    def __str__(self) -> str:
        return f"{self.file} row {self.number}, {self.section}: {self.reason}"


@cache
def rows() -> list[Row]:
    """Return every row of the corpus, in the order of the files."""
    return [
        _row(path.name, number, data)
        for path in sorted(FOLDER.glob("*.toml"))
        for number, data in enumerate(tomllib.loads(path.read_text(encoding="utf-8"))["row"], 1)
    ]


def _row(file: str, number: int, data: dict[str, Any]) -> Row:
    invalid = [dialect for dialect, verdict in data["verdict"].items() if verdict == "invalid"]
    for key in ("kind", "underlined"):
        if isinstance(data.get(key), str):
            data = data | {key: dict.fromkeys(invalid, data[key])}
    return Row(file=file, number=number, **{"message": {}} | data)
