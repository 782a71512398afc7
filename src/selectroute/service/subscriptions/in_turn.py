"""Reading of selectors beside the event loop: short ones at once, others in a thread."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, ParamSpec, TypeVar

from starlette.concurrency import run_in_threadpool

_P = ParamSpec("_P")
_T = TypeVar("_T")

SHORT: Final = 512
"""Characters of a selector that the event loop reads itself, in at most a millisecond."""

_MULTIPLIES: Final = re.compile(r"\b(?:or|not|in)\b|<>|!=", re.IGNORECASE)
"""Parts of a selector that can multiply out to hundreds of conditions."""


async def read(selector: str, function: Callable[_P, _T], *given: _P.args, **named: _P.kwargs) -> _T:
    """Return what a function that reads a selector returns. A selector that is long, or may multiply out, is
    read in a thread, so that other requests do not wait for it.
    """
    if len(selector) <= SHORT and not _MULTIPLIES.search(selector):
        return function(*given, **named)
    return await run_in_threadpool(function, *given, **named)
