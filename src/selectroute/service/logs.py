"""Log lines on standard error: JSON objects or short texts. A caller's input is never logged: no secrets
leak, and no lines can be forged.
"""

from __future__ import annotations

import json
import logging
import sys
from typing import Any, Final

import structlog

from selectroute.selector.sentences import printable

_FAILED: Final = 500
_NAME: Final = "selectroute.service"


def configure(level: str = "info", form: str | None = None) -> None:
    """Write the log of this process to standard error, including uvicorn's. `form` is text or json;
    by default text on a terminal and json elsewhere.
    """
    handler = logging.StreamHandler(sys.stderr)
    as_text = form == "text" if form is not None else sys.stderr.isatty()
    handler.setFormatter(TextFormatter() if as_text else logging.Formatter("%(message)s"))
    logger = logging.getLogger(_NAME)
    logger.handlers, logger.propagate = [handler], False
    logger.setLevel(level.upper())
    server = logging.getLogger("uvicorn")
    server.handlers, server.propagate = [_Forward()], False
    server.setLevel(logging.WARNING)


def log() -> Any:
    """Return the logger of the service, an ordinary one of the standard library before `configure`."""
    return _LOG


def logs_requests() -> bool:
    """Return whether requests are logged: computing a line that is not written costs as much."""
    return logging.getLogger(_NAME).isEnabledFor(logging.INFO)


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


_BEFORE: Final = ("timestamp", "level", "event")
_TRACEBACK: Final = "exception"


class TextFormatter(logging.Formatter):
    """Short lines for a terminal: time, method, status, duration, route and caller of an answered request;
    all fields of other events.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record, followed by its traceback, if any."""
        data: dict[str, Any] = json.loads(record.getMessage())
        at = data["timestamp"][11:19]
        if data["event"] == "request":
            took = f"{data['milliseconds']:,.1f} ms"
            line = f"{at} {data['method']:<6} {data['status']} {took:>10}  {data['route']}  {data['caller']}"
            # A failed request is logged with its id, which links it to other lines.
            return line if (data["status"] or 0) < _FAILED else f"{line}  {data['request']}"
        more = {name: value for name, value in data.items() if name not in (*_BEFORE, _TRACEBACK)}
        fields = ", ".join(f"{name} {printable(str(value), 1_000)}" for name, value in more.items())
        line = f"{at} {data['level']}: {data['event']}" + (f" ({fields})" if fields else "")
        return f"{line}\n{data[_TRACEBACK]}" if _TRACEBACK in data else line


class _Forward(logging.Handler):
    """Handler that forwards uvicorn's log lines in the same form."""

    def emit(self, record: logging.LogRecord) -> None:
        _LOG.warning("server", message=record.getMessage())
