"""Files of settings, and secrets that other processes get by reference to a file.

A line is ``name=value``; ``#`` and ``!`` begin a comment. As in Java's properties, a backslash makes the next
character stand for itself; letters have no escapes, and no line continues another.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from selectroute.durable.private_folder import temporary_folder
from selectroute.selector.errors import SelectRouteError

_MOST_BYTES: Final = 1 << 20
_BLANK: Final = " \t\f"
_NO_ESCAPE: Final = re.compile(r"(?<!\\)(?:\\\\)*\\(?:[A-Za-z0-9]|$)")


class SettingsFileError(SelectRouteError):
    """File that can't be read, or has an invalid line, of which nothing is shown: it may be a secret."""


class Setting(str):
    """Value of a setting, and its place. It is pickled by reference to its file, and never with its text.

    Attributes:
        file: the file; empty for a value that is not from a file.
        name: the name in the file; empty if the value is the whole file.
        line: the number of the line.
    """

    __slots__ = ("file", "line", "name")
    file: str
    name: str
    line: int

    def __new__(cls, text: str, file: str = "", name: str = "", line: int = 0) -> Setting:
        """Return the text with its place."""
        setting = super().__new__(cls, text)
        setting.file, setting.name, setting.line = file, name, line
        return setting

    def __reduce__(self) -> tuple[Any, ...]:
        """Return the reference. A value that is not from a file is written to one of this user only."""
        return _referred, (self.file or _private_file(str(self), os.getpid()), self.name)


def read_settings(file: str) -> dict[str, Setting]:
    """Return the settings of a file; of two with one name, the last. Spaces around a value are dropped.

    Raises:
        SettingsFileError: the file can't be read, or a line is not valid.
    """
    settings = {}
    for number, line in enumerate(read_text(file).split("\n"), 1):
        name, equals, value = line.partition("=")
        name, value = name.strip(_BLANK), value.strip(_BLANK)
        if (not name and not equals) or name.startswith(("#", "!")):
            continue
        if not name or not equals or _NO_ESCAPE.search(value):
            raise SettingsFileError(
                f"{file}:{number}: not name=value, in one line, with \\\\ for a backslash"
            )
        settings[name] = Setting(re.sub(r"\\(.)", r"\1", value), file, name, number)
    return settings


def read_text(file: str) -> str:
    """Return the text of a file. Raises SettingsFileError."""
    path = Path(file)
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise SettingsFileError(f"{file} is larger than {_MOST_BYTES:,} bytes")
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise SettingsFileError(f"{file} is not UTF-8") from error
    except OSError as error:
        raise SettingsFileError(f"{file} can't be read: {error.strerror or error}") from error


def secrets_by_reference(options: Mapping[str, str], secrets: Collection[str]) -> dict[str, str]:
    """Return settings of which these names are pickled by reference, and all others as they are."""
    return {name: _setting(value) if name in secrets else str(value) for name, value in options.items()}


def url_by_reference(url: str) -> str:
    """Return a URL that is pickled by reference if it has a password."""
    parts = urlsplit(url)
    return _setting(url) if parts.password or "password=" in parts.query else str(url)


def _setting(value: str) -> Setting:
    return value if isinstance(value, Setting) else Setting(value)


def _referred(file: str, name: str) -> Setting:
    try:
        return read_settings(file)[name] if name else Setting(read_text(file), file)
    except (SettingsFileError, KeyError) as error:
        problem = f"it has no setting {name}" if isinstance(error, KeyError) else error
        raise SettingsFileError(
            f"the secret of a setting is in the file {file}, which each machine of a cluster must have, but "
            f"here: {problem}"
        ) from None


@cache
def _private_file(text: str, process: int) -> str:
    descriptor, file = tempfile.mkstemp(dir=_private_folder(process))  # 0600
    with open(descriptor, "w", encoding="utf-8") as opened:
        opened.write(text)
    return file


@cache
def _private_folder(process: int) -> Path:
    return temporary_folder("settings")
