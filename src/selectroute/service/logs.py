"""Log lines: one JSON object each, on standard error. What a caller sent is never in them, so no secret gets
there, and no line of somebody's own making.
"""

from __future__ import annotations

import logging
import sys
from typing import Any, Final

import structlog

LEVELS: Final = ("debug", "info", "warning", "error")

_NAME: Final = "selectroute.service"


def configure(level: str = "info") -> None:
    """Write the log of this process to standard error, uvicorn's too."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(message)s"))
    logger = logging.getLogger(_NAME)
    logger.handlers, logger.propagate = [handler], False
    logger.setLevel(level.upper())
    server = logging.getLogger("uvicorn")
    server.handlers, server.propagate = [_Forward()], False
    server.setLevel(logging.WARNING)


def log() -> Any:
    """The logger of the service. Before `configure` it is a logger of the standard library like any other."""
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


class _Forward(logging.Handler):
    """What uvicorn has to say, in lines of the same form."""

    def emit(self, record: logging.LogRecord) -> None:
        _LOG.warning("server", message=record.getMessage())
