"""Parts that a benchmark opens at one size, each when it is first asked for, and closes together."""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self


class Opened:
    """Parts that are closed, and their folder removed, when it is left.

    Args:
        folder: where their files are; whoever needs it first makes it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._opened = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._opened.close()
        shutil.rmtree(self.folder, ignore_errors=True)
