"""Docstrings as Markdown: doctests become code, and parameters that share a text get a line each."""

from __future__ import annotations

import re
from typing import Any, Final

from griffe import Extension, Object

_DOCTEST: Final = re.compile(r"^(?P<indent> *)>>> .*(?:\n(?P=indent)\S.*)*", re.MULTILINE)
_SHARED: Final = re.compile(
    r"^(?P<indent> +)(?P<names>\w+(?:, \w+)+): (?P<text>.*(?:\n(?P=indent) +.*)*)", re.MULTILINE
)


class Docstrings(Extension):  # type: ignore[misc]
    """Rewrites each docstring before it is parsed."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Rewrite the docstring of one object."""
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)


def as_markdown(text: str) -> str:
    """Return a docstring as Markdown.

    >>> print(as_markdown("Add.\\n\\n>>> 1 + 1\\n2"))
    Add.
    <BLANKLINE>
    ```pycon
    >>> 1 + 1
    2
    ```
    """
    text = text.replace("::\n\n    ", ":\n\n    ")
    text = _DOCTEST.sub(lambda found: f"{found['indent']}```pycon\n{found[0]}\n{found['indent']}```", text)
    return _SHARED.sub(_each, text)


def _each(found: re.Match[str]) -> str:
    return "\n".join(f"{found['indent']}{name}: {found['text']}" for name in found["names"].split(", "))
