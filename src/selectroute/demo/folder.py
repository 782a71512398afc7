"""Output folder of a demo run. Results of earlier runs are never overwritten."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from selectroute.demo.flights import DemoError

DEFAULT_NAME: Final = "selectroute-demo"


def fresh_folder(out: Path | None) -> Path:
    """Return a new or empty folder: ``out``, or the first unused of ``selectroute-demo``,
    ``selectroute-demo-2``, …

    Raises ``DemoError`` if ``out`` is given and not empty, or cannot be created.
    """
    if out is None:
        number = 1
        while not _take(path := Path(DEFAULT_NAME if number == 1 else f"{DEFAULT_NAME}-{number}")):
            number += 1
        return path.resolve()
    if not _take(out):
        raise DemoError(f"{out} is not an empty folder: name a new one with --out, or omit --out")
    return out.resolve()


def _take(path: Path) -> bool:
    try:
        path.mkdir(parents=True, exist_ok=True)
        return not any(path.iterdir())
    except (FileExistsError, NotADirectoryError):
        return False
    except OSError as error:
        raise DemoError(f"the folder {path} cannot be created or read: {error.strerror or error}") from error
