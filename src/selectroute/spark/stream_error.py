"""Why a stream ended, as one sentence: our own errors as they are, those of Spark and of the system told."""

from __future__ import annotations

import errno
import os
import re

from selectroute.selector.errors import SelectRouteError

_FULL = {code: os.strerror(code) for code in (errno.ENOSPC, errno.EDQUOT)}


class StreamError(SelectRouteError):
    """The query ended for a reason that is not ours; the text is Spark's or the system's, shortened."""


def sentence(error: BaseException) -> SelectRouteError:
    """Return our own error as it is, and Spark's as the error that caused it, without the traceback."""
    if isinstance(error, SelectRouteError):
        return error
    text = str(error)
    full = next((said for said in _FULL.values() if said in text), None)
    if full is not None:
        where = error.filename if isinstance(error, OSError) and error.filename else "of output or checkpoint"
        return StreamError(
            f"the query ended: a disk to which the job writes is full ({full}: {where}); make room, and "
            "start the job again: it goes on where it was"
        )
    if isinstance(error, OSError):
        return StreamError(f"the query ended: {error.strerror or error}: {error.filename or 'no file named'}")
    # An error raised in a worker arrives as the text of its traceback: the last such line is the error
    # itself.
    raised = re.findall(r"^\s*((?:[\w.]+\.)?\w*(?:Error|Exception)): (.+)$", text, re.MULTILINE)
    if not raised:
        return StreamError(
            f"the query ended: {text.strip().splitlines()[0] if text.strip() else repr(error)}"
        )
    name, said = raised[-1]
    return StreamError(f"the query ended: {said if name.startswith('selectroute.') else f'{name}: {said}'}")
