"""Values of Kafka's settings: the conversion of their text, and the error of an invalid one."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

from selectroute.selector.errors import SelectRouteError

LARGEST: Final = (1 << 31) - 1
"""Largest value of Kafka's integers, most of which are a Java int."""

_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,19}")


class SettingError(SelectRouteError):
    """Invalid setting of a Kafka client. The text names the setting, and shows no value.

    Attributes:
        setting: name as in the properties of Kafka's own clients.
        problem: rest of the sentence.
    """

    def __init__(self, setting: str, problem: str) -> None:
        super().__init__(setting, problem)
        self.setting = setting
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.setting} {self.problem}"


def whole(setting: str, text: str, least: int = 0, most: int = LARGEST) -> int:
    """Return a number in a range.

    Raises:
        SettingError: the text is not a whole number in that range.
    """
    text = text.strip()
    if not _WHOLE.fullmatch(text) or not least <= int(text) <= most:
        raise SettingError(setting, f"must be a whole number from {least} to {most}")
    return int(text)


def choice(setting: str, text: str, allowed: Collection[str]) -> str:
    """Return one of the allowed values, in their spelling; case is ignored.

    Raises:
        SettingError: the text is another one.
    """
    spelling = {one.casefold(): one for one in allowed}
    found = spelling.get(text.strip().casefold())
    if found is None:
        raise SettingError(setting, f"must be {listed(allowed)}")
    return found


def boolean(setting: str, text: str) -> bool:
    """Return whether the text is ``true``, in any case.

    Raises:
        SettingError: it is neither ``true`` nor ``false``.
    """
    return choice(setting, text, ("true", "false")) == "true"


def listed(values: Collection[str]) -> str:
    """Return values as the end of a sentence.

    >>> listed(["PLAIN"]), listed(["a", "b", "c"])
    ('PLAIN', 'a, b or c')
    """
    *first, last = values
    return f"{', '.join(first)} or {last}" if first else last
