"""Log lines on standard error: a JSON object each, or short texts. What a caller sent is never in them, so no
secret gets there, and no line of somebody's own making.
"""

from __future__ import annotations

import json
import logging
import sys
from typing import Any, Final

import structlog

from selectroute.selector.explain.sentences import printable

LEVELS: Final = ("debug", "info", "warning", "error")

TEXT: Final = "text"
FORMS: Final = (TEXT, "json")

_FAILED: Final = 500
_NAME: Final = "selectroute.service"


def configure(level: str = "info", form: str | None = None) -> None:
    """Write the log of this process to standard error, uvicorn's too. `form` is one of `FORMS`; by default it
    is text on a terminal and JSON elsewhere.
    """
    handler = logging.StreamHandler(sys.stderr)
    as_text = form == TEXT if form is not None else sys.stderr.isatty()
    handler.setFormatter(TextFormatter() if as_text else logging.Formatter("%(message)s"))
    logger = logging.getLogger(_NAME)
    logger.handlers, logger.propagate = [handler], False
    logger.setLevel(level.upper())
    server = logging.getLogger("uvicorn")
    server.handlers, server.propagate = [_Forward()], False
    server.setLevel(logging.WARNING)


def log() -> Any:
    """Return the logger of the service. Before `configure` it is a logger of the standard library like any
    other.
    """
    return _LOG


_LOG: Final = structlog.wrap_logger(
    logging.getLogger(_NAME),
    processors=[
        structlog.stdlib.filter_by_level,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        structlog.processors.JSONRenderer(),
    ],
    wrapper_class=structlog.stdlib.BoundLogger,
)


_REQUEST: Final = "request"
_BEFORE: Final = ("timestamp", "level", "event")
_TRACEBACK: Final = "exception"


class TextFormatter(logging.Formatter):
    """Short lines for a terminal: of an answered request when, by which method, its status, how long it took,
    the route, and who asked; of all else everything.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record, and below it the traceback if there is one."""
        data: dict[str, Any] = json.loads(record.getMessage())
        at = data["timestamp"][11:19]
        if data["event"] == "request":
            took = f"{data['milliseconds']:,.1f} ms"
            line = f"{at} {data['method']:<6} {data['status']} {took:>10}  {data['route']}  {data['caller']}"
            # An answer that failed names its request, and other lines say more of that.
            return line if (data["status"] or 0) < _FAILED else f"{line}  {data[_REQUEST]}"
        more = {name: value for name, value in data.items() if name not in (*_BEFORE, _TRACEBACK)}
        told = ", ".join(f"{name} {printable(str(value), 1_000)}" for name, value in more.items())
        line = f"{at} {data['level']}: {data['event']}" + (f" ({told})" if told else "")
        return f"{line}\n{data[_TRACEBACK]}" if _TRACEBACK in data else line


class _Forward(logging.Handler):
    """Log lines of uvicorn, in the same form."""

    def emit(self, record: logging.LogRecord) -> None:
        _LOG.warning("server", message=record.getMessage())
